"""The machines: zones (racks or sites) > nodes > NUMA domains > accelerators, and CPU slots beside them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from tuner.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A cluster; all nodes have the same shape, zones may differ in size, speed and distance.

    Attributes:
        name: Name for people.
        zone_nodes: Nodes of each zone; >= 1 each.
        gpus_per_node: Accelerators of a node; >= 1, a multiple of `numa_domains_per_node`.
        numa_domains_per_node: NUMA domains of a node; >= 1.
        cpu_slots_per_node: Pre-processing tasks that a node can run at once; >= 0.
        residents_per_gpu: Tasks that may share an accelerator, memory permitting; 1..8.
        zone_speeds: Speed of each zone's accelerators, 1 = the speed that `service_seconds` is given for; > 0.
        link_factor: How much dearer a link between zones is than between racks of one hall; >= 0, factor.
    """

    name: str
    zone_nodes: tuple[int, ...]
    gpus_per_node: int = 8
    numa_domains_per_node: int = 2
    cpu_slots_per_node: int = 32
    residents_per_gpu: int = 8
    zone_speeds: tuple[float, ...] = ()
    link_factor: float = 1.0

    def __post_init__(self) -> None:
        """Refuse clusters that cannot be.

        Raises:
            ConfigError: A count or factor is out of its range; the message lists every problem.
        """
        if not self.zone_speeds:
            object.__setattr__(self, "zone_speeds", (1.0,) * len(self.zone_nodes))
        checks = {
            "needs at least one zone, of at least one node each": not self.zone_nodes or min(self.zone_nodes) < 1,
            f"gpus_per_node is {self.gpus_per_node}, must be 1 or more": self.gpus_per_node < 1,
            f"numa_domains_per_node is {self.numa_domains_per_node}, must divide {self.gpus_per_node} gpus_per_node": (
                self.numa_domains_per_node < 1 or self.gpus_per_node % max(self.numa_domains_per_node, 1) != 0
            ),
            f"cpu_slots_per_node is {self.cpu_slots_per_node}, must be 0 or more": self.cpu_slots_per_node < 0,
            f"residents_per_gpu is {self.residents_per_gpu}, must be 1..8": not 1 <= self.residents_per_gpu <= 8,
            f"zone_speeds has {len(self.zone_speeds)} entries, must be {len(self.zone_nodes)}, all over 0": (
                len(self.zone_speeds) != len(self.zone_nodes) or min(self.zone_speeds, default=1.0) <= 0
            ),
            f"link_factor is {self.link_factor}, must be 0 or more": not self.link_factor >= 0,
        }
        problems = [rule for rule, broken in checks.items() if broken]
        if problems:
            raise ConfigError(f"cluster {self.name}: " + "; ".join(problems))

    @property
    def zones(self) -> int:
        """Number of zones."""
        return len(self.zone_nodes)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return sum(self.zone_nodes)

    @property
    def gpus(self) -> int:
        """Number of accelerators."""
        return self.nodes * self.gpus_per_node

    @property
    def capacity(self) -> float:
        """Accelerators counted at their speed: how many seconds of service a second can give."""
        pairs = zip(self.zone_nodes, self.zone_speeds, strict=True)
        return sum(count * speed for count, speed in pairs) * self.gpus_per_node

    @property
    def node_names(self) -> tuple[str, ...]:
        """Name of each node, in order: `z0-n00`, zones first."""
        return tuple(f"z{zone}-n{node:02d}" for zone, count in enumerate(self.zone_nodes) for node in range(count))

    def sized(self, nodes: int) -> Self:
        """Return the same kind of cluster with another number of nodes, spread over the zones in proportion.

        Zones that would be left without a node are dropped.

        Raises:
            ConfigError: `nodes` is under 1.
        """
        share = [nodes * sum(self.zone_nodes[: index + 1]) // self.nodes for index in range(self.zones)]
        counts = [high - low for low, high in zip([0, *share], share, strict=False)]
        kept = [index for index, count in enumerate(counts) if count > 0]
        return replace(
            self,
            name=f"{self.name}-{nodes}",
            zone_nodes=tuple(counts[index] for index in kept),
            zone_speeds=tuple(self.zone_speeds[index] for index in kept),
        )


PRESETS: Final[Mapping[str, ClusterSpec]] = {
    spec.name: spec
    for spec in (
        # The source document's own: 64 nodes of 8 accelerators, here in 8 racks.
        ClusterSpec(name="reference", zone_nodes=(8,) * 8),
        # Small enough for a laptop's demo, large enough for three tiers.
        ClusterSpec(name="demo", zone_nodes=(3,) * 4),
        # Three sites of unlike size and hardware generation; links between sites are dear.
        ClusterSpec(name="multicloud", zone_nodes=(24, 16, 8), zone_speeds=(1.0, 0.8, 0.6), link_factor=4.0),
        # Many places, few machines each, two accelerators and no second socket.
        ClusterSpec(
            name="edge",
            zone_nodes=(2,) * 6,
            gpus_per_node=2,
            numa_domains_per_node=1,
            cpu_slots_per_node=8,
            residents_per_gpu=4,
            link_factor=3.0,
        ),
        # Fat nodes behind one fabric, for batch gangs: few residents share an accelerator.
        ClusterSpec(name="hpc", zone_nodes=(16,) * 2, cpu_slots_per_node=64, residents_per_gpu=4, link_factor=0.5),
    )
}
"""Clusters by name."""
