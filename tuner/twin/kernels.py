"""The physics of the twin, compiled.

Five groups of work (see `workload.GROUPS`) flow through one cluster, step by step:

* Decisions are made every `period`, or back to back where one takes longer; each stops the accelerators for a moment.
* Training is gangs, which hold whole accelerators to their end, and tasks that share. Inference shares what gangs
  leave: `m` requests that come in clumps of `k` and fall at random on `f` accelerators keep `f (1 - exp(-m / k f))` of
  them busy; each runs as fast as its turn comes (processor sharing), and the number of residents is geometric, as in an
  M/G/1 queue with processor sharing.
* A shared accelerator turns from resident to resident after each slice `s` and loses `c / (s + c)` at it; a lone
  resident loses nothing.
* Models fade from memory. If the arrival rates of models are exponentially distributed, a model had no arrival within
  a window `W` with the probability `1 / (1 + rate W / models)` (the Laplace transform of that distribution), and an
  arrival finds its model cold with the square of it. Some starts are cold whatever the window.
* Open work may start on `1 - reservation` of the capacity, protected work on all of it. Nobody is moved: a reserve that
  grows finds gangs in it, and one that shrinks is taken by whoever waits, requests first.
* While gangs wait they take every accelerator that falls empty. So requests beside them have little more room than what
  they hold, and find back what they lost only as gangs end.
* Within a step each group relaxes exponentially towards its balance, so that tasks far shorter than a step are exact.
* Around the fluid's path the occupied capacity fluctuates; who finds no room waits, with the probability of Halfin and
  Whitt, "Heavy-traffic limits for queues with many exponential servers", Operations Research 29 (1981), and with the
  variance of a transient that starts from a known state.

Cost depends on steps and groups, never on the number of tasks or nodes. Groups are columns: 0 pre-processing,
1 brief training, 2 other training, 3 open inference, 4 protected inference.
"""

# ruff: noqa: PLR0917 - compiled functions have no keyword-only arguments.
# ruff: noqa: PLR0915 - the step of the simulation reads best in one piece.

import math
from typing import Final

import numpy as np
from numba import njit

from tuner.values.stages import FloatArray

GROUP_COUNT: Final = 5
BRIEF: Final = 1
TRAINING: Final = 2
INFERENCE: Final = 3
PROTECTED: Final = 4

# Columns of a setting, in the order of `Role`.
SLICE: Final = 0
WINDOW: Final = 1
PERIOD: Final = 2
RESERVATION: Final = 3

# Places of the parameters, in the order of `parameters.PARAMETERS`.
SWITCH: Final = 0
CLUMP: Final = 1
DECISION: Final = 2
DECISION_TASK: Final = 3
PAUSE: Final = 4
MODELS: Final = 5
COLD_FLOOR: Final = 6
GANG_DEMAND: Final = 7
UNUSABLE: Final = 8
TRAINING_STRETCH: Final = 9
INFERENCE_STRETCH: Final = 10
SHARING_STRETCH: Final = 11
BURSTINESS: Final = 12
TRAINING_PATIENCE: Final = 13
INFERENCE_PATIENCE: Final = 14
TURNS: Final = 15
SLOWDOWN: Final = 16
TRAINING_USEFUL: Final = 17
CROWDING: Final = 18
CROWDED_OUT: Final = 19
SLACK: Final = 20

# Rows of a state: what a scenario starts from.
RECENT: Final = 0
RUNNING: Final = 1
WAITING: Final = 2
SERVICE: Final = 3
DEMAND: Final = 4

OUTPUTS: Final = 15
"""What a simulation gives: the 13 metrics, the mean time of a decision, and the share of cold starts."""

FULL: Final = 0
SIMPLIFIED: Final = 1
PRIORITY_ONLY: Final = 2

SIMPLIFIED_DECISION_RATIO: Final = 0.3
"""Time of a decision in the simplified mode over that in the full one (assumption: places are not scored)."""
FLOW_SECONDS: Final = 600.0
"""Time over which a queue's arrivals are averaged to tell how long its head has waited."""
USUAL_RESERVE: Final = 0.2
"""Reserve at which the slow-down of protected work counts as it is: the middle of what is recommended."""
RECENT_SECONDS: Final = 300.0
"""Time over which quantiles are observed: the recent window of a cycle."""
P95_TAIL: Final = 0.05
BISECTIONS: Final = 22
"""Halvings of the logarithm of a wait between 1 ms and 10^6 s: a relative error of 1e-5."""

