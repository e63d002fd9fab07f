"""Settings behind HTTP: GET answers a JSON object and an ETag, PUT with If-Match replaces it.

The object is written back as it was read but for the knobs, so that what the tuner does not know is never lost.
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tuner.apply.actuator import Current
from tuner.apply.exchange import Answer, exchange
from tuner.apply.forecasts import forecast_document
from tuner.apply.native import from_native, get_path, put_path, same_native, to_native
from tuner.errors import ActuatorUnavailable, ChangeConflicted, ChangeRejected, PermanentError
from tuner.settings.model import HttpActuator as HttpActuatorSettings
from tuner.settings.model import KnobMapping
from tuner.settings.tokens import authorization
from tuner.values.knobs import KnobValues, Role, SchedulerMode
from tuner.values.stages import Forecast

FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 1.0
"""Between two looks whether a value is in force, the pause doubles from the first to the longest."""

MAX_WORDS_CHARACTERS: Final = 300
"""Longest answer of the scheduler that a message repeats."""

_CONFLICT: Final = frozenset({409, 412})
_COME_AGAIN: Final = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class _Page:
    """The settings as served."""

    document: Mapping[str, object]
    revision: str
    instance: str


class HttpActuator:
    """Reads and writes the settings of one scheduler over HTTP."""

    def __init__(
        self,
        settings: HttpActuatorSettings,
        knobs: Mapping[Role, KnobMapping],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare for one scheduler; nothing is sent yet.

        Args:
            settings: Where it is, and how long it may take.
            knobs: The policy's knobs. A role without a native name lives here alone: it begins in the middle of its
                range, and lasts as long as this object.
            clock: Monotonic seconds.
            sleep: Waits some seconds.
        """
        self._settings = settings
        self._clock = clock
        self._sleep = sleep
        present = {role: mapping for role, mapping in knobs.items() if mapping.absent is None}
        self._mapped = {role: (mapping.native, mapping) for role, mapping in present.items() if mapping.native}
        specs = {role: mapping.spec(role) for role, mapping in present.items() if not mapping.native}
        self._own = {role: spec.snap((spec.low + spec.high) / 2) for role, spec in specs.items()}

    def resume(self, knobs: KnobValues) -> None:
        """Go on from the setting that an earlier process left, where a role lives here alone."""
        self._own |= {role: value for role, value in knobs.items() if role in self._own}

    def read(self) -> Current:
        """Return the settings in force.

        Raises:
            ActuatorUnavailable: There is no answer in time, or a server error.
            PermanentError: The answer is a refusal, or not what the policy says it is.
        """
        return self._current(self._get())

    def write(self, knobs: KnobValues, *, expected_revision: str | None, mode: SchedulerMode | None = None) -> Current:
        """Ask for settings, and return what is served right after; see `Actuator.write`.

        Raises:
            ChangeConflicted: The settings are no longer at `expected_revision`; nothing was written.
            ChangeRejected: The scheduler refuses; nothing was written.
            ActuatorUnavailable: It is unknown whether anything was written, or known that nothing was.
            PermanentError: What the scheduler serves is not what the policy says it is.
        """
        page = self._get()
        wanted = self._wanted(knobs, mode)
        if not _holds(page, wanted):
            if expected_revision is not None and page.revision != expected_revision:
                raise ChangeConflicted(
                    f"the settings are at revision {page.revision}, not at {expected_revision}: "
                    "somebody else changed them; nothing was written"
                )
            page = self._replace(page, wanted)
        self._own.update({role: value for role, value in knobs.items() if role in self._own})
        return self._current(page)

    def await_effect(self, knobs: KnobValues, *, mode: SchedulerMode | None = None) -> Current:
        """Read until settings are in force or time is up; see `Actuator.await_effect`."""
        wanted = self._wanted(knobs, mode)
        give_up_at = self._clock() + self._settings.effective_within_seconds
        pause = FIRST_PAUSE_SECONDS
        latest: _Page | ActuatorUnavailable = ActuatorUnavailable("nothing was read")
        while True:
            try:
                latest = self._get()
            except ActuatorUnavailable as error:
                latest = error  # It may be restarting with the new settings.
            else:
                if _holds(latest, wanted):
                    return self._current(latest)
            if self._clock() + pause > give_up_at:
                break
            self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        if isinstance(latest, ActuatorUnavailable):
            raise ActuatorUnavailable(f"{latest}, so it is unknown what is in force")
        return self._current(latest)

    def send_forecast(self, forecast: Forecast) -> None:
        """Hand a forecast to the scheduler; does nothing where the policy names no address for it.

        Raises:
            ActuatorUnavailable: There is no answer in time, or a server error.
            ChangeRejected: The scheduler refuses it.
        """
        url = self._settings.forecast_url
        if url is None:
            return
        answer = self._exchange("PUT", url, body=json.dumps(forecast_document(forecast), allow_nan=False).encode())
        _check_written(answer, what="forecast")

    def _replace(self, page: _Page, wanted: Mapping[str, object]) -> _Page:
        """Write the wanted settings over a page, and return the page that is served then."""
        document = page.document
        for path, native in wanted.items():
            try:
                document = put_path(document, path, native)
            except KeyError:
                raise ChangeRejected(f"{path} stands below a setting that holds no keys; nothing was written") from None
        body = json.dumps(document, allow_nan=False).encode()
        try:
            answer = self._exchange("PUT", self._settings.url, body=body, headers={"If-Match": page.revision})
            _check_written(answer, what="setting")
        except ActuatorUnavailable as doubt:
            return self._resolve(doubt, before=page, wanted=wanted)
        try:
            return self._get()
        except ActuatorUnavailable as error:
            raise ActuatorUnavailable(f"the settings were written, but cannot be read back: {error}") from error

    def _resolve(self, doubt: ActuatorUnavailable, *, before: _Page, wanted: Mapping[str, object]) -> _Page:
        """Look what came of a write whose answer is missing or says that something broke."""
        try:
            after = self._get()
        except ActuatorUnavailable:
            raise ActuatorUnavailable(f"{doubt}; read back: no answer, so it is unknown what is in force") from doubt
        if _holds(after, wanted):
            return after
        changed = "something else is in force" if after.revision != before.revision else "nothing has changed"
        raise ActuatorUnavailable(f"{doubt}; read back: {changed}") from doubt

    def _wanted(self, knobs: KnobValues, mode: SchedulerMode | None) -> dict[str, object]:
        wanted: dict[str, object] = {
            path: to_native(knobs[role], mapping) for role, (path, mapping) in self._mapped.items() if role in knobs
        }
        if mode is not None:
            if self._settings.mode_key is None:
                raise ChangeRejected(
                    "actuator.mode_key is null: the scheduler has no policy modes; nothing was written"
                )
            wanted[self._settings.mode_key] = mode.value
        return wanted

    def _current(self, page: _Page) -> Current:
        values = dict(self._own)
        for role, (path, mapping) in self._mapped.items():
            try:
                values[role] = from_native(get_path(page.document, path), mapping)
            except KeyError:
                raise PermanentError(f"{self._settings.url} has no setting {path}; check knobs.{role}.native") from None
            except ValueError as error:
                raise PermanentError(f"{self._settings.url}: {path} is {error}; check knobs.{role}") from None
        return Current(KnobValues.of(values), self._mode(page), page.revision, page.document, page.instance)

    def _mode(self, page: _Page) -> SchedulerMode:
        if self._settings.mode_key is None:
            return SchedulerMode.FULL
        try:
            mode = get_path(page.document, self._settings.mode_key)
        except KeyError:
            return SchedulerMode.FULL  # A scheduler without modes runs all that it has.
        try:
            return SchedulerMode(str(mode))
        except ValueError:
            known = ", ".join(SchedulerMode)
            raise PermanentError(
                f"{self._settings.url}: {self._settings.mode_key} is {mode!r}, must be one of {known}; "
                "check actuator.mode_key"
            ) from None

    def _get(self) -> _Page:
        url = self._settings.url
        answer = self._exchange("GET", url)
        if answer.status in _COME_AGAIN or answer.status >= 500:
            raise ActuatorUnavailable(f"{url} answers {answer.status}: {_words(answer)}")
        if answer.status != 200:
            raise PermanentError(f"{url} answers {answer.status}: {_words(answer)}; check actuator.url and its token")
        try:
            document = json.loads(answer.body, parse_constant=_refuse, parse_float=_finite)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise PermanentError(f"{url} answers no JSON object: {_words(answer)}; check actuator.url")
        if not answer.etag or not answer.etag.isascii() or not answer.etag.isprintable():
            raise PermanentError(f"{url} sends no usable ETag, without which changes of others could be overwritten")
        return _Page(document, answer.etag, answer.headers.get(self._settings.instance_header.lower(), ""))

    def _exchange(
        self, method: str, url: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        sent = {"Accept": "application/json", **_authorization(self._settings.token_file), **(headers or {})}
        if body is not None:
            sent["Content-Type"] = "application/json"
        return exchange(method, url, timeout_seconds=self._settings.timeout_seconds, headers=sent, body=body)


def _refuse(word: str) -> float:
    """Refuse NaN and Infinity, which Python reads and JSON does not know: they would be written back."""
    raise ValueError(f"{word} is not JSON")


def _finite(text: str) -> float:
    """Refuse numbers that are too large: they would be written back as Infinity."""
    return number if math.isfinite(number := float(text)) else _refuse(text)


def _holds(page: _Page, wanted: Mapping[str, object]) -> bool:
    """Say whether the wanted settings are in force."""
    try:
        return all(same_native(get_path(page.document, path), native) for path, native in wanted.items())
    except KeyError:
        return False


def _check_written(answer: Answer, *, what: str) -> None:
    """Raise what an answer to a PUT means, unless it is good."""
    if 200 <= answer.status < 300:
        return
    words = f"the scheduler answers {answer.status} to the {what}: {_words(answer)}"
    if answer.status in _CONFLICT:
        raise ChangeConflicted(f"{words}; nothing was written")
    if answer.status in _COME_AGAIN or answer.status >= 500:
        raise ActuatorUnavailable(words)
    raise ChangeRejected(f"{words}; nothing was written")


def _words(answer: Answer) -> str:
    """Return what an answer says, in one short line: the `error` of a JSON object, or the text as it is."""
    text = answer.body.decode(errors="replace")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and document.get("error"):
        text = str(document["error"])
    line = " ".join(text.split())
    return line[:MAX_WORDS_CHARACTERS] or "nothing"


def _authorization(token_file: str | None) -> dict[str, str]:
    """Return the header with the token, read anew because tokens are renewed in place."""
    try:
        return authorization(token_file, key="actuator.token_file")
    except ValueError as error:
        raise PermanentError(str(error)) from None
