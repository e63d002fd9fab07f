"""Orders: what a person asks of a running tuner, and how that is written down.

An order is data that anybody with the rights may have written by hand, so nothing in it is believed before it was
checked: `parse` accepts exactly what `Order.to_json` writes, and every other text is an error that says why.
"""

import json
import math
import os
import pwd
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from tuner.values.knobs import KnobValues, Role

MAX_BYTES: Final = 4096
"""Largest order that is read: the longest that can be valid has less than half of it."""

MAX_NAME: Final = 64
"""Longest name of whoever asks."""

MAX_REASON: Final = 300
"""Longest reason: a sentence or two."""

ACT_WITHIN_SECONDS: Final = 3600.0
"""Age at which an order to do something to the scheduler is no longer obeyed: whoever gave it an hour ago, to a tuner
that did not run, has gone on to other things (assumption). What only says what may not be done never grows old."""

_ID: Final = re.compile(r"\d{14}-[0-9a-f]{8}")


class OrderKind(StrEnum):
    """What may be asked."""

    PAUSE = "pause"
    """Change nothing, until resumed or until a time."""
    RESUME = "resume"
    """Go on: ends a pause, and a freeze that the tuner has put upon itself."""
    FREEZE = "freeze"
    """Do not move a knob in a direction."""
    THAW = "thaw"
    """Let a knob move again, in one direction or in both."""
    APPROVE = "approve"
    """Make the change that a cycle has recommended."""
    ADOPT = "adopt"
    """Take what is in force for the setting to go on from."""
    ROLL_BACK = "roll_back"
    """Go back to a known good setting."""
    DRILL = "drill"
    """Prove that a change can be made and undone."""


class Direction(StrEnum):
    """Where a knob may move."""

    UP = "up"
    DOWN = "down"


ACTING: Final = frozenset({OrderKind.APPROVE, OrderKind.ADOPT, OrderKind.ROLL_BACK, OrderKind.DRILL})
"""Orders to do something now; the others only say what may be done from now on."""

