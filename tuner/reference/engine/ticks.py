"""What happens every 15 s whatever the load: sensors, readings for the values over the last minute, and plans."""

from tuner.reference.engine.compilation import compiled
from tuner.reference.engine.gangs import settle_traffic
from tuner.reference.engine.models import plan
from tuner.reference.engine.state import BUCKETS, PLAN_TICKS, RECENT_MEASURES, RING, TICK_SECONDS, Engine
from tuner.reference.engine.tables import NOISE
from tuner.reference.engine.timing import sync

OVERHEAD_HEAT = 0.5
"""Power of an accelerator that switches or loads, over that of one that computes (assumption: it moves memory)."""


@compiled
def sync_all(s: Engine) -> None:
    """Bring all books up to now."""
    for n in range(s.node.size):
        s.node[n]["useful"] = 0.0
    for g in range(s.gpu.size):
        sync(s, g)
        s.node[s.gpu[g]["node"]]["useful"] += s.gpu[g]["useful"]
    settle_traffic(s)


@compiled
def tick(s: Engine) -> None:
    """Read the sensors, keep a reading, and plan the models."""
    c = s.clock[0]
    sync_all(s)
    c["ticks"] += 1
    c["next_tick"] = (c["ticks"] + 1) * TICK_SECONDS
    _read_sensors(s)
    keep_reading(s, c["ticks"] % RING)
    if c["ticks"] % PLAN_TICKS == 0:
        plan(s, c["ticks"] // PLAN_TICKS)


@compiled
def _read_sensors(s: Engine) -> None:
    k = s.constants[0]
    per_node = s.clock[0]["gpus_per_node"]
    # A first-order lag, stepped implicitly: stable for any lag, and the same on every machine, unlike exp().
    gain = TICK_SECONDS / (TICK_SECONDS + k["thermal_lag_seconds"])
    for n in range(s.node.size):
        node = s.node[n]
        watts, hottest = k["node_base_watts"], 0.0
        for g in range(node["first"], node["first"] + per_node):
            gpu = s.gpu[g]
            active = gpu["useful"] + OVERHEAD_HEAT * (gpu["switch"] + gpu["warmup"])
            share = (active - gpu["active_mark"]) / TICK_SECONDS
            gpu["active_mark"] = active
            hottest = max(hottest, share)
            watts += k["gpu_idle_watts"] + (k["gpu_busy_watts"] - k["gpu_idle_watts"]) * share
        noise = NOISE[(s.clock[0]["ticks"] + node["phase"]) % NOISE.size]
        node["watts"] = watts * (1.0 + 0.01 * noise)
        rise = k["celsius_per_watt"] * (k["gpu_busy_watts"] - k["gpu_idle_watts"]) * hottest
        node["celsius"] += gain * (node["ambient"] + rise + noise - node["celsius"])


@compiled
def keep_reading(s: Engine, at: int) -> None:
    """Keep the counters of now, for differences over the last minute."""
    c = s.clock[0]
    reading = s.ring[at]
    reading["at"] = c["now"]
    reading["useful"] = 0.0
    reading["switch"] = 0.0
    reading["warmup"] = 0.0
    reading["idle"] = 0.0
    reading["allocated"] = 0.0
    reading["down"] = 0.0
    for g in range(s.gpu.size):
        reading["useful"] += s.gpu[g]["useful"]
        reading["switch"] += s.gpu[g]["switch"]
        reading["warmup"] += s.gpu[g]["warmup"]
        reading["idle"] += s.gpu[g]["idle"]
        reading["allocated"] += s.gpu[g]["allocated"]
        reading["down"] += s.gpu[g]["down"]
    reading["completed"] = c["completed"][0] + c["completed"][1] + c["completed"][2]
    reading["abandoned"] = c["abandoned"][0] + c["abandoned"][1] + c["abandoned"][2]
    for measure in range(RECENT_MEASURES):
        for b in range(BUCKETS):
            reading["counts"][measure * BUCKETS + b] = s.measure[measure]["counts"][b]
    for n in range(s.node.size):
        s.node[n]["kept"][at] = s.node[n]["useful"]
