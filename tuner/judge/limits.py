"""Limits that guards and ladder share."""

from typing import Final

MIN_TRUST: Final = 0.05
"""Trust below which the twin's predictions are not acted on (assumption: one in twenty came true)."""

SOURCE_DOUBTS: Final = frozenset({"partial", "clock_skew"})
"""What a source may say of itself that makes every one of its values doubtful."""
