"""Trust: whether the gains that were predicted come true, from changes that were verified.

Trust falls at once and finds back by itself: what was seen a week ago counts half, so that a tuner that no longer dares
to change anything, and so learns nothing more, is not held back for ever by what its twin once got wrong.
"""

import json
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import numpy as np

from tuner.values.context import TASK_CLASSES
from tuner.values.knobs import Role
from tuner.values.stages import FloatArray

MEMORY: Final = 40
"""Verified changes that are remembered: at a few a day, the last one or two weeks."""
FORGETTING: Final = 0.95
"""Weight of each earlier realised gain against the next: the last twenty count."""
HALF_LIFE_SECONDS: Final = 7 * 86_400.0
"""Time in which evidence loses half its weight (assumption): a week, in which load and fleet repeat themselves."""
CONTEXT_COMPONENTS: Final = len(TASK_CLASSES) + 3
"""Length of a context: tasks of each class, tasks waiting, demand pending, share allocated."""
PRIOR_HITS: Final = 2.0
"""Hits, and misses, that are assumed before the first: trust starts at one half and moves as evidence comes."""
UNPROVEN_REGION: Final = 0.5
"""Region of a twin of which nothing was verified yet (assumption): a twin that is right loses a doubling, one that is
wrong harms half as much."""
LEAST_REGION: Final = 1.0 / 32.0
"""Least region (assumption): a few agreeing changes lead back from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A change that was verified, with what was promised of it.

    Attributes:
        predicted_score: Score that was promised, past trials taken into account; negative is better.
        observed_score: Score that was measured.
        noise: Standard error of the measured score; >= 0.
        at_seconds: When it was known.
        twin_score: What the twin alone had said; NaN where that is not known.
        moved: How far each knob was moved, in units of its range, in the order of `Role`, length 4; 0 where absent.
        context: Load that it was made for, as of `context_vector`; NaN for what was not known, empty where nothing was.
    """

    predicted_score: float
    observed_score: float
    noise: float = 0.0
    at_seconds: float = 0.0
    twin_score: float = math.nan
    moved: tuple[float, ...] = (0.0,) * len(Role)
    context: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no trial can have shown.

        Raises:
            ValueError: A score, the time or a move is not finite, the noise is negative or not finite, or a length is
                wrong.
        """
        numbers = (self.predicted_score, self.observed_score, self.noise, self.at_seconds, *self.moved)
        if not all(math.isfinite(number) for number in numbers) or self.noise < 0:
            raise ValueError(f"evidence has numbers that no trial can have shown: {self}")
        if len(self.moved) != len(Role) or len(self.context) not in (0, CONTEXT_COMPONENTS):
            raise ValueError(f"evidence has {len(self.moved)} knobs and {len(self.context)} components of a context")

    @property
    def hit(self) -> float:
        """1 where the sign came true, 0 where the opposite did, one half where it cannot be told from nothing."""
        return 0.5 if not self.clear else float(self.predicted_score * self.observed_score > 0)

    @property
    def way(self) -> float:
        """1 where the promised sign clearly came true, -1 where the opposite did, 0 where it cannot be told."""
        return float(np.sign(self.predicted_score * self.observed_score)) if self.clear else 0.0

    @property
    def clear(self) -> bool:
        """Whether what was measured can be told from nothing."""
        return abs(self.observed_score) > self.noise

    def faded(self, at_seconds: float) -> float:
        """Return what is left of its weight at a time, 0..1; evidence from the future counts in full."""
        return float(0.5 ** (max(at_seconds - self.at_seconds, 0.0) / HALF_LIFE_SECONDS))


@dataclass(frozen=True, slots=True)
class RankAgreement:
    """How far changes that promised more also brought more.

    Attributes:
        tau: Kendall's rank correlation over the usable pairs, -1..1; NaN without any.
        pairs: Usable pairs: those of which both promise and measurement differ by more than noise.
        changes: Changes that are part of one.
    """

    tau: float
    pairs: int
    changes: int


class Trust:
    """Whether predicted gains come true: the share of right signs, shrunk towards one half.

    `trust = (2 + hits) / (4 + trials)`; earlier trials fade by `FORGETTING` at each new one, and by half in
    `HALF_LIFE_SECONDS`. A gain too small to tell from nothing counts half.
    """

    def __init__(self, evidence: Iterable[Evidence] = ()) -> None:
        """Begin with what is known; the newest `MEMORY` of it are kept."""
        self._evidence: deque[Evidence] = deque(evidence, maxlen=MEMORY)

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The verified changes that are remembered, oldest first."""
        return tuple(self._evidence)

    @property
    def ratio(self) -> float:
        """Trust at the newest evidence, 0..1; one half before the first trial."""
        return self.ratio_at(-math.inf)

    def ratio_at(self, at_seconds: float) -> float:
        """Return trust at a time, 0..1."""
        hits = trials = 0.0
        newest = max((one.at_seconds for one in self._evidence), default=0.0)
        for age, one in enumerate(reversed(self._evidence)):
            weight = FORGETTING**age * one.faded(max(at_seconds, newest))
            hits += weight * one.hit
            trials += weight
        return (PRIOR_HITS + hits) / (2.0 * PRIOR_HITS + trials)

    def region_at(self, at_seconds: float) -> float:
        """Return the trust region at a time, over 0 and up to 1: the share of a full step that has been earned.

        It doubles with each change that clearly went the way that was promised, and halves with each that was not seen
        to go that way at all (Conn, Gould and Toint, "Trust-Region Methods", 2000, section 6.1); evidence fades as it
        does for trust. Where `ratio_at` averages over what was seen, this asks what was seen last: a twin that has
        shown nothing yet, or has just been wrong, is not let go far, however good its record.
        """
        newest = max((one.at_seconds for one in self._evidence), default=0.0)
        doublings, least = math.log2(UNPROVEN_REGION), math.log2(LEAST_REGION)
        for one in self._evidence:
            doublings += one.way * one.faded(max(at_seconds, newest))
            doublings = min(max(doublings, least), 0.0)
        return float(2.0**doublings)

    def proven_at(self, at_seconds: float) -> bool:
        """Say whether what is promised counts as evidence: a change has clearly borne one out, and trust remains.

        Before the first such change, and while others that went the other way since have shrunk the region below where
        it began, changes must speak for themselves.
        """
        borne_out = any(one.way > 0 for one in self._evidence)
        return borne_out and self.region_at(at_seconds) >= UNPROVEN_REGION

    @property
    def sign_hit_ratio(self) -> float:
        """Share of the changes with a clear result whose sign was the promised one, 0..1; NaN without any."""
        hits = [one.hit for one in self._evidence if one.clear]
        return float(np.mean(hits)) if hits else math.nan

    @property
    def rank_agreement(self) -> RankAgreement:
        """Whether changes that promised more brought more (Kendall, "A new measure of rank correlation", 1938)."""
        promised = np.array([one.predicted_score for one in self._evidence])
        came = np.array([one.observed_score for one in self._evidence])
        noise = np.array([one.noise for one in self._evidence])
        differ = np.abs(_apart(came)) > np.hypot(noise[:, None], noise[None, :])
        usable = np.triu(differ & (_apart(promised) != 0), k=1)
        pairs = int(np.count_nonzero(usable))
        agreeing = int(np.count_nonzero(usable & (_apart(promised) * _apart(came) > 0)))
        changes = int(np.count_nonzero(usable.any(axis=0) | usable.any(axis=1)))
        return RankAgreement((2.0 * agreeing - pairs) / pairs if pairs else math.nan, pairs, changes)

    def realised(
        self,
        predicted_score: float,
        observed_score: float,
        *,
        noise: float = 0.0,
        at_seconds: float = 0.0,
        twin_score: float = math.nan,
        moved: Iterable[float] = (0.0,) * len(Role),
        context: Iterable[float] = (),
    ) -> float:
        """Take in the score that was predicted of a change and the one that came, and return the new trust.

        Args:
            predicted_score: Score of the candidate against the incumbent; negative is better.
            observed_score: The same, measured; NaN, where it could not be, teaches nothing.
            noise: Size of an observed score that may be nothing, e.g. its standard error; NaN counts as 0.
            at_seconds: When it was known.
            twin_score: What the twin alone had said; NaN where that is not known.
            moved: How far each knob was moved, as of `Evidence`.
            context: Load that the change was made for, as of `Evidence`.

        Raises:
            ValueError: Moves or context are not of their length.
        """
        if math.isfinite(predicted_score) and math.isfinite(observed_score):
            self._evidence.append(
                Evidence(
                    predicted_score=predicted_score,
                    observed_score=observed_score,
                    noise=noise if math.isfinite(noise) else 0.0,
                    at_seconds=at_seconds,
                    twin_score=twin_score,
                    moved=tuple(moved),
                    context=tuple(context),
                )
            )
        return self.ratio

    def to_json(self) -> str:
        """Return the evidence as strict JSON; numbers survive exactly, NaN becomes null."""
        return json.dumps([_plain(asdict(one)) for one in self._evidence], allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "Trust":
        """Return what `to_json` wrote.

        Raises:
            ValueError: The text is damaged.
        """
        stored = json.loads(text)
        if not isinstance(stored, list) or len(stored) > MEMORY:
            raise ValueError(f"evidence of the twin's trust: it is not a list of at most {MEMORY}")
        return cls(_restored(one) for one in stored)


def _apart(values: FloatArray) -> FloatArray:
    apart: FloatArray = values[:, None] - values[None, :]
    return apart


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _restored(stored: object) -> Evidence:
    names = {item.name for item in fields(Evidence)}
    if not isinstance(stored, dict) or set(stored) != names:
        raise ValueError("evidence of the twin's trust: fields are missing or unknown")
    try:
        # None becomes NaN.
        numbers: dict[str, Any] = {name: np.array(value, dtype=np.float64).tolist() for name, value in stored.items()}
        numbers |= {name: tuple(numbers[name]) for name in ("moved", "context")}
        return Evidence(**numbers)
    except TypeError as error:
        raise ValueError(f"evidence of the twin's trust: {error}") from error
