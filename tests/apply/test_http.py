from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.actuators import MIDDLE, HttpScheduler, http_scheduler
from tests.support.forecasts import small_forecast
from tuner.apply.forecasts import forecast_document
from tuner.apply.http import HttpActuator
from tuner.errors import ActuatorUnavailable, ChangeConflicted, ChangeRejected, PermanentError
from tuner.settings.model import HttpActuator as HttpActuatorSettings
from tuner.settings.model import KnobMapping
from tuner.values.knobs import KnobValues, Role, SchedulerMode

OTHER = KnobValues.of({**MIDDLE, Role.BASE_SLICE: 0.1})
FLAT_KNOBS = {role: KnobMapping(native=role.value) for role in Role}


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def scheduler() -> Iterator[HttpScheduler]:
    with http_scheduler() as running:
        yield running


@pytest.fixture
def fake_time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def actuator(scheduler: HttpScheduler, fake_time: FakeTime) -> HttpActuator:
    return connect(scheduler, fake_time)


def connect(
    scheduler: HttpScheduler,
    fake_time: FakeTime,
    *,
    knobs: dict[Role, KnobMapping] = FLAT_KNOBS,
    timeout_seconds: float = 5.0,
    token_file: Path | None = None,
    mode_key: str | None = "mode",
) -> HttpActuator:
    settings = HttpActuatorSettings(
        url=f"{scheduler.url}/config",
        forecast_url=f"{scheduler.url}/forecast",
        timeout_seconds=timeout_seconds,
        effective_within_seconds=10.0,
        token_file=None if token_file is None else str(token_file),
        mode_key=mode_key,
    )
    return HttpActuator(settings, knobs, clock=fake_time.clock, sleep=fake_time.sleep)


def test_unknown_settings_are_written_back_as_they_were(scheduler: HttpScheduler, actuator: HttpActuator) -> None:
    scheduler.edit(theirs={"nested": [1, 2.5, None, "ü"]})

    actuator.write(OTHER, expected_revision=actuator.read().revision)

    assert scheduler.settings["theirs"] == {"nested": [1, 2.5, None, "ü"]}
    assert scheduler.settings["tiers"] is True
    assert scheduler.settings["base_slice_seconds"] == 0.1


def test_the_name_of_the_scheduler_s_process_is_told_where_it_has_one(
    scheduler: HttpScheduler, actuator: HttpActuator
) -> None:
    nameless = actuator.read()
    scheduler.faults.instance = "7f3a"

    assert nameless.instance == ""
    assert actuator.read().instance == "7f3a"


def test_a_scheduler_without_policy_modes_runs_all_that_it_has_and_is_never_asked_for_one(
    scheduler: HttpScheduler, fake_time: FakeTime
) -> None:
    actuator = connect(scheduler, fake_time, mode_key=None)
    scheduler.edit(mode="a word of its own")
    before = actuator.read()

    with pytest.raises(ChangeRejected, match="no policy modes"):
        actuator.write(OTHER, expected_revision=before.revision, mode=SchedulerMode.SIMPLIFIED)
    untouched = actuator.read()
    written = actuator.write(OTHER, expected_revision=before.revision)

    assert before.mode is untouched.mode is SchedulerMode.FULL
    assert untouched.revision == before.revision
    assert written.knobs == OTHER
    assert scheduler.settings["mode"] == "a word of its own"


def test_native_names_units_and_words_are_used(scheduler: HttpScheduler, fake_time: FakeTime) -> None:
    scheduler.settings = {"gpu": {"slice_ms": 115, "keep": 1}, "reserve": "normal", "mode": "full"}
    knobs = {
        Role.BASE_SLICE: KnobMapping(native="gpu.slice_ms", scale=1000, round_to=1),
        Role.PREDICTION_WINDOW: KnobMapping(absent="none here"),
        Role.DECISION_PERIOD: KnobMapping(absent="none here"),
        Role.RESERVATION: KnobMapping(native="reserve", choices={"normal": 0.2, "large": 0.25}),
    }
    actuator = connect(scheduler, fake_time, knobs=knobs)
    before = actuator.read()
    wanted = KnobValues.of({Role.BASE_SLICE: 0.09, Role.RESERVATION: 0.24})

    after = actuator.write(wanted, expected_revision=before.revision)

    assert dict(before.knobs) == {Role.BASE_SLICE: 0.115, Role.RESERVATION: 0.2}
    assert scheduler.settings == {"gpu": {"slice_ms": 90, "keep": 1}, "reserve": "large", "mode": "full"}
    assert dict(after.knobs) == {Role.BASE_SLICE: 0.09, Role.RESERVATION: 0.25}


