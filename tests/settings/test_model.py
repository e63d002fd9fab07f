from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tuner.settings.loading import load_policy
from tuner.settings.model import (
    CycleSettings,
    HttpActuator,
    KnobMapping,
    MetricMapping,
    NoActuator,
    Policy,
    SearchSettings,
)
from tuner.values.knobs import DESIGN_RANGES, Role
from tuner.values.metrics import DEFAULT_WEIGHTS, METRIC_INDEX, METRIC_NAMES, METRICS

SMALLEST = load_policy(Path(__file__).parent / "policies" / "good" / "smallest.yaml")


def with_metric(name: str, mapping: MetricMapping) -> Policy:
    return SMALLEST.model_copy(update={"metrics": {**SMALLEST.metrics, name: mapping}})


def test_weights_are_the_catalogue_s_where_the_policy_sets_none() -> None:
    optional = np.array([spec.optional for spec in METRICS])

    assert (SMALLEST.weights()[~optional] == DEFAULT_WEIGHTS[~optional]).all()


def test_a_metric_that_is_not_read_weighs_nothing() -> None:
    absent = with_metric("queue_wait_seconds", MetricMapping(absent="not exported"))

    assert absent.weights()[METRIC_INDEX["queue_wait_seconds"]] == 0
    assert absent.weights()[METRIC_INDEX["high_priority_wait_seconds"]] == 0
    assert "queue_wait_seconds" not in absent.mapped_metrics


def test_only_an_actuator_that_names_a_key_for_it_has_policy_modes() -> None:
    http = HttpActuator(url="http://127.0.0.1:1/config")
    without = http.model_copy(update={"mode_key": None})

    found = [SMALLEST.model_copy(update={"actuator": each}).has_modes for each in (http, without, NoActuator())]

    assert found == [True, False, False]


def test_own_weights_and_limits_stand_as_they_are_written() -> None:
    policy = with_metric("scheduling_latency_seconds", MetricMapping(query="x", weight=0.9, limit=2.0))
    index = METRIC_INDEX["scheduling_latency_seconds"]

    assert policy.weights()[index] == 0.9
    assert policy.limits()[index] == 2.0
    assert np.isnan(np.delete(policy.limits(), index)).all()


def test_mapped_metrics_come_in_the_order_of_the_catalogue() -> None:
    shuffled = SMALLEST.model_copy(update={"metrics": dict(reversed(SMALLEST.metrics.items()))})

    names = list(shuffled.mapped_metrics)

    assert names == [name for name in METRIC_NAMES if name in names]
    assert len(names) == 12


def test_a_wider_range_gets_a_slew_of_a_quarter_in_whole_steps() -> None:
    spec = KnobMapping(low=0.02, high=0.5).spec(Role.BASE_SLICE)

    assert (spec.step, spec.slew) == (0.005, 0.12)


@given(
    role=st.sampled_from(Role),
    low=st.floats(0.01, 10),
    width=st.floats(0.001, 100),
    steps=st.integers(1, 1000),
)
def test_default_slews_always_make_a_knob_that_can_be_searched(
    role: Role, low: float, width: float, steps: int
) -> None:
    spec = KnobMapping(low=low, high=low + width, step=width / steps).spec(role)

    assert spec.step <= spec.slew


@pytest.mark.parametrize("role", Role)
def test_an_empty_mapping_is_the_design_s_knob(role: Role) -> None:
    assert KnobMapping().spec(role) == DESIGN_RANGES[role]


def test_sections_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        SMALLEST.cycle.period_seconds = 5.0  # type: ignore[misc]


@pytest.mark.parametrize("value", ["5", True, 5.5])
def test_numbers_are_not_guessed_from_other_types(value: object) -> None:
    with pytest.raises(ValidationError):
        SearchSettings.model_validate({"trials": value})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "nan", "inf"])
def test_no_setting_is_infinite_or_unknown(value: object) -> None:
    with pytest.raises(ValidationError):
        CycleSettings.model_validate({"cooldown_seconds": value})


def test_a_policy_survives_a_round_trip_through_json() -> None:
    assert Policy.model_validate(SMALLEST.model_dump(mode="json")) == SMALLEST
