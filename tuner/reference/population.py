"""What the trace does not tell of its tasks: drawn once, by task number, so that all settings meet the same tasks."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.reference.cluster import ClusterSpec
from tuner.reference.physics import PhysicalConstants
from tuner.reference.workload import NO_MODEL, TaskKind, Workload

FloatArray = NDArray[np.float64]

HIGH_DEMAND_MEMORY_RATIO: Final = 0.8
"""Memory above which a training task on one accelerator has it for itself."""

SINGLE_MEMORY: Final = (0.30, 0.95)
"""Memory of training on one accelerator; Acme: gpu_mem_pct of busy ones lies at 39-99 % (50-100 % quantiles)."""

SIZE_GROUPS: Final = 8
"""Groups of training tasks by size, for predictions from history: shares, one, and powers of two."""

_STREAM: Final = 0x51ED
# Keeps the tasks' random stream apart from that of the constants.


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """Drawn properties; shapes (tasks,) but for those of models.

    Attributes:
        memory: Share of an accelerator's memory, of requests without their model's weights.
        efficiency: Useful part of the accelerator time, first half.
        efficiency_after: The same, second half.
        exclusive: Whether it runs alone on whole accelerators.
        changes: Whether its efficiency changes half-way.
        grows: Whether it asks for more accelerators half-way.
        unbound: Whether its threads land on the other socket when nobody binds them.
        group: Number of the group that predictions are made for: the model's own, then by size, then pre-processing.
        model_memory: Shape (models,).
        model_loading: Accelerator-seconds of a cold start, shape (models,).
    """

    memory: FloatArray
    efficiency: FloatArray
    efficiency_after: FloatArray
    exclusive: NDArray[np.bool_]
    changes: NDArray[np.bool_]
    grows: NDArray[np.bool_]
    unbound: NDArray[np.bool_]
    group: NDArray[np.int64]
    model_memory: FloatArray
    model_loading: FloatArray

    @property
    def groups(self) -> int:
        """Number of groups that there may be."""
        return self.model_memory.size + SIZE_GROUPS + 2


def draw_population(work: Workload, cluster: ClusterSpec, *, constants: PhysicalConstants, seed: int) -> Population:
    """Draw the properties; equal seeds and traces give equal tasks on every machine."""
    rng = np.random.default_rng([seed, _STREAM])
    models = work.models
    per_model = rng.random((3, models))
    per_size = rng.random(SIZE_GROUPS)
    u = rng.random((6, len(work)))
    training = work.kind == TaskKind.TRAINING
    inference = work.kind == TaskKind.INFERENCE
    single = training & (work.gpus == 1.0)
    shares = np.where(single, SINGLE_MEMORY[0] + (SINGLE_MEMORY[1] - SINGLE_MEMORY[0]) * u[0], work.gpus)
    memory = np.where(inference, constants.request_memory_ratio * (0.5 + u[0]), np.minimum(shares, 1.0))
    exclusive = training & ((work.gpus > 1.0) | (single & (memory > HIGH_DEMAND_MEMORY_RATIO)))
    group = _groups(work)
    # Half the spread lies between groups, where history can learn it, and half within them.
    between = np.concatenate([per_model[0], per_size, [0.5, 0.5]])[group] - 0.5
    centre = np.where(inference, constants.inference_efficiency, constants.training_efficiency)
    efficiency = np.clip(centre + 0.3 * between + 0.2 * (u[1] - 0.5), 0.05, 1.0)
    changes = ~(work.kind == TaskKind.PREPROCESSING) & (u[2] < constants.phase_change_share)
    after = np.clip(centre + 0.3 * between + 0.6 * (u[3] - 0.5), 0.05, 1.0)
    model_memory = constants.model_memory_ratio * (0.5 + per_model[1])
    return Population(
        memory=memory,
        efficiency=efficiency,
        efficiency_after=np.where(changes, after, efficiency),
        exclusive=exclusive,
        changes=changes,
        grows=exclusive & (u[4] < constants.grow_share),
        unbound=u[5] >= 1.0 / cluster.numa_domains_per_node,
        group=group,
        model_memory=model_memory,
        model_loading=constants.init_seconds * (0.75 + 0.5 * per_model[2]) + constants.load_seconds * model_memory,
    )


def _groups(work: Workload) -> NDArray[np.int64]:
    # Sizes 0 shares, 1 one, 2.. powers of two, the last for all larger ones; then requests without a model, then CPU.
    edges = np.array([1.0, 1.5, 2.5, 4.5, 8.5, 16.5, 32.5])
    by_size = work.models + np.searchsorted(edges, work.gpus, side="right")
    group = np.where(work.kind == TaskKind.TRAINING, by_size, work.models + SIZE_GROUPS)
    group = np.where(work.kind == TaskKind.PREPROCESSING, work.models + SIZE_GROUPS + 1, group)
    chosen: NDArray[np.int64] = np.where(work.model == NO_MODEL, group, work.model)
    return chosen