def test_a_role_without_a_native_name_lives_in_the_actuator(scheduler: HttpScheduler, fake_time: FakeTime) -> None:
    actuator = connect(scheduler, fake_time, knobs={**FLAT_KNOBS, Role.PREDICTION_WINDOW: KnobMapping()})
    before = actuator.read()
    wanted = KnobValues.of({**MIDDLE, Role.PREDICTION_WINDOW: 1080.0})

    actuator.write(wanted, expected_revision=before.revision)

    assert before.knobs[Role.PREDICTION_WINDOW] == 900.0
    assert actuator.read().knobs == wanted
    assert scheduler.puts() == []


def test_a_scheduler_without_modes_runs_in_full(scheduler: HttpScheduler, actuator: HttpActuator) -> None:
    del scheduler.settings["mode"]

    assert actuator.read().mode is SchedulerMode.FULL


def test_a_race_that_is_lost_at_the_last_moment_is_a_conflict(
    scheduler: HttpScheduler, actuator: HttpActuator, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = actuator.read().revision
    put = scheduler.put

    def somebody_is_quicker(body: bytes, *, if_match: str) -> tuple[int, bytes]:
        scheduler.edit(base_slice_seconds=0.14)
        return put(body, if_match=if_match)

    monkeypatch.setattr(HttpScheduler, "put", staticmethod(somebody_is_quicker))

    with pytest.raises(ChangeConflicted, match=r'answers 409 to the setting: the settings are at "2", not at "1"'):
        actuator.write(OTHER, expected_revision=revision)
    assert scheduler.settings["base_slice_seconds"] == 0.14


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (412, ChangeConflicted),
        (400, ChangeRejected),
        (403, ChangeRejected),
        (302, ChangeRejected),
        (429, ActuatorUnavailable),
        (500, ActuatorUnavailable),
        (503, ActuatorUnavailable),
    ],
)
def test_each_status_of_a_write_has_its_error(
    status: int, error: type[Exception], scheduler: HttpScheduler, actuator: HttpActuator
) -> None:
    scheduler.faults.put_status = status
    scheduler.faults.put_applies = False
    revision = actuator.read().revision

    with pytest.raises(error, match=f"answers {status} to the setting: something broke"):
        actuator.write(OTHER, expected_revision=revision)
    assert len(scheduler.puts()) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, PermanentError), (404, PermanentError), (429, ActuatorUnavailable), (502, ActuatorUnavailable)],
)
def test_each_status_of_a_read_has_its_error(
    status: int, error: type[Exception], scheduler: HttpScheduler, actuator: HttpActuator
) -> None:
    scheduler.faults.get_status = status

    with pytest.raises(error, match=f"answers {status}: out of order"):
        actuator.read()


def test_the_scheduler_s_own_words_are_repeated(scheduler: HttpScheduler, actuator: HttpActuator) -> None:
    revision = actuator.read().revision
    too_long = KnobValues.of({**MIDDLE, Role.PREDICTION_WINDOW: 9000.0})

    with pytest.raises(ChangeRejected, match="answers 422 to the setting: a value is over 5000; nothing was written"):
        actuator.write(too_long, expected_revision=revision)
    assert scheduler.settings["prediction_window_seconds"] == 900.0


def test_a_server_error_after_the_effect_counts_as_written(scheduler: HttpScheduler, actuator: HttpActuator) -> None:
    scheduler.faults.put_status = 500

    after = actuator.write(OTHER, expected_revision=actuator.read().revision)

    assert after.knobs == OTHER
    assert len(scheduler.puts()) == 1


def test_a_server_error_without_effect_says_that_nothing_has_changed(
    scheduler: HttpScheduler, actuator: HttpActuator
) -> None:
    scheduler.faults.put_status = 500
    scheduler.faults.put_applies = False
    revision = actuator.read().revision

    with pytest.raises(ActuatorUnavailable, match="read back: nothing has changed"):
        actuator.write(OTHER, expected_revision=revision)


def test_a_server_error_with_another_effect_says_so(scheduler: HttpScheduler, actuator: HttpActuator) -> None:
    scheduler.faults.put_status = 500
    scheduler.faults.round_to = 0.25
    revision = actuator.read().revision

    with pytest.raises(ActuatorUnavailable, match="read back: something else is in force"):
        actuator.write(OTHER, expected_revision=revision)


