"""Warm models: which accelerator holds which, and what is kept and loaded for predicted demand.

A model's instance is loaded by a cold start, which runs in the slices of an accelerator like any work, serves requests
that share its weights, and is kept for a prediction window after its last request (on the trade-off: Shahrad et al.,
"Serverless in the Wild", USENIX ATC 2020). Idle instances give way to work of normal priority and above, which costs
time.
"""

import math

from tuner.reference.engine.compilation import compiled
from tuner.reference.engine.sharing import join
from tuner.reference.engine.state import FREE, FULL, INSTANCES, LOADING, PLAN_SLOTS, PLAN_TICKS, TICK_SECONDS, Engine
from tuner.reference.engine.timing import reslice, schedule, slice_of, sync

REQUESTS_PER_INSTANCE = 2.0
"""Concurrent requests that a plan allows an instance (assumption)."""

PREWARMS_PER_PLAN = 2
"""Most instances of one model that one plan loads (assumption: autoscalers limit their steps)."""

SHARED_FIRST = 4
"""Residents up to which sharing is thought good: the lower end of what clock control allows an accelerator."""


@compiled
def find_instance(s: Engine, g: int, model: int) -> int:
    """Return the index of a model in an accelerator's memory, -1 where it is not."""
    gpu = s.gpu[g]
    for k in range(gpu["models"]):
        if gpu["model"][k] == model:
            return k
    return -1


@compiled
def load_instance(s: Engine, g: int, model: int, users: int) -> None:
    """Give a model memory on an accelerator; it is ready when the resident that loads it says so."""
    gpu = s.gpu[g]
    k = gpu["models"]
    gpu["model"][k] = model
    gpu["users"][k] = users
    gpu["ready"][k] = 0
    gpu["idle_since"][k] = 0.0
    gpu["models"] = k + 1
    gpu["memory"] -= s.model[model]["memory"]
    places = s.model[model]["places"]
    s.places[model, places] = g
    s.model[model]["places"] = places + 1


@compiled
def drop_instance(s: Engine, g: int, k: int) -> None:
    """Drop an idle instance."""
    gpu = s.gpu[g]
    model = gpu["model"][k]
    gpu["memory"] += s.model[model]["memory"]
    gpu["idle_memory"] -= s.model[model]["memory"]
    last = gpu["models"] - 1
    gpu["model"][k] = gpu["model"][last]
    gpu["users"][k] = gpu["users"][last]
    gpu["ready"][k] = gpu["ready"][last]
    gpu["idle_since"][k] = gpu["idle_since"][last]
    gpu["models"] = last
    places = s.model[model]["places"] - 1
    for j in range(places):
        if s.places[model, j] == g:
            s.places[model, j] = s.places[model, places]
            break
    s.model[model]["places"] = places


@compiled
def is_idle(s: Engine, g: int, k: int) -> bool:
    """Say whether an instance is loaded and serves nobody."""
    return bool(s.gpu[g]["ready"][k] == 1 and s.gpu[g]["users"][k] == 0)


@compiled
def make_room(s: Engine, g: int, memory: float, slots: int) -> int:
    """Evict idle instances, the longest idle first, until there is room; return how many."""
    gpu = s.gpu[g]
    evicted = 0
    while gpu["memory"] < memory or gpu["models"] + slots > INSTANCES:
        oldest = -1
        for k in range(gpu["models"]):
            if is_idle(s, g, k) and (oldest < 0 or gpu["idle_since"][k] < gpu["idle_since"][oldest]):
                oldest = k
        if oldest < 0:
            break
        drop_instance(s, g, oldest)
        evicted += 1
    s.clock[0]["evictions"] += evicted
    return evicted


@compiled
def release_instance(s: Engine, g: int, model: int) -> None:
    """Book that a request has left its instance; without planning the last one takes the instance along."""
    gpu = s.gpu[g]
    k = find_instance(s, g, model)
    gpu["users"][k] -= 1
    if gpu["users"][k] == 0:
        gpu["idle_since"][k] = s.clock[0]["now"]
        gpu["idle_memory"] += s.model[model]["memory"]
        if s.settings[0]["prewarm"] == 0:
            drop_instance(s, g, k)


