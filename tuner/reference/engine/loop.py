"""The event loop, and the functions of the engine that Python calls."""

import math
from collections.abc import Callable

from tuner.reference.engine.books import abandon
from tuner.reference.engine.compilation import cached, compiled, sources_digest
from tuner.reference.engine.decision import begin_decision, end_decision, submit
from tuner.reference.engine.failures import fail_node, repair_node
from tuner.reference.engine.gangs import end, reach_middle
from tuner.reference.engine.heaps import drop_event
from tuner.reference.engine.sharers import reach_milestone
from tuner.reference.engine.state import ABANDON, END, MIDDLE, RING, RUNNING, Engine
from tuner.reference.engine.ticks import keep_reading, sync_all, tick


@compiled
def _happen(s: Engine) -> None:
    """Act on the earliest event of the wall clock, unless it is stale: its task has ended, grown or begun anew."""
    at, what, i = s.event[0]["at"], s.event[0]["what"], s.event[0]["whom"]
    drop_event(s)
    if what == ABANDON:
        abandon(s, i)
    elif s.task[i]["state"] != RUNNING:
        return
    elif what == MIDDLE and s.task[i]["middle"] == at:
        reach_middle(s, i)
    elif what == END and s.task[i]["ends"] == at:
        end(s, i)


def _bind(
    digest: int,
) -> tuple[
    Callable[[Engine, float], None],
    Callable[[Engine], None],
    Callable[[Engine, int], None],
    Callable[[Engine, int, int], None],
]:
    # The digest is part of the key under which numba keeps the compiled code; see `compilation`.
    @cached
    def advance(s: Engine, until: float) -> None:
        c = s.clock[0]
        while digest != 0:
            milestone = s.gpu[s.gpu[0]["queued"]]["due"] + c["paused"]
            event = s.event[0]["at"] if c["events"] > 0 else math.inf
            arrival = s.task[c["arrived"]]["submit"] if c["arrived"] < s.task.size else math.inf
            at = min(milestone, event, arrival, c["decision_at"], c["next_tick"])
            if at > until:
                break
            # A milestone can lie a rounding error in the past; time never runs backwards.
            c["now"] = max(c["now"], at)
            if milestone == at:
                reach_milestone(s, s.gpu[0]["queued"])
            elif event == at:
                _happen(s)
            elif arrival == at:
                submit(s, c["arrived"])
                c["arrived"] += 1
            elif c["decision_at"] == at and c["computing"] == 1:
                end_decision(s)
            elif c["decision_at"] == at:
                begin_decision(s)
            else:
                tick(s)
        c["now"] = max(c["now"], until)

    @cached
    def settle(s: Engine) -> None:
        if digest != 0:
            sync_all(s)
            keep_reading(s, RING)

    @cached
    def fail(s: Engine, n: int) -> None:
        if digest != 0:
            fail_node(s, n)

    @cached
    def repair(s: Engine, n: int, slots: int) -> None:
        if digest != 0:
            repair_node(s, n, slots)

    return advance, settle, fail, repair


advance, settle, fail, repair = _bind(sources_digest())
"""`advance(engine, until)` runs to a time. `settle(engine)` brings all books up to now and keeps a reading beyond the
ring, at index `RING`: it splits the turns at hand, so it is for copies; `advance` alone gives equal results however its
calls are cut. `fail(engine, node)` and `repair(engine, node, slots)` take a node out and back; see `failures`. Each is
compiled when it is first called."""
