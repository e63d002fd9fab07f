"""What tests of the reference scheduler share."""

from collections.abc import Callable

import pytest

from tuner.reference.cluster import ClusterSpec
from tuner.reference.physics import RANGES, PhysicalConstants
from tuner.reference.scheduler import warm_up


def pytest_collection_finish() -> None:
    """Compile the engine before the clock of any test runs: without numba's cache that takes up to a minute."""
    warm_up()


@pytest.fixture
def small() -> ClusterSpec:
    """Two zones of two nodes, four accelerators in two NUMA domains each: sixteen."""
    return ClusterSpec(name="small", zone_nodes=(2, 2), gpus_per_node=4, cpu_slots_per_node=4)


@pytest.fixture
def ideal() -> PhysicalConstants:
    """A world without losses: nothing costs time but the work itself."""
    nothing = dict.fromkeys(RANGES, 0.0)
    return PhysicalConstants(**(nothing | {"training_efficiency": 0.8, "inference_efficiency": 0.8}))


@pytest.fixture
def world() -> Callable[..., PhysicalConstants]:
    """Returns the middle of all ranges, with some constants replaced."""

    def make(**changed: float) -> PhysicalConstants:
        middle = {name: (limits.low + limits.high) / 2 for name, limits in RANGES.items()}
        return PhysicalConstants(**(middle | changed))

    return make
