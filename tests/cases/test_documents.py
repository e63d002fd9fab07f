"""What others' documents did to whoever read them: all JSON of ours is strict, and of others' nothing else is taken."""

import ast
import json
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from starlette.requests import Request

import tuner
from tests.support.actuators import MIDDLE, http_scheduler
from tests.support.records import day
from tuner import logs
from tuner.apply.http import HttpActuator
from tuner.errors import PermanentError
from tuner.record.encoding import encode
from tuner.record.exporter import Exporter
from tuner.settings.model import HttpActuator as HttpActuatorSettings
from tuner.settings.model import KnobMapping
from tuner.values.knobs import DESIGN_RANGES, KnobValues, Role
from tuner.values.metrics import METRIC_COUNT
from tuner.values.stages import CycleRecord, Observation, SeriesFrame
from tuner.web.app import Health, build

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
FIELDS = st.recursive(
    NUMBERS | NUMBERS.map(np.float64) | st.integers() | st.text() | st.none() | st.booleans(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def strict(text: str) -> Any:
    """Parse JSON as browsers and other languages do: NaN and Infinity are no part of it."""

    def refuse(word: str) -> NoReturn:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


@settings(deadline=None)
@given(st.lists(NUMBERS, min_size=METRIC_COUNT, max_size=METRIC_COUNT), NUMBERS, NUMBERS)
def test_the_journal_s_documents_are_strict_whatever_was_observed(
    metrics: list[float], context: float, at_seconds: float
) -> None:
    """argoproj/argo-rollouts#2758: a p99 of no jobs at all, 0/0, made a document that no parser would read."""
    vector = np.array(metrics)
    observation = Observation(
        cycle_id=1,
        at_seconds=at_seconds,
        metrics=vector,
        ages_seconds=vector,
        coverage_ratio=vector,
        context={"nodes_count": context},
        history=SeriesFrame(("queue_length",), at_seconds, vector[None, :]),
    )
    record = CycleRecord(
        cycle_id=1,
        at_seconds=1.0,
        observation=observation,
        decision="hold",
        reason="a test",
        stage_seconds={"x": context},
    )

    written = strict(encode(record))

    assert len(written["observation"]["metrics"]) == METRIC_COUNT


@settings(deadline=None)
@given(st.dictionaries(st.from_regex(r"[a-z_]{1,12}", fullmatch=True).map(lambda name: f"x_{name}"), FIELDS))
def test_every_line_of_the_log_is_strict_whatever_is_logged(fields: dict[str, Any]) -> None:
    """argoproj/argo-rollouts#2758: the same for what is logged."""
    stream = StringIO()
    with logging_to(stream) as log:
        log.info("something_happened", **fields)

    (line,) = stream.getvalue().splitlines()
    assert strict(line)["event"] == "something_happened"


@contextmanager
def logging_to(stream: StringIO) -> Iterator[Any]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logs.configure(level="info", stream=stream)
    try:
        yield logs.get("test")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()


@settings(deadline=None)
@given(st.floats(allow_nan=True, allow_infinity=True), st.booleans())
def test_the_probes_answer_strictly_and_never_fail_over_a_number(seconds: float, ready: bool) -> None:
    """argoproj/argo-rollouts#2758: the same for what is served."""
    application = build(CollectorRegistry(), lambda: Health(seconds, 60.0, {"first_read_complete": ready}))

    for route in application.routes[1:]:
        endpoint: Callable[[Request], Any] = route.endpoint  # type: ignore[attr-defined]
        answer = endpoint(Request({"type": "http", "headers": []}))
        assert answer.status_code in {200, 503}
        strict(answer.body.decode())


def test_the_exported_page_holds_no_nan_after_a_day_with_gaps() -> None:
    """argoproj/argo-rollouts#2758: a gauge without a value goes away."""
    exporter = Exporter(cluster="c", policy="p", specs=tuple(DESIGN_RANGES.values()), guards=(), mode="auto")
    for record in day():
        exporter.update(record)

    values = [
        line.rsplit(" ", 1)[1] for line in generate_latest(exporter.registry).decode().splitlines() if line[0] != "#"
    ]

    assert len(values) > 300
    assert all(math.isfinite(float(value)) for value in values if value != "+Inf")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_settings_that_are_not_json_are_refused_and_never_written_back(number: str) -> None:
    """argoproj/argo-rollouts#2758: what one program lets through, the next one writes."""
    knobs = {role: KnobMapping(native=role.value) for role in Role}
    with http_scheduler() as scheduler:
        actuator = HttpActuator(HttpActuatorSettings(url=f"{scheduler.url}/config"), knobs)
        scheduler.faults.body = json.dumps({**scheduler.settings, "theirs": 1.5}).replace("1.5", number).encode()

        with pytest.raises(PermanentError, match="answers no JSON object"):
            actuator.write(KnobValues.of({**MIDDLE, Role.BASE_SLICE: 0.1}), expected_revision=None)

        assert scheduler.puts() == []


def calls_of_json(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"json.dumps", "json.dump"}:
            yield node


def test_nothing_of_ours_can_write_json_that_is_not_strict() -> None:
    """argoproj/argo-rollouts#2758: the whole kind, for all that is written now and will be."""
    # A quoted word, a hashed text and a word in a message are no documents.
    no_documents = {"alerts/render.py", "bench/remembered.py", "settings/faults.py"}
    root = Path(tuner.__file__).parent
    files = [path for path in sorted(root.rglob("*.py")) if str(path.relative_to(root)) not in no_documents]

    calls = [(path, call) for path in files for call in calls_of_json(path)]
    lax = [
        f"{path.relative_to(root)}:{call.lineno}"
        for path, call in calls
        if not any(word.arg == "allow_nan" and ast.unparse(word.value) == "False" for word in call.keywords)
    ]

    assert len(calls) > 10
    assert lax == []
