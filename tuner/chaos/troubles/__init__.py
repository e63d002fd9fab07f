"""Everything that is broken, by name: of the journal, the clock, the metrics, the scheduler, and of company."""

from collections.abc import Mapping
from typing import Final

from tuner.chaos.troubles.clock import CLOCK
from tuner.chaos.troubles.company import COMPANY
from tuner.chaos.troubles.journal import JOURNAL
from tuner.chaos.troubles.metrics import METRICS
from tuner.chaos.troubles.moments import Trouble
from tuner.chaos.troubles.scheduler import SCHEDULER

TROUBLES: Final[Mapping[str, Trouble]] = {**JOURNAL, **CLOCK, **METRICS, **SCHEDULER, **COMPANY}
"""What is broken, by name, with the moments at which it breaks."""