def test_a_scheduler_that_dies_after_a_write_leaves_it_unknown(
    scheduler: HttpScheduler, actuator: HttpActuator, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = actuator.read().revision
    put = scheduler.put

    def written_and_dead(body: bytes, *, if_match: str) -> tuple[int, bytes]:
        scheduler.faults.get_status = 503
        put(body, if_match=if_match)
        return 500, b"dying"

    monkeypatch.setattr(HttpScheduler, "put", staticmethod(written_and_dead))

    with pytest.raises(ActuatorUnavailable, match="it is unknown what is in force"):
        actuator.write(OTHER, expected_revision=revision)


def test_a_good_write_that_cannot_be_read_back_is_no_success(
    scheduler: HttpScheduler, actuator: HttpActuator, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = actuator.read().revision
    put = scheduler.put

    def written_and_gone(body: bytes, *, if_match: str) -> tuple[int, bytes]:
        scheduler.faults.get_status = 503
        return put(body, if_match=if_match)

    monkeypatch.setattr(HttpScheduler, "put", staticmethod(written_and_gone))

    with pytest.raises(ActuatorUnavailable, match="were written, but cannot be read back"):
        actuator.write(OTHER, expected_revision=revision)


def test_a_timeout_after_the_effect_counts_as_written(scheduler: HttpScheduler, fake_time: FakeTime) -> None:
    actuator = connect(scheduler, fake_time, timeout_seconds=0.3)
    scheduler.faults.put_answer_after_seconds = 0.6

    after = actuator.write(OTHER, expected_revision=actuator.read().revision)

    assert after.knobs == OTHER
    assert len(scheduler.puts()) == 1


def test_a_timeout_without_effect_says_that_nothing_has_changed(scheduler: HttpScheduler, fake_time: FakeTime) -> None:
    actuator = connect(scheduler, fake_time, timeout_seconds=0.3)
    scheduler.faults.put_answer_after_seconds = 0.6
    scheduler.faults.ignores_writes = True
    revision = actuator.read().revision

    with pytest.raises(ActuatorUnavailable, match=r"no answer within 0\.3 s; read back: nothing has changed"):
        actuator.write(OTHER, expected_revision=revision)


def test_a_value_that_takes_its_time_is_awaited_with_growing_pauses(
    scheduler: HttpScheduler, actuator: HttpActuator, fake_time: FakeTime
) -> None:
    revision = actuator.read().revision
    scheduler.faults.effective_after_gets = 6

    written = actuator.write(OTHER, expected_revision=revision)
    after = actuator.await_effect(OTHER)

    assert written.knobs == MIDDLE
    assert after.knobs == OTHER
    assert fake_time.pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8])


def test_a_value_that_never_comes_is_given_up_in_time_and_told_as_it_is(
    scheduler: HttpScheduler, actuator: HttpActuator, fake_time: FakeTime
) -> None:
    scheduler.faults.ignores_writes = True

    actuator.write(OTHER, expected_revision=actuator.read().revision)
    after = actuator.await_effect(OTHER)

    assert after.knobs == MIDDLE
    assert 9.0 < fake_time.now <= 10.0


def test_a_policy_mode_is_awaited_as_a_knob_is(scheduler: HttpScheduler, actuator: HttpActuator) -> None:
    actuator.write(KnobValues(()), expected_revision=None, mode=SchedulerMode.SIMPLIFIED)

    after = actuator.await_effect(KnobValues(()), mode=SchedulerMode.SIMPLIFIED)

    assert after.mode is SchedulerMode.SIMPLIFIED
    assert after.knobs == MIDDLE


def test_settings_that_nobody_can_have_meant_are_written_over_whatever_their_revision(
    scheduler: HttpScheduler, actuator: HttpActuator
) -> None:
    scheduler.edit(base_slice_seconds="fast")

    after = actuator.write(OTHER, expected_revision=None)

    assert after.knobs == OTHER


def test_a_scheduler_that_falls_silent_after_a_write_leaves_the_outcome_unknown(
    scheduler: HttpScheduler, actuator: HttpActuator
) -> None:
    scheduler.faults.get_status = 503

    with pytest.raises(ActuatorUnavailable, match="unknown what is in force"):
        actuator.await_effect(OTHER)


def test_a_value_that_the_scheduler_rounds_is_told_as_it_is(scheduler: HttpScheduler, actuator: HttpActuator) -> None:
    scheduler.faults.round_to = 0.25

    after = actuator.write(OTHER, expected_revision=actuator.read().revision)

    assert after.knobs[Role.BASE_SLICE] == 0.0
    assert after.knobs.differs(OTHER) == (Role.BASE_SLICE, Role.RESERVATION)


