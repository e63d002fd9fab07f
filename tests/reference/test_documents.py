import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import ChangeRejected
from tuner.reference.documents import ReplayClock, forecast_of, settings_document, settings_of
from tuner.reference.settings import LIMITS, ClockSettings, QueueOrder
from tuner.values.knobs import Role, SchedulerMode

CLOCK = ReplayClock(origin_seconds=1_000_000.0, speed=1.0)
GOOD: dict[str, Any] = settings_document(ClockSettings())


def body(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


@given(
    values=st.fixed_dictionaries({role.value: st.floats(*LIMITS[role]) for role in Role}),
    mode=st.sampled_from(SchedulerMode),
)
def test_a_setting_comes_back_from_json_as_it_went(values: dict[str, Any], mode: SchedulerMode) -> None:
    settings = ClockSettings(**values, mode=mode)

    assert settings_of(json.dumps(settings_document(settings)).encode(), current=ClockSettings()) == settings


def test_what_has_no_key_in_json_stays_as_it_is() -> None:
    current = ClockSettings(order=QueueOrder.SJF, prewarm=False)

    found = settings_of(body(reservation_ratio=0.25), current=current)

    assert (found.order, found.prewarm, found.reservation_ratio) == (QueueOrder.SJF, False, 0.25)


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"{", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b"\xff", "the body is not JSON"),
        (b"[1]", "the body is list, must be a JSON object"),
        (b"{}", "base_slice_seconds, prediction_window_seconds, .*mode is missing; send all of"),
        (body(slice=1), "slice is unknown, must be one of base_slice_seconds"),
        (body(base_slice_seconds="fast"), "base_slice_seconds is 'fast', must be a number"),
        (body(base_slice_seconds=None), "base_slice_seconds is None, must be a number"),
        (body(base_slice_seconds=True), "base_slice_seconds is True, must be a number"),
        (body(base_slice_seconds=0.001), r"base_slice_seconds is 0.001, must be 0.005\.\.5.0"),
        (body(reservation_ratio=math.nan), r"reservation_ratio is nan, must be 0.0\.\.0.9"),
        (body(decision_period_seconds=math.inf), "decision_period_seconds is inf"),
        (body(mode="fast"), "mode is 'fast', must be one of full, simplified, priority_only"),
        (body(mode=[]), r"mode is \[\], must be one of"),
    ],
)
def test_a_bad_setting_is_refused_with_field_value_and_limit(sent: bytes, message: str) -> None:
    with pytest.raises(ChangeRejected, match=message):
        settings_of(sent, current=ClockSettings())


def test_a_forecast_is_turned_to_the_time_of_the_replay() -> None:
    sent = {
        "at_seconds": 1_000_060.0,
        "step_seconds": 60.0,
        "inference_arrivals_per_second": [2.0, 4],
        "window_start_seconds": 1_000_120.0,
        "window_end_seconds": 1_000_180.0,
    }

    forecast = forecast_of(json.dumps(sent).encode(), clock=CLOCK)
    fast = forecast_of(json.dumps(sent).encode(), clock=ReplayClock(origin_seconds=1_000_000.0, speed=10.0))

    assert (forecast.at_seconds, forecast.step_seconds) == (60, 60)
    assert (forecast.window_start_seconds, forecast.window_end_seconds) == (120, 180)
    assert forecast.inference_arrivals_per_second.tolist() == [2, 4]
    assert (fast.at_seconds, fast.step_seconds, fast.window_end_seconds) == (600, 600, 1800)
    # As many requests in a step that is ten times as long in the replay.
    assert fast.inference_arrivals_per_second.tolist() == [0.2, 0.4]


@pytest.mark.parametrize("window", [{}, {"window_start_seconds": None, "window_end_seconds": None}])
def test_a_forecast_without_window_or_rates_is_one(window: dict[str, None]) -> None:
    forecast = forecast_of(json.dumps({"at_seconds": 1e6, "step_seconds": 60, **window}).encode(), clock=CLOCK)

    assert math.isnan(forecast.window_start_seconds)
    assert forecast.inference_arrivals_per_second.size == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"at_seconds": "now"}, "at_seconds is 'now', must be a number"),
        ({"at_seconds": math.inf}, "must be finite"),
        ({"step_seconds": 0}, "the step over 0"),
        ({"inference_arrivals_per_second": 3}, "must be a list of numbers"),
        ({"inference_arrivals_per_second": [1, "2"]}, "must be a list of numbers"),
        ({"inference_arrivals_per_second": [-1]}, "finite numbers, 0 or more"),
        ({"window_start_seconds": 1e6}, "both a start and an end"),
        ({"window_start_seconds": 2e6, "window_end_seconds": 1e6}, "before it starts"),
        ({"horizon": 3}, "horizon is unknown"),
    ],
)
def test_a_bad_forecast_is_refused_with_field_and_value(changes: dict[str, Any], message: str) -> None:
    sent = json.dumps({"at_seconds": 1e6, "step_seconds": 60.0, **changes}).encode()

    with pytest.raises(ChangeRejected, match=message):
        forecast_of(sent, clock=CLOCK)
