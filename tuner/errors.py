"""What can go wrong outside the tuner's control.

TunerError
├── ConfigError            a policy or an argument is wrong; raised at start-up, nothing has changed
├── TraceError             a workload trace is unreadable or breaks its format
├── JournalError           the journal cannot be read or written; no change may be made without it
├── TemporaryError         the next cycle may succeed
│   ├── SourceUnavailable      the metrics source is down, slow, or answers 5xx
│   ├── ForecastFailed         a model gave no usable answer in time; a lower rung stands in
│   ├── ActuatorUnavailable    the scheduler cannot be reached; whether it changed is unknown
│   └── ChangeConflicted       somebody else changed the settings first; nothing was written
└── PermanentError         retrying cannot help; a person must look
    ├── QueryRejected          the metrics source answers 4xx: the query is wrong
    ├── QueryTooLarge          the answer exceeds the cap on series or points
    └── ChangeRejected         the scheduler refuses the values; nothing was written

A cluster that merely looks bad is not an error: it is a `Finding`.
Every class carries the `reason` label under which it is counted in `clocktuner_stage_failures_total`.
"""

from typing import ClassVar


class TunerError(Exception):
    """Base of all errors that clocktuner raises on purpose."""

    reason: ClassVar[str] = "internal"


class ConfigError(TunerError):
    """A policy or an argument is wrong; the message lists every problem, one per line."""

    reason = "config"


class TraceError(TunerError):
    """A workload trace cannot be used; the message names file, line, field and value."""

    reason = "trace"


class JournalError(TunerError):
    """The journal cannot be read or written."""

    reason = "journal"


class TemporaryError(TunerError):
    """The next cycle may succeed."""

    reason = "temporary"


class SourceUnavailable(TemporaryError):
    """The metrics source is down, slow, or answers with a server error."""

    reason = "source_unavailable"


class ForecastFailed(TemporaryError):
    """A forecasting model gave no usable answer in time."""

    reason = "forecast_failed"


class ActuatorUnavailable(TemporaryError):
    """The scheduler cannot be reached, so it is unknown whether it changed."""

    reason = "actuator_unavailable"


class ChangeConflicted(TemporaryError):
    """Somebody else changed the settings since they were read; nothing was written."""

    reason = "change_conflicted"


class PermanentError(TunerError):
    """Retrying cannot help; a person must look."""

    reason = "permanent"


class QueryRejected(PermanentError):
    """The metrics source says that the query is wrong."""

    reason = "query_rejected"


class QueryTooLarge(PermanentError):
    """The answer to a query exceeds the cap on series or on points."""

    reason = "query_too_large"


class ChangeRejected(PermanentError):
    """The scheduler refuses the values; nothing was written."""

    reason = "change_rejected"
