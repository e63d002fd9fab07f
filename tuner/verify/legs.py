"""A switchback: two settings in force in turns, all that must survive a restart of it, and how it grows by a look.

Legs run A B | B A | A B ..., A being the setting before the change and B the one on trial; a pair is two neighbours.
Whatever drifts evenly through a pair of pairs is in both settings alike and drops out. A leg begins when its setting
has been in force for the wash-out, or where the leg before it had the same one, and lasts `leg_seconds`. Looks show
rates over the recent window, so they count from one such window into the leg on; what a leg shows is their mean.

While nothing arrives, or the scheduler runs another policy than its full one, the clock of a leg stands still. After a
restart of the scheduler the leg begins anew. Halves of a pair that were torn apart in time by such things are no
neighbours: the earlier one is dropped, and the later one begins a new pair.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import numpy as np

from tuner.settings.model import VerifySettings
from tuner.values.knobs import KnobValues
from tuner.values.metrics import METRIC_COUNT, MetricVector, sum_terms
from tuner.values.stages import FloatArray, Receipt
from tuner.verify.encoding import from_json, to_json
from tuner.verify.past import leg_terms, neighbours, past_legs
from tuner.verify.sequential import Noise, Plan, evidence, past_noise
from tuner.verify.statistics import known, means
from tuner.verify.trial import MIN_WEIGHT_RATIO

__all__ = [
    "Leg",
    "Look",
    "Seen",
    "Switchback",
    "advance",
    "begin",
    "learned_wash_out",
    "neighbours",
    "past_legs",
    "switched",
]

PROMOTION_POWER: Final = 4.0
"""How the chance of a false promotion is spent over the pairs: most of it late, when most is known. Of 2, 3 and 4 it
misses fewest gains of 10 % at 5 % noise (measured)."""

HARM_POWER: Final = 0.5
"""How the chance of a false harm stop is spent: nearly half of it on the first pair, because harm costs by the minute
and being wrong about it costs only a gain."""

HARM_ALPHA: Final = 0.25
"""Chance that a change without effect is undone for harm at the end of any pair. Each of the first two pairs is looked
at with about 84 % to 88 % confidence, one standard error, which is what harm is believed at elsewhere; this is what
remains of that when all pairs are to share it."""

APART: Final = 2.0
"""How many times its usual length the way from one half of a pair to the end of the other may take (assumption)."""


class Leg(StrEnum):
    """Which of the two settings is in force."""

    BEFORE = "before"
    AFTER = "after"

    @property
    def other(self) -> "Leg":
        """The other one."""
        return Leg.AFTER if self is Leg.BEFORE else Leg.BEFORE


class Seen(StrEnum):
    """What the newest look brought."""

    NOTHING = "nothing"
    """No look yet since the setting was put in force."""
    METRICS = "metrics"
    IDLE = "idle"
    OTHER_MODE = "other_mode"
    NO_DATA = "no_data"
    REJECTED = "rejected"
    RESTARTED = "restarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look at the cluster brought.

    Attributes:
        at_seconds: Time of the look.
        metrics: Metrics over the recent window, shape (13,); NaN where there is no sample.
        arriving: Whether work arrived; without it there is nothing to compare.
        comparable: Whether the scheduler runs its full policy, and all sources answered in full.
        restarted: Whether the scheduler restarted since the last look.
        rejected: Whether a query was refused: it is wrong, and says nothing of the cluster.
    """

    at_seconds: float
    metrics: MetricVector
    arriving: bool = True
    comparable: bool = True
    restarted: bool = False
    rejected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Switchback:
    """A change on trial, compared with the setting before it in turns.

    Attributes:
        change_cycle_id: Cycle that made the change.
        before: Setting before it, to which a failure leads back.
        after: Setting on trial.
        expected_score: Score that the twin predicted.
        expected_terms: What each metric was to add to it, shape (13,); NaN where nothing was predicted.
        glimpse: Metrics of the look just before the change, shape (13,); no leg, but better than nothing where none
            has shown the setting before yet.
        terms: The limits under which the trial began, whatever the policy says since.
        weights: Weights of the score, shape (13,).
        limits: Limits of the safety metrics, shape (13,); NaN where there is none.
        alpha: Chance of a false promotion that this trial may take.
        wash_out_seconds: Time after a switch that is thrown away.
        recent_window_seconds: Time over which each look is a mean.
        noise_terms: What each metric adds to the score of each interval before the change against the one before
            it, shape (k, 13), oldest first.
        in_force: Setting in force.
        wanted: Setting that should be: the other one, where the leg is over and its partner has yet to come.
        leg_at_seconds: When the leg begins; moves on while its clock stands still.
        quiet_at_seconds: When the newest thing ended that looks must not reach back to.
        looked_at_seconds: Times of the looks of the leg that count, shape (m,).
        looked: Their metrics, shape (m, 13).
        partner: Metrics of the other half of the pair, shape (13,); NaN where the leg is the first half.
        partner_at_seconds: When that ended; NaN where there is none.
        pairs_before: Metrics of each pair under the setting before, shape (n, 13).
        pairs_after: Metrics of each pair under the setting on trial, shape (n, 13).
        gain_evidence: Evidence that the change helps, as the logarithm of an e-value.
        harm_evidence: The same that it harms.
        last_at_seconds: Time of the newest look.
        seen: What it brought.
        allowance: What it may cost to try the change, in score times seconds, a standard error apart; NaN where the
            comparison alone decides.
        cost: What it has cost so far: the score of the setting on trial against the newest of the one before, over the
            time that it was in force; below 0 where it gained.
        costed_at_seconds: Up to when that is counted.
        tried_seconds: How long the setting on trial was in force, as far as that is counted.
        errors: Consecutive looks without usable data.
        rejections: Consecutive looks whose queries were refused.
        restarts: Restarts of the scheduler so far.
        dropped: Halves dropped because the other one came too late.
        samples: Looks that counted so far.
    """

    change_cycle_id: int
    before: KnobValues
    after: KnobValues
    expected_score: float
    expected_terms: MetricVector
    glimpse: MetricVector
    terms: VerifySettings
    weights: MetricVector
    limits: MetricVector
    alpha: float
    wash_out_seconds: float
    recent_window_seconds: float
    noise_terms: FloatArray
    in_force: Leg
    wanted: Leg
    leg_at_seconds: float
    quiet_at_seconds: float
    looked_at_seconds: FloatArray
    looked: FloatArray
    partner: MetricVector
    partner_at_seconds: float
    pairs_before: FloatArray = field(default_factory=lambda: np.empty((0, METRIC_COUNT)))
    pairs_after: FloatArray = field(default_factory=lambda: np.empty((0, METRIC_COUNT)))
    gain_evidence: float = 0.0
    harm_evidence: float = 0.0
    last_at_seconds: float
    seen: Seen = Seen.NOTHING
    allowance: float = np.nan
    cost: float = 0.0
    costed_at_seconds: float = np.nan
    tried_seconds: float = 0.0
    errors: int = 0
    rejections: int = 0
    restarts: int = 0
    dropped: int = 0
    samples: int = 0

    @property
    def unproven(self) -> bool:
        """Whether what the twin promised counts for nothing, because no verified change has borne it out yet."""
        return bool(np.isfinite(self.allowance))

    @property
    def pairs(self) -> int:
        """Pairs compared so far."""
        return len(self.pairs_after)

    @property
    def noise(self) -> Noise:
        """What was known of the variance of pairs before the first."""
        return past_noise(sum_terms(self.noise_terms))

    @property
    def gain_plan(self) -> Plan:
        """The tests that promote."""
        return Plan(alpha=self.alpha, pairs=self.terms.max_pairs, power=PROMOTION_POWER)

    @property
    def harm_plan(self) -> Plan:
        """The tests that find harm."""
        return Plan(alpha=HARM_ALPHA, pairs=self.terms.max_pairs, power=HARM_POWER)

    def pair_terms(self) -> FloatArray:
        """Return what each metric adds to the score of each pair, shape (n, 13)."""
        return leg_terms(self.pairs_after, self.pairs_before, weights=self.weights)

    def differences(self) -> FloatArray:
        """Return the score of the change in each pair, a log-ratio, negative is better; shape (n,)."""
        return sum_terms(self.pair_terms())

    def untouched(self) -> MetricVector:
        """Return the newest metrics under the setting before, shape (13,); NaN where there are none yet."""
        paired = self.wanted is self.in_force and np.isfinite(self.partner_at_seconds)
        if paired and self.in_force is Leg.AFTER:
            return self.partner
        return self.pairs_before[-1] if self.pairs else np.full(METRIC_COUNT, np.nan)

    def score(self, metrics: MetricVector, baseline: MetricVector) -> float:
        """Return the score of metrics against others, with the weights of the trial."""
        return float(sum_terms(leg_terms(metrics, baseline, weights=self.weights)))

    def to_json(self) -> str:
        """Return the trial as strict JSON: numbers survive exactly, NaN becomes null."""
        return to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "Switchback":
        """Return the trial that `to_json` wrote.

        Raises:
            ValueError: The text is not such a trial, or of another version.
        """
        stored = from_json(cls, text)
        return replace(stored, in_force=Leg(stored.in_force), wanted=Leg(stored.wanted), seen=Seen(stored.seen))


