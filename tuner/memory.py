"""What one cycle leaves for the next; the journal keeps it, so that a restart resumes where the last cycle ended."""

import math
from dataclasses import dataclass, field
from typing import Final

from tuner.caution import Caution
from tuner.errors import JournalError
from tuner.record.encoding import decode, encode
from tuner.retune import SearchHistory
from tuner.shadow import Shadow
from tuner.twin.parameters import TwinParameters
from tuner.values.knobs import KnobValues
from tuner.verify.budget import Spending
from tuner.verify.legs import Leg, Switchback
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
        instance: Identity of the scheduler's process at the newest look; empty where it has none.
        began_at_seconds: When it began; NaN where a former release began it.
        approved: Whether a person said yes to it, so that a tuner that else only recommends carries it through.
        hold_back: Whether it is no change but a hold-back: the untouched setting, to measure what tuning is worth.
    """

    trial: Trial | Switchback
    parameters: TwinParameters
    context: tuple[float, ...]
    instance: str = ""
    began_at_seconds: float = math.nan
    approved: bool = False
    hold_back: bool = False

    @property
    def in_force(self) -> KnobValues:
        """The setting that the trial takes to be in force."""
        if isinstance(self.trial, Switchback) and self.trial.in_force is Leg.BEFORE:
            return self.trial.before
        return self.trial.after


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What one cycle leaves for the next.

    Attributes:
        searches: When the last search ran, for which load, and how many did.
        on_trial: The change on trial; None where none is.
        caution: What the tuner holds against itself.
        spent: What the trials of the last day used of the budget of false promotions.
        worth: Score of the tuned against the untouched setting, from pairs of hold-backs, oldest first.
        held_back_until_seconds: End of the newest window for a hold-back that was used; NaN before the first.
        shadow: A change that was recommended and not made, with what it would have done; None where none is followed.
    """

    searches: SearchHistory = field(default_factory=SearchHistory)
    on_trial: OnTrial | None = None
    caution: Caution = field(default_factory=Caution)
    spent: tuple[Spending, ...] = ()
    worth: tuple[float, ...] = ()
    held_back_until_seconds: float = math.nan
    shadow: Shadow | None = None

    def to_json(self) -> str:
        """Return the memory as strict JSON."""
        trial = self.on_trial
        stored = _Stored(
            searches=self.searches,
            caution=self.caution,
            spent=self.spent,
            trial=trial.trial.to_json() if trial else None,
            switchback=trial is not None and isinstance(trial.trial, Switchback),
            parameters=trial.parameters.to_json() if trial else None,
            context=trial.context if trial else (),
            instance=trial.instance if trial else "",
            began_at_seconds=trial.began_at_seconds if trial else math.nan,
            approved=trial.approved if trial else False,
            hold_back=trial.hold_back if trial else False,
            worth=self.worth,
            held_back_until_seconds=self.held_back_until_seconds,
            shadow=self.shadow,
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
                    trial=(Switchback if stored.switchback else Trial).from_json(stored.trial),
                    parameters=TwinParameters.from_json(stored.parameters),
                    context=stored.context,
                    instance=stored.instance,
                    began_at_seconds=stored.began_at_seconds,
                    approved=stored.approved,
                    hold_back=stored.hold_back,
                )
            except (ValueError, TypeError, KeyError) as error:
                raise JournalError(
                    f"the change on trial cannot be read from the journal: {error}; end the trial with the release "
                    f"that began it, or move the journal away, which leaves the setting on trial in force"
                ) from error
        return cls(
            searches=stored.searches,
            on_trial=on_trial,
            caution=stored.caution,
            spent=stored.spent,
            worth=stored.worth,
            held_back_until_seconds=stored.held_back_until_seconds,
            shadow=stored.shadow,
        )


@dataclass(slots=True)
class Notebook:
    """Holds the memory while a cycle runs: its parts write down what they learn, and one after the other reads it.

    Attributes:
        memory: What is remembered now.
    """

    memory: Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """The memory as it is stored: the parts that have a text form of their own are kept in it."""

    searches: SearchHistory
    trial: str | None
    parameters: str | None
    context: tuple[float, ...]
    caution: Caution = field(default_factory=Caution)
    spent: tuple[Spending, ...] = ()
    switchback: bool = False
    instance: str = ""
    began_at_seconds: float = math.nan
    approved: bool = False
    hold_back: bool = False
    worth: tuple[float, ...] = ()
    held_back_until_seconds: float = math.nan
    shadow: Shadow | None = None