_NEEDED: Final[Mapping[OrderKind, frozenset[str]]] = {
    OrderKind.FREEZE: frozenset({"role", "direction"}),
    OrderKind.THAW: frozenset({"role"}),
    OrderKind.APPROVE: frozenset({"cycle_id"}),
}
_ALLOWED: Final[Mapping[OrderKind, frozenset[str]]] = {
    OrderKind.PAUSE: frozenset({"until_seconds"}),
    OrderKind.THAW: frozenset({"direction"}),
    OrderKind.ROLL_BACK: frozenset({"known_good", "knobs"}),
}
_DETAILS: Final = ("until_seconds", "role", "direction", "cycle_id", "known_good", "knobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a person asks. Details that its kind has no use for are None.

    Attributes:
        order_id: Unique, and in the order of time: see `new_id`.
        kind: What is asked.
        at_seconds: When it was asked.
        by: Who asks: the name of a user on the machine where it was asked.
        reason: Why, in that person's words; may be empty.
        until_seconds: PAUSE: when it ends by itself; None where only a person ends it.
        role: FREEZE, THAW: which knob.
        direction: FREEZE, THAW: where it may not, or may again, move; None thaws both.
        cycle_id: APPROVE: the cycle whose proposal is meant.
        known_good: ROLL_BACK: number of the setting in the list that was shown; None for the newest known good.
        knobs: ROLL_BACK: the setting of that number; given if and only if the number is.
    """

    order_id: str
    kind: OrderKind
    at_seconds: float
    by: str
    reason: str = ""
    until_seconds: float | None = None
    role: Role | None = None
    direction: Direction | None = None
    cycle_id: int | None = None
    known_good: int | None = None
    knobs: KnobValues | None = None

    def __post_init__(self) -> None:
        """Refuse orders that cannot have been meant.

        Raises:
            ValueError: A field is malformed, missing, or has nothing to do with the kind.
        """
        if not _ID.fullmatch(self.order_id):
            raise ValueError("order_id is not of the form that `new_id` gives")
        if not math.isfinite(self.at_seconds):
            raise ValueError("at_seconds is not a time")
        _check_text("by", self.by, longest=MAX_NAME)
        if not self.by:
            raise ValueError("by is empty: an order without a name is nobody's")
        _check_text("reason", self.reason, longest=MAX_REASON)
        needed = _NEEDED.get(self.kind, frozenset())
        given = {name for name in _DETAILS if getattr(self, name) is not None}
        if needed - given:
            raise ValueError(f"{self.kind} needs {', '.join(sorted(needed - given))}")
        foreign = given - needed - _ALLOWED.get(self.kind, frozenset())
        if foreign:
            raise ValueError(f"{self.kind} has no use for {', '.join(sorted(foreign))}")
        self._check_values()

    def _check_values(self) -> None:
        if (self.known_good is None) != (self.knobs is None):
            raise ValueError("known_good and knobs belong together: the number, and the setting that it stands for")
        if self.until_seconds is not None and not self.until_seconds > self.at_seconds:
            raise ValueError("until_seconds is not after at_seconds")
        if any(number is not None and number < 0 for number in (self.cycle_id, self.known_good)):
            raise ValueError("cycle_id and known_good count from 0")

    def current(self, at_seconds: float) -> bool:
        """Say whether it is still to be obeyed; a clock that was ahead when it was given makes it as old."""
        return self.kind not in ACTING or abs(at_seconds - self.at_seconds) < ACT_WITHIN_SECONDS

    def describe(self) -> str:
        """Return who asks for what, and why: `anna: pause until 2026-12-01 14:00 UTC (the new racks come)`."""
        return f"{self.by}: {_WORDING[self.kind](self)}" + (f" ({self.reason})" if self.reason else "")

    def to_json(self) -> str:
        """Return it as strict JSON; what is None is left out."""
        written = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.knobs is not None:
            written["knobs"] = {str(role): value for role, value in self.knobs.items()}
        return json.dumps({name: value for name, value in written.items() if value is not None}, allow_nan=False)


_WORDING: Final[Mapping[OrderKind, Callable[[Order], str]]] = {
    OrderKind.PAUSE: lambda order: (
        "pause" if order.until_seconds is None else f"pause until {instant(order.until_seconds)}"
    ),
    OrderKind.RESUME: lambda _: "go on",
    OrderKind.FREEZE: lambda order: f"do not move {order.role} {order.direction}",
    OrderKind.THAW: lambda order: f"let {order.role} move {order.direction or 'up and down'} again",
    OrderKind.APPROVE: lambda order: f"make the change that cycle {order.cycle_id} recommends",
    OrderKind.ADOPT: lambda _: "adopt the settings in force",
    OrderKind.ROLL_BACK: lambda order: (
        "go back to the newest known good setting"
        if order.knobs is None
        else f"go back to setting {order.known_good}: {order.knobs.describe()}"
    ),
    OrderKind.DRILL: lambda _: "prove by a drill that a change can be undone",
}


def parse(text: bytes) -> Order:
    """Return the order that a text describes.

    Raises:
        ValueError: It is too long, not strict JSON, or no order; the message says what is wrong, and quotes little.
    """
    if len(text) > MAX_BYTES:
        raise ValueError(f"it is longer than {MAX_BYTES} bytes")
    try:
        data = json.loads(text.decode(), parse_constant=_no_constant, object_pairs_hook=_no_doubles)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - One kind of error for all that a text may be.
    known = {field.name for field in fields(Order)}
    if data.keys() - known:
        raise ValueError(f"it has {len(data.keys() - known)} unknown keys")
    missing = {"order_id", "kind", "at_seconds", "by"} - data.keys()
    if missing:
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    return Order(**{name: _READERS[name](name, value) for name, value in data.items()})


def new_id(at_seconds: float) -> str:
    """Return an identity that no other order has; by their identities, orders are in the order of time.

    Args:
        at_seconds: When the order is given; to the millisecond, and a random part tells apart what is as old.
    """
    return f"{round(at_seconds * 1000):014d}-{secrets.token_hex(4)}"


def is_id(text: str) -> bool:
    """Say whether a text is of the form that `new_id` gives, and so safe as the name of a file."""
    return _ID.fullmatch(text) is not None


def asker() -> str:
    """Return the name of whoever runs this process, as the system knows it: no environment variable can feign it.

    Behind sudo, the user who called it stands in brackets; that is what sudo says, and only root can say so.
    """
    name = _user(os.getuid())
    caller = os.environ.get("SUDO_UID", "") if os.getuid() == 0 else ""
    called_by = _user(int(caller)) if caller.isascii() and caller.isdigit() and int(caller) < 2**31 else ""
    whole = f"{name} ({called_by})" if called_by and called_by != name else name
    return "".join(letter for letter in whole if letter.isprintable())[:MAX_NAME]


def instant(at_seconds: float) -> str:
    """Return a time in words, to the minute: `2026-12-01 14:00 UTC`; `never` for what is no time."""
    if not math.isfinite(at_seconds):
        return "never"
    return f"{datetime.fromtimestamp(at_seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # In a container, numbers often have no names.
        return f"uid {number}"


def _check_text(name: str, text: str, *, longest: int) -> None:
    if len(text) > longest:
        raise ValueError(f"{name} is longer than {longest} characters")
    if not text.isprintable():
        raise ValueError(f"{name} holds what cannot be printed")


def _no_constant(constant: str) -> float:
    raise ValueError(f"it holds {constant}, which is no JSON")


def _no_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is not text")  # noqa: TRY004 - As above.
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        raise ValueError(f"{name} is not a number")
    return float(value)


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not abs(value) < 2**53:
        raise ValueError(f"{name} is not a whole number")
    return value


def _knobs(name: str, value: object) -> KnobValues:
    if not isinstance(value, dict) or not value:
        raise ValueError(f"{name} is not a setting")
    return KnobValues.of({Role(role): _number(f"{name}.{role}", number) for role, number in value.items()})


_READERS: Final[Mapping[str, Any]] = {
    "order_id": _text,
    "kind": lambda name, value: OrderKind(_text(name, value)),
    "at_seconds": _number,
    "by": _text,
    "reason": _text,
    "until_seconds": _number,
    "role": lambda name, value: Role(_text(name, value)),
    "direction": lambda name, value: Direction(_text(name, value)),
    "cycle_id": _whole,
    "known_good": _whole,
    "knobs": _knobs,
}
