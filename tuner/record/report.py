"""The report: one HTML page that needs nothing but itself, and the same as JSON beside it.

It follows plan, do, check, act: what was expected, what was changed, what came of it, what was concluded. Everything
in it comes from the journal; a comparison with other runs is shown where one is given.
"""

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tuner import __version__
from tuner.errors import ConfigError
from tuner.files import explained
from tuner.record import decisions, sections, timeline
from tuner.record.comparison import ComparisonRun, gains
from tuner.record.encoding import encode
from tuner.record.html import page, tag
from tuner.record.journal import Journal
from tuner.record.outcome import outcome
from tuner.record.period import Period
from tuner.record.setting import Setting, load_setting
from tuner.values.metrics import METRIC_NAMES
from tuner.values.stages import CycleRecord


def write_report(
    source: Journal | Sequence[CycleRecord],
    path: Path | str,
    *,
    comparison: Sequence[ComparisonRun] = (),
    title: str = "What clocktuner did",
    setting: Setting | None = None,
    last_seconds: float | None = None,
) -> Path:
    """Write the report and its JSON, and return where the page lies.

    Args:
        source: The journal, or cycles in time order.
        path: The page, ending in `.html`; the JSON lies beside it under the same name.
        comparison: Runs of the same load, from the least to the most able; shown from two on.
        title: Of the page.
        setting: The frame; taken from the journal where it is not given.
        last_seconds: Only so long before the newest cycle; all where None.

    Raises:
        JournalError: The journal cannot be read.
        ConfigError: The page cannot be written there.
    """
    target = _writable(Path(path))
    records = _newest(source, last_seconds)
    if setting is None:
        setting = load_setting(source) if isinstance(source, Journal) else Setting()
    period = Period.of(records)
    _replace(target.with_suffix(".json"), encode(document(period, comparison=comparison, title=title, setting=setting)))
    _replace(target, render(period, comparison=comparison, title=title, setting=setting))
    return target


def _writable(target: Path) -> Path:
    """Return the page's place, with its folder made; what cannot be right is told before anything is written."""
    if target.suffix == ".json":
        raise ConfigError(f"{target}: the page and its JSON would be one file; name the page .html")
    if target.is_dir():
        raise ConfigError(f"{target}: it is a folder, must be a file; name the page, such as {target / 'report.html'}")
    with explained(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _newest(source: Journal | Sequence[CycleRecord], last_seconds: float | None) -> Sequence[CycleRecord]:
    newest = source.records(limit=1) if isinstance(source, Journal) else source[-1:]
    since = newest[-1].at_seconds - last_seconds if newest and last_seconds is not None else -math.inf
    if isinstance(source, Journal):
        return source.records(since_seconds=since)
    return [record for record in source if record.at_seconds >= since]


def render(period: Period, *, comparison: Sequence[ComparisonRun], title: str, setting: Setting) -> str:
    """Return the page; equal input gives equal text."""
    footer = tag(
        "footer",
        f"Written by clocktuner {__version__} from its journal. Scores are weighted sums of log-ratios against the "
        f"setting that was not touched: −5 % reads as 5 % better. Times are UTC.",
    )
    content = (
        sections.heading(period, title=title, setting=setting),
        outcome(comparison, setting=setting),
        sections.plan(period),
        sections.do(period, setting=setting),
        sections.check(period),
        sections.act(period),
        timeline.safety(period),
        sections.metrics(period),
        decisions.log(period.records),
        footer,
    )
    return page(*(part for part in content if part is not None), title=title)


def document(period: Period, *, comparison: Sequence[ComparisonRun], title: str, setting: Setting) -> dict[str, Any]:
    """Return what the page shows as data: one entry a section, numbers unrounded."""
    times, _ = period.series(METRIC_NAMES[0])
    knobs = {spec.role.value: period.knob(spec.role) for spec in setting.specs}
    return {
        "title": title,
        "version": __version__,
        "setting": setting,
        "comparison": {"runs": list(comparison), "gains": gains(comparison, weights=setting.weights)},
        "times_seconds": times,
        "metrics": {name: period.series(name)[1] for name in METRIC_NAMES},
        "knobs": {role: values for role, (_, values) in knobs.items()},
        "knob_times_seconds": next((known for known, _ in knobs.values()), times),
        "forecasts": [
            {"track": track, "coverage_ratio": track.coverage_ratio, "error_ratio": track.error_ratio}
            for track in period.tracks
        ],
        "changes": period.changes,
        "guards": period.guards,
        "held": [{"reason": reason, "cycles": count} for reason, count in period.reasons],
        "safety": {
            "events": period.protection.events,
            "counts": dict(period.protection.counts),
            "mode_seconds": dict(period.protection.modes),
            "rung_seconds": dict(period.protection.rungs),
        },
        "decisions": [_decision(record) for record in period.records],
    }


def _decision(record: CycleRecord) -> dict[str, Any]:
    return {
        "cycle_id": record.cycle_id,
        "at_seconds": record.at_seconds,
        "decision": record.decision,
        "reason": record.reason,
        "proposal": record.proposal,
        "findings": () if record.verdict is None else record.verdict.findings,
        "receipt": record.receipt,
        "verification": record.verification,
        "failure": record.failure,
    }


def _replace(path: Path, text: str) -> None:
    # Whole or not at all: a browser that reloads at the wrong moment sees the former report.
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    with explained(path):
        try:
            scratch.write_text(text, encoding="utf-8")
            scratch.replace(path)
        except BaseException:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
            raise
