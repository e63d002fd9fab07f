"""Where a task may go: by zone, node and accelerator when tiers are on, else anywhere.

Nothing here changes the cluster but for the counts that are kept of free accelerators.
"""
# ruff: noqa: FBT001, PLR0917 - numba has no keyword-only arguments.

import math

from tuner.reference.engine.compilation import compiled
from tuner.reference.engine.models import SHARED_FIRST, find_instance
from tuner.reference.engine.state import FREE, INSTANCES, SIMPLIFIED, Engine
from tuner.reference.workload import NO_MODEL, Priority

NOWHERE = -1


@compiled
def is_whole(s: Engine, g: int) -> bool:
    """Say whether a gang may take an accelerator: it is empty and not reserved; idle models can be evicted."""
    gpu = s.gpu[g]
    return bool(gpu["owner"] == FREE and gpu["n"] == 0 and gpu["reserved"] == 0)


@compiled
def count_free(s: Engine) -> None:
    """Count the whole accelerators: of each node, of its best NUMA domain, and in all, if anything has changed."""
    c = s.clock[0]
    if c["dirty"] == 0:
        return
    c["dirty"] = 0
    c["free"] = 0
    c["best_free"] = 0
    per_node, domains = s.clock[0]["gpus_per_node"], s.clock[0]["domains"]
    width = per_node // domains
    for n in range(s.node.size):
        node = s.node[n]
        node["free"] = 0
        node["best_free"] = 0
        node["best_domain"] = 0
        for d in range(domains):
            free = 0
            for g in range(node["first"] + d * width, node["first"] + (d + 1) * width):
                if is_whole(s, g):
                    free += 1
            node["free"] += free
            if free > node["best_free"]:
                node["best_free"] = free
                node["best_domain"] = d
        c["free"] += node["free"]
        c["best_free"] = max(c["best_free"], node["free"])


