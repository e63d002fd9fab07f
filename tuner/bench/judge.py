"""`clocktuner bench judge`: how often the live verification errs, on the noise of the reference scheduler.

Thousands of trials of changes that do nothing, help by 10 % or harm by 10 %, at a noise of 5 % a leg; then fewer of
other effects and noises. Every trial runs the switchback as it is, looked at every minute (`judge_trials`), on what was
recorded of runs that nobody touched (`judge_noise`). Time goes into the trials, about a hundredth of a second each.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import ClassVar, Final

import numpy as np
from rich.console import Console

from tuner.bench.judge_noise import Recording, record
from tuner.bench.judge_trials import MAX_STEPS, PAST_STEPS, PROMISED_SCORE, TERMS, Case, Ended, Noise, day, trials
from tuner.bench.results import Results
from tuner.verify.budget import next_alpha

GOAL_FALSE_PROMOTION: Final = 0.05
GOAL_MISSED_GAIN: Final = 0.3
GOAL_FALSE_HARM_STOP: Final = 0.3
GOAL_HARMFUL_PAIRS: Final = 2.0

EFFECT: Final = 0.1
NOISE_RATIO: Final = 0.05

TRIALS: Final = 10_000
QUICK_TRIALS: Final = 200
DAYS: Final = 500
QUICK_DAYS: Final = 20
TRIALS_A_DAY: Final = 8
"""As many as fit into a day with their cool-downs, about."""

TABLE_EFFECTS: Final = (-0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2)
TABLE_NOISES: Final = (0.02, 0.05, 0.1, 0.2)
TABLE_TRIALS: Final = 300
QUICK_TABLE_TRIALS: Final = 20

WORKLOADS: Final = ("demo", "itp02", "itp07", "openb", "surf", "joined")
SEEDS: Final = (1, 2)
QUICK_SEEDS: Final = (1,)
HOURS: Final = 24.0

SEED: Final = 7
CHUNK: Final = 100
"""Trials in one piece of work: what is drawn depends on the pieces, and not on how many processes share them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A piece of work: trials of a case, or days of trials without effect.

    Attributes:
        case: What is planted; its effect and alpha play no part in days.
        count: Trials, or trials a day.
        seed: Seed of the stretches.
        ratio: Budget of a day; None for trials that take `case.alpha`.
    """

    case: Case
    count: int
    seed: tuple[int, ...]
    ratio: float | None = None


class _Worker:
    """What a process keeps between two pieces of work."""

    recordings: ClassVar[tuple[Recording, ...]] = ()
    noises: ClassVar[dict[float, Noise]] = {}

    @classmethod
    def start(cls, recordings: tuple[Recording, ...]) -> None:
        cls.recordings, cls.noises = recordings, {}

    @classmethod
    def do(cls, work: Work) -> tuple[Ended, ...]:
        ratio = work.case.noise_ratio
        noise = cls.noises.setdefault(ratio, Noise(cls.recordings, ratio))
        rng = np.random.default_rng(work.seed)
        if work.ratio is not None:
            return tuple(day(noise, ratio=work.ratio, count=work.count, rng=rng))
        return tuple(trials(noise, work.case, count=work.count, rng=rng))


def run(*, quick: bool = False) -> Results:
    """Record, simulate and count.

    Args:
        quick: Whether to run a fiftieth of it, to see that it works.

    Returns:
        Errors with their goals, what a trial costs, and a table of effects and noises.
    """
    console = Console(stderr=True)
    seeds = QUICK_SEEDS if quick else SEEDS
    recordings = record(WORKLOADS, seeds, hours=HOURS)
    console.print(f"recorded {len(recordings)} runs of {HOURS:g} h", highlight=False)
    results = Results("judge", setting=_setting(recordings, quick=quick))
    count, days, cells = (QUICK_TRIALS, QUICK_DAYS, QUICK_TABLE_TRIALS) if quick else (TRIALS, DAYS, TABLE_TRIALS)
    with ProcessPoolExecutor(
        os.cpu_count() or 1, mp_context=get_context("spawn"), initializer=_Worker.start, initargs=(recordings,)
    ) as pool:
        laboratory = Laboratory(pool)
        _headlines(results, laboratory, count=count, days=days)
        console.print("simulated changes without effect, gains and harms", highlight=False)
        _table(results, laboratory, count=cells)
    for each in recordings:
        results.add(f"judge_recorded_noise_ratio_{each.name.replace('/', '_')}", each.noise_ratio)
    return results


class Laboratory:
    """Hands out trials to processes; every set of trials has a seed of its own."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool
        self._sets = 0

    def trials(self, case: Case, count: int) -> tuple[Ended, ...]:
        """Run trials of a case."""
        sizes = [min(CHUNK, count - start) for start in range(0, count, CHUNK)]
        seeds = self._seeds(len(sizes))
        return self._all([Work(case=case, count=size, seed=seed) for size, seed in zip(sizes, seeds, strict=True)])

    def days(self, ratio: float, *, days: int, count: int) -> tuple[tuple[Ended, ...], ...]:
        """Run days of trials without effect."""
        case = Case(effect=0.0, noise_ratio=NOISE_RATIO, alpha=ratio)
        works = [Work(case=case, count=count, seed=seed, ratio=ratio) for seed in self._seeds(days)]
        return tuple(self._pool.map(_Worker.do, works, chunksize=10))

    def _all(self, works: Sequence[Work]) -> tuple[Ended, ...]:
        return tuple(ended for chunk in self._pool.map(_Worker.do, works) for ended in chunk)

    def _seeds(self, count: int) -> list[tuple[int, ...]]:
        self._sets += 1
        return [(SEED, self._sets, number) for number in range(count)]