def begin(
    receipt: Receipt,
    *,
    expected_score: float,
    expected_terms: MetricVector | None,
    terms: VerifySettings,
    weights: MetricVector,
    limits: MetricVector,
    recent_window_seconds: float,
    queue_wait_seconds: float,
    alpha: float,
    first_before: Look | None = None,
    glimpse: MetricVector | None = None,
    noise: FloatArray | None = None,
    allowance: float = np.nan,
) -> Switchback:
    """Return the trial of a change that has become effective.

    Args:
        receipt: What was written, and when it was seen to be in force.
        expected_score: Score that the twin predicted.
        expected_terms: What each metric was to add to the score, shape (13,); None where that was not predicted.
        terms: Limits of the comparison.
        weights: Weights of the score, shape (13,).
        limits: Limits of the safety metrics, shape (13,); NaN where there is none.
        recent_window_seconds: Time over which the metrics of a look are rates.
        queue_wait_seconds: Time that work waits now, from which the wash-out is learned; NaN where it is not known.
        alpha: Chance of a false promotion that this trial may take; see `tuner.verify.budget`.
        first_before: The setting before, as it was just before the change: it saves the first leg.
        glimpse: Metrics of the look just before the change, shape (13,); None where there was none.
        noise: What each metric adds to the score of each interval before the change against the one before it, shape
            (k, 13), oldest first; see `neighbours`.
        allowance: What it may cost to try the change, in score times seconds; NaN where that is not limited.

    Raises:
        ValueError: The change was never seen to be in force, or `alpha` is not over 0 and under 1.
    """
    effective = _effective(receipt)
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha is {alpha}, must be over 0 and under 1")
    wash_out = learned_wash_out(queue_wait_seconds, terms)
    nothing = np.full(METRIC_COUNT, np.nan)
    partner = nothing if first_before is None else known(first_before.metrics)
    useful = first_before is not None and weights[np.isfinite(partner)].sum() > 0
    return Switchback(
        change_cycle_id=receipt.cycle_id,
        before=receipt.before,
        after=receipt.after,
        expected_score=expected_score,
        expected_terms=nothing if expected_terms is None else expected_terms,
        glimpse=nothing if glimpse is None else known(glimpse),
        terms=terms,
        weights=weights,
        limits=limits,
        alpha=alpha,
        wash_out_seconds=wash_out,
        recent_window_seconds=recent_window_seconds,
        noise_terms=np.empty((0, METRIC_COUNT)) if noise is None else known(noise),
        in_force=Leg.AFTER,
        wanted=Leg.AFTER,
        leg_at_seconds=effective + wash_out,
        quiet_at_seconds=effective,
        looked_at_seconds=np.empty(0),
        looked=np.empty((0, METRIC_COUNT)),
        partner=partner,
        partner_at_seconds=first_before.at_seconds if first_before is not None and useful else np.nan,
        last_at_seconds=effective,
        allowance=allowance,
        costed_at_seconds=effective,
    )


