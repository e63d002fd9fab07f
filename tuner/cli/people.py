"""Commands by which people have their say: pause, resume, kill-switch, freeze, thaw, approve, adopt, rollback, drill.

All but the kill switch leave an order for the tuner that runs, and wait a little for what comes of it. They end with 0
when it was done, 1 when it was refused or failed, 2 when it could not even be asked, and 3 when no tuner has answered.
"""

import os
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer
from rich.console import Console

from tuner.cli.options import DEFAULT_JOURNAL, JournalFile
from tuner.control.orders import ACT_WITHIN_SECONDS, ACTING, Direction, Order, OrderKind, asker, instant, new_id
from tuner.control.spool import Outcome, answer_of, folder_of, leave
from tuner.errors import ConfigError
from tuner.settings.durations import parse_duration
from tuner.values.knobs import Role

NOT_DONE: Final = 1
UNANSWERED: Final = 3

_LOOK_EVERY_SECONDS: Final = 0.1

Reason: TypeAlias = Annotated[str, typer.Option("--reason", help="Why; kept in the journal with your name.")]
Wait: TypeAlias = Annotated[str, typer.Option("--wait", help="How long to wait for what comes of it, such as 30s.")]
DEFAULT_WAIT: Final = "15s"
"""Three guard ticks as they are by default: the running tuner looks for orders in each."""


class Switch(StrEnum):
    """Positions of the kill switch."""

    ON = "on"
    OFF = "off"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (pause, resume, kill_switch, freeze, thaw, approve, adopt, rollback, drill):
        app.command()(command)


def pause(
    *,
    length: Annotated[str | None, typer.Option("--for", help="End by itself after this time, such as 90m.")] = None,
    reason: Reason = "",
    journal: JournalFile = DEFAULT_JOURNAL,
    wait: Wait = DEFAULT_WAIT,
) -> None:
    """Stop tuning until resumed. The scheduler stays protected: breaker, degradation and healing go on."""
    at_seconds = time.time()
    until = None if length is None else at_seconds + _duration("--for", length)
    _ask(_order(OrderKind.PAUSE, reason, at_seconds=at_seconds, until_seconds=until), journal, wait)


def resume(*, reason: Reason = "", journal: JournalFile = DEFAULT_JOURNAL, wait: Wait = DEFAULT_WAIT) -> None:
    """Go on after a pause, or after the tuner has frozen itself."""
    _ask(_order(OrderKind.RESUME, reason), journal, wait)


def kill_switch(
    position: Annotated[Switch, typer.Argument(help="on: nothing at all is written, from now on; off: as before.")],
    *,
    reason: Reason = "",
    journal: JournalFile = DEFAULT_JOURNAL,
) -> None:
    """Stop every write at once, or allow them again; needs no running tuner, and outlasts its restart."""
    from tuner.control.permission import STOP_VARIABLE, stop_file
    from tuner.files import explained

    _require(journal)
    path = stop_file(journal)
    with explained(path):
        if position is Switch.OFF:
            path.unlink(missing_ok=True)
            typer.echo(f"the kill switch is off: there is no {path}")
            typer.echo(f"writes stay stopped where the policy's control.kill_file exists, or {STOP_VARIABLE} is set")
            return
        _make(path, f"{asker()}: {reason or 'no reason given'}, {instant(time.time())}\n")
    typer.echo(f"the kill switch is on: {path} exists; the tuner of {journal} writes nothing more to the scheduler")
    typer.echo("what is in force stays in force; `clocktuner kill-switch off` allows writes again")