# Columns of a part: a group of starts that waited alike.
WEIGHT: Final = 0
LOW: Final = 1
WIDTH: Final = 2
PROBABILITY: Final = 3
EXCESS: Final = 4
_PART_FIELDS: Final = 5


@njit(cache=True, nogil=True, error_model="numpy")
def waiting_probability(beta: float) -> float:
    """Return the probability of finding no room, `beta` deviations below full (Halfin and Whitt, 1981, eq. 2.3)."""
    if beta <= 0.0:
        return 1.0
    if beta > 8.0:
        return 0.0
    normal = 0.5 * (1.0 + math.erf(beta / math.sqrt(2.0)))
    return 1.0 / (1.0 + math.sqrt(2.0 * math.pi) * beta * normal * math.exp(0.5 * beta * beta))


@njit(cache=True, nogil=True, error_model="numpy")
def wait_beyond(seconds: float, part: FloatArray) -> float:
    """Return the probability that a start of one part waited longer than a time.

    A part is uniform in [low, low + width], and with its probability an exponential excess on top of the middle.
    """
    flat = min(max((part[LOW] + part[WIDTH] - seconds) / max(part[WIDTH], 1e-9), 0.0), 1.0)
    beyond = seconds - part[LOW] - 0.5 * part[WIDTH]
    tail = 1.0 if beyond <= 0.0 else math.exp(-beyond / max(part[EXCESS], 1e-9))
    return float((1.0 - part[PROBABILITY]) * flat + part[PROBABILITY] * tail)


@njit(cache=True, nogil=True, error_model="numpy")
def wait_quantile(parts: FloatArray) -> float:
    """Return the time that 95 % of the starts in all parts waited at most; 0 where nothing started."""
    total = parts[:, WEIGHT].sum()
    if total <= 0.0:
        return 0.0
    low, high = math.log(1e-3), math.log(1e6)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        seconds = math.exp(middle)
        beyond = 0.0
        for index in range(parts.shape[0]):
            if parts[index, WEIGHT] > 0.0:
                beyond += parts[index, WEIGHT] * wait_beyond(seconds, parts[index])
        if beyond > P95_TAIL * total:
            low = middle
        else:
            high = middle
    return math.exp(0.5 * (low + high))


