"""What one cycle leaves for the next; the journal keeps it, so that a restart resumes where the last cycle ended."""

from dataclasses import dataclass, field
from typing import Final

from tuner.errors import JournalError
from tuner.record.encoding import decode, encode
from tuner.retune import SearchHistory
from tuner.twin.parameters import TwinParameters
from tuner.values.knobs import KnobValues
from tuner.verify.trial import Trial

STATE_NAME: Final = "memory"
"""Name under which the journal keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnTrial:
    """A change that is being verified, with what tells how it would be without it.

    Attributes:
        trial: Its progress.
        parameters: The twin as it was calibrated before the change, so that nothing learned since can excuse it.
        context: Load that it was made for.
    """

    trial: Trial
    parameters: TwinParameters
    context: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What one cycle leaves for the next.

    Attributes:
        searches: When the last search ran, for which load, and how many did.
        on_trial: The change on trial; None where none is.
        in_force: The setting that we left in force; None before anything was read.
        known_good: The newest setting that was verified or found at the start; None before anything was read.
    """

    searches: SearchHistory = field(default_factory=SearchHistory)
    on_trial: OnTrial | None = None
    in_force: KnobValues | None = None
    known_good: KnobValues | None = None

    def to_json(self) -> str:
        """Return the memory as strict JSON."""
        trial = self.on_trial
        stored = _Stored(
            searches=self.searches,
            in_force=self.in_force,
            known_good=self.known_good,
            trial=trial.trial.to_json() if trial else None,
            parameters=trial.parameters.to_json() if trial else None,
            context=trial.context if trial else (),
        )
        return encode(stored)

    @classmethod
    def from_json(cls, text: str) -> "Memory":
        """Return the memory that `to_json` wrote.

        Raises:
            JournalError: The text is damaged, or its trial was begun by a release that this one does not know.
        """
        stored = decode(_Stored, text)
        on_trial = None
        if stored.trial is not None and stored.parameters is not None:
            try:
                on_trial = OnTrial(
                    trial=Trial.from_json(stored.trial),
                    parameters=TwinParameters.from_json(stored.parameters),
                    context=stored.context,
                )
            except (ValueError, TypeError, KeyError) as error:
                raise JournalError(
                    f"the change on trial cannot be read from the journal: {error}; end the trial with the release "
                    f"that began it, or move the journal away, which leaves the setting on trial in force"
                ) from error
        return cls(searches=stored.searches, on_trial=on_trial, in_force=stored.in_force, known_good=stored.known_good)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """The memory as it is stored: the parts that have a text form of their own are kept in it."""

    searches: SearchHistory
    in_force: KnobValues | None
    known_good: KnobValues | None
    trial: str | None
    parameters: str | None
    context: tuple[float, ...]