def learned_wash_out(queue_wait_seconds: float, terms: VerifySettings) -> float:
    """Return how long work that was placed under the other setting shows: as long as work waits.

    Never shorter than `wash_out_seconds`, which is what is taken where the wait is not known, and never longer than
    `max_wash_out_seconds`, where that is the longer of the two.
    """
    longest = max(terms.max_wash_out_seconds, terms.wash_out_seconds)
    return float(min(np.fmax(queue_wait_seconds, terms.wash_out_seconds), longest))


def switched(trial: Switchback, receipt: Receipt) -> Switchback:
    """Return the trial with the setting of a receipt in force: the leg begins, or begins anew.

    Raises:
        ValueError: It was never seen to be in force, or is not the one whose turn it is.
    """
    effective = _effective(receipt)
    asked = trial.after if trial.wanted is Leg.AFTER else trial.before
    if receipt.after.differs(asked):
        raise ValueError(f"{receipt.after.describe()} is in force, not {asked.describe()}, whose turn it is")
    return replace(_anew(trial, effective), in_force=trial.wanted, seen=Seen.NOTHING)


def advance(trial: Switchback, look: Look) -> Switchback:
    """Return the trial with one more look; one that is not newer than the last changes nothing."""
    if not look.at_seconds > trial.last_at_seconds:
        return trial
    seconds = look.at_seconds - trial.last_at_seconds
    looked = replace(trial, last_at_seconds=look.at_seconds)
    if look.restarted:
        return replace(_anew(looked, look.at_seconds), seen=Seen.RESTARTED, restarts=trial.restarts + 1)
    if look.rejected:
        return replace(looked, seen=Seen.REJECTED, rejections=trial.rejections + 1)
    if not look.comparable or not look.arriving:
        return replace(
            looked,
            seen=Seen.OTHER_MODE if not look.comparable else Seen.IDLE,
            leg_at_seconds=trial.leg_at_seconds + seconds,
            quiet_at_seconds=look.at_seconds,
            costed_at_seconds=look.at_seconds,
            errors=0,
            rejections=0,
        )
    return _measured(looked, known(look.metrics))