@njit(cache=True, nogil=True, error_model="numpy")
def recent_quantile(parts: FloatArray, step: float, width: int) -> float:
    """Return the mean over time of what 95 % of the starts of a recent window waited at most.

    Quantiles are observed over `RECENT_SECONDS`. Where a queue comes and goes, their mean is not the quantile of all.
    """
    rows = max(int(RECENT_SECONDS / step), 1) * width
    blocks = max(parts.shape[0] // rows, 1)
    total = 0.0
    for block in range(blocks):
        last = parts.shape[0] if block == blocks - 1 else (block + 1) * rows
        total += wait_quantile(parts[block * rows : last])
    return float(total / blocks)


@njit(cache=True, nogil=True, error_model="numpy")
def decide(queued: float, knobs: FloatArray, mode: int, theta: FloatArray) -> tuple[float, float, float]:
    """Return how long a decision takes, how far two lie apart, and the share of time that they stop work for."""
    decision = theta[DECISION] + theta[DECISION_TASK] * queued
    if mode == SIMPLIFIED:
        decision *= SIMPLIFIED_DECISION_RATIO
    if math.isnan(knobs[PERIOD]):
        return decision, decision, 0.0
    period = max(knobs[PERIOD], decision)
    return decision, period, min(theta[PAUSE] / period, 0.9)


@njit(cache=True, nogil=True, error_model="numpy")
def chilled(rate: float, knobs: FloatArray, theta: FloatArray) -> float:
    """Return the share of inference starts that are cold."""
    if math.isnan(knobs[WINDOW]):
        return 0.0
    forgotten = 1.0 / (1.0 + rate * knobs[WINDOW] / theta[MODELS])
    # Arrivals come to popular models: their mixture is the size-biased one, a gamma of shape two.
    return float(min(theta[COLD_FLOOR] + forgotten * forgotten, 1.0))


@njit(cache=True, nogil=True, error_model="numpy")
def shared_part(demand: float, theta: FloatArray) -> tuple[float, float]:
    """Return which share of the accelerators of training is shared, and which share of its tasks shares them.

    Gangs hold whole accelerators; what asks for one or less can share. Only the mean demand is known: the larger, the
    more of it are gangs.
    """
    share = 1.0 / (1.0 + (demand / theta[GANG_DEMAND]) ** 2)
    return share, min(share * max(demand, 1.0), 0.99)


@njit(cache=True, nogil=True, error_model="numpy")
def clump(requests: float, free: float, spread: float) -> float:
    """Return how many requests come together, such that each keeps `spread` accelerators busy, of those free."""
    if requests <= 1e-9:
        return 1.0 / spread
    # As far as the accelerators suffice, each holds one resident at least.
    busy = min(spread * requests, 0.95 * free)
    return -requests / free / math.log1p(-busy / free)


@njit(cache=True, nogil=True, error_model="numpy")
def share(
    requests: float, free: float, together: float, knobs: FloatArray, theta: FloatArray
) -> tuple[float, float, float]:
    """Return busy accelerators, residents on each, and the share of busy time lost to switching.

    Args:
        requests: Requests that share.
        free: Accelerators that training leaves.
        together: Requests that come in one clump.
        knobs: The setting.
        theta: The parameters.
    """
    if requests <= 1e-9:
        return 0.0, 1.0, 0.0
    busy = min(free * (1.0 - math.exp(-requests / together / free)), requests)
    residents = requests / busy
    if math.isnan(knobs[SLICE]):
        return busy, residents, 0.0
    # Residents are geometric under processor sharing: one in so many busy accelerators has a lone one.
    return busy, residents, theta[SWITCH] / (knobs[SLICE] + theta[SWITCH]) * (1.0 - 1.0 / residents)


@njit(cache=True, nogil=True, error_model="numpy")
def admit(
    start: FloatArray, keep: FloatArray, grow: FloatArray, tasks: FloatArray, rate: FloatArray, demand: FloatArray,
    capacity: float, ceiling: float, inside: float, usable: float, taken: float, needed: float, theta: FloatArray,
) -> tuple[float, float, float, float]:  # fmt: skip
    """Cut what would start down to what finds room, protected work first, gangs last.

    Gangs hold accelerators alone; all others share the rest, `needed` accelerators each where it is crowded. Open work
    starts on `ceiling` accelerators, protected work on all. Gangs find `usable` accelerators of them, less what others
    hold. Those that run stay where they are: the share `inside` of them lies under the ceiling.

    Returns:
        Accelerators left over for gangs, for open and for protected work that shares; and the share of the gangs that
        lies under the ceiling afterwards.
    """
    share, count = shared_part(demand[TRAINING], theta)
    staying = tasks[BRIEF] * keep[BRIEF] + tasks[TRAINING] * keep[TRAINING]
    gangs = (1.0 - share) * staying * demand[TRAINING]
    pool, open_pool = max(capacity - gangs, 1e-6), max(ceiling - inside * gangs - taken, 0.0)
    beside = count * staying
    protected, inference = tasks[PROTECTED] * keep[PROTECTED], tasks[INFERENCE] * keep[INFERENCE]
    room = max(pool - (protected + inference + beside) * needed, 0.0)
    start[PROTECTED] = limited(start[PROTECTED], grow[PROTECTED] * needed, room)
    protected_room = max(room - start[PROTECTED] * grow[PROTECTED] * needed, 0.0)
    room = max(min(open_pool - (inference + beside * open_pool / pool) * needed, protected_room), 0.0)
    start[INFERENCE] = limited(start[INFERENCE], grow[INFERENCE] * needed, room)
    inference += start[INFERENCE] * grow[INFERENCE]
    open_room = max(room - start[INFERENCE] * grow[INFERENCE] * needed, 0.0)
    held = share * staying * demand[TRAINING] * open_pool / pool + inference * needed
    gang_room = max(usable - inside * gangs - held, 0.0)
    small = limited(count * (rate[BRIEF] + rate[TRAINING]), grow[TRAINING] * needed, open_room)
    small /= max(count * (rate[BRIEF] + rate[TRAINING]), 1e-12)
    each = (1.0 - share) / (1.0 - count) * demand[TRAINING]
    need = 0.0
    for group in range(BRIEF, INFERENCE):
        need += (start[group] - count * rate[group]) * grow[group] * each
    large = 1.0 if need <= gang_room else gang_room / need
    for group in range(BRIEF, INFERENCE):
        if start[group] > 0.0:
            start[group] = count * rate[group] * small + (start[group] - count * rate[group]) * large
    started = min(need, gang_room)
    inside = (inside * gangs + started) / max(gangs + started, 1e-9)
    # What gangs have taken is not there any more when the next requests come.
    return max(gang_room - need, 0.0), max(open_room - started, 0.0), max(protected_room - started, 0.0), inside


@njit(cache=True, nogil=True, error_model="numpy")
def usable_by_gangs(
    tasks: FloatArray, queue: FloatArray, demand: FloatArray, capacity: float, opened: float, ceiling: float,
    needed: float, theta: FloatArray,
) -> float:  # fmt: skip
    """Return how many accelerators of the ceiling gangs and the open work beside them can fill.

    Some are left over between gangs. How many shows in the state where gangs wait: what they could use they would.
    """
    whole = 1.0 - min(theta[UNUSABLE], 0.9)
    share, count = shared_part(demand[TRAINING], theta)
    training = (tasks[BRIEF] + tasks[TRAINING]) * demand[TRAINING]
    gangs = (1.0 - share) * training
    open_pool = max(opened - gangs, 0.0)
    filled = gangs + share * training * open_pool / max(capacity - gangs, 1e-6) + tasks[INFERENCE] * needed
    filled = min(filled, opened)
    filled += max(whole * opened - filled, 0.0) * (1.0 - pressure(count, queue))
    if ceiling <= opened:
        return float(filled * ceiling / opened)
    return float(filled + whole * (ceiling - opened))


@njit(cache=True, nogil=True, error_model="numpy")
def taken_by_gangs(
    tasks: FloatArray, queue: FloatArray, demand: FloatArray, capacity: float, opened: float, needed: float,
    theta: FloatArray,
) -> float:  # fmt: skip
    """Return how many accelerators that seem free to share are not, because gangs wait for each that falls empty.

    Beside gangs that wait, only such accelerators are shared as are never empty: those that tasks of training share,
    and little more than what the requests at hand keep.
    """
    share, count = shared_part(demand[TRAINING], theta)
    running = tasks[BRIEF] + tasks[TRAINING]
    gangs = (1.0 - share) * running * demand[TRAINING]
    open_pool = max(opened - gangs, 0.0)
    part = open_pool / max(capacity - gangs, 1e-6)
    kept = (tasks[INFERENCE] + count * running * part) * needed * (1.0 + theta[SLACK])
    kept = max(kept, share * running * demand[TRAINING] * part)
    return float(max(open_pool - kept, 0.0) * pressure(count, queue))


@njit(cache=True, nogil=True, error_model="numpy")
def pressure(count: float, queue: FloatArray) -> float:
    """Return how sure it is that a gang waits for every accelerator that falls empty, 0..1.

    Args:
        count: Share of the tasks of training that are no gangs.
        queue: Tasks that wait.
    """
    gangs = (1.0 - count) * (queue[BRIEF] + queue[TRAINING])
    return float(gangs / (1.0 + gangs))


@njit(cache=True, nogil=True, error_model="numpy")
def limited(start: float, need: float, room: float) -> float:
    """Return the rate of starts, each of which needs some room, that a room allows."""
    return start if start * need <= room else room / need


@njit(cache=True, nogil=True, error_model="numpy")
def fluctuation(room: float, variance: float, drain: float) -> tuple[float, float]:
    """Return the probability that chance has filled a room, and how long it then takes to drain.

    Args:
        room: Accelerators that are free on the fluid's path.
        variance: Variance of those that are occupied.
        drain: Accelerators that are freed a second.
    """
    if variance <= 1e-12 or drain <= 1e-12:
        return (0.0 if room > 0.0 else 1.0), 0.0
    deviation = math.sqrt(variance)
    beta = room / deviation
    return waiting_probability(beta), deviation / drain / max(beta, 0.5)


@njit(cache=True, nogil=True, error_model="numpy")
def settle(
    stay: FloatArray, keep: FloatArray, grow: FloatArray, start: FloatArray, service: FloatArray, rate: FloatArray,
    queue: FloatArray, slowness: float, drawn_out: float, speed: float, loading: float, step: float, mode: int,
    theta: FloatArray,
) -> None:  # fmt: skip
    """Write how long each group stays, which share of it is left after a step, what starts add, and who would start.

    Args:
        stay: Written: run time as things are, seconds.
        keep: Written: share of the running that still runs after a step.
        grow: Written: tasks that run at the end of a step for each that starts in a second.
        start: Written: tasks a second that want to start.
        service: Run time at full speed.
        rate: Arrivals a second.
        queue: Tasks that wait.
        slowness: Run time of inference over that at full speed.
        drawn_out: Run time of training over that without turns.
        speed: Share of the time in which nothing is stopped.
        loading: Mean time that inference waits for its model.
        step: Seconds.
        mode: Only protected work starts in PRIORITY_ONLY.
        theta: The parameters.
    """
    for group in range(GROUP_COUNT):
        if group >= INFERENCE:
            stay[group] = service[group] * slowness + loading
        else:
            stay[group] = service[group] * (theta[TRAINING_STRETCH] * drawn_out if group >= BRIEF else 1.0) / speed
        stay[group] = max(stay[group], 1e-3)
        keep[group] = math.exp(-step / stay[group])
        grow[group] = stay[group] * (1.0 - keep[group])
        start[group] = rate[group] + queue[group] / step
        if mode == PRIORITY_ONLY and group != PROTECTED:
            start[group] = 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def chance(
    chances: FloatArray, held: FloatArray, tasks: FloatArray, keep: FloatArray, grow: FloatArray, start: FloatArray,
    stay: FloatArray, demand: FloatArray, rooms: tuple[float, float, float, float], needed: float, elapsed: float,
    pressed: float, theta: FloatArray,
) -> None:  # fmt: skip
    """Write who runs after a step, and for each group the probability to find no room and the wait that follows.

    Training competes for accelerators with all; inference for memory with inference, protected work only with itself.
    The variance is that of a transient from a known state: nothing at first, all of it after a few run times.
    """
    gang_variance = shared_variance = protected_variance = gang_drain = shared_drain = 0.0
    share, count = shared_part(demand[TRAINING], theta)
    each = (1.0 - share) / (1.0 - count) * demand[TRAINING]
    for group in range(GROUP_COUNT):
        held[group] = tasks[group] * keep[group] + start[group] * grow[group]
        if group < BRIEF:
            continue
        variance = theta[BURSTINESS] * held[group] * (1.0 - math.exp(-2.0 * elapsed / stay[group]))
        if group < INFERENCE:
            gang_variance += (1.0 - count) * variance * each * each
            gang_drain += (1.0 - count) * held[group] * each / stay[group]
            shared_variance += count * variance * needed * needed
            shared_drain += count * held[group] * needed / stay[group]
        else:
            shared_variance += variance * needed * needed
            shared_drain += held[group] * needed / stay[group]
        if group == PROTECTED:
            protected_variance = variance * needed * needed
    # What falls empty goes to a gang that waits: room comes back when gangs end.
    shared_drain += (gang_drain - shared_drain) * pressed
    chances[INFERENCE, 0], chances[INFERENCE, 1] = fluctuation(rooms[1], shared_variance, shared_drain)
    chances[PROTECTED, 0], chances[PROTECTED, 1] = fluctuation(rooms[2], protected_variance, shared_drain)
    blocked, excess = fluctuation(rooms[0] - max(each - 1.0, 0.0), gang_variance + shared_variance, gang_drain)
    for group in range(BRIEF, INFERENCE):
        chances[group, 0] = (1.0 - count) * blocked + count * chances[INFERENCE, 0]
        chances[group, 1] = excess


@njit(cache=True, nogil=True, error_model="numpy")
def protect(
    views: FloatArray, part: FloatArray, slowed: float, residents: float, cold: float, cold_seconds: float
) -> None:
    """Write what protected work waits in all: for its start, for others' turns, and where it is cold for its model.

    Args:
        views: Written: a part of the warm and one of the cold, shape (2, 5).
        part: What it waits for its start.
        slowed: Mean time lost to sharing.
        residents: Mean number on a busy accelerator; one in so many tasks is alone.
        cold: Share that is cold.
        cold_seconds: Time that a cold start takes.
    """
    meeting = 1.0 - (1.0 - part[PROBABILITY]) / residents
    for chilled in range(2):
        view = views[chilled]
        view[:] = part
        view[WEIGHT] *= cold if chilled == 1 else 1.0 - cold
        view[LOW] += cold_seconds if chilled == 1 else 0.0
        view[PROBABILITY] = meeting
        view[EXCESS] = (slowed + part[PROBABILITY] * part[EXCESS]) / max(meeting, 1e-9)


@njit(cache=True, nogil=True, error_model="numpy")
def slowed_by_others(
    others: float, taken: float, reserved: float, service: float, slowness: float, knobs: FloatArray, theta: FloatArray
) -> float:
    """Return the mean time that protected work loses to those that it shares with.

    Args:
        others: Residents that it meets.
        taken: Share of the accelerators that do anything.
        reserved: Share that is reserved.
        service: Run time at full speed.
        slowness: Run time of inference over that at full speed.
        knobs: The setting.
        theta: The parameters.
    """
    turns = 0.0 if math.isnan(knobs[SLICE]) else theta[TURNS] * others * (knobs[SLICE] + theta[SWITCH])
    slowed = turns + theta[SLOWDOWN] * service * max(slowness - 1.0, 0.0)
    if math.isnan(knobs[RESERVATION]):
        return float(slowed)
    # What is kept for protected work alone spares it the company of others, as far as there are others.
    return float(max(reserved / USUAL_RESERVE, 0.1) ** (-theta[CROWDED_OUT] * min(taken, 1.0)) * slowed)


@njit(cache=True, nogil=True, error_model="numpy")
def opened(reservation: float, before: float, capacity: float) -> tuple[float, float, float]:
    """Return the share that is reserved, the accelerators that are open to all, and those that were until now."""
    reserved = 0.0 if math.isnan(reservation) else min(max(reservation, 0.0), 0.99)
    ceiling = (1.0 - reserved) * capacity
    if math.isnan(before) or math.isnan(reservation):
        return reserved, ceiling, ceiling
    return reserved, ceiling, (1.0 - min(max(before, 0.0), 0.99)) * capacity


@njit(cache=True, nogil=True, error_model="numpy")
def stand(
    part: FloatArray,
    chances: FloatArray,
    flow: float,
    queue: float,
    start: float,
    patience: float,
    decision: float,
    period: float,
    step: float,
) -> float:
    """Write how long the tasks of a group wait that start in a step to `part`; return how many wait by chance."""
    # The head of a queue has waited for as long as the whole queue took to arrive.
    standing = queue / max(flow, start, 1e-9) if queue > 0.0 else 0.0
    # Nobody waits for much longer than his patience, and a standing queue already holds what chance would add.
    standing = min(standing, patience)
    probability, excess = chances[0], max(min(chances[1], patience) - standing, 0.0)
    part[WEIGHT] = start * step
    part[LOW] = decision + 0.5 * standing
    part[WIDTH] = period + standing
    part[PROBABILITY] = probability
    part[EXCESS] = excess
    return float(start * probability * excess)


@njit(cache=True, nogil=True, error_model="numpy")
def lost_to_turns(
    sharers: float, requests: float, training: float, capacity: float, knobs: FloatArray, theta: FloatArray
) -> float:
    """Return the share of its time that training which shares loses to turns, unless it is alone."""
    company = 1.0 - math.exp(-(sharers + requests) / max(capacity - training + sharers, 1.0))
    if math.isnan(knobs[SLICE]):
        return 0.0
    return float(company * theta[SWITCH] / (knobs[SLICE] + theta[SWITCH]))


@njit(cache=True, nogil=True, error_model="numpy")
def by_turns(
    sharers: float, count: float, requests: float, training: float, capacity: float, knobs: FloatArray,
    theta: FloatArray,
) -> float:  # fmt: skip
    """Return how much longer training runs on average than without turns, where `count` of its tasks share."""
    lost = lost_to_turns(sharers, requests, training, capacity, knobs, theta)
    return float(1.0 + count * lost / (1.0 - lost))


@njit(cache=True, nogil=True, error_model="numpy")
def simulate(
    arrivals: FloatArray,
    state: FloatArray,
    capacity: float,
    cold_seconds: float,
    spread: float,
    step: float,
    knobs: FloatArray,
    before: FloatArray,
    mode: int,
    theta: FloatArray,
    parts: FloatArray,
    protected_parts: FloatArray,
    out: FloatArray,
) -> None:
    """Play one candidate on one scenario and write what comes of it to `out`.

    Args:
        arrivals: Tasks a second, shape (steps, 5).
        state: Arrivals before the start, running and waiting tasks, run times and demands, shape (5, 5).
        capacity: Accelerators.
        cold_seconds: Time that a cold start takes.
        spread: Accelerators that an inference request keeps busy at the start.
        step: Length of a step in seconds.
        knobs: Shape (4,), in the order of `Role`; NaN where absent.
        before: The setting until now, from which the state comes; NaN where absent or not known.
        mode: FULL, SIMPLIFIED or PRIORITY_ONLY.
        theta: Parameters in their units, shape (P,).
        parts: Scratch of shape (steps * 5, 5).
        protected_parts: Scratch of shape (steps * 2, 5).
        out: The 13 metrics in catalogue order, the mean time of a decision and the share of cold starts, shape (15,).
    """
    steps = arrivals.shape[0]
    reserved, ceiling, was_open = opened(knobs[RESERVATION], before[RESERVATION], capacity)
    # Gangs never yield: where the reserve grows, it finds those that lie there already.
    inside, usable, taken = min(ceiling / was_open, 1.0), 0.0, 0.0
    share_held, share_count = shared_part(state[DEMAND, TRAINING], theta)
    service, demand = state[SERVICE], state[DEMAND]
    flow, tasks, queue = state[RECENT].copy(), state[RUNNING].copy(), state[WAITING].copy()
    stay, keep, grow = np.empty(GROUP_COUNT), np.empty(GROUP_COUNT), np.empty(GROUP_COUNT)
    start, held, chances = np.empty(GROUP_COUNT), np.empty(GROUP_COUNT), np.zeros((GROUP_COUNT, 2))
    deciding = chills = 0.0
    together = 1.0
    latency = idle = useful = overhead = queued = pending = remaining = ran = completed = submitted = left = 0.0

    for index in range(steps):
        rate = arrivals[index]
        decision, period, paused = decide(queue.sum(), knobs, mode, theta)
        cold = chilled(rate[INFERENCE] + rate[PROTECTED], knobs, theta)
        requests = tasks[INFERENCE] + tasks[PROTECTED]
        training = tasks[BRIEF] * demand[BRIEF] + tasks[TRAINING] * demand[TRAINING]
        free = max(capacity - training, 1.0)
        if index == 0:
            together = theta[CLUMP] * clump(requests, max(capacity - training, 1.0), spread)
        busy, residents, switching = share(requests, free, together, knobs, theta)
        # A task meets more residents than an accelerator has: twice as many others, where their number is geometric.
        others = 2.0 * (residents - 1.0)
        speed = 1.0 - paused
        slowness = (
            theta[INFERENCE_STRETCH] * (1.0 + theta[SHARING_STRETCH] * (residents - 1.0)) / (speed * (1.0 - switching))
        )

        drawn_out = by_turns(share_held * training, share_count, requests, training, capacity, knobs, theta)
        settle(
            stay, keep, grow, start, service, rate, queue, slowness, drawn_out, speed, cold * cold_seconds, step, mode,
            theta,
        )  # fmt: skip
        busy_ratio = max(busy / requests, demand[INFERENCE]) if requests > 1e-9 else 1.0
        # Training that waits takes what falls empty, and inference moves closer together.
        needed = min(busy_ratio, theta[CROWDING] * demand[INFERENCE])
        if index == 0:
            usable = usable_by_gangs(tasks, queue, demand, capacity, was_open, ceiling, needed, theta)
            taken = taken_by_gangs(tasks, queue, demand, capacity, was_open, needed, theta) * inside
        rooms = admit(start, keep, grow, tasks, rate, demand, capacity, ceiling, inside, usable, taken, needed, theta)
        inside = rooms[3]

        elapsed = (index + 0.5) * step
        pressed = pressure(shared_part(demand[TRAINING], theta)[1], queue)
        chance(chances, held, tasks, keep, grow, start, stay, demand, rooms, needed, elapsed, pressed, theta)

        for group in range(GROUP_COUNT):
            flow[group] += (rate[group] - flow[group]) * min(step / FLOW_SECONDS, 1.0)
            patience = theta[TRAINING_PATIENCE] if group <= TRAINING else theta[INFERENCE_PATIENCE]
            part = parts[index * GROUP_COUNT + group]
            fluctuating = stand(
                part, chances[group], flow[group], queue[group], start[group], patience, decision, period, step
            )
            if group == PROTECTED:
                taken_now = (training + busy) / capacity
                slowed = slowed_by_others(others, taken_now, reserved, service[group], slowness, knobs, theta)
                protect(protected_parts[2 * index : 2 * index + 2], part, slowed, residents, cold, cold_seconds)

            # Patience runs out for those who wait.
            leaving = min(1.0, step / patience) * queue[group]
            left += leaving + fluctuating / patience * step
            submitted += rate[group] * step
            completed += max(tasks[group] + start[group] * step - held[group], 0.0)
            queue[group] = max(queue[group] + (rate[group] - start[group]) * step - leaving, 0.0)
            tasks[group] = held[group]
            waits = queue[group] + start[group] * (0.5 * period + decision) + fluctuating
            queued += waits
            pending += demand[group] * waits
            remaining += held[group] * stay[group]
            ran += held[group]

        training = tasks[BRIEF] * demand[BRIEF] + tasks[TRAINING] * demand[TRAINING]
        sharers = share_held * training
        turned = sharers * lost_to_turns(sharers, requests, training, capacity, knobs, theta)
        loading = min((start[INFERENCE] + start[PROTECTED]) * cold * cold_seconds, busy)
        latency += 0.99 * period + decision
        deciding += decision
        chills += cold
        idle += max(1.0 - (training + busy) / capacity, 0.0)
        useful += (training - turned) * min(theta[TRAINING_USEFUL], 1.0) * speed
        useful += max(busy - loading, 0.0) * speed * (1.0 - switching)
        overhead += (training + busy) * paused + max(busy - loading, 0.0) * switching + loading + turned

    out[0] = latency / steps
    out[1] = idle / steps
    out[2] = min(max(useful / (steps * capacity), 0.0), 1.0)
    out[3] = queued / steps
    out[4] = recent_quantile(parts, step, GROUP_COUNT)
    out[5] = completed / (steps * step)
    out[6] = min(left / max(submitted, 1e-9), 1.0)
    out[7] = remaining / max(ran, 1e-9)
    # Shapes only: the level of heat and power comes from observations.
    out[8] = 25.0 + 45.0 * out[2]
    out[9] = 0.35 + 0.65 * out[2]
    out[10] = pending / (steps * capacity)
    out[11] = min(overhead / (steps * capacity), 1.0)
    out[12] = recent_quantile(protected_parts, step, 2)
    out[13] = deciding / steps
    out[14] = chills / steps


@njit(cache=True, nogil=True, error_model="numpy")
def simulate_all(
    arrivals: FloatArray,
    state: FloatArray,
    capacity: FloatArray,
    cold_seconds: FloatArray,
    spread: FloatArray,
    step: float,
    knobs: FloatArray,
    before: FloatArray,
    mode: int,
    theta: FloatArray,
    paired: bool,  # noqa: FBT001 - numba has no keyword-only arguments.
) -> FloatArray:
    """Play every setting on every scenario; shape (settings, scenarios, 15).

    With `paired`, row i of `knobs` is the setting of scenario i, and was before, and rows of `theta` are variants:
    shape (variants, scenarios, 15). Otherwise row i of `theta` belongs to scenario i and every row of `knobs` is
    played, each after the setting `before`.
    """
    scenarios, steps = arrivals.shape[0], arrivals.shape[1]
    rows = theta.shape[0] if paired else knobs.shape[0]
    out = np.empty((rows, scenarios, 15))
    parts = np.zeros((steps * GROUP_COUNT, _PART_FIELDS))
    protected_parts = np.zeros((steps * 2, _PART_FIELDS))
    for row in range(rows):
        for scenario in range(scenarios):
            simulate(
                arrivals[scenario],
                state[scenario],
                capacity[scenario],
                cold_seconds[scenario],
                spread[scenario],
                step,
                knobs[scenario] if paired else knobs[row],
                knobs[scenario] if paired else before,
                mode,
                theta[row] if paired else theta[scenario],
                parts,
                protected_parts,
                out[row, scenario],
            )
    return out
