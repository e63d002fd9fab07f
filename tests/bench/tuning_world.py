"""Small workloads for the tests of `bench tuning`."""

import numpy as np

from tuner.reference.cluster import ClusterSpec
from tuner.reference.trace import Part, Trace
from tuner.reference.workload import NO_MODEL, Priority, TaskKind, Workload
from tuner.reference.workloads import NamedWorkload

CLUSTER = ClusterSpec(name="small", zone_nodes=(1, 1), gpus_per_node=2, cpu_slots_per_node=2)


def small(seed: int = 1, *, minutes: float = 20.0, per_minute: float = 6.0) -> NamedWorkload:
    """Return protected requests over a little training, on four accelerators."""
    generator = np.random.default_rng(seed)
    span = minutes * 60
    count = round(minutes * per_minute)
    inference = generator.random(count) < 0.8
    workload = Workload(
        submit_seconds=np.sort(generator.uniform(0, span, count)),
        service_seconds=np.where(inference, generator.uniform(1, 5, count), generator.uniform(30, 120, count)),
        gpus=np.where(inference, 0.25, 1.0),
        kind=np.where(inference, TaskKind.INFERENCE, TaskKind.TRAINING),
        priority=np.where(inference, Priority.HIGH, Priority.NORMAL),
        patience_seconds=np.full(count, 600.0),
        model=np.where(inference, generator.integers(0, 3, count), NO_MODEL),
        zone=generator.integers(0, 2, count),
    )
    part = Part(source="made up", from_seconds=0.0, to_seconds=span)
    return NamedWorkload(
        name="small", trace=Trace(workload=workload, span_seconds=span, parts=(part,)), cluster=CLUSTER
    )
