"""The physics against closed forms; the functions also run uncompiled, on tiny inputs."""

import math

import numpy as np
import pytest

from tuner.twin import kernels
from tuner.twin.parameters import PARAMETER_NAMES, PRIOR
from tuner.values.stages import FloatArray


def theta(**values: float) -> FloatArray:
    parameters = np.exp(PRIOR)
    for name, value in values.items():
        parameters[PARAMETER_NAMES.index(name)] = value
    return parameters


def knobs(
    *, base_slice: float = 0.1, window: float = 900.0, period: float = 0.75, reservation: float = 0.2
) -> FloatArray:
    return np.array([base_slice, window, period, reservation])


def erlang_c(servers: int, offered: float) -> float:
    """Probability of waiting in M/M/c (A. K. Erlang, 1917), by the stable recursion of the loss formula."""
    loss = 1.0
    for count in range(1, servers + 1):
        loss = offered * loss / (count + offered * loss)
    return loss / (1.0 - offered / servers * (1.0 - loss))


def test_parameters_stand_where_the_kernels_look_for_them() -> None:
    places = [
        kernels.SWITCH,
        kernels.CLUMP,
        kernels.DECISION,
        kernels.DECISION_TASK,
        kernels.PAUSE,
        kernels.MODELS,
        kernels.COLD_FLOOR,
        kernels.GANG_DEMAND,
        kernels.UNUSABLE,
        kernels.TRAINING_STRETCH,
        kernels.INFERENCE_STRETCH,
        kernels.SHARING_STRETCH,
        kernels.BURSTINESS,
        kernels.TRAINING_PATIENCE,
        kernels.INFERENCE_PATIENCE,
        kernels.TURNS,
        kernels.SLOWDOWN,
        kernels.TRAINING_USEFUL,
        kernels.CROWDING,
        kernels.CROWDED_OUT,
        kernels.SLACK,
    ]

    assert places == list(range(len(PARAMETER_NAMES)))
    assert PARAMETER_NAMES[kernels.SLOWDOWN] == "slowdown_share"
    assert PARAMETER_NAMES[kernels.COLD_FLOOR] == "cold_floor_ratio"
    assert PARAMETER_NAMES[kernels.SLACK] == "slack_ratio"
    assert PARAMETER_NAMES[kernels.UNUSABLE] == "unusable_share"
    assert PARAMETER_NAMES[kernels.TRAINING_PATIENCE] == "training_patience_seconds"


@pytest.mark.parametrize(("servers", "offered"), [(20, 16.0), (50, 44.0), (100, 95.0), (400, 380.0)])
def test_probability_of_waiting_is_near_erlang_c(servers: int, offered: float) -> None:
    beta = (servers - offered) / math.sqrt(offered)

    assert kernels.waiting_probability(beta) == pytest.approx(erlang_c(servers, offered), abs=0.04)


def test_probability_of_waiting_is_one_when_full_and_none_when_far_from_it() -> None:
    assert kernels.waiting_probability(0.0) == 1.0
    assert kernels.waiting_probability(-1.0) == 1.0
    assert kernels.waiting_probability(9.0) == 0.0


def test_a_shared_accelerator_loses_switch_over_slice_and_switch_once_it_is_crowded() -> None:
    _, _, switching = kernels.share(1e4, 10.0, 1.0, knobs(base_slice=0.096), theta(switch_seconds=0.004))

    assert switching == pytest.approx(0.04, rel=2e-3)


def test_a_lone_resident_loses_nothing_to_switching() -> None:
    busy, residents, switching = kernels.share(1e-3, 100.0, 1.0, knobs(), theta())

    assert busy == pytest.approx(1e-3, rel=1e-3)
    assert residents == pytest.approx(1.0, abs=1e-4)
    assert switching < 1e-6


def test_residents_are_as_many_as_are_placed_together_while_there_is_room() -> None:
    busy, residents, _ = kernels.share(3.0, 1e4, 3.0, knobs(), theta())

    assert (busy, residents) == pytest.approx((1.0, 3.0), rel=1e-3)


