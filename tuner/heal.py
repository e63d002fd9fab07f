"""What to do about a change that a process began and did not see the end of.

The intent is in the journal before the scheduler is written, so after a crash one of three things is found: the
change did not happen, it happened, or somebody has set something else since. Pure: the caller does what is returned.
"""

import math
from dataclasses import dataclass

from tuner.record.journal import Intent
from tuner.values.knobs import KnobValues
from tuner.values.stages import Receipt


@dataclass(frozen=True, slots=True)
class Resolution:
    """How an open intent is closed.

    Attributes:
        receipt: What came of it.
        restore: Setting to go back to, because what is in force was never put on trial; None where nothing is to do.
    """

    receipt: Receipt
    restore: KnobValues | None


def resolve(
    intent: Intent, live: KnobValues, *, revision: str, remembered: KnobValues | None, at_seconds: float
) -> Resolution:
    """Say what came of a change whose receipt is missing.

    Args:
        intent: The change as it was meant.
        live: The setting in force.
        revision: Its revision.
        remembered: The setting that the last cycle knew it left in force.
        at_seconds: Now.

    Returns:
        The receipt, and the setting to restore: what was in force before, where the change happened but the process
        ended before it could be put on trial. A change that nobody watches is not left in force.
    """
    happened = not live.differs(intent.target)
    untouched = not live.differs(intent.before)
    if happened:
        detail = "found in force after the process had ended"
    elif untouched:
        detail = "found not to have happened"
    else:
        detail = f"found something else in force: {live.describe()}"
    unwatched = happened and not untouched and remembered != live and intent.action == "apply"
    return Resolution(
        receipt=Receipt(
            cycle_id=intent.cycle_id,
            before=intent.before,
            after=live,
            revision=revision,
            effective_at_seconds=at_seconds if happened else math.nan,
            applied=happened,
            detail=detail,
        ),
        restore=intent.before if unwatched else None,
    )
