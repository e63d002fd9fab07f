"""The shipped policies: they load, their queries are PromQL, and what they name exists."""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import yaml

from tests.support.servers import require_program, running_prometheus, running_victoria_metrics
from tuner.apply.null import NoActuator
from tuner.checking import CheckReport, Status, check
from tuner.demo.remote_write import RemoteWriter, SeriesBlock
from tuner.observe.prometheus import PrometheusSource
from tuner.observe.promql import selectors
from tuner.observe.source import Source
from tuner.reference.cluster import PRESETS
from tuner.reference.documents import settings_document
from tuner.reference.exposition import Exposition
from tuner.reference.scheduler import ReferenceScheduler
from tuner.reference.settings import ClockSettings
from tuner.reference.workload import Workload
from tuner.settings.expansion import expand
from tuner.settings.loading import load_policy, with_overrides
from tuner.settings.model import Policy, SeriesMapping
from tuner.settings.schema import policy_schema, schema_text
from tuner.values.context import CONTEXT_NAMES
from tuner.values.knobs import Role
from tuner.values.metrics import DEFAULT_WEIGHTS, METRIC_NAMES

POLICIES = Path(__file__).parents[2] / "policies"
SHIPPED = sorted(POLICIES.glob("*.yaml"))
REFERENCE = POLICIES / "reference.yaml"
START_AT_SECONDS = 1_767_571_200.0
END_AT_SECONDS = START_AT_SECONDS + 1500.0


def mappings(policy: Policy) -> Mapping[str, SeriesMapping]:
    return {**policy.mapped_metrics, **policy.context}


def names_and_labels(selector: str) -> tuple[str, set[str]]:
    """Return the name of a selector's series and the labels that it is chosen by."""
    name, _, inside = selector.partition("{")
    return name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside))


def exported() -> dict[str, set[str]]:
    """Return the labels of every series that the reference scheduler exports, by name."""
    found: dict[str, set[str]] = {}
    for labels in exposition(small_scheduler()).labels:
        found.setdefault(dict(labels)["__name__"], set()).update(key for key, _ in labels)
    return found


def small_scheduler() -> ReferenceScheduler:
    """Return a scheduler with tasks of every class and of high priority, some of them over its head."""
    count = 600
    kind = np.arange(count) % 3
    rng = np.random.default_rng(1)
    workload = Workload(
        submit_seconds=np.sort(rng.uniform(0, 1500, count)),
        service_seconds=np.choose(kind, [20.0, 300.0, 2.0]),
        gpus=np.choose(kind, [0.0, 2.0, 0.25]),
        kind=kind,
        priority=np.where(kind == 2, 2, np.arange(count) % 2),
        patience_seconds=np.full(count, 120.0),
        # Every other inference task asks for a model that nobody asked for before, so that it starts cold.
        model=np.where(kind == 2, np.where(np.arange(count) % 2, np.arange(count), 0), -1),
        zone=np.zeros(count, dtype=np.int64),
    )
    return ReferenceScheduler(PRESETS["edge"], workload, seed=1)


def exposition(scheduler: ReferenceScheduler) -> Exposition:
    return Exposition(scheduler.snapshot(), extra_labels={"cluster": "reference", "run": "c"})