@pytest.mark.parametrize("spread", [0.2, 0.5, 0.9])
def test_clumps_are_such_that_sharing_gives_what_is_seen(spread: float) -> None:
    together = kernels.clump(20.0, 40.0, spread)

    assert kernels.share(20.0, 40.0, together, knobs(), theta())[0] == pytest.approx(20.0 * spread)


def test_requests_that_are_spread_wider_than_there_is_room_share_what_there_is() -> None:
    assert kernels.share(100.0, 10.0, kernels.clump(100.0, 10.0, 1.0), knobs(), theta())[0] == pytest.approx(9.5)


def test_without_requests_a_clump_is_what_their_spread_says() -> None:
    assert kernels.clump(0.0, 10.0, 0.25) == 4.0


def test_a_scheduler_without_slices_shares_without_switching() -> None:
    assert kernels.share(50.0, 10.0, 2.0, knobs(base_slice=np.nan), theta())[2] == 0.0


def test_no_requests_keep_nothing_busy() -> None:
    assert kernels.share(0.0, 100.0, 2.0, knobs(), theta()) == (0.0, 1.0, 0.0)


def test_busy_accelerators_never_exceed_what_is_free() -> None:
    busy, _, _ = kernels.share(1e6, 30.0, 2.0, knobs(), theta())

    assert busy == pytest.approx(30.0)


def test_decisions_run_back_to_back_where_they_take_longer_than_the_period() -> None:
    decision, period, _ = kernels.decide(1000.0, knobs(period=0.5), kernels.FULL, theta(decision_task_seconds=0.01))

    assert decision > 10.0
    assert period == decision


def test_a_pause_costs_its_share_of_the_period() -> None:
    _, _, paused = kernels.decide(0.0, knobs(period=0.5), kernels.FULL, theta(pause_seconds=0.01))

    assert paused == pytest.approx(0.02)


def test_simplified_decisions_are_cheaper() -> None:
    full = kernels.decide(100.0, knobs(), kernels.FULL, theta())[0]
    simplified = kernels.decide(100.0, knobs(), kernels.SIMPLIFIED, theta())[0]

    assert simplified == pytest.approx(full * kernels.SIMPLIFIED_DECISION_RATIO)


def test_an_absent_period_neither_pauses_nor_waits() -> None:
    decision, period, paused = kernels.decide(0.0, knobs(period=np.nan), kernels.FULL, theta(decision_seconds=0.05))

    assert (decision, period, paused) == pytest.approx((0.05, 0.05, 0.0))


def test_models_are_forgotten_as_the_mixture_of_exponentials_says() -> None:
    generator = np.random.default_rng(1)
    rates = generator.exponential(2.0 / 20.0, 200_000)
    # An arrival chooses a model in proportion to its rate, and finds it cold if it had none within the window.
    cold_expected = (rates * np.exp(-rates * 60.0)).sum() / rates.sum()

    cold = kernels.chilled(2.0, knobs(window=60.0), theta(model_count=20.0, cold_floor_ratio=1e-9))

    assert cold == pytest.approx(cold_expected, rel=0.05)


def test_a_longer_window_forgets_less_down_to_a_floor() -> None:
    known = theta(cold_floor_ratio=0.03)
    short, long, longest = (kernels.chilled(2.0, knobs(window=window), known) for window in (60.0, 600.0, 1e9))

    assert short > long > longest
    assert longest == pytest.approx(0.03)


def test_an_absent_window_is_without_effect() -> None:
    assert kernels.chilled(2.0, knobs(window=np.nan), theta()) == 0.0


def test_the_more_training_asks_for_the_more_of_it_is_gangs() -> None:
    small, middle, large = (kernels.shared_part(demand, theta()) for demand in (0.5, 1.5, 12.0))

    assert small[0] > 0.85
    assert middle[0] == pytest.approx(0.5)
    assert large[0] < 0.02
    # By number, tasks that share are at least as common as by what they hold.
    assert all(count >= share for share, count in (small, middle, large))


