import numpy as np
import pytest

from tuner.forecast.batch import COVARIATE_FEATURES, Batch
from tuner.forecast.describe import Describer, known_ratio, spread_of
from tuner.forecast.origins import batch_at
from tuner.values.stages import FloatArray, SeriesFrame

NOTHING = np.full(COVARIATE_FEATURES, np.nan)
DAY = 1440
EXACT = ["window", "known", "scale", "reach", "held", "still", "yesterday", "typical"]


def series(steps: int, *, seed: int = 1) -> FloatArray:
    """Return a daily cycle with noise."""
    rng = np.random.default_rng(seed)
    return 50 + 20 * np.sin(2 * np.pi * np.arange(steps) / DAY) + rng.normal(size=steps)


def seen(values: FloatArray, *, name: str = "x", nodes_of: str | None = None) -> Batch:
    """Describe a series as in life: shown in pieces, the last of which ends at its end."""
    describer = Describer(horizon=20, nodes_of=nodes_of)
    piece = 45
    for end in range(len(values) % piece or piece, len(values) + 1, piece):
        frame = SeriesFrame((name,), (end - 1) * 60.0, values[None, max(end - 60, 0) : end])
        describer.merge(frame)
    return describer.batch(NOTHING)


@pytest.mark.parametrize("field", EXACT)
def test_scoring_describes_a_series_as_life_does(field: str) -> None:
    values = series(3 * DAY + 300)

    live = getattr(seen(values), field)
    scored = getattr(batch_at(values, np.array([len(values) - 1]), horizon=20), field)

    np.testing.assert_allclose(live, scored, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("field", EXACT)
def test_scoring_describes_a_node_as_life_does(field: str) -> None:
    # The last step ends a block of five, the phase that stands for all in scoring.
    values = series(DAY + 295)

    live = getattr(seen(values, nodes_of="accelerator_utilization_ratio"), field)
    scored = getattr(batch_at(values, np.array([len(values) - 1]), horizon=20, as_node=True), field)

    np.testing.assert_allclose(live, scored, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("nodes_of", "steps"), [(None, 9 * DAY + 300), ("node_power_watts", DAY + 295)])
def test_scoring_sees_the_long_run_nearly_as_life_does(nodes_of: str | None, steps: int) -> None:
    # In life blocks of five minutes follow each other; scoring takes blocks that end at every minute.
    values = series(steps)

    live = seen(values, nodes_of=nodes_of)
    scored = batch_at(values, np.array([len(values) - 1]), horizon=20, as_node=nodes_of is not None)

    np.testing.assert_allclose(live.movements, scored.movements, rtol=0.1)
    np.testing.assert_allclose(live.levels, scored.levels, rtol=0.02)


def test_scoring_sees_what_holds_still_as_life_does() -> None:
    # Running sums of tenths leave a remainder: it must not look like movement.
    values = np.repeat(np.random.default_rng(1).normal(size=60) + 0.1, 53)

    live, scored = seen(values), batch_at(values, np.array([len(values) - 1]), horizon=20)

    assert live.held[0] == pytest.approx(0.62, abs=0.05)
    assert scored.held[0] == pytest.approx(live.held[0], abs=0.05)


def test_a_young_tuner_is_described_as_in_life() -> None:
    values = series(3 * DAY)
    young = seen(values[-120:])

    scored = batch_at(values, np.array([len(values) - 1]), horizon=20, memory_steps=120)

    for field in EXACT:
        np.testing.assert_allclose(getattr(young, field), getattr(scored, field), rtol=1e-9, err_msg=field)
    np.testing.assert_allclose(young.movements, scored.movements, rtol=0.25, atol=0.05)
    np.testing.assert_allclose(young.levels, scored.levels, rtol=0.02)


def test_a_description_knows_nothing_of_what_follows_its_origin() -> None:
    values = series(2 * DAY)
    spoiled = values.copy()
    spoiled[2000:] = 1e6

    clean, same = (batch_at(one, np.array([1999]), horizon=20, past=values[:1000]) for one in (values, spoiled))

    for name in ("window", "scale", "reach", "movements", "levels", "held", "still", "yesterday", "typical"):
        np.testing.assert_allclose(getattr(clean, name), getattr(same, name), rtol=1e-9, err_msg=name)


@pytest.mark.parametrize(
    ("points", "ratio"),
    [([1.0] * 30, 1.0), ([np.nan] * 23 + [1.0] * 7, 0.0), ([np.nan] * 20 + [1.0] * 10, 1.0), ([1.0, np.nan] * 15, 0.5)],
    ids=["full", "too short", "short", "every other"],
)
def test_a_short_history_is_no_gap(points: list[float], ratio: float) -> None:
    assert known_ratio(np.array([points]))[0] == pytest.approx(ratio)


def test_ceilings_come_from_the_catalogue_unless_the_series_breaks_them() -> None:
    describer = Describer(horizon=20)
    names = ("resource_idle_ratio", "accelerator_utilization_ratio", "queue_length", "cold_start_ratio")
    values = np.array([[0.5, 0.6], [0.5, 60.0], [3.0, 4.0], [0.1, 0.2]])
    describer.merge(SeriesFrame(names, 6000.0, values))

    np.testing.assert_array_equal(describer.batch(NOTHING).ceiling, [1.0, np.inf, np.inf, 1.0])


def test_only_series_that_were_never_negative_have_a_floor() -> None:
    describer = Describer(horizon=20)
    describer.merge(SeriesFrame(("a", "b"), 6000.0, np.array([[0.0, 1.0], [-1.0, 1.0]])))

    np.testing.assert_array_equal(describer.batch(NOTHING).floor, [0.0, -np.inf])


def test_a_big_fleet_shares_the_shape_of_its_spread_but_not_the_size() -> None:
    rng = np.random.default_rng(3)
    sizes = np.linspace(1, 5, 400)
    values = sizes[:, None] * rng.normal(size=(400, 60)).cumsum(axis=1)
    values[0] = 3.0
    names = tuple(f"n{row}" for row in range(400))

    low, high = spread_of(values, names=names, horizon=20)
    shuffled = rng.permutation(400)
    again, _ = spread_of(values[shuffled], names=tuple(names[row] for row in shuffled), horizon=20)

    assert (low[0] == 0).all()
    assert (high[1:] > 0).all()
    np.testing.assert_allclose(again, low[shuffled])


def test_a_fleet_that_never_moves_has_no_spread() -> None:
    low, high = spread_of(np.ones((300, 60)), names=tuple(map(str, range(300))), horizon=20)

    assert (low == 0).all()
    assert (high == 0).all()