def _make(path: Path, text: str) -> None:
    """Make a file that outlasts a power cut; what is there already, a link above all, is left as it is."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return
    with open(number, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def freeze(
    knob: Annotated[Role, typer.Argument(help="The knob.")],
    direction: Annotated[Direction, typer.Argument(help="Where it may not be moved.")],
    *,
    reason: Reason = "",
    journal: JournalFile = DEFAULT_JOURNAL,
    wait: Wait = DEFAULT_WAIT,
) -> None:
    """Do not move a knob up, or down, until it is thawed."""
    _known_knob(knob, journal)
    _ask(_order(OrderKind.FREEZE, reason, role=knob, direction=direction), journal, wait)


def thaw(
    knob: Annotated[Role, typer.Argument(help="The knob.")],
    direction: Annotated[
        Direction | None, typer.Argument(help="Where it may be moved again; both if left out.")
    ] = None,
    *,
    reason: Reason = "",
    journal: JournalFile = DEFAULT_JOURNAL,
    wait: Wait = DEFAULT_WAIT,
) -> None:
    """Let a knob move again that was frozen."""
    _known_knob(knob, journal)
    _ask(_order(OrderKind.THAW, reason, role=knob, direction=direction), journal, wait)


def approve(
    cycle: Annotated[int, typer.Argument(help="Number of the cycle.", min=1)],
    *,
    reason: Reason = "",
    journal: JournalFile = DEFAULT_JOURNAL,
    wait: Wait = DEFAULT_WAIT,
) -> None:
    """Have the change made that a cycle recommended; it is then watched, and undone if it harms, like any other."""
    from tuner.control.approval import approval_fault
    from tuner.record.journal import Journal
    from tuner.record.setting import load_setting
    from tuner.record.wording import gain, moves

    with Journal.open_readonly(journal) as book:
        record, mode = book.record(cycle), load_setting(book).mode
    fault = approval_fault(record, cycle, mode=mode, at_seconds=time.time())
    if fault:
        raise ConfigError(fault)
    if record is not None and record.proposal is not None:
        proposal = record.proposal
        typer.echo(f"{moves(proposal.incumbent, proposal.candidate)}; expected to be {gain(proposal.score)}")
    _ask(_order(OrderKind.APPROVE, reason, cycle_id=cycle), journal, wait)


def adopt(*, reason: Reason = "", journal: JournalFile = DEFAULT_JOURNAL, wait: Wait = DEFAULT_WAIT) -> None:
    """Take the settings in force, whoever has set them, for those to go on from; also ends a freeze."""
    _ask(_order(OrderKind.ADOPT, reason), journal, wait)


def rollback(
    *,
    to: Annotated[
        int | None, typer.Option("--to", help="Number of the setting in the list; the newest if left out.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Only list the known good settings, and their load.")] = False,
    reason: Reason = "",
    journal: JournalFile = DEFAULT_JOURNAL,
    wait: Wait = DEFAULT_WAIT,
) -> None:
    """Go back to a known good setting."""
    from tuner.cli import known_good
    from tuner.record.journal import Journal

    with Journal.open_readonly(journal) as book:
        known = known_good.load(book)
    if show:
        Console().print(known_good.table(known))
        return
    if to is not None and to not in known:
        raise ConfigError(f"--to is {to}, must be a number that `clocktuner rollback --list` shows")
    knobs = None if to is None else known[to].knobs
    _ask(_order(OrderKind.ROLL_BACK, reason, known_good=to, knobs=knobs), journal, wait)


def drill(*, reason: Reason = "", journal: JournalFile = DEFAULT_JOURNAL, wait: Wait = "60s") -> None:
    """Prove that a change can be undone: move one knob by one step, see it in force, move it back, and time it."""
    _ask(_order(OrderKind.DRILL, reason), journal, wait)


# How an order is given.


def _order(kind: OrderKind, reason: str, *, at_seconds: float | None = None, **details: Any) -> Order:  # noqa: ANN401
    now = time.time() if at_seconds is None else at_seconds
    try:
        return Order(order_id=new_id(now), kind=kind, at_seconds=now, by=asker(), reason=reason, **details)
    except ValueError as error:
        raise ConfigError(f"{error}; say it otherwise") from error


def _ask(order: Order, journal: Path, wait: str) -> None:
    """Leave an order, wait for what comes of it, and end with the status that says so."""
    within_seconds = _duration("--wait", wait)
    _require(journal)
    folder = folder_of(journal)
    leave(folder, order)
    typer.echo(order.describe())
    answer, deadline = answer_of(folder, order.order_id), time.monotonic() + within_seconds
    while answer is None and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_SECONDS)
        answer = answer_of(folder, order.order_id)
    if answer is None:
        valid = f", within {ACT_WITHIN_SECONDS / 60:g} minutes" if order.kind in ACTING else ""
        typer.echo(
            f"no clocktuner has answered within {within_seconds:g} s: the order lies in {folder} and is taken when one "
            f"runs{valid}; `clocktuner status` tells whether one does",
            err=True,
        )
        raise typer.Exit(UNANSWERED)
    number = "" if answer.cycle_id is None else f" (`clocktuner explain {answer.cycle_id}`)"
    typer.echo(f"{answer.outcome}: {answer.sentence}{number}", err=answer.outcome is not Outcome.DONE)
    if answer.outcome is not Outcome.DONE:
        raise typer.Exit(NOT_DONE)


def _duration(option: str, text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from error
    if not 0 < seconds < 10 * 365 * 86_400:
        raise ConfigError(f"{option} is {text}, must be over 0 and under ten years")
    return seconds


def _require(journal: Path) -> None:
    """Refuse a journal that is not there: an order beside it would reach nobody."""
    if not journal.is_file():
        raise ConfigError(
            f"{journal}: there is no journal; name with --journal the file that `journal.path` of the policy names"
        )


def _known_knob(role: Role, journal: Path) -> None:
    from tuner.record.journal import Journal
    from tuner.record.setting import load_setting

    with Journal.open_readonly(journal) as book:
        setting = load_setting(book)
    tuned = [spec.role.value for spec in setting.specs]
    if role not in tuned:
        raise ConfigError(f"{role} is no knob of policy {setting.policy}, which has {', '.join(tuned) or 'none'}")