@compiled
def _take(s: Engine, n: int, domain: int, count: int, need: int) -> int:
    """Choose whole accelerators of a node (or of one of its domains) until `need` are chosen; return how many are."""
    per_node, domains = s.clock[0]["gpus_per_node"], s.clock[0]["domains"]
    begin = s.node[n]["first"]
    end = begin + per_node
    if domain >= 0:
        begin += domain * (per_node // domains)
        end = begin + per_node // domains
    for g in range(begin, end):
        if count < need and is_whole(s, g):
            s.gpu[count]["chosen"] = g
            count += 1
    return count


@compiled
def _fit_node(s: Engine, z: int, need: int) -> int:
    """Choose accelerators of one node of a zone, of one NUMA domain where possible; return how many, 0 for none.

    The fullest node that fits is taken, so that whole nodes stay free for large gangs.
    """
    zone = s.zone[z]
    best, best_key = NOWHERE, math.inf
    for n in range(zone["first_node"], zone["end_node"]):
        node = s.node[n]
        if node["free"] >= need:
            key = node["free"] + (0 if node["best_free"] >= need else 1000)
            if key < best_key:
                best, best_key = n, key
    if best == NOWHERE:
        return 0
    domain = s.node[best]["best_domain"] if s.node[best]["best_free"] >= need else -1
    return _take(s, best, domain, 0, need)


@compiled
def _gather_nodes(s: Engine, z: int, count: int, need: int) -> int:
    """Choose accelerators from the freest nodes of a zone until `need` are chosen; return how many are."""
    zone = s.zone[z]
    for n in range(zone["first_node"], zone["end_node"]):
        s.node[n]["taken"] = 0
    while count < need:
        best = NOWHERE
        for n in range(zone["first_node"], zone["end_node"]):
            usable = s.node[n]["taken"] == 0 and s.node[n]["free"] > 0
            if usable and (best == NOWHERE or s.node[n]["free"] > s.node[best]["free"]):
                best = n
        if best == NOWHERE:
            break
        s.node[best]["taken"] = 1
        count = _take(s, best, -1, count, need)
    return count


@compiled
def choose_gang(s: Engine, need: int, home: int, relaxed: bool) -> bool:
    """Choose accelerators for a gang, as near together and to its data as there are.

    Args:
        s: The engine.
        need: Accelerators.
        home: Zone of its data.
        relaxed: Whether it has waited so long that it takes scattered ones.

    Returns:
        Whether `chosen[:need]` holds an answer.
    """
    c = s.clock[0]
    zones = s.zone.size
    spread = relaxed or need > c["gpus_per_node"]
    if need > c["free"] or (need > c["best_free"] and not spread):
        return False
    for step in range(zones):
        if _fit_node(s, (home + step) % zones, need) == need:
            return True
    if not spread:
        return False
    for step in range(zones):
        if _gather_nodes(s, (home + step) % zones, 0, need) == need:
            return True
    count = 0
    for step in range(zones):
        count = _gather_nodes(s, (home + step) % zones, count, need)
    return count == need


@compiled
def choose_first(s: Engine, need: int) -> bool:
    """Choose the first whole accelerators of the cluster, wherever they lie."""
    count = 0
    if need > s.clock[0]["free"]:
        return False
    for n in range(s.node.size):
        if count < need and s.node[n]["free"] > 0:
            count = _take(s, n, -1, count, need)
    return count == need


@compiled
def choose_beside(s: Engine, i: int, need: int) -> bool:
    """Choose whole accelerators on the nodes where a gang already runs."""
    count = 0
    per_node = s.clock[0]["gpus_per_node"]
    for n in range(s.node.size):
        runs_here = False
        for g in range(s.node[n]["first"], s.node[n]["first"] + per_node):
            runs_here = runs_here or s.gpu[g]["owner"] == i
        if runs_here:
            count = _take(s, n, -1, count, need)
    return count == need


@compiled
def _open_to(s: Engine, g: int, high: bool) -> bool:
    """Say whether an accelerator takes one more resident of a priority."""
    gpu = s.gpu[g]
    return bool(gpu["owner"] == FREE and gpu["n"] < s.clock[0]["residents"] and (high or gpu["reserved"] == 0))


@compiled
def find_warm(s: Engine, i: int) -> int:
    """Return the least loaded accelerator on which a request's model is warm and has room, home first; else -1."""
    task = s.task[i]
    model = task["model"]
    high = task["priority"] == Priority.HIGH
    # Where no warm place had room, none has before something is released or loaded.
    if s.model[model]["full"][int(high)] == s.clock[0]["releases"]:
        return NOWHERE
    best, best_load = NOWHERE, math.inf
    for j in range(s.model[model]["places"]):
        g = s.places[model, j]
        gpu = s.gpu[g]
        if not _open_to(s, g, high) or gpu["memory"] < task["memory"]:
            continue
        if gpu["ready"][find_instance(s, g, model)] == 0:
            continue
        away = s.settings[0]["tiers"] == 1 and gpu["zone"] != task["zone"]
        # One more resident costs more than distance does, so distance only breaks ties; the number breaks the rest.
        load = gpu["n"] + (0.5 if away else 0.0)
        if load < best_load or (load == best_load and g < best):
            best, best_load = g, load
    if best == NOWHERE:
        s.model[model]["full"][int(high)] = s.clock[0]["releases"]
    return best


@compiled
def _load_key(s: Engine, g: int, high: bool, balanced: bool) -> float:
    """Rank an accelerator for one more resident, lower is better.

    Protected tasks go where the fewest are, into the reserve first. Others fill shared accelerators up to four
    residents before they open an empty one, because gangs need empty ones.
    """
    n = float(s.gpu[g]["n"])
    if balanced:
        return n
    if high:
        return float(n - 0.25 * s.gpu[g]["reserved"])
    if n == 0.0:
        return float(SHARED_FIRST)
    return n if n < SHARED_FIRST else n + 1.0


@compiled
def _best_in(s: Engine, begin: int, end: int, i: int, need: float, may_open: bool) -> tuple[int, float]:
    """Return the best accelerator in a range for one more resident, and its rank; -1 and infinity for none."""
    task = s.task[i]
    high = task["priority"] == Priority.HIGH
    may_evict = task["priority"] != Priority.LOW
    balanced = s.settings[0]["tiers"] == 0
    slots = 0 if task["model"] == NO_MODEL else 1
    ideal = 0.0 if balanced else -0.25 if high else 1.0
    best, best_key = NOWHERE, math.inf
    for g in range(begin, end):
        gpu = s.gpu[g]
        if not _open_to(s, g, high):
            continue
        if gpu["n"] == 0 and not may_open and gpu["reserved"] == 0:
            continue
        crowded = gpu["memory"] < need or gpu["models"] + slots > INSTANCES
        if crowded and not (may_evict and gpu["memory"] + gpu["idle_memory"] >= need and gpu["idle_memory"] > 0.0):
            continue
        key = _load_key(s, g, high, balanced) + (0.5 if crowded else 0.0)
        if key < best_key and (slots == 0 or find_instance(s, g, task["model"]) < 0):
            best, best_key = g, key
            if key == ideal:
                break
    return best, best_key


@compiled
def most_room(s: Engine, priority: int, may_open: bool) -> float:
    """Return the most memory that any accelerator has for one more resident of a priority; -1 where all are closed."""
    most = -1.0
    for g in range(s.gpu.size):
        gpu = s.gpu[g]
        if _open_to(s, g, priority == Priority.HIGH) and (may_open or gpu["n"] > 0 or gpu["reserved"] == 1):
            most = max(most, gpu["memory"] + (gpu["idle_memory"] if priority != Priority.LOW else 0.0))
    return most


@compiled
def _first_in(s: Engine, i: int, need: float) -> int:
    """Return the first accelerator of all with room, as a scheduler does that does not compare; else -1."""
    task = s.task[i]
    for g in range(s.gpu.size):
        gpu = s.gpu[g]
        if not _open_to(s, g, task["priority"] == Priority.HIGH) or gpu["memory"] < need or gpu["models"] == INSTANCES:
            continue
        if task["model"] == NO_MODEL or find_instance(s, g, task["model"]) < 0:
            return g
    return NOWHERE


@compiled
def find_shared(s: Engine, i: int, may_open: bool) -> int:
    """Return an accelerator for a time-shared task on which its model is not loaded, home first; else -1."""
    task = s.task[i]
    need = memory_needed(s, i)
    if s.settings[0]["mode"] == SIMPLIFIED:
        g = _first_in(s, i, need)
        if g != NOWHERE:
            return g
    if s.settings[0]["tiers"] == 0 or s.settings[0]["mode"] == SIMPLIFIED:
        return _best_in(s, 0, s.gpu.size, i, need, may_open)[0]
    zones = s.zone.size
    home = task["zone"]
    best, best_key = NOWHERE, math.inf
    for step in range(zones):
        zone = s.zone[(home + step) % zones]
        g, key = _best_in(s, zone["first_gpu"], zone["end_gpu"], i, need, may_open)
        # Home is taken while sharing there is still thought good; beyond that, zones compete.
        if key <= SHARED_FIRST and step == 0:
            return g
        if key < best_key:
            best, best_key = g, key
    return best


@compiled
def memory_needed(s: Engine, i: int) -> float:
    """Return the share of an accelerator's memory that a task needs where its model is not loaded."""
    task = s.task[i]
    model = task["model"]
    return float(task["memory"] if model == NO_MODEL else task["memory"] + s.model[model]["memory"])


@compiled
def find_slot(s: Engine, i: int) -> int:
    """Return the node with the most free CPU slots, in the nearest zone that has one; -1 for none."""
    zones = s.zone.size
    home = s.task[i]["zone"]
    for step in range(zones):
        zone = s.zone[(home + step) % zones]
        best = NOWHERE
        for n in range(zone["first_node"], zone["end_node"]):
            free = s.node[n]["cpu_free"]
            if free > 0 and (best == NOWHERE or free > s.node[best]["cpu_free"]):
                best = n
        if best != NOWHERE:
            return best
    return NOWHERE