def test_the_schema_is_current() -> None:
    assert (POLICIES / "schema.json").read_text() == schema_text(), (
        "run: python -m tuner.settings.schema > policies/schema.json"
    )


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_policy_loads_and_fits_the_schema(path: Path) -> None:
    assert load_policy(path).name == path.stem

    jsonschema.validate(yaml.safe_load(path.read_text()), policy_schema())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_query_is_promql_for_prometheus(path: Path, tmp_path: Path) -> None:
    policy = with_overrides(load_policy(path), labels={"run": 'it\'s "c"'})
    rules = [
        {"record": f"checked:{name.replace(':', '_')}", "expr": expand(mapping.query, policy)}
        for name, mapping in mappings(policy).items()
    ]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": path.stem, "rules": rules}]}))

    done = subprocess.run(
        [require_program("promtool"), "check", "rules", file], capture_output=True, text=True, timeout=30, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_query_chooses_its_cluster_and_takes_rates_over_the_recent_window(path: Path) -> None:
    policy = load_policy(path)

    for name, mapping in mappings(policy).items():
        chosen = [names_and_labels(selector)[1] for selector in selectors(expand(mapping.query, policy))]
        assert chosen, name
        assert all("cluster" in labels for labels in chosen), name
        assert not re.search(r"\[(?!\$window\])", mapping.query), name


def test_the_reference_policy_maps_everything() -> None:
    policy = load_policy(REFERENCE)

    assert tuple(policy.mapped_metrics) == METRIC_NAMES
    assert set(policy.context) == set(CONTEXT_NAMES)
    assert {spec.role for spec in policy.knob_specs()} == set(Role)


def test_the_reference_policy_weighs_as_the_catalogue_does() -> None:
    assert (load_policy(REFERENCE).weights() == DEFAULT_WEIGHTS).all()


def test_every_series_that_the_reference_policy_reads_is_exported_with_its_labels() -> None:
    policy = load_policy(REFERENCE)
    known = exported()

    for mapping in mappings(policy).values():
        for selector in (*selectors(expand(mapping.query, policy)), mapping.scrape or "reference_nodes"):
            name, labels = names_and_labels(selector)
            assert name in known, selector
            assert labels <= known[name], selector


def test_every_per_node_metric_is_exported_with_its_node_label() -> None:
    policy = load_policy(REFERENCE)
    known = exported()
    per_node = [mapping for mapping in policy.mapped_metrics.values() if mapping.node_label]

    assert len(per_node) == 3
    for mapping in per_node:
        assert mapping.scrape is not None
        assert mapping.node_label in known[mapping.scrape]


def test_every_knob_of_the_reference_policy_is_a_setting_that_the_scheduler_serves() -> None:
    policy = load_policy(REFERENCE)
    served = settings_document(ClockSettings())

    assert {mapping.native for mapping in policy.knobs.values()} | {"mode"} == set(served)


@contextmanager
def filled(query_url: str, write_url: str) -> Iterator[Source]:
    """Write 25 minutes of a small scheduler into a server, and yield a source that reads it."""
    scheduler = small_scheduler()
    layout = exposition(scheduler)
    times = np.arange(30.0, 1501.0, 30.0)
    columns = []
    for until in times.tolist():
        scheduler.advance(until)
        columns.append(layout.values(scheduler.snapshot()))
    writer = RemoteWriter(write_url)
    writer.write(
        SeriesBlock([dict(labels) for labels in layout.labels]), START_AT_SECONDS + times, np.stack(columns, 1)
    )
    writer.close()
    source = PrometheusSource(load_policy(REFERENCE).source.model_copy(update={"url": query_url}))
    try:
        await_samples(source)
        yield source
    finally:
        source.close()


def await_samples(source: Source) -> None:
    """Wait until what was written last can be read: VictoriaMetrics takes a second."""
    give_up_at = time.monotonic() + 20.0
    while not len(source.instant("reference_mode", at_seconds=END_AT_SECONDS)):
        assert time.monotonic() < give_up_at, "the samples that were written do not appear"
        time.sleep(0.05)


def checked(source: Source) -> CheckReport:
    policy = with_overrides(load_policy(REFERENCE), labels={"run": "c"})
    return check(policy, source, NoActuator(policy.knobs), at_seconds=END_AT_SECONDS)


@pytest.mark.e2e
def test_every_query_answers_on_a_real_prometheus_and_on_victoria_metrics_with_like_values(tmp_path: Path) -> None:
    with running_prometheus() as server, filled(server.url, server.write_url) as source:
        prometheus = checked(source)
    with running_victoria_metrics(tmp_path) as url, filled(url, f"{url}/api/v1/write") as source:
        victoria = checked(source)

    for row, other in zip(prometheus.rows, victoria.rows, strict=True):
        if row.area in {"metrics", "context"}:
            assert row.series, row
            assert np.isfinite(row.value), row
            assert row.age_seconds == 0.0, row
            assert (row.name, row.series) == (other.name, other.series)
            # The two differ in which samples at the edges of a window belong to it.
            assert other.value == pytest.approx(row.value, rel=0.01), row
    assert prometheus.ok, [row for row in prometheus.rows if row.status is Status.FAILED]
