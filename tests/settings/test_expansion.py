import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.settings.expansion import escape, expand, placeholders
from tuner.settings.loading import load_policy, with_overrides
from tuner.settings.model import CycleSettings, Policy, SourceSettings

SMALLEST = load_policy(Path(__file__).parent / "policies" / "good" / "smallest.yaml")


def policy(*, cluster: str = "main", window_seconds: float = 300.0, **labels: str) -> Policy:
    return SMALLEST.model_copy(
        update={
            "cluster": cluster,
            "source": SourceSettings(labels=labels),
            "cycle": CycleSettings(recent_window_seconds=window_seconds),
        }
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("up", "up"),
        ("rate(x_total[$window])", "rate(x_total[300s])"),
        ('x{cluster="$cluster"}', 'x{cluster="main"}'),
        ("x{$labels}", 'x{cluster="main",run="c"}'),
        ('x{$labels,class="a"}', 'x{cluster="main",run="c",class="a"}'),
        ("x{$labels} / y{$labels}", 'x{cluster="main",run="c"} / y{cluster="main",run="c"}'),
        ('label_replace(x, "node", "$1", "host", "(.+)$")', 'label_replace(x, "node", "$1", "host", "(.+)$")'),
        (
            'label_replace(x, "n", "${name}", "h", "(?P<name>.+)")',
            'label_replace(x, "n", "${name}", "h", "(?P<name>.+)")',
        ),
    ],
)
def test_placeholders_are_replaced_and_nothing_else(query: str, expected: str) -> None:
    assert expand(query, policy(run="c")) == expected


def test_a_window_that_is_no_whole_number_of_seconds_is_written_in_milliseconds() -> None:
    assert expand("[$window]", policy(window_seconds=90.5)) == "[90500ms]"


def test_what_is_put_in_is_not_expanded_again() -> None:
    assert expand('"$cluster"', policy(cluster="$window")) == '"$window"'


def test_an_unknown_placeholder_is_refused() -> None:
    with pytest.raises(ValueError, match=r"names \$windw, must be one of cluster, labels, window"):
        expand("x[$windw]", policy())


def test_placeholders_are_named_once_in_the_order_of_the_query() -> None:
    assert placeholders("a[$window] b[$windw] c[$window] $1 ${x}") == ("window", "windw")


@given(st.text(alphabet=st.sampled_from("\"'`\\\n{}=,ax$")))
def test_an_escaped_value_cannot_end_its_string(value: str) -> None:
    escaped = escape(value)

    assert not set(escaped) & set("\"'`\n")
    assert escaped.encode().decode("unicode_escape") == value


def test_labels_come_from_overrides_too() -> None:
    metrics = {
        **SMALLEST.metrics,
        "queue_length": SMALLEST.metrics["queue_length"].model_copy(update={"query": "q{$labels}"}),
    }
    using = SMALLEST.model_copy(update={"metrics": metrics})

    changed = with_overrides(using, labels={"run": "b"})

    assert expand(changed.metrics["queue_length"].query, changed) == 'q{cluster="test",run="b"}'


@pytest.mark.parametrize("quote", ['"', "'"])
def test_prometheus_reads_escaped_values_in_strings_of_either_quote(quote: str, tmp_path: Path) -> None:
    query = expand(f"x{{cluster={quote}$cluster{quote}}}", policy(cluster="a\"b'c\\d`e\nf"))
    rules = tmp_path / "rules.yml"
    rules.write_text(json.dumps({"groups": [{"name": "g", "rules": [{"record": "r", "expr": query}]}]}))

    done = subprocess.run(
        ["promtool", "check", "rules", rules], capture_output=True, text=True, timeout=30, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