def _effective(receipt: Receipt) -> float:
    if not np.isfinite(receipt.effective_at_seconds):
        raise ValueError(f"setting of cycle {receipt.cycle_id} was not seen to be in force; nothing to try")
    return receipt.effective_at_seconds


def _measured(trial: Switchback, metrics: MetricVector) -> Switchback:
    """Return the trial with the metrics of its newest look; they count where it reaches back to nothing else."""
    if not _usable(trial, metrics):
        return replace(trial, seen=Seen.NO_DATA, errors=trial.errors + 1, rejections=0)
    seen = _costed(replace(trial, seen=Seen.METRICS, errors=0, rejections=0), metrics)
    at_seconds = trial.last_at_seconds
    clean = at_seconds >= max(trial.leg_at_seconds, trial.quiet_at_seconds) + trial.recent_window_seconds
    if trial.wanted is not trial.in_force or not clean:
        return seen
    counted = replace(
        seen,
        looked_at_seconds=np.append(trial.looked_at_seconds, at_seconds),
        looked=np.concatenate((trial.looked, metrics[None])),
        samples=trial.samples + 1,
    )
    return _ended(counted) if at_seconds >= trial.leg_at_seconds + trial.terms.leg_seconds else counted


def _costed(trial: Switchback, metrics: MetricVector) -> Switchback:
    """Return the trial with what the setting on trial has cost up to its newest look.

    The wash-out counts: what work pays that was placed under the other setting, it pays for the switch. Only looks that
    reach back beyond the switch say nothing yet; the first that does not stands for the time since.
    """
    at_seconds = trial.last_at_seconds
    if trial.in_force is not Leg.AFTER or at_seconds < trial.quiet_at_seconds + trial.recent_window_seconds:
        return trial
    score, seconds = trial.score(metrics, trial.untouched()), at_seconds - trial.costed_at_seconds
    return replace(
        trial,
        cost=trial.cost + (score * seconds if np.isfinite(score) else 0.0),
        costed_at_seconds=at_seconds,
        tried_seconds=trial.tried_seconds + seconds,
    )


def _anew(trial: Switchback, at_seconds: float) -> Switchback:
    """Return the trial with its leg beginning with a wash-out at a time."""
    return replace(
        trial,
        leg_at_seconds=at_seconds + trial.wash_out_seconds,
        quiet_at_seconds=at_seconds,
        costed_at_seconds=at_seconds,
        looked_at_seconds=np.empty(0),
        looked=np.empty((0, METRIC_COUNT)),
        errors=0,
        rejections=0,
    )


def _usable(trial: Switchback, metrics: MetricVector) -> bool:
    """Say whether a look brings enough of what it is compared with; the first leg is compared with nothing yet."""
    usable = np.isfinite(metrics)
    reference = trial.partner if np.isfinite(trial.partner_at_seconds) else trial.untouched()
    comparable = np.isfinite(reference) if np.isfinite(reference).any() else usable
    enough = trial.weights[usable & comparable].sum() >= MIN_WEIGHT_RATIO * trial.weights[comparable].sum() > 0
    return bool(enough)


def _ended(trial: Switchback) -> Switchback:
    """Return the trial at the end of a leg."""
    at_seconds, metrics = trial.last_at_seconds, means(trial.looked)
    if not at_seconds - trial.partner_at_seconds <= APART * (trial.wash_out_seconds + trial.terms.leg_seconds):
        return replace(
            trial,
            partner=metrics,
            partner_at_seconds=at_seconds,
            wanted=trial.in_force.other,
            dropped=trial.dropped + bool(np.isfinite(trial.partner_at_seconds)),
        )
    before, after = (trial.partner, metrics) if trial.in_force is Leg.AFTER else (metrics, trial.partner)
    return _judged(
        replace(
            trial,
            partner=np.full(METRIC_COUNT, np.nan),
            partner_at_seconds=np.nan,
            pairs_before=np.concatenate((trial.pairs_before, before[None])),
            pairs_after=np.concatenate((trial.pairs_after, after[None])),
            leg_at_seconds=at_seconds,
            looked_at_seconds=np.empty(0),
            looked=np.empty((0, METRIC_COUNT)),
        )
    )


def _judged(trial: Switchback) -> Switchback:
    """Return the trial with the evidence of its pairs; pairs beyond the last planned one count for nothing."""
    differences, noise = trial.differences()[: trial.terms.max_pairs], trial.noise
    return replace(
        trial,
        gain_evidence=evidence(-differences, noise, trial.gain_plan),
        harm_evidence=evidence(differences, noise, trial.harm_plan),
    )
