"""Kill -9 at every numbered step of a scenario, and a look at what the next process makes of it.

A step is the instant before or after anything that lasts: a transaction of the journal, a request to the scheduler, an
answered order. A first run counts and names them. Then the scenario runs once for each, in a process of its own that
sends itself SIGKILL there, beside a scheduler that lives on; a second process starts on what is left, and runs until
all is settled.
"""

import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tuner import logs
from tuner.chaos.scheduler import Settings, settings_server
from tuner.chaos.script import SCENARIOS, Stage, open_stage
from tuner.control import spool
from tuner.demo.world import START_AT_SECONDS
from tuner.errors import JournalError
from tuner.record.journal import Intent, Journal
from tuner.values.knobs import DESIGN_RANGES

RESTART_AFTER_SECONDS: Final = 4 * 3600.0
"""Simulated time from the beginning of a scenario to the start of the next process."""

SETTLE_CYCLES: Final = 6
"""Cycles, each with a tick before it, that the next process gets to settle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a kill.

    Attributes:
        scenario: Name of the scenario.
        point: Number of the step.
        step: Name of the step.
        writes: Writes of the tuner that the scheduler saw, before and after.
        resumed_after: Cycles and ticks of the next process until the first that was not a failure.
        violations: What should not be, one sentence each; empty where all is well.
    """

    scenario: str
    point: int
    step: str
    writes: int
    resumed_after: int
    violations: tuple[str, ...]