TASKS = np.array([0.0, 1.0, 20.0, 20.0, 10.0])
DEMAND = np.array([0.0, 8.0, 8.0, 0.25, 0.25])
WAITING = np.array([0.0, 0.0, 30.0, 0.0, 0.0])
NOBODY = np.zeros(5)


def test_gangs_that_wait_show_how_much_they_can_use() -> None:
    gangs = (1.0 - kernels.shared_part(8.0, theta())[0]) * 21.0 * 8.0

    quiet = kernels.usable_by_gangs(TASKS, NOBODY, DEMAND, 300.0, 240.0, 240.0, 0.4, theta(unusable_share=0.05))
    crowded = kernels.usable_by_gangs(TASKS, WAITING, DEMAND, 300.0, 240.0, 240.0, 0.4, theta(unusable_share=0.05))

    assert quiet == pytest.approx(0.95 * 240.0)
    assert gangs < crowded < quiet


def test_a_reserve_that_opens_goes_to_gangs_and_one_that_grows_takes_in_proportion() -> None:
    now, more, less = (
        kernels.usable_by_gangs(TASKS, WAITING, DEMAND, 300.0, 240.0, ceiling, 0.4, theta(unusable_share=0.05))
        for ceiling in (240.0, 260.0, 180.0)
    )

    assert more - now == pytest.approx(0.95 * 20.0)
    assert less == pytest.approx(0.75 * now)


def test_waiting_gangs_leave_requests_little_more_than_they_hold() -> None:
    known = theta(slack_ratio=0.25)

    assert kernels.taken_by_gangs(TASKS, NOBODY, DEMAND, 300.0, 240.0, 0.4, known) == 0.0
    taken = kernels.taken_by_gangs(TASKS, WAITING, DEMAND, 300.0, 240.0, 0.4, known)
    share, count = kernels.shared_part(8.0, known)
    pool = 240.0 - (1.0 - share) * 168.0
    kept = (20.0 + count * 21.0 * pool / (pool + 60.0)) * 0.4 * 1.25
    assert taken == pytest.approx((pool - kept) * kernels.pressure(count, WAITING))


def test_pressure_rises_with_the_gangs_that_wait() -> None:
    none, one, many = (kernels.pressure(0.5, np.array([0.0, 0.0, waits, 5.0, 5.0])) for waits in (0.0, 2.0, 200.0))

    assert (none, one) == (0.0, 0.5)
    assert many > 0.98


def test_quantiles_are_those_of_recent_windows_in_the_mean() -> None:
    calm, jam = np.tile(part(low=1.0), (10, 1)), np.tile(part(low=61.0), (10, 1))

    assert kernels.recent_quantile(np.concatenate([calm, calm, jam]), 30.0, 1) == pytest.approx(21.0, rel=1e-3)
    assert kernels.recent_quantile(calm[:3], 30.0, 1) == pytest.approx(1.0, rel=1e-3)


def part(*, low: float = 0.0, width: float = 0.0, probability: float = 0.0, excess: float = 0.0) -> FloatArray:
    return np.array([[1.0, low, width, probability, excess]])


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (part(low=2.0, width=10.0), 11.5),
        (part(low=3.0), 3.0),
        (part(probability=1.0, excess=4.0), 4.0 * math.log(20.0)),
        (part(probability=0.5, excess=4.0), 4.0 * math.log(10.0)),
        (np.zeros((3, 5)), 0.0),
    ],
)
def test_95th_percentile_of_waiting_follows_its_distribution(parts: FloatArray, expected: float) -> None:
    assert kernels.wait_quantile(parts) == pytest.approx(expected, rel=1e-3)


def test_95th_percentile_of_a_mixture_weighs_its_parts() -> None:
    short, long = part(low=1.0), part(low=100.0)
    short[0, kernels.WEIGHT] = 9.0

    assert kernels.wait_quantile(np.concatenate([short, long])) == pytest.approx(100.0, rel=1e-3)
    short[0, kernels.WEIGHT] = 99.0
    assert kernels.wait_quantile(np.concatenate([short, long])) == pytest.approx(1.0, rel=1e-3)
