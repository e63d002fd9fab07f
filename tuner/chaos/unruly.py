"""A scheduler that keeps its promises about settings, or breaks them one at a time."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tuner.chaos.scheduler import PERSON
from tuner.chaos.wire import Reply, Request
from tuner.chaos.witness import Witness
from tuner.values.knobs import DESIGN_RANGES, middle

INSTANCE_HEADER: Final = "Scheduler-Instance"

DEFAULTS: Final[dict[str, object]] = {role.value: value for role, value in middle(DESIGN_RANGES.values()).items()} | {
    "mode": "full"
}
"""What it comes back with when it restarts."""


@dataclass(slots=True)
class Misbehaviour:
    """What it does wrong.

    Attributes:
        get: Answer to every GET instead of the right one; None for that.
        put: Answer to every PUT instead of the right one; None for that.
        put_has_effect: Whether a PUT that is answered wrongly is done all the same.
        late_seconds: How long every answer takes.
        half: Whether only the first setting that differs is taken, and a success told.
        shown_after_gets: How many GETs after a PUT still show what was before it.
    """

    get: Reply | None = None
    put: Reply | None = None
    put_has_effect: bool = False
    late_seconds: float = 0.0
    half: bool = False
    shown_after_gets: int = 0


@dataclass(slots=True)
class Scheduler:
    """Settings behind HTTP, which outlive the tuner.

    Attributes:
        witness: Sees every write that is taken.
        document: What is set.
        wrong: What it does wrong.
        instance: Number of its process: restarts count.
        at_put: What happens once, when the next write arrives and before it is looked at.
        asked: Requests so far.
        refused: Writes that were refused because the settings had changed.
    """

    witness: Witness
    document: dict[str, object] = field(default_factory=lambda: {**DEFAULTS, "reservation_ratio": 0.21})
    wrong: Misbehaviour = field(default_factory=Misbehaviour)
    instance: int = 1
    at_put: Callable[[], None] | None = None
    asked: int = 0
    refused: int = 0
    _changes: int = 0
    _stale: dict[str, object] | None = None
    _stale_gets: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def restart(self) -> None:
        """Come back with the defaults, as another process."""
        with self._lock:
            self.instance += 1
            self._set(dict(DEFAULTS))
            self.witness.edited()

    def edit(self, **changes: object) -> None:
        """Set it as a person would."""
        with self._lock:
            self._set({**self.document, **changes})
            self.witness.edited()

    def answer(self, request: Request) -> Reply:
        """Answer one request."""
        self.asked += 1
        if request.method == "PUT":
            self.witness.knock()
            happens, self.at_put = self.at_put, None
            if happens is not None:
                happens()
        with self._lock:
            return self._get() if request.method == "GET" else self._put(request)

    @property
    def _tag(self) -> str:
        return f'"{self.instance}-{self._changes}"'

    def _set(self, document: dict[str, object]) -> None:
        self.document = document
        self._changes += 1

    def _get(self) -> Reply:
        if self.wrong.get is not None:
            return self.wrong.get
        document = self.document
        if self._stale is not None:
            document, self._stale_gets = self._stale, self._stale_gets - 1
            self._stale = self._stale if self._stale_gets > 0 else None
        headers = {"ETag": self._tag, INSTANCE_HEADER: str(self.instance)}
        body = json.dumps(document, allow_nan=False).encode()
        return Reply(body=body, headers=headers, after_seconds=self.wrong.late_seconds)

    def _put(self, request: Request) -> Reply:
        wrong = self.wrong
        if wrong.put is not None and not wrong.put_has_effect:
            return wrong.put
        condition = request.headers.get("if-match")
        if condition not in (self._tag, "*"):
            self.refused += 1
            error = {"error": f"at {self._tag}, not at {condition}"}
            return Reply(status=409, body=json.dumps(error, allow_nan=False).encode())
        before, wanted = self.document, json.loads(request.body)
        taken = _half(before, wanted) if wrong.half else wanted
        if PERSON.lower() in request.headers:
            self.witness.edited()
        else:
            self.witness.written(before, wanted)
        self._set(taken)
        if wrong.shown_after_gets:
            self._stale, self._stale_gets = before, wrong.shown_after_gets
        body = json.dumps(taken, allow_nan=False).encode()
        good = Reply(body=body, headers={"ETag": self._tag}, after_seconds=wrong.late_seconds)
        return wrong.put or good


def _half(before: dict[str, object], wanted: dict[str, object]) -> dict[str, object]:
    first = next((name for name, value in wanted.items() if before.get(name) != value), None)
    return before if first is None else {**before, first: wanted[first]}