def _headlines(results: Results, laboratory: Laboratory, *, count: int, days: int) -> None:
    """Add the errors at an effect of 10 % and a noise of 5 %."""
    budget = TERMS.false_promotion_ratio_per_day
    first = next_alpha((), ratio=budget, at_seconds=0.0)
    # The validity of the test is tried at all of the budget, its power at what the first trial of a day may take.
    equal = laboratory.trials(Case(effect=0.0, noise_ratio=NOISE_RATIO, alpha=budget), count)
    good = laboratory.trials(Case(effect=-EFFECT, noise_ratio=NOISE_RATIO, alpha=first), count)
    bad = laboratory.trials(Case(effect=EFFECT, noise_ratio=NOISE_RATIO, alpha=first), count)
    of_days = laboratory.days(budget, days=days, count=TRIALS_A_DAY)
    add_errors(results, equal=equal, good=good, bad=bad, of_days=of_days)
    add_costs(results, equal=equal, good=good, bad=bad)


def add_errors(
    results: Results,
    *,
    equal: Sequence[Ended],
    good: Sequence[Ended],
    bad: Sequence[Ended],
    of_days: Sequence[Sequence[Ended]],
) -> None:
    """Add how often trials erred, with the goals.

    Args:
        results: Where to add.
        equal: Trials without effect.
        good: Trials of gains.
        bad: Trials of harms.
        of_days: Trials without effect by day, each day out of one budget.
    """
    promoted = _ratio([each.promoted for each in equal])
    results.add("judge_false_promotion_ratio", promoted, at_most=GOAL_FALSE_PROMOTION)
    of_day = _ratio([any(each.promoted for each in ended) for ended in of_days])
    results.add("judge_false_promotion_per_day_ratio", of_day, at_most=GOAL_FALSE_PROMOTION)
    missed = _ratio([not each.promoted for each in good])
    results.add("judge_missed_gain_ratio", missed, at_most=GOAL_MISSED_GAIN)
    worse = _ratio([each.worse for each in equal])
    results.add("judge_false_harm_stop_ratio", worse, at_most=GOAL_FALSE_HARM_STOP)
    # A harm that stays in force was not stopped after any number of pairs.
    pairs = [np.inf if each.promoted or each.kept else float(each.pairs) for each in bad]
    results.add("judge_harmful_stop_pairs_median", float(np.median(pairs)), at_most=GOAL_HARMFUL_PAIRS)
    results.add("judge_false_harm_found_ratio", _ratio([each.harm for each in equal]))
    results.add("judge_undone_gain_ratio", _ratio([not (each.promoted or each.kept) for each in good]))
    results.add("judge_harmful_promoted_ratio", _ratio([each.promoted for each in bad]))
    results.add("judge_harmful_kept_ratio", _ratio([each.kept for each in bad]))


def add_costs(results: Results, *, equal: Sequence[Ended], good: Sequence[Ended], bad: Sequence[Ended]) -> None:
    """Add how long trials last, and how long the harmful ones were in force until they were undone."""
    for name, ended in (("equal", equal), ("gain", good), ("harm", bad)):
        results.add(f"judge_trial_seconds_mean_{name}", float(np.mean([each.seconds for each in ended])))
    undone = [each.on_trial_seconds for each in bad if not (each.promoted or each.kept)]
    for name, share in (("p50", 0.5), ("p95", 0.95)):
        results.add(f"judge_harm_seconds_{name}", float(np.quantile(undone, share)) if undone else np.nan)


def _table(results: Results, laboratory: Laboratory, *, count: int) -> None:
    """Add what becomes of other effects at other noises: what share is promoted, and what share of harms is undone."""
    alpha = next_alpha((), ratio=TERMS.false_promotion_ratio_per_day, at_seconds=0.0)
    for noise in TABLE_NOISES:
        for effect in TABLE_EFFECTS:
            ended = laboratory.trials(Case(effect=effect, noise_ratio=noise, alpha=alpha), count)
            where = f"{cell(effect)}_noise_{noise * 100:g}"
            results.add(f"judge_promoted_ratio_{where}", _ratio([each.promoted for each in ended]))
            undone = _ratio([not (each.promoted or each.kept) for each in ended])
            results.add(f"judge_undone_ratio_{where}", undone)


def cell(effect: float) -> str:
    """Return the name of an effect in figures: `gain_10`, `equal`, `harm_5`."""
    if effect == 0.0:
        return "equal"
    return f"{'gain' if effect < 0 else 'harm'}_{abs(effect) * 100:g}"


def _setting(recordings: Sequence[Recording], *, quick: bool) -> dict[str, object]:
    return {
        "quick": quick,
        "simulated": True,
        "runs": [each.name for each in recordings],
        "hours": HOURS,
        "effect": EFFECT,
        "noise_ratio": NOISE_RATIO,
        "twin_promises": PROMISED_SCORE,
        "past_minutes": PAST_STEPS,
        "most_minutes": MAX_STEPS,
        "verify": TERMS.model_dump(mode="json"),
    }


def _ratio(found: Sequence[bool]) -> float:
    return float(np.mean(found)) if found else np.nan
