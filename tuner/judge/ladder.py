"""The mode ladder: how far clocktuner trusts itself. Down at once, up one rung a good cycle."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from tuner.judge.limits import MIN_TRUST, SOURCE_DOUBTS
from tuner.values.metrics import METRIC_INDEX
from tuner.values.safety import Rung
from tuner.values.stages import Forecast, Observation

CAUTIOUS_TRUST: Final = 0.25
"""Trust below which steps are halved (assumption): half of what it is before the first change."""

FULL_COVERAGE: Final = 0.9
"""Share of the expected samples below which a metric is partly blind (assumption): one of ten may be late."""

MAX_FORECAST_ERROR: Final = 1.5
"""Rolling loss, as a ratio to that of last value, over which the neural network does harm (assumption)."""

MIN_RANKED: Final = 8
"""Fewest changes of which a rank agreement is believed: below, its error is larger than the difference between chance
and clear disagreement (assumption)."""

RANK_ERRORS: Final = 1.645
"""Standard errors below zero at which a rank agreement is clearly negative: 95 % one-sided."""

FAILURES: Final = 2
"""Failed, or blind, cycles in a row that are no accident any more (assumption)."""

_TRUST_FACTORS: Final = {
    Rung.NORMAL: 1.0,
    Rung.NO_LSTM: 1.0,
    Rung.CAUTIOUS: 0.5,
    Rung.OBSERVE_ONLY: 0.0,
    Rung.FROZEN: 0.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """One reason to trust less.

    Attributes:
        rung: Highest rung that it allows.
        cause: What is in doubt, as one word.
        sentence: What was seen, with value and limit.
    """

    rung: Rung
    cause: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Where on the ladder the tuner stands.

    Attributes:
        rung: How far it trusts itself.
        causes: What is in doubt, as one word each, the deepest first.
        since_seconds: When the rung last changed; NaN where it never did.
        frozen_because: Why it is frozen; empty where it is not.
        reason: Why it stands where it does, in one sentence; empty before the first change.
    """

    rung: Rung = Rung.NORMAL
    causes: tuple[str, ...] = ()
    since_seconds: float = math.nan
    frozen_because: str = ""
    reason: str = ""


def step(ladder: Ladder, doubts: Iterable[Doubt], *, at_seconds: float, good: bool) -> Ladder:
    """Return the ladder after one cycle.

    It goes down to the deepest doubt at once; without one so deep it goes up one rung, but only after a good cycle and
    never above a standing doubt. Where it is frozen it stays, and only the causes are kept up to date.

    Args:
        ladder: As the cycle before left it.
        doubts: What this cycle doubts.
        at_seconds: Time of the cycle.
        good: Whether the cycle did its work.
    """
    standing = sorted(doubts, key=lambda doubt: -doubt.rung)
    ladder = replace(ladder, causes=tuple(dict.fromkeys(doubt.cause for doubt in standing)))
    if ladder.rung is Rung.FROZEN:
        return ladder
    deepest = standing[0].rung if standing else Rung.NORMAL
    if deepest is Rung.FROZEN:
        return freeze(ladder, _sentence(standing), at_seconds=at_seconds)
    if deepest >= ladder.rung:
        return _to(ladder, deepest, at_seconds, _sentence(standing))
    if not good:
        return ladder
    return _to(
        ladder,
        Rung(ladder.rung - 1),
        at_seconds,
        _sentence(standing) or "nothing is in doubt any more: up one rung a good cycle",
    )


def freeze(ladder: Ladder, reason: str, *, at_seconds: float) -> Ladder:
    """Return the ladder frozen until `thaw`; where it is frozen already, the first reason stands."""
    if ladder.rung is Rung.FROZEN:
        return ladder
    return replace(_to(ladder, Rung.FROZEN, at_seconds, reason), frozen_because=reason)


def thaw(ladder: Ladder, *, at_seconds: float) -> Ladder:
    """Return the ladder as it is after a person said so: it observes, and goes up one rung a good cycle."""
    if ladder.rung is not Rung.FROZEN:
        return ladder
    return replace(_to(ladder, Rung.OBSERVE_ONLY, at_seconds, "a person has ended the freeze"), frozen_because="")


def trust_factor(ladder: Ladder) -> float:
    """Return the factor on the slew limits, 0..1; 0 where nothing may be changed."""
    return _TRUST_FACTORS[ladder.rung]


def doubts(
    *,
    observation: Observation | None,
    forecast: Forecast | None,
    trust: float,
    rank_agreement: float,
    ranked_changes: int = 0,
    failures_in_row: int,
    source_blind_cycles: int,
    lstm_usable: bool,
    forecast_error_ratio: float,
    required: tuple[str, ...],
    learns: bool = True,
) -> tuple[Doubt, ...]:
    """Name all that speaks against trusting the tuner in this cycle.

    Args:
        observation: What was seen; None where observing failed, which counts through `failures_in_row`.
        forecast: What is expected; None where the cycle made none.
        trust: Trust in the twin, 0..1.
        rank_agreement: Rank correlation (Kendall's tau) of predicted and realised gains, -1..1; NaN while unknown.
        ranked_changes: Number of changes that it is taken over.
        failures_in_row: Failed cycles up to this one.
        source_blind_cycles: Cycles up to this one in which the source gave no answer.
        lstm_usable: Whether the neural network answers; true where the policy does not ask for it.
        forecast_error_ratio: Rolling loss of the neural network over that of last value; NaN while unknown.
        required: Metrics without which nothing is changed.
        learns: Whether the policy asks for any model beyond smoothing; where not, smoothing is no step down.
    """
    found = [
        *_of_network(forecast_error_ratio, usable=lstm_usable),
        *_of_twin(trust, rank_agreement, ranked_changes),
        *_of_forecast(forecast, learns=learns),
        *_in_a_row("failures", "cycles failed", failures_in_row),
        *_in_a_row("blind", "cycles had no answer from the source", source_blind_cycles),
    ]
    if observation is not None:
        found += [*_of_source(observation), *_of_samples(observation, required)]
    return tuple(found)


