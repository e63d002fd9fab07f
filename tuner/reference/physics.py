"""The constants of nature of a simulated cluster, redrawn for every seed.

Neither the tuner nor its twin may know them: what the tuner learns it must learn from metrics. That is why they are
ranges, and why nothing here is exported.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, Self

import numpy as np


@dataclass(frozen=True, slots=True)
class Range:
    """Where a constant is drawn from, uniformly.

    Attributes:
        low: Smallest value.
        high: Largest value.
        source: Where the range comes from, or that it is an assumption.
    """

    low: float
    high: float
    source: str


RANGES: Final[Mapping[str, Range]] = {
    "context_switch_seconds": Range(0.002, 0.007, "PipeSwitch (OSDI 2020): 3.6-6.6 ms to switch tasks on T4 and V100"),
    "training_refill_seconds": Range(0.002, 0.010, "assumption: caches and pinned buffers of a training step"),
    "inference_refill_seconds": Range(0.001, 0.005, "assumption: caches of one request"),
    "training_efficiency": Range(0.60, 0.90, "assumption, centre of classes; Acme (NSDI 2024) GPUs are busy or idle"),
    "inference_efficiency": Range(0.40, 0.70, "assumption, centre of classes: decoding is bound by memory"),
    "phase_change_share": Range(0.05, 0.20, "assumption: share of tasks that change their efficiency half-way"),
    "grow_share": Range(0.02, 0.10, "assumption: share of gangs that ask for half as many accelerators again"),
    "model_memory_ratio": Range(0.08, 0.16, "assumption, centre of models: 3-7 billion 16-bit weights in 80 GB"),
    "request_memory_ratio": Range(0.01, 0.03, "assumption: key-value cache of one request"),
    "init_seconds": Range(0.5, 2.5, "assumption: process, context and graph capture of a cold start"),
    "load_seconds": Range(12.0, 40.0, "assumption: filling a whole accelerator's 80 GB at 2-6 GB/s from local storage"),
    "evict_seconds": Range(0.3, 1.5, "assumption: dropping warm models from an accelerator"),
    "decision_base_seconds": Range(0.005, 0.030, "assumption: a decision about nothing"),
    "decision_node_seconds": Range(0.0005, 0.0025, "assumption: reading one node's state"),
    "decision_candidate_seconds": Range(20e-6, 60e-6, "kube-scheduler: about 25 us a pod and node at 100 pods/s"),
    "pause_base_seconds": Range(0.001, 0.004, "assumption: barrier at which new slice tables take effect"),
    "pause_node_seconds": Range(50e-6, 250e-6, "assumption: what the barrier costs a node"),
    "numa_penalty_ratio": Range(0.03, 0.15, "assumption: slow-down of work whose threads sit on the other socket"),
    "numa_latency_ratio": Range(1.5, 2.1, "remote over local memory latency of two-socket servers"),
    "node_penalty_ratio": Range(0.03, 0.15, "assumption: slow-down of gangs over several nodes of a zone"),
    "link_penalty_ratio": Range(0.05, 0.25, "assumption: slow-down of work away from its data, or over zones"),
    "training_input_bytes": Range(1e9, 2e10, "assumption: data moved once when training starts away from home"),
    "inference_input_bytes": Range(1e5, 1e7, "assumption: prompt and session of one request"),
    "gang_bytes_per_second": Range(1e8, 1e9, "assumption: gradients an accelerator sends while its gang spans zones"),
    "gpu_idle_watts": Range(55.0, 70.0, "Acme, power_w: 5-25 % quantiles 62-66 W"),
    "gpu_busy_watts": Range(370.0, 440.0, "Acme, power_w: 75-99 % quantiles 290-440 W"),
    "node_base_watts": Range(900.0, 1300.0, "Acme, gpu_server_w: 5 % quantile 1,512 W less eight idle accelerators"),
    "node_gradient_celsius": Range(0.0, 5.0, "Harvard IPMI: ambient of GPU nodes 30-38 C, 5-95 %"),
    "idle_celsius": Range(26.0, 32.0, "Acme, core_temp_c: 5-25 % quantiles 25-31 C"),
    "celsius_per_watt": Range(0.08, 0.12, "Acme: 62-69 C at 408-440 W (95-99 %) against 25-31 C at 62-66 W"),
    "thermal_lag_seconds": Range(60.0, 180.0, "assumption: heat sink and air path"),
}
"""Every constant with its range and its source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalConstants:
    """One draw; `RANGES` says what each is, its name tells the unit."""

    context_switch_seconds: float
    training_refill_seconds: float
    inference_refill_seconds: float
    training_efficiency: float
    inference_efficiency: float
    phase_change_share: float
    grow_share: float
    model_memory_ratio: float
    request_memory_ratio: float
    init_seconds: float
    load_seconds: float
    evict_seconds: float
    decision_base_seconds: float
    decision_node_seconds: float
    decision_candidate_seconds: float
    pause_base_seconds: float
    pause_node_seconds: float
    numa_penalty_ratio: float
    numa_latency_ratio: float
    node_penalty_ratio: float
    link_penalty_ratio: float
    training_input_bytes: float
    inference_input_bytes: float
    gang_bytes_per_second: float
    gpu_idle_watts: float
    gpu_busy_watts: float
    node_base_watts: float
    node_gradient_celsius: float
    idle_celsius: float
    celsius_per_watt: float
    thermal_lag_seconds: float

    @classmethod
    def draw(cls, seed: int) -> Self:
        """Draw all constants from their ranges; equal seeds give equal constants on every machine."""
        uniform = np.random.default_rng([seed, _STREAM]).random(len(RANGES))
        return cls(
            **{name: r.low + (r.high - r.low) * float(u) for (name, r), u in zip(RANGES.items(), uniform, strict=True)}
        )

    def as_array(self) -> np.ndarray:
        """Return the constants as one record, for the compiled engine."""
        record = np.zeros(1, dtype=CONSTANTS_TYPE)
        for item in fields(self):
            record[item.name] = getattr(self, item.name)
        return record


CONSTANTS_TYPE: Final = np.dtype([(name, np.float64) for name in RANGES], align=True)
"""Layout of the record that the engine reads."""

_STREAM: Final = 0x9E37
# Keeps the constants' random stream apart from that of the tasks.
