"""Limits that guards and ladder share."""

from typing import Final

MIN_TRUST: Final = 0.15
"""Trust below which the twin's predictions are not acted on (assumption). From one half, ten changes in a row that went
the other way lead below it; evidence fades, so that it is found back to within days."""

SOURCE_DOUBTS: Final = frozenset({"partial", "clock_skew"})
"""What a source may say of itself that makes every one of its values doubtful."""