def _of_network(error_ratio: float, *, usable: bool) -> Iterator[Doubt]:
    if not usable:
        yield Doubt(rung=Rung.NO_LSTM, cause="lstm", sentence="the neural network gives no usable answer")
    elif error_ratio > MAX_FORECAST_ERROR:
        sentence = (
            f"the neural network's error is {error_ratio:.2f} times that of last value, limit {MAX_FORECAST_ERROR:g}"
        )
        yield Doubt(rung=Rung.NO_LSTM, cause="lstm_error", sentence=sentence)


def _of_twin(trust: float, agreement: float, ranked: int) -> Iterator[Doubt]:
    # Written so that NaN, which compares false, is a doubt.
    if not trust >= CAUTIOUS_TRUST:
        low = not trust >= MIN_TRUST
        rung, limit = (Rung.OBSERVE_ONLY, MIN_TRUST) if low else (Rung.CAUTIOUS, CAUTIOUS_TRUST)
        sentence = f"trust in the twin's predictions is {trust:.2f}, at least {limit:.2f} needed"
        yield Doubt(rung=rung, cause="trust", sentence=sentence)
    if ranked >= MIN_RANKED and agreement < (limit := -RANK_ERRORS * rank_error(ranked)):
        sentence = (
            f"the rank agreement of predicted and realised gains is {agreement:+.2f} over {ranked} changes, at least "
            f"{limit:+.2f} needed"
        )
        yield Doubt(rung=Rung.CAUTIOUS, cause="rank_agreement", sentence=sentence)


def rank_error(ranked: int) -> float:
    """Return the standard error of Kendall's tau of `ranked` > 1 unrelated pairs (Kendall, Biometrika 30, 1938)."""
    return math.sqrt(2.0 * (2.0 * ranked + 5.0) / (9.0 * ranked * (ranked - 1.0)))


def _of_forecast(forecast: Forecast | None, *, learns: bool) -> Iterator[Doubt]:
    if forecast is None:
        yield Doubt(rung=Rung.CAUTIOUS, cause="forecast", sentence="there is no forecast")
    elif forecast.rung != "selected" and (learns or forecast.rung != "smoothing"):
        sentence = f"the forecast is on its rung {forecast.rung}, not selected"
        yield Doubt(rung=Rung.CAUTIOUS, cause="forecast", sentence=sentence)


def _in_a_row(cause: str, what: str, count: int) -> Iterator[Doubt]:
    if count >= FAILURES:
        sentence = f"{count} {what} in a row, fewer than {FAILURES} needed"
        yield Doubt(rung=Rung.OBSERVE_ONLY, cause=cause, sentence=sentence)


def _of_source(observation: Observation) -> Iterator[Doubt]:
    for problem in observation.problems:
        if problem.metric == "source" and problem.reason in SOURCE_DOUBTS:
            sentence = f"the source is in doubt: {problem.detail}"
            yield Doubt(rung=Rung.OBSERVE_ONLY, cause=problem.reason, sentence=sentence)


def _of_samples(observation: Observation, required: tuple[str, ...]) -> Iterator[Doubt]:
    missing = [name for name in required if not math.isfinite(observation.metrics[METRIC_INDEX[name]])]
    if missing:
        sentence = f"{len(missing)} of {len(required)} required metrics have no value: {', '.join(missing)}"
        yield Doubt(rung=Rung.OBSERVE_ONLY, cause="required_metrics", sentence=sentence)
    shares = {name: float(observation.coverage_ratio[METRIC_INDEX[name]]) for name in required if name not in missing}
    partial = {name: share for name, share in shares.items() if not share >= FULL_COVERAGE}
    if partial:
        name = min(partial, key=lambda name: -math.inf if math.isnan(partial[name]) else partial[name])
        sentence = f"coverage of {name} is {partial[name]:.2f}, at least {FULL_COVERAGE:.2f} needed"
        yield Doubt(rung=Rung.CAUTIOUS, cause="coverage", sentence=sentence)


def _to(ladder: Ladder, rung: Rung, at: float, reason: str) -> Ladder:
    if rung is ladder.rung:
        return replace(ladder, reason=reason or ladder.reason)
    return replace(ladder, rung=rung, since_seconds=at, reason=reason)


def _sentence(standing: list[Doubt]) -> str:
    """Join the sentences of the doubts, the deepest first."""
    return "; ".join(dict.fromkeys(doubt.sentence for doubt in standing))
