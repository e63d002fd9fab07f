"""Why this candidate, in one sentence with numbers."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from tuner.values.knobs import KnobValues
from tuner.values.metrics import METRIC_INDEX, METRIC_NAMES, METRICS, MetricVector, score_terms, worsened

NAMED: Final = 3
"""Metrics that a sentence names as improved; those that got worse are all named."""

TOLD_CORRECTION: Final = 0.0005
"""Smallest correction that a sentence can tell with one decimal of a per cent."""


def explain_found(
    candidate: KnobValues,
    incumbent: KnobValues,
    *,
    score: float,
    error: float,
    predicted: MetricVector,
    predicted_incumbent: MetricVector,
    weights: MetricVector,
    correction: float = 0.0,
) -> str:
    """Say what is changed, what it should bring, what improves most, and everything that gets worse.

    Where past changes corrected the twin, that is said, too: the metrics are those of the twin.
    """
    moved = candidate.differs(incumbent)
    before = KnobValues.of({role: incumbent[role] for role in moved}).describe()
    after = KnobValues.of({role: candidate[role] for role in moved}).describe()
    terms = score_terms(predicted, predicted_incumbent, weights=weights)
    # NaN sorts last and is not below zero: a metric without a value improves nothing.
    improved = [METRIC_NAMES[index] for index in np.argsort(terms)[:NAMED] if terms[index] < 0]
    parts = [f"{before} -> {after} should be {-score * 100:.1f} % ± {error * 100:.1f} % better"]
    if abs(correction) >= TOLD_CORRECTION:
        parts.append(f"the twin alone says {(correction - score) * 100:.1f} %, corrected by what past changes brought")
    for intro, names in (("", improved), ("worse: ", worsened(predicted, predicted_incumbent))):
        if names:
            changes = (
                _change(name, predicted_incumbent[METRIC_INDEX[name]], predicted[METRIC_INDEX[name]]) for name in names
            )
            parts.append(intro + ", ".join(changes))
    return "; ".join(parts)


def explain_nothing(trials: int, doubts: Mapping[str, int]) -> str:
    """Say how many candidates were looked at, and why none of the promising ones was taken."""
    reasons = ", ".join(f"{count} {doubt}" for doubt, count in doubts.items() if count)
    return f"no candidate of {trials} beats the setting in force" + (f": {reasons}" if reasons else "")


def _change(name: str, before: float, after: float) -> str:
    """Return `queue wait 12.1 -> 9.8 s`."""
    unit = METRICS[METRIC_INDEX[name]].unit
    label = name.removesuffix("_seconds").removesuffix("_ratio").removesuffix("_celsius").removesuffix("_watts")
    factor, unit = (100.0, "%") if unit == "ratio" else (1.0, unit)
    return f"{label.replace('_', ' ')} {before * factor:.3g} -> {after * factor:.3g} {unit}"