@dataclass(slots=True)
class Counter:
    """Numbers the steps, and ends the process at one of them.

    Attributes:
        fatal: Number of the step at which the process dies; 0 for none.
        steps: Names of those made so far.
    """

    fatal: int = 0
    steps: list[str] = field(default_factory=list)

    def at(self, name: str) -> None:
        """Count a step, and die where it is the fatal one."""
        self.steps.append(name)
        if len(self.steps) == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, name: str, label: str) -> None:  # noqa: ANN401 - Methods of any part.
        """Count the instants before and after a method of a part, for as long as the part lives."""
        method = getattr(owner, name)

        def counted(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - As the method.
            what = options.get("what", label)
            self.at(f"before {what}")
            result = method(*arguments, **options)
            self.at(f"after {what}")
            return result

        setattr(owner, name, counted)


def points(scenario: str) -> list[str]:
    """Return the names of all steps of a scenario, in order."""
    with scene() as (journal, url, _):
        return list(_in_child(lambda: _play(scenario, journal, url, fatal=0))["steps"])


def kill(scenario: str, point: int, step: str) -> Outcome:
    """Kill a scenario at a step, start anew, and look."""
    with scene() as (journal, url, settings):
        died = _in_child(lambda: _play(scenario, journal, url, fatal=point))
        settled = _in_child(lambda: _settle(journal, url))
        violations = [] if died.get("signal") == signal.SIGKILL else [f"the process was not killed: {died}"]
        violations += look(journal, settings, settled)
    ours = sum(put.foretold is not None for put in settings.puts)
    return Outcome(
        scenario=scenario,
        point=point,
        step=step,
        writes=ours,
        resumed_after=int(settled.get("resumed_after", -1)),
        violations=tuple(violations),
    )


def _play(scenario: str, journal: Path, url: str, *, fatal: int) -> dict[str, Any]:
    counter = Counter(fatal)
    stage = open_stage(journal, url)
    _count(stage, counter)
    SCENARIOS[scenario](stage)
    stage.parts.close()
    return {"steps": counter.steps}


def _count(stage: Stage, counter: Counter) -> None:
    counter.around(stage.parts.journal._storage, "write", "a transaction")
    counter.around(stage.parts.actuator, "write", "a write to the scheduler")
    counter.around(stage.parts.actuator, "await_effect", "a wait for the effect")
    counter.around(spool, "done", "an answer to an order")  # The process ends with the scenario.


def _settle(journal: Path, url: str) -> dict[str, Any]:
    stage = open_stage(journal, url, started_at=START_AT_SECONDS + RESTART_AFTER_SECONDS)
    stage.source.effect_ratio = 1.0
    resumed_after = -1
    for number in range(SETTLE_CYCLES):
        stage.ticks(1)
        stage.cycles(1)
        if resumed_after < 0 and stage.decisions[-1] != "failed":
            resumed_after = number + 1
    told = told_by(stage, journal, resumed_after)
    stage.parts.close()
    return told


def told_by(stage: Stage, journal: Path, resumed_after: int) -> dict[str, Any]:
    """Return what a tuner knows at the end, for `look`."""
    parts, live = stage.parts, stage.parts.actuator.read()
    standing, on_trial = parts.writer.standing, parts.cycle.memory.on_trial
    return {
        "decisions": [str(decision) for decision in stage.decisions],
        "resumed_after": resumed_after,
        "open": [intent.cycle_id for intent in parts.journal.open_intents()],
        "unrecorded": [intent.cycle_id for intent in parts.journal.unrecorded()],
        "known": standing.knobs is not None and not standing.knobs.differs(live.knobs),
        "mode_known": standing.mode is live.mode,
        "watched": on_trial is None or not on_trial.in_force.differs(live.knobs),
        "waiting": len(spool.collect(spool.folder_of(journal), at_seconds=stage.now).orders),
    }


def look(journal: Path, settings: Settings, settled: dict[str, Any]) -> Iterator[str]:
    """Yield everything that should not be."""
    if "open" not in settled:
        yield f"the next process did not settle: {settled}"
        return
    for put in settings.puts:
        if put.foretold is False:
            yield f"a write that the journal did not know of: {put.document}"
        if put.foretold is not None:
            yield from _out_of_bounds(put.document)
    for name, sentence in (("open", "intents without a receipt"), ("unrecorded", "changes without a record")):
        if settled[name]:
            yield f"{sentence}: {settled[name]}"
    if not settled["known"]:
        yield "the setting in force is not the one that was left"
    if not settled["mode_known"]:
        yield "the policy mode in force is not the one that was left"
    if not settled["watched"]:
        yield "a trial is watched whose setting is not in force"
    if settled["waiting"]:
        yield "an order was neither done nor refused"
    if settled["resumed_after"] < 0:
        yield "no good cycle came"
    with Journal.open_readonly(journal) as book:
        ids = [record.cycle_id for record in book.records()]
    if len(ids) != len(set(ids)):
        yield "a cycle is recorded twice"


def _out_of_bounds(document: dict[str, object]) -> Iterator[str]:
    for role, spec in DESIGN_RANGES.items():
        value = document[role.value]
        if not isinstance(value, int | float) or not spec.contains(float(value)):
            yield f"{role} was set to {value}, outside {spec.low:g}..{spec.high:g}"


@contextmanager
def scene() -> Iterator[tuple[Path, str, Settings]]:
    """Yield the place of a journal, and a scheduler that looks into it before it takes a write."""
    logs.configure(level="critical")
    with tempfile.TemporaryDirectory(prefix="clocktuner-chaos-") as folder, settings_server() as (url, settings):
        journal = Path(folder) / "journal.sqlite"
        settings.foretold = lambda document: _foretold(journal, document)
        yield journal, url, settings


def _foretold(journal: Path, document: dict[str, object]) -> bool:
    """Say whether a journal in the folder holds an open intent for a document, or one that is being put back."""
    intents: list[Intent] = []
    for path in journal.parent.glob("*.sqlite"):
        with suppress(JournalError), Journal.open_readonly(path) as book:
            intents += book.open_intents()
    for intent in intents:
        for wanted in (intent.target, intent.before):
            named = {role: document[role.value] for role in wanted}
            if all(abs(float(str(named[role])) - wanted[role]) < 1e-9 for role in wanted):
                return intent.mode is None or document["mode"] == intent.mode.value or wanted is intent.before
    return False


def _in_child(play: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run something in a process of its own; returns what it returned, or how it ended."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        status = 1
        try:
            os.write(writer, json.dumps(play(), allow_nan=False).encode())
            status = 0
        except BaseException as error:  # noqa: BLE001 - Whatever ends the child is what came of it.
            os.write(writer, json.dumps({"error": repr(error)}, allow_nan=False).encode())
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status)}
    told: dict[str, Any] = json.loads(text)
    return told