@compiled
def finish_loading(s: Engine, g: int, model: int) -> None:
    """Book that an instance is loaded."""
    gpu = s.gpu[g]
    k = find_instance(s, g, model)
    gpu["ready"][k] = 1
    if gpu["users"][k] == 0:
        gpu["idle_since"][k] = s.clock[0]["now"]
        gpu["idle_memory"] += s.model[model]["memory"]
    s.clock[0]["releases"] += 1


@compiled
def drop_expired(s: Engine) -> None:
    """Drop every instance that was idle for a prediction window, or at all where nothing is planned."""
    limit = s.clock[0]["now"] - s.settings[0]["window"] * s.settings[0]["prewarm"]
    for g in range(s.gpu.size):
        for k in range(s.gpu[g]["models"] - 1, -1, -1):
            if is_idle(s, g, k) and s.gpu[g]["idle_since"][k] <= limit:
                drop_instance(s, g, k)
                s.clock[0]["releases"] += 1


@compiled
def expected_growth(s: Engine, own_rate: float) -> float:
    """Return by what factor demand is expected to exceed its running mean within the prediction window."""
    c = s.clock[0]
    if s.forecast.size == 0 or own_rate <= 0.0:
        return 1.0
    first = math.floor((c["now"] - c["forecast_at"]) / c["forecast_step"])
    last = math.ceil((c["now"] + s.settings[0]["window"] - c["forecast_at"]) / c["forecast_step"])
    peak = -1.0
    for k in range(max(first, 0), min(last, s.forecast.size)):
        peak = max(peak, s.forecast[k])
    return float(peak / own_rate) if peak >= 0.0 else 1.0


@compiled
def _least_loaded(s: Engine, model: int) -> int:
    """Return the accelerator on which a model is best loaded ahead, -1 for none; nothing is evicted for it."""
    best, best_load = -1, SHARED_FIRST
    for g in range(s.gpu.size):
        gpu = s.gpu[g]
        free = gpu["owner"] == FREE and gpu["n"] < best_load and gpu["models"] < INSTANCES
        if free and gpu["memory"] >= s.model[model]["memory"] and find_instance(s, g, model) < 0:
            best, best_load = g, gpu["n"]
    return best


@compiled
def _prewarm(s: Engine, model: int) -> bool:
    g = _least_loaded(s, model)
    if g < 0:
        return False
    sync(s, g)
    reslice(s, g)
    load_instance(s, g, model, 0)
    cost = s.model[model]["refill"] + s.constants[0]["context_switch_seconds"]
    join(s.gpu[g], -2 - model, LOADING, s.model[model]["loading"], 0.0, slice_of(s, model), cost)
    schedule(s, g)
    s.clock[0]["prewarms"] += 1
    s.clock[0]["dirty"] = 1
    return True


@compiled
def plan(s: Engine, number: int) -> None:
    """Keep and load models for the demand that is expected within the prediction window.

    Own prediction is the mean rate over the last window: it lags behind demand that moves, the more the longer it is.
    """
    now = s.clock[0]["now"]
    step = PLAN_TICKS * TICK_SECONDS
    back = min(max(int(s.settings[0]["window"] / step), 1), PLAN_SLOTS - 1, number)
    for model in range(s.model.size):
        s.model[model]["plans"][number % PLAN_SLOTS] = s.model[model]["arrivals"]
    drop_expired(s)
    if s.settings[0]["prewarm"] == 0 or s.settings[0]["mode"] != FULL or back == 0:
        return
    span = min(back * step, now)
    total = 0.0
    for model in range(s.model.size):
        total += s.model[model]["arrivals"] - s.model[model]["plans"][(number - back) % PLAN_SLOTS]
    growth = expected_growth(s, total / span)
    for model in range(s.model.size):
        seen = s.model[model]["arrivals"] - s.model[model]["plans"][(number - back) % PLAN_SLOTS]
        concurrent = seen / span * growth * s.model[model]["sojourn"]
        wanted = math.ceil((concurrent + math.sqrt(concurrent)) / REQUESTS_PER_INSTANCE) if seen > 0.0 else 0
        for _ in range(min(wanted - s.model[model]["places"], PREWARMS_PER_PLAN)):
            if not _prewarm(s, model):
                break
