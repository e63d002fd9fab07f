"""What a person sees of the demonstration: decisions as they fall, and a table at the end."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tuner.record.comparison import ComparisonRun, Gain, gains, improves
from tuner.values.metrics import METRICS, Better, MetricVector
from tuner.values.stages import CycleRecord, Decision, Step

_WIDTH: Final = 150
"""Columns where the output is no terminal: wide enough for a decision with its reason."""

_COLOURS: Mapping[str, str] = {
    Decision.APPLY: "bold cyan",
    Step.PROMOTE: "bold green",
    Step.KEEP: "green",
    Step.ROLL_BACK: "bold red",
    "failed": "bold red",
    "adopted": "bold yellow",
    "heal": "bold green",
    "simplify": "bold red",
    "probe": "bold yellow",
    "recover": "bold green",
    "protect": "bold red",
    "release": "bold green",
}


def console() -> Console:
    """Return where the demonstration prints to."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=_WIDTH)


class Decisions:
    """Prints each decision in one line; runs of the same quiet reason are told once, with their number."""

    def __init__(self, console: Console, *, clock: str = "%H:%M") -> None:
        """Take where to print, and how times are written."""
        self._console = console
        self._clock = clock
        self._quiet: list[CycleRecord] = []

    def show(self, record: CycleRecord) -> None:
        """Print a decision, or keep it until the quiet ends."""
        if record.decision in (Decision.HOLD, Step.WAIT) and record.proposal is None:
            self._quiet.append(record)
            return
        self.flush()
        self._console.print(self._line(record))

    def flush(self) -> None:
        """Print what is kept."""
        if not self._quiet:
            return
        last, count = self._quiet[-1], len(self._quiet)
        self._quiet = []
        line = self._line(last)
        if count > 1:
            line.append(f" (and {count - 1} before it)", style="dim")
        line.stylize("dim")
        self._console.print(line)

    def tell(self, at_seconds: float, sentence: str) -> None:
        """Print what somebody else does."""
        self.flush()
        self._console.print(Text(f"{self._time(at_seconds)}  >> {sentence}", style="bold magenta"))

    def _line(self, record: CycleRecord) -> Text:
        text = Text(f"{self._time(record.at_seconds)}  ", no_wrap=False)
        text.append(f"{record.decision:<9} ", style=_COLOURS.get(record.decision, ""))
        if record.decision == Decision.APPLY and record.proposal is not None:
            text.append(f"{record.proposal.candidate.describe()}: ")
        text.append(record.reason)
        return text

    def _time(self, at_seconds: float) -> str:
        return datetime.fromtimestamp(at_seconds, UTC).strftime(self._clock)


def table(compared: Sequence[ComparisonRun], *, weights: MetricVector, hours: float) -> Table:
    """Return the metrics of all runs, what each step gained, and every metric that got worse."""
    steps = gains(compared, weights=weights)
    result = Table(title=f"{hours:g} h, simulated: the same trace and the same seed, three times", title_justify="left")
    result.add_column("metric", no_wrap=True)
    for run in compared:
        result.add_column(f"({run.name})", justify="right")
    for step in steps:
        result.add_column(f"{step.earlier} → {step.later}", justify="right")
    for index, spec in enumerate(METRICS):
        values = [_number(run.metrics[index]) for run in compared]
        result.add_row(f"{spec.name}", *values, *(_change(step, index) for step in steps))
    result.add_section()
    blank = [""] * len(compared)
    result.add_row("score (negative is better)", *blank, *(_score(step.score) for step in steps))
    return result


def _number(value: float) -> str:
    return "no sample" if math.isnan(value) else f"{value:.4g}"


def _change(step: Gain, index: int) -> Text:
    spec, change = METRICS[index], float(step.change_ratio[index])
    if math.isnan(change):
        return Text("")
    text = f"{change:+.1%}"
    if spec.name in step.worse:
        return Text(f"{text} worse", style="red")
    if improves(index, change):
        return Text(text, style="green")
    worse = spec.better is not Better.NEITHER and abs(change) > spec.tolerance_ratio
    return Text(f"{text} below floor" if worse else text)


def _score(score: float) -> Text:
    if math.isnan(score):
        return Text("no sample")
    return Text(f"{score:+.4f}", style="green" if score < 0 else "red")


def stage_times(seconds: Mapping[str, float]) -> str:
    """Return where the time went, the longest first."""
    ranked = sorted(seconds.items(), key=lambda item: -item[1])
    return ", ".join(f"{stage} {spent:.1f} s" for stage, spent in ranked)
