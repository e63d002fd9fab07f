"""A cycle record in the making, and what of it follows from the observation alone."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tuner.apply.actuator import Current
from tuner.values.metrics import METRIC_COUNT, METRIC_INDEX
from tuner.values.stages import (
    CycleRecord,
    Forecast,
    Observation,
    Proposal,
    Receipt,
    SeriesFrame,
    StageFailure,
    Verdict,
    Verification,
)

_NAMED: Final = 3
"""Missing metrics that a reason names; the record names all."""


@dataclass(slots=True)
class Draft:
    """A cycle record in the making."""

    cycle_id: int
    at_seconds: float
    observation: Observation | None = None
    forecast: Forecast | None = None
    proposal: Proposal | None = None
    verdict: Verdict | None = None
    receipt: Receipt | None = None
    verification: Verification | None = None
    failure: StageFailure | None = None
    inputs: bytes | None = None
    trial_began_at: float = math.nan
    decision: str = ""
    reason: str = ""
    stage: str = "start"
    stage_seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def at(self, stage: str) -> Iterator[None]:
        """Time a stage, and remember its name for the record of a failure."""
        self.stage = stage
        started = time.perf_counter()
        try:
            yield
        finally:
            self.stage_seconds[stage] = self.stage_seconds.get(stage, 0.0) + time.perf_counter() - started

    def close(self, decision: str, reason: str) -> None:
        """Say what happened and why."""
        self.decision, self.reason = decision, reason

    def finish(self) -> CycleRecord:
        """Return the record."""
        return CycleRecord(
            cycle_id=self.cycle_id,
            at_seconds=self.at_seconds,
            observation=self.observation,
            forecast=self.forecast,
            proposal=self.proposal,
            verdict=self.verdict,
            receipt=self.receipt,
            verification=self.verification,
            failure=self.failure,
            decision=self.decision,
            reason=self.reason,
            stage_seconds=self.stage_seconds,
        )


def lacking(observation: Observation, required: tuple[str, ...]) -> str:
    """Say what keeps an observation from being acted upon, the source first; empty where nothing does."""
    doubts = [problem.detail for problem in observation.problems if problem.metric == "source"]
    missing = [name for name in required if not math.isfinite(observation.metrics[METRIC_INDEX[name]])]
    if missing:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        doubts.append(f"no value for {', '.join(missing[:_NAMED])}{more}")
    return f"{'; '.join(doubts)}: `clocktuner check` names the cure" if doubts else ""


def blind(draft: Draft, current: Current) -> Observation:
    """Return an observation of nothing but the settings."""
    nothing = np.full(METRIC_COUNT, np.nan)
    return Observation(
        cycle_id=draft.cycle_id,
        at_seconds=draft.at_seconds,
        metrics=nothing,
        ages_seconds=nothing,
        coverage_ratio=nothing,
        context={},
        history=SeriesFrame((), draft.at_seconds, np.empty((0, 0))),
        knobs=current.knobs,
        revision=current.revision,
        mode=current.mode,
    )
