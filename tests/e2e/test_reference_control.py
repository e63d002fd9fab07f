"""The HTTP actuator against the reference scheduler's own server."""

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest

from tests.support.forecasts import small_forecast
from tuner.apply.http import HttpActuator
from tuner.errors import ChangeConflicted, ChangeRejected
from tuner.reference.cluster import PRESETS
from tuner.reference.demand import DemandForecast
from tuner.reference.scheduler import ReferenceScheduler
from tuner.reference.server import ReferenceServer
from tuner.reference.settings import ClockSettings
from tuner.reference.trace import make_trace
from tuner.settings.loading import load_policy
from tuner.settings.model import HttpActuator as HttpActuatorSettings
from tuner.values.knobs import KnobValues, Role, SchedulerMode

pytestmark = pytest.mark.e2e

REFERENCE = Path(__file__).parents[2] / "policies" / "reference.yaml"


@pytest.fixture(scope="module")
def server() -> Iterator[ReferenceServer]:
    trace = make_trace(
        "made up",
        submit_seconds=np.arange(0.0, 600.0, 10.0),
        service_seconds=np.full(60, 30.0),
        gpus=np.ones(60),
    )
    with ReferenceServer(trace, PRESETS["edge"], settings=ClockSettings(), seed=1, listen="127.0.0.1:0") as running:
        yield running


def connect(url: str) -> HttpActuator:
    policy = load_policy(REFERENCE)
    assert isinstance(policy.actuator, HttpActuatorSettings)
    settings = policy.actuator.model_copy(update={"url": f"{url}/config", "forecast_url": f"{url}/forecast"})
    return HttpActuator(settings, policy.knobs)


@pytest.fixture
def actuator(server: ReferenceServer) -> HttpActuator:
    return connect(server.url)


def test_a_change_is_in_force_when_the_write_returns(actuator: HttpActuator) -> None:
    before = actuator.read()
    wanted = KnobValues.of({**before.knobs, Role.BASE_SLICE: 0.095, Role.RESERVATION: 0.17})

    after = actuator.write(wanted, expected_revision=before.revision, mode=SchedulerMode.SIMPLIFIED)

    assert after.knobs == wanted
    assert after.mode is SchedulerMode.SIMPLIFIED
    assert actuator.read() == after
    assert after.revision != before.revision


def test_a_second_writer_with_the_old_revision_is_refused(server: ReferenceServer, actuator: HttpActuator) -> None:
    before = actuator.read()
    theirs = KnobValues.of({**before.knobs, Role.DECISION_PERIOD: 0.6})
    connect(server.url).write(theirs, expected_revision=before.revision)

    with pytest.raises(ChangeConflicted, match="somebody else changed them; nothing was written"):
        actuator.write(KnobValues.of({**before.knobs, Role.DECISION_PERIOD: 0.9}), expected_revision=before.revision)

    assert actuator.read().knobs == theirs


def test_a_value_beyond_the_scheduler_s_limits_is_refused_in_its_words(actuator: HttpActuator) -> None:
    before = actuator.read()

    with pytest.raises(ChangeRejected, match=r"prediction_window_seconds is 9000\.0, must be 30\.0\.\.7200\.0"):
        actuator.write(
            KnobValues.of({**before.knobs, Role.PREDICTION_WINDOW: 9000.0}), expected_revision=before.revision
        )

    assert actuator.read() == before


def test_a_forecast_reaches_the_scheduler(actuator: HttpActuator, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: SimpleQueue[DemandForecast] = SimpleQueue()
    take = ReferenceScheduler.set_forecast

    def seen(scheduler: ReferenceScheduler, forecast: DemandForecast) -> None:
        take(scheduler, forecast)
        taken.put(forecast)

    monkeypatch.setattr(ReferenceScheduler, "set_forecast", seen)

    actuator.send_forecast(small_forecast())

    assert taken.get(timeout=10).inference_arrivals_per_second.tolist() == [0.0, 2.0, 5.0]