def _without(key: str) -> Callable[[HttpScheduler], None]:
    return lambda scheduler: scheduler.settings.pop(key)


def _body(content: bytes) -> Callable[[HttpScheduler], None]:
    return lambda scheduler: setattr(scheduler.faults, "body", content)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_without("base_slice_seconds"), "has no setting base_slice_seconds; check knobs.base_slice_seconds.native"),
        (lambda s: s.edit(base_slice_seconds="fast"), "base_slice_seconds is 'fast', must be a finite number"),
        (lambda s: s.edit(base_slice_seconds=True), "base_slice_seconds is True, must be a finite number"),
        (lambda s: s.edit(mode="turbo"), "mode is 'turbo', must be one of full, simplified, priority_only"),
        (_body(b"<html>Log in</html>"), "answers no JSON object: <html>Log in</html>; check actuator.url"),
        (_body(b"[1]"), "answers no JSON object"),
        (_body(b'{"theirs": NaN}'), "answers no JSON object"),
        (_body(b'{"theirs": -1e999}'), "answers no JSON object"),
        (_body(b"[" * 100_000), "answers no JSON object"),
        (lambda s: setattr(s.faults, "etag", False), "sends no usable ETag"),
    ],
)
def test_what_does_not_fit_the_policy_is_told_with_what_to_check(
    spoil: Callable[[HttpScheduler], None], message: str, scheduler: HttpScheduler, actuator: HttpActuator
) -> None:
    spoil(scheduler)

    with pytest.raises(PermanentError) as caught:
        actuator.read()

    assert message in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_setting_below_a_value_is_refused_before_anything_is_sent(
    scheduler: HttpScheduler, fake_time: FakeTime
) -> None:
    scheduler.settings = {"gpu": 5, "mode": "full"}
    actuator = connect(scheduler, fake_time, knobs={Role.BASE_SLICE: KnobMapping(native="gpu.slice")})

    with pytest.raises(ChangeRejected, match=r"gpu\.slice stands below a setting that holds no keys"):
        actuator.write(KnobValues.of({Role.BASE_SLICE: 0.1}), expected_revision=scheduler.etag)
    assert scheduler.puts() == []


def test_the_token_is_read_anew_for_each_request(scheduler: HttpScheduler, fake_time: FakeTime, tmp_path: Path) -> None:
    token = tmp_path / "token"
    actuator = connect(scheduler, fake_time, token_file=token)

    token.write_text("first\n")
    actuator.read()
    token.write_text("second")
    actuator.read()

    assert [headers["Authorization"] for _, _, headers, _ in scheduler.requests] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("content", [b"", b"two secret words", b"secret\r\nX-Other: 1", b"s\xe9cret", None])
def test_an_unusable_token_is_told_without_being_shown(
    content: bytes | None, scheduler: HttpScheduler, fake_time: FakeTime, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    actuator = connect(scheduler, fake_time, token_file=token)

    with pytest.raises(PermanentError, match=r"check actuator\.token_file") as caught:
        actuator.read()

    assert "cret" not in str(caught.value)
    assert scheduler.requests == []


def test_errors_never_show_the_token(scheduler: HttpScheduler, fake_time: FakeTime, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("very-secret")
    actuator = connect(scheduler, fake_time, token_file=token)
    scheduler.faults.get_status = 401

    with pytest.raises(PermanentError) as caught:
        actuator.read()

    assert "very-secret" not in str(caught.value)
    assert "very-secret" not in repr(actuator)


def test_forecasts_are_handed_over(scheduler: HttpScheduler, actuator: HttpActuator) -> None:
    actuator.send_forecast(small_forecast())

    assert scheduler.puts("/forecast") == [forecast_document(small_forecast())]


@pytest.mark.parametrize(("status", "error"), [(400, ChangeRejected), (500, ActuatorUnavailable)])
def test_a_refused_forecast_is_told(
    status: int, error: type[Exception], scheduler: HttpScheduler, actuator: HttpActuator
) -> None:
    scheduler.faults.put_status = status

    with pytest.raises(error, match=f"answers {status} to the forecast"):
        actuator.send_forecast(small_forecast())


def test_without_an_address_no_forecast_is_sent(scheduler: HttpScheduler) -> None:
    HttpActuator(HttpActuatorSettings(url=f"{scheduler.url}/config"), FLAT_KNOBS).send_forecast(small_forecast())

    assert scheduler.requests == []
