"""How values are said to people: in units they think in, and never with more digits than mean something."""

import math
import re
from datetime import UTC, datetime
from typing import Final

from tuner.values.knobs import KnobValues, Role
from tuner.values.stages import CycleRecord, Receipt

_UNIT_SUFFIX: Final = re.compile(r"_(seconds|ratio|celsius|watts|per_second|count)$")
_UNITS: Final = {"seconds": "s", "ratio": "ratio", "celsius": "°C", "watts": "W", "per_second": "1/s"}

DECISION_WORDS: Final = {
    "apply": "changed",
    "hold": "held",
    "reject": "rejected",
    "wait": "waiting",
    "switch": "switched",
    "promote": "kept",
    "keep": "kept unverified",
    "roll_back": "undone",
    "adopted": "yielded",
    "failed": "failed",
    "frozen": "frozen",
    "heal": "restored",
    "simplify": "simplified",
    "probe": "on probe",
    "recover": "recovered",
    "protect": "protected",
    "release": "released",
    "drill": "drill",
    "hold_back": "held back",
    "order": "order",
}
"""What was done, as one word for people, by decision."""

TONES: Final = {
    "apply": "trial",
    "switch": "trial",
    "hold_back": "trial",
    "adopted": "trial",
    "probe": "trial",
    "order": "trial",
    "promote": "good",
    "keep": "good",
    "recover": "good",
    "release": "good",
    "heal": "good",
    "drill": "good",
    "roll_back": "bad",
    "reject": "bad",
    "failed": "bad",
    "simplify": "bad",
    "protect": "bad",
    "frozen": "bad",
}
"""How a decision is told apart by colour: a change under way, a good end, a bad one; others are quiet."""

INTERVAL: Final = 1.96
"""Standard errors on either side that hold 95 % of a normal distribution."""

KNOB_LABELS: Final = {
    Role.BASE_SLICE: "base slice",
    Role.PREDICTION_WINDOW: "prediction window",
    Role.DECISION_PERIOD: "decision period",
    Role.RESERVATION: "reservation",
}


def label(name: str) -> str:
    """Return the name of a metric or series without its unit: `queue wait`, `arrivals of inference`."""
    base, _, kind = name.partition(":")
    words = _UNIT_SUFFIX.sub("", base).replace("_", " ")
    return f"{words} of {kind}" if kind else words


def unit_of(name: str) -> str:
    """Return the unit that a name ends with, as `quantity` knows it; empty where it ends with none."""
    found = _UNIT_SUFFIX.search(name.partition(":")[0])
    return _UNITS.get(found[1], "") if found else ""


def quantity(value: float, unit: str) -> str:
    """Return a value with its unit: `187 ms`, `28.6 min`, `62.1 %`, `2.4 /s`; `no sample` for NaN."""
    if math.isnan(value):
        return "no sample"
    match unit:
        case "ratio":
            return f"{_digits(value * 100)} %"
        case "s":
            return _duration(value)
        case "1/s":
            return f"{_digits(value)} /s"
    return f"{_digits(value)} {unit}".rstrip()


def _duration(seconds: float) -> str:
    size = abs(seconds)
    if 0 < size < 1:
        return f"{_digits(seconds * 1000)} ms"
    if size < 120:
        return f"{_digits(seconds)} s"
    if size < 7200:
        return f"{_digits(seconds / 60)} min"
    return f"{_digits(seconds / 3600)} h" if size < 172_800 else f"{_digits(seconds / 86_400)} d"


def _digits(value: float) -> str:
    """Return a number with three significant digits, without an exponent where people would not write one."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    size = abs(value)
    if size >= 1e6 or size < 1e-3:
        return f"{value:.2e}"
    decimals = max(0, 2 - math.floor(math.log10(size)))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def cell(value: float, unit: str) -> str:
    """Return a value with its unit for a column in which most rows have one; empty for NaN."""
    return "" if math.isnan(value) else quantity(value, unit)


def gain(score: float) -> str:
    """Return a score in words: `2.3 % better`, `1.0 % worse`, `no difference`, `unknown`.

    A score is a logarithm: small ones read as per cent as they stand, large ones only as the factor they stand for.
    """
    if math.isnan(score):
        return "unknown"
    percent = abs(math.expm1(score)) * 100
    if percent < 0.05:
        return "no difference"
    return f"{percent:.1f} % {'better' if score < 0 else 'worse'}"


def signed_percent(score: float) -> str:
    """Return a score as a signed percentage, a true minus sign and all: `−2.3 %`."""
    if math.isnan(score):
        return "–"
    percent = round(score * 100, 1)
    return f"{percent:+.1f} %".replace("-", "−") if percent else "0.0 %"


def spread(error: float) -> str:
    """Return half the width of a score's 95 % interval, given its standard error: ` ± 2.0`; nothing where unknown."""
    return "" if math.isnan(error) else f" ± {INTERVAL * error * 100:.1f}"


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number of things: `1 cycle`, `3,200 candidates`, `2 searches`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def when(at_seconds: float) -> str:
    """Return an instant in UTC to the second: `2026-01-01 06:35:00`."""
    return datetime.fromtimestamp(at_seconds, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")


def knob(role: Role, value: float) -> str:
    """Return the value of a knob with its unit: `115 ms`."""
    return quantity(value, unit_of(role.value))


def moves(before: KnobValues, after: KnobValues) -> str:
    """Return what a change moves: `base slice 115 ms → 100 ms, reservation 20 % → 22 %`; `nothing` where nothing."""
    changed = after.differs(before)
    said = [
        f"{KNOB_LABELS[role]} {knob(role, before[role]) if role in before else 'unset'} → {knob(role, after[role])}"
        for role in changed
    ]
    return ", ".join(said) or "nothing"


def written(receipt: Receipt) -> str:
    """Return what a write has changed: knobs, the policy mode, or both; what was asked for and failed is no change."""
    said = [moves(receipt.before, receipt.after)] if receipt.after.differs(receipt.before) else []
    if receipt.mode is not None:
        said.append(f"policy mode {receipt.mode.value.replace('_', ' ')}")
    return ", ".join(said) or "nothing"


def tone(record: CycleRecord) -> str:
    """Return how a record is told apart by colour; a drill that failed is no good end."""
    if record.decision == "drill" and record.receipt is not None and not record.receipt.applied:
        return "bad"
    return TONES.get(record.decision, "muted")


def e_value(evidence: float) -> str:
    """Return evidence, given as a logarithm, as the e-value that it stands for; empty where there is none.

    An e-value of 20 is what 1 to 20 odds against a change would have become: what promotes says the policy's budget.
    """
    if math.isnan(evidence):
        return ""
    return _digits(math.exp(min(evidence, 700.0))) if evidence > math.log(0.001) else "< 0.001"
