"""The mode ladder: down at once, up one rung a good cycle, and every doubt by a table."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judge.readings import NOW
from tuner.judge.ladder import Doubt, Ladder, doubts, freeze, rank_error, step, thaw, trust_factor
from tuner.record.encoding import decode, encode
from tuner.values.metrics import METRIC_INDEX, MetricVector
from tuner.values.safety import Rung
from tuner.values.stages import Forecast, Observation, Problem, SeriesFrame

NAN = math.nan
REQUIRED = ("scheduling_latency_seconds", "queue_wait_seconds")


def vector(value: float, **others: float) -> MetricVector:
    result = np.full(13, value)
    for name, other in others.items():
        result[METRIC_INDEX[name]] = other
    return result


def observation(**changes: Any) -> Observation:
    given_fields: dict[str, Any] = {
        "cycle_id": 7,
        "at_seconds": NOW,
        "metrics": vector(1.0),
        "ages_seconds": vector(30.0),
        "coverage_ratio": vector(1.0),
        "context": {},
        "history": SeriesFrame((), NOW, np.empty((0, 0))),
    }
    return Observation(**{**given_fields, **changes})


def forecast(rung: str = "selected") -> Forecast:
    return Forecast(
        cycle_id=7, at_seconds=NOW, names=(), values=np.empty((0, 1, 3)), models=(), error_ratio=np.empty(0), rung=rung
    )


def found(**changes: Any) -> tuple[Doubt, ...]:
    given_fields: dict[str, Any] = {
        "observation": observation(),
        "forecast": forecast(),
        "trust": 0.5,
        "rank_agreement": NAN,
        "failures_in_row": 0,
        "source_blind_cycles": 0,
        "lstm_usable": True,
        "forecast_error_ratio": NAN,
        "required": REQUIRED,
    }
    return doubts(**{**given_fields, **changes})


def doubt(rung: Rung, cause: str = "trust") -> Doubt:
    return Doubt(rung=rung, cause=cause, sentence=f"{cause} is 0.1, at least 0.2 needed")


def at_rung(rung: Rung) -> Ladder:
    return Ladder(rung=rung, since_seconds=NOW - 600.0, frozen_because="told so" if rung is Rung.FROZEN else "")


def test_a_sound_cycle_leaves_no_doubt() -> None:
    assert found() == ()
    assert found(rank_agreement=0.6, ranked_changes=20, forecast_error_ratio=0.8, failures_in_row=1) == ()


@pytest.mark.parametrize(
    ("changes", "rung", "cause", "part"),
    [
        ({"lstm_usable": False}, Rung.NO_LSTM, "lstm", "gives no usable answer"),
        ({"forecast_error_ratio": 1.51}, Rung.NO_LSTM, "lstm_error", "is 1.51 times that of last value, limit 1.5"),
        ({"trust": 0.24}, Rung.CAUTIOUS, "trust", "is 0.24, at least 0.25 needed"),
        ({"trust": 0.04}, Rung.OBSERVE_ONLY, "trust", "is 0.04, at least 0.15 needed"),
        ({"trust": NAN}, Rung.OBSERVE_ONLY, "trust", "is nan"),
        (
            {"rank_agreement": -0.5, "ranked_changes": 10},
            Rung.CAUTIOUS,
            "rank_agreement",
            "is -0.50 over 10 changes, at least -0.41 needed",
        ),
        ({"forecast": forecast("smoothing")}, Rung.CAUTIOUS, "forecast", "on its rung smoothing, not selected"),
        ({"forecast": forecast("last_value"), "learns": False}, Rung.CAUTIOUS, "forecast", "on its rung last_value"),
        ({"forecast": None}, Rung.CAUTIOUS, "forecast", "there is no forecast"),
        (
            {"observation": observation(coverage_ratio=vector(1.0, queue_wait_seconds=0.85))},
            Rung.CAUTIOUS,
            "coverage",
            "coverage of queue_wait_seconds is 0.85, at least 0.90 needed",
        ),
        (
            {"observation": observation(coverage_ratio=vector(0.5, queue_wait_seconds=NAN))},
            Rung.CAUTIOUS,
            "coverage",
            "coverage of queue_wait_seconds is nan",
        ),
        (
            {"observation": observation(metrics=vector(1.0, queue_wait_seconds=NAN))},
            Rung.OBSERVE_ONLY,
            "required_metrics",
            "1 of 2 required metrics have no value: queue_wait_seconds",
        ),
        (
            {"observation": observation(problems=(Problem("source", "clock_skew", "40 s ahead, limit 30 s"),))},
            Rung.OBSERVE_ONLY,
            "clock_skew",
            "40 s ahead, limit 30 s",
        ),
        (
            {"observation": observation(problems=(Problem("source", "partial", "one store did not answer"),))},
            Rung.OBSERVE_ONLY,
            "partial",
            "one store did not answer",
        ),
        ({"failures_in_row": 2}, Rung.OBSERVE_ONLY, "failures", "2 cycles failed in a row, fewer than 2 needed"),
        ({"source_blind_cycles": 3}, Rung.OBSERVE_ONLY, "blind", "3 cycles had no answer from the source in a row"),
    ],
)
def test_each_doubt_says_what_it_saw_with_its_limit(changes: dict[str, Any], rung: Rung, cause: str, part: str) -> None:
    (one,) = found(**changes)

    assert (one.rung, one.cause) == (rung, cause)
    assert part in one.sentence


@pytest.mark.parametrize(
    "changes",
    [
        {"trust": 0.25},
        {"forecast_error_ratio": 1.5},
        {"forecast_error_ratio": NAN},
        # Seven changes are too few to tell chance from disagreement.
        {"rank_agreement": -1.0, "ranked_changes": 7},
        {"rank_agreement": -1.0},
        {"rank_agreement": NAN, "ranked_changes": 20},
        {"rank_agreement": -0.40, "ranked_changes": 10},
        {"forecast": forecast("smoothing"), "learns": False},
        {"observation": observation(coverage_ratio=vector(0.9))},
        {"observation": observation(coverage_ratio=vector(1.0, node_power_watts=0.0))},
        {"observation": observation(metrics=vector(1.0, node_power_watts=NAN))},
        {"observation": observation(problems=(Problem("queue_length", "stale", "old"),))},
        {"observation": None, "failures_in_row": 1, "source_blind_cycles": 1},
    ],
)
def test_what_is_within_its_limit_or_unknown_for_good_reason_is_no_doubt(changes: dict[str, Any]) -> None:
    assert found(**changes) == ()


def test_an_unusable_network_is_not_blamed_for_its_error_too() -> None:
    assert [one.cause for one in found(lstm_usable=False, forecast_error_ratio=9.0)] == ["lstm"]


def test_the_error_of_a_rank_agreement_is_that_of_unrelated_pairs() -> None:
    rng = np.random.default_rng(1)
    pairs = rng.standard_normal((4000, 10))
    upper = np.triu_indices(10, 1)
    order = np.sign(pairs[:, :, None] - pairs[:, None, :])[:, upper[0], upper[1]]

    assert rank_error(10) == pytest.approx(order.mean(axis=1).std(), rel=0.05)


def test_it_goes_down_to_the_deepest_doubt_at_once_and_names_all() -> None:
    ladder = step(
        Ladder(), [doubt(Rung.CAUTIOUS, "coverage"), doubt(Rung.OBSERVE_ONLY, "failures")], at_seconds=NOW, good=True
    )

    assert (ladder.rung, ladder.since_seconds) == (Rung.OBSERVE_ONLY, NOW)
    assert ladder.causes == ("failures", "coverage")
    assert ladder.reason == "failures is 0.1, at least 0.2 needed; coverage is 0.1, at least 0.2 needed"


def test_it_goes_up_one_rung_a_good_cycle() -> None:
    ladder, rungs = at_rung(Rung.OBSERVE_ONLY), []
    for number in range(4):
        ladder = step(ladder, (), at_seconds=NOW + 60.0 * number, good=True)
        rungs.append(ladder.rung)

    assert rungs == [Rung.CAUTIOUS, Rung.NO_LSTM, Rung.NORMAL, Rung.NORMAL]
    assert ladder.since_seconds == NOW + 120.0
    assert ladder.reason == "nothing is in doubt any more: up one rung a good cycle"


def test_it_does_not_go_up_after_a_cycle_that_was_not_good() -> None:
    assert step(at_rung(Rung.CAUTIOUS), (), at_seconds=NOW, good=False).rung is Rung.CAUTIOUS


def test_it_goes_down_after_a_cycle_that_was_not_good_too() -> None:
    assert step(Ladder(), [doubt(Rung.CAUTIOUS)], at_seconds=NOW, good=False).rung is Rung.CAUTIOUS


def test_a_standing_doubt_keeps_its_rung_and_the_time_since_when() -> None:
    ladder = step(at_rung(Rung.CAUTIOUS), [doubt(Rung.CAUTIOUS)], at_seconds=NOW, good=True)

    assert (ladder.rung, ladder.since_seconds) == (Rung.CAUTIOUS, NOW - 600.0)
    assert ladder.reason == "trust is 0.1, at least 0.2 needed"


def test_frozen_stays_until_a_person_ends_it_and_begins_by_observing() -> None:
    frozen = freeze(Ladder(), "somebody else has set base_slice_seconds", at_seconds=NOW)
    for number in range(10):
        frozen = step(frozen, (), at_seconds=NOW + 60.0 * number, good=True)
    assert (frozen.rung, frozen.since_seconds) == (Rung.FROZEN, NOW)
    assert frozen.frozen_because == frozen.reason == "somebody else has set base_slice_seconds"

    thawed = thaw(frozen, at_seconds=NOW + 900.0)

    assert (thawed.rung, thawed.frozen_because, thawed.since_seconds) == (Rung.OBSERVE_ONLY, "", NOW + 900.0)
    assert step(thawed, (), at_seconds=NOW + 960.0, good=True).rung is Rung.CAUTIOUS


def test_the_first_reason_to_freeze_stands() -> None:
    frozen = freeze(Ladder(), "first", at_seconds=NOW)

    assert freeze(frozen, "second", at_seconds=NOW + 1.0) is frozen


def test_a_doubt_so_deep_that_a_person_must_look_freezes() -> None:
    ladder = step(Ladder(), [doubt(Rung.FROZEN, "contested")], at_seconds=NOW, good=True)

    assert (ladder.rung, ladder.frozen_because) == (Rung.FROZEN, "contested is 0.1, at least 0.2 needed")


def test_to_thaw_what_is_not_frozen_does_nothing() -> None:
    assert thaw(at_rung(Rung.CAUTIOUS), at_seconds=NOW) == at_rung(Rung.CAUTIOUS)


def test_steps_are_halved_by_caution_and_nothing_moves_below() -> None:
    assert [trust_factor(at_rung(rung)) for rung in Rung] == [1.0, 1.0, 0.5, 0.0, 0.0]


def test_it_returns_from_the_journal_as_it_was() -> None:
    for ladder in (
        Ladder(),
        freeze(Ladder(), "told so", at_seconds=NOW),
        step(Ladder(), [doubt(Rung.CAUTIOUS)], at_seconds=NOW, good=True),
    ):
        assert repr(decode(Ladder, encode(ladder))) == repr(ladder)


RUNGS = st.sampled_from(list(Rung))
BELOW_FROZEN = st.sampled_from([rung for rung in Rung if rung is not Rung.FROZEN])


@given(rung=RUNGS, standing=st.lists(BELOW_FROZEN), good=st.booleans())
def test_it_never_stands_above_a_doubt_nor_climbs_more_than_one_rung(
    rung: Rung, standing: list[Rung], good: bool
) -> None:
    ladder = step(at_rung(rung), [doubt(one) for one in standing], at_seconds=NOW, good=good)

    assert all(ladder.rung >= one for one in standing)
    assert ladder.rung >= rung - (1 if good else 0)
    assert ladder.rung is not Rung.FROZEN or rung is Rung.FROZEN


@given(rung=RUNGS, standing=st.lists(BELOW_FROZEN), more=BELOW_FROZEN, good=st.booleans())
def test_one_doubt_more_never_lifts_it(rung: Rung, standing: list[Rung], more: Rung, good: bool) -> None:
    few, many = [doubt(one) for one in standing], [doubt(one) for one in (*standing, more)]

    without, with_it = (step(at_rung(rung), given_doubts, at_seconds=NOW, good=good) for given_doubts in (few, many))

    assert with_it.rung >= without.rung
    assert trust_factor(with_it) <= trust_factor(without)
