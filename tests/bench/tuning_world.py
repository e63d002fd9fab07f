"""Small workloads for the tests of `bench tuning`."""

import numpy as np

from tuner.bench.cases import WIDE
from tuner.bench.tuners import Site
from tuner.reference.cluster import ClusterSpec
from tuner.reference.trace import Part, Trace
from tuner.reference.workload import NO_MODEL, Priority, TaskKind, Workload
from tuner.reference.workloads import NamedWorkload
from tuner.values.knobs import KnobValues, Role
from tuner.values.metrics import MetricVector

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


class Sets:
    """A tuner that sets a decision period within the wide bounds, and nothing else; it travels to other processes."""

    def __init__(self, site: Site, *, period: float) -> None:
        wanted = KnobValues.of({**WIDE.start, Role.DECISION_PERIOD: period})
        self.knobs = wanted if site.specs == WIDE.specs else site.start

    def ask(self) -> KnobValues:
        return self.knobs

    def tell(self, score: float, metrics: MetricVector) -> None:
        del score, metrics
