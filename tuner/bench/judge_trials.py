"""Simulated trials for `bench judge`: the switchback as it is, on recorded noise with a planted effect.

Each trial is driven as a cycle drives it: a look every minute, a decision at every look, a switch where one is asked
for. Nothing of the switchback is made simpler here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tuner.bench.judge_noise import Recording
from tuner.settings.sections import VerifySettings
from tuner.values.knobs import DESIGN_RANGES, KnobValues, Role, middle
from tuner.values.metrics import DEFAULT_WEIGHTS, FLOORS, METRIC_COUNT, SIGNS
from tuner.values.stages import STEP_SECONDS, FloatArray, Receipt, Step, Verification
from tuner.verify import switchback
from tuner.verify.budget import Spending, next_alpha, used_alpha
from tuner.verify.past import neighbours, past_legs

TERMS: Final = VerifySettings()
"""What policies have by default."""

WINDOW_SECONDS: Final = 300.0
"""Recent window, by default."""

PAST_STEPS: Final = 360
"""Minutes before the change that tell the noise: the six hours that are looked at where a setting was left alone."""

MAX_STEPS: Final = 130
"""Minutes that a trial may last; five pairs take 115."""

PROMISED_SCORE: Final = -0.1
"""What the twin expects of every change, whatever it does: the belief that decides on what is uncertain is misled where
there is no gain."""

LEVEL: Final = 1000.0
"""How far over their floors the metrics are, so that floors play no part."""

BEFORE: Final = middle(DESIGN_RANGES.values())
AFTER: Final = KnobValues.of({**BEFORE, Role.BASE_SLICE: 0.1})

_NO_LIMITS: Final = np.full(METRIC_COUNT, np.nan)
_PROMISED_TERMS: Final = np.where(DEFAULT_WEIGHTS > 0, DEFAULT_WEIGHTS * PROMISED_SCORE, np.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is planted.

    Attributes:
        effect: Score of the change: -0.1 is a gain of 10 %, 0 none, 0.1 a harm of 10 %.
        noise_ratio: Noise of the score of a leg.
        alpha: Chance of a false promotion that each trial takes.
    """

    effect: float
    noise_ratio: float
    alpha: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a trial ended.

    Attributes:
        promoted: Whether it promoted.
        kept: Whether it left the change in force without a result.
        harm: Whether it found harm.
        worse: Whether it was undone because it looked worse, surely or rather.
        pairs: Pairs compared.
        seconds: How long it took.
        on_trial_seconds: How long the setting on trial was in force.
        used: What it used of the chance that it took.
    """

    promoted: bool
    kept: bool
    harm: bool
    worse: bool
    pairs: int
    seconds: float
    on_trial_seconds: float
    used: float


class Noise:
    """Recordings with one noise, from which stretches are drawn."""

    def __init__(self, recordings: Sequence[Recording], noise_ratio: float) -> None:
        self._scaled = [each.scaled(noise_ratio) for each in recordings]

    def draw(self, rng: np.random.Generator) -> FloatArray:
        """Return a stretch as long as a trial with its past, from anywhere; shape (minutes, 13)."""
        run = self._scaled[rng.integers(len(self._scaled))]
        start = rng.integers(len(run) - PAST_STEPS - MAX_STEPS + 1)
        return run[start : start + PAST_STEPS + MAX_STEPS]


def simulate(noise: FloatArray, *, effect: float, alpha: float) -> Ended:
    """Run one trial.

    Args:
        noise: Logarithms of the metrics at each minute, shape (PAST_STEPS + MAX_STEPS, 13).
        effect: Score of the change.
        alpha: Chance of a false promotion that it takes.

    Raises:
        RuntimeError: It does not end.
    """
    times: FloatArray = STEP_SECONDS * np.arange(len(noise), dtype=np.float64)
    without = np.exp(noise) * FLOORS * LEVEL
    trial = _begin(times[:PAST_STEPS], without[:PAST_STEPS], alpha=alpha)
    reach, on_trial_seconds = 0.0, 0.0
    for step in range(PAST_STEPS, len(noise)):
        on_trial = trial.in_force is switchback.Leg.AFTER
        on_trial_seconds += STEP_SECONDS * on_trial
        # What a look shows is a mean over a window in which the other setting may have been in force, too.
        reach = min(max(reach + (1 if on_trial else -1) * STEP_SECONDS / WINDOW_SECONDS, 0.0), 1.0)
        seen = without[step] * np.exp(SIGNS * effect * reach)
        trial = switchback.advance(trial, switchback.Look(at_seconds=times[step], metrics=seen))
        said = switchback.verify(trial, cycle_id=step)
        if said.step is Step.SWITCH:
            trial = switchback.switched(trial, _receipt(trial.wanted, times[step]))
        elif said.step is not Step.WAIT:
            return _ended(said, alpha, times[step] - times[PAST_STEPS - 1], on_trial_seconds)
    raise RuntimeError(f"a trial did not end within {MAX_STEPS} minutes: {said.reason}")


def trials(noise: Noise, case: Case, *, count: int, rng: np.random.Generator) -> Iterator[Ended]:
    """Run trials of one case, each on a stretch of its own."""
    for _ in range(count):
        yield simulate(noise.draw(rng), effect=case.effect, alpha=case.alpha)


def day(noise: Noise, *, ratio: float, count: int, rng: np.random.Generator) -> Iterator[Ended]:
    """Run a day's trials of changes without effect, one after the other, out of one budget."""
    spent: list[Spending] = []
    at_seconds = 0.0
    for _ in range(count):
        alpha = next_alpha(spent, ratio=ratio, at_seconds=at_seconds)
        ended = simulate(noise.draw(rng), effect=0.0, alpha=alpha)
        yield ended
        spent.append(Spending(at_seconds=at_seconds, alpha=ended.used))
        at_seconds += ended.seconds


def _begin(times: FloatArray, metrics: FloatArray, *, alpha: float) -> switchback.Switchback:
    legs = past_legs(
        times,
        metrics,
        wash_out_seconds=TERMS.wash_out_seconds,
        leg_seconds=TERMS.leg_seconds,
        recent_window_seconds=WINDOW_SECONDS,
    )
    return switchback.begin(
        _receipt(switchback.Leg.AFTER, times[-1]),
        expected_score=PROMISED_SCORE,
        expected_terms=_PROMISED_TERMS,
        terms=TERMS,
        weights=DEFAULT_WEIGHTS,
        limits=_NO_LIMITS,
        recent_window_seconds=WINDOW_SECONDS,
        queue_wait_seconds=np.nan,
        alpha=alpha,
        first_before=switchback.Look(at_seconds=times[-1], metrics=legs[-1]),
        noise=neighbours(legs, weights=DEFAULT_WEIGHTS),
    )


def _receipt(leg: switchback.Leg, at_seconds: float) -> Receipt:
    return Receipt(
        cycle_id=1,
        before=BEFORE,
        after=AFTER if leg is switchback.Leg.AFTER else BEFORE,
        revision="",
        effective_at_seconds=float(at_seconds),
        applied=True,
        detail="simulated",
    )


def _ended(said: Verification, alpha: float, seconds: float, on_trial_seconds: float) -> Ended:
    return Ended(
        promoted=said.step is Step.PROMOTE,
        kept=said.step is Step.KEEP,
        harm=said.harm,
        worse=said.harm or (said.step is Step.ROLL_BACK and said.observed_score > 0),
        pairs=said.pairs,
        seconds=float(seconds),
        on_trial_seconds=on_trial_seconds,
        used=used_alpha(alpha, said),
    )
