import numpy as np
import pytest

from tests.forecast.builders import batch_of
from tuner.forecast.batch import WINDOW_STEPS
from tuner.forecast.statistical import FIT_SERIES, Arima, DampedEts
from tuner.values.stages import FloatArray

MODELS = [DampedEts, Arima]


def momentum(steps: int = 400, *, share: float = 0.8, seed: int = 1) -> FloatArray:
    """Return a series whose changes carry on: ARIMA(1,1,0)."""
    rng = np.random.default_rng(seed)
    change, values = 0.0, np.zeros(steps)
    for step in range(1, steps):
        change = share * change + rng.normal()
        values[step] = values[step - 1] + change
    return values


def test_arima_finds_how_much_of_a_change_carries_on() -> None:
    values = momentum()
    member = Arima(horizon=15)

    member.fit(("a",), values[None])
    member.follow(("a",))
    median = member.forecast(batch_of(values[None, -WINDOW_STEPS:]))[0, :, 1]

    newest = values[-1] - values[-2]
    assert median[0] - values[-1] == pytest.approx(0.8 * newest, abs=0.35)
    assert median[-1] - values[-1] == pytest.approx(newest * 0.8 / 0.2, abs=abs(newest) * 1.5 + 0.5)


def test_a_damped_trend_carries_a_line_on() -> None:
    values = 2.0 * np.arange(300.0) + np.random.default_rng(1).normal(size=300) * 0.2
    member = DampedEts(horizon=15)

    member.fit(("a",), values[None])
    member.follow(("a",))
    median = member.forecast(batch_of(values[None, -WINDOW_STEPS:]))[0, :, 1]

    assert median[0] - values[-1] == pytest.approx(2.0, abs=0.7)


@pytest.mark.parametrize("model", MODELS)
def test_the_spread_is_what_its_own_errors_were(model: type[DampedEts] | type[Arima]) -> None:
    values = momentum(1000)
    member = model(horizon=15)
    member.fit(("a",), values[None, :600])
    member.follow(("a",))

    inside = []
    for end in range(600, 980, 4):
        answer = member.forecast(batch_of(values[None, end - WINDOW_STEPS : end]))[0]
        truth = values[end : end + 15]
        inside.append(((truth >= answer[:, 0]) & (truth <= answer[:, 2])).mean())

    assert 0.6 < np.mean(inside) < 0.95


UNFIT = {
    "flat": np.full(300, 3.0),
    "short": momentum(30),
    "empty": np.full(300, np.nan),
    "flat lately": np.concatenate([momentum(200), np.full(200, 1.0)]),
    "mostly missing": np.where(np.arange(300) % 2, np.nan, momentum(300)),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("values", UNFIT.values(), ids=UNFIT.keys())
def test_series_that_cannot_be_fitted_have_no_answer(model: type[DampedEts] | type[Arima], values: FloatArray) -> None:
    member = model(horizon=15)
    member.fit(("a",), values[None])
    member.follow(("a",))

    assert np.isnan(member.forecast(batch_of(momentum()[None, -WINDOW_STEPS:]))).all()


@pytest.mark.parametrize("model", MODELS)
def test_missing_samples_do_not_spread(model: type[DampedEts] | type[Arima]) -> None:
    values = momentum()
    values[np.arange(400) % 9 == 0] = np.nan
    member = model(horizon=15)

    member.fit(("a",), values[None])
    member.follow(("a",))

    assert np.isfinite(member.forecast(batch_of(momentum()[None, -WINDOW_STEPS:]))).all()


def test_series_are_known_by_name_not_by_row() -> None:
    member = Arima(horizon=15)
    member.fit(("a",), momentum()[None])
    member.follow(("new", "a"))

    answer = member.forecast(batch_of(np.stack([momentum()[-WINDOW_STEPS:]] * 2)))

    assert np.isnan(answer[0]).all()
    assert np.isfinite(answer[1]).all()


def test_when_time_is_up_the_rest_keep_their_old_fit() -> None:
    member = Arima(horizon=15)
    rows = np.stack([momentum(), momentum(seed=2)])
    member.fit(("a", "b"), rows)
    before = member._fitted["b"]
    answers = iter([False, True])

    member.fit(("a", "b"), rows[:, :300], expired=lambda: next(answers))

    assert member._fitted["b"] is before
    assert len(member._fitted["a"].parameters) == 2


def test_a_series_that_can_no_longer_be_fitted_loses_its_old_fit() -> None:
    member = Arima(horizon=15)
    member.fit(("a",), momentum()[None])
    member.fit(("a",), np.full((1, 300), 3.0))

    assert member._fitted == {}


def test_a_library_that_fails_costs_one_series_only(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Arima(horizon=15)
    original = member._fit_one

    def failing(values: FloatArray, before: object) -> FloatArray:
        if not fitted:
            fitted.append(1)
            raise np.linalg.LinAlgError("singular matrix")
        return original(values, None)

    fitted: list[int] = []
    monkeypatch.setattr(member, "_fit_one", failing)
    member.fit(("a", "b"), np.stack([momentum(), momentum()]))

    assert set(member._fitted) == {"b"}


def test_parameters_that_are_not_finite_are_no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    member = DampedEts(horizon=15)
    monkeypatch.setattr(member, "_fit_one", lambda *_: np.array([0.5, np.nan, 0.9]))
    member.fit(("a",), momentum()[None])

    assert member._fitted == {}


def test_only_so_many_series_are_fitted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    member = DampedEts(horizon=15)
    monkeypatch.setattr(member, "_fit_one", lambda *_: np.array([0.5, 0.1, 0.9]))
    names = tuple(f"s{row}" for row in range(FIT_SERIES + 5))

    member.fit(names, np.stack([momentum()] * len(names)))

    assert set(member._fitted) == set(names[:FIT_SERIES])
