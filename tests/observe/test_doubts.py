"""Which values contradict one another so far that they are not believed."""

import math

import pytest

from tuner.observe.belief import Problems
from tuner.observe.doubts import of_utilization

ZERO = {"accelerator_utilization_ratio": 0.0, "resource_idle_ratio": 0.2, "node_power_watts": 1400.0}
FOUR_A_NODE = {"accelerators_count": 16.0, "nodes_count": 4.0}


@pytest.mark.parametrize(
    ("metrics", "context", "doubted"),
    [
        pytest.param({}, FOUR_A_NODE, True, id="zero, allocated, 350 W each"),
        pytest.param({"accelerator_utilization_ratio": 1e-4}, FOUR_A_NODE, False, id="a little use"),
        pytest.param({"resource_idle_ratio": 0.95}, FOUR_A_NODE, False, id="hardly allocated"),
        pytest.param({"node_power_watts": 300.0}, FOUR_A_NODE, False, id="at rest"),
        pytest.param({"node_power_watts": 300.0}, {}, True, id="one accelerator a node where nothing is known"),
        pytest.param({}, {"accelerators_count": 0.0, "nodes_count": 4.0}, True, id="none a node is not known"),
        pytest.param({}, {**FOUR_A_NODE, "accelerators_count": 64.0}, False, id="sixteen small ones a node"),
        pytest.param({"node_power_watts": math.nan}, FOUR_A_NODE, False, id="power unknown"),
        pytest.param({"resource_idle_ratio": math.nan}, FOUR_A_NODE, False, id="allocation unknown"),
        pytest.param({"accelerator_utilization_ratio": math.nan}, FOUR_A_NODE, False, id="no utilisation"),
    ],
)
def test_a_utilisation_of_zero_is_doubted_only_where_all_else_speaks_against_it(
    metrics: dict[str, float], context: dict[str, float], doubted: bool
) -> None:
    problems = Problems()

    assert of_utilization(problems, {**ZERO, **metrics}, context) is doubted
    assert [problem.reason for problem in problems.all()] == (["implausible"] if doubted else [])


def test_what_a_policy_does_not_map_speaks_against_nothing() -> None:
    assert not of_utilization(Problems(), {}, {})
