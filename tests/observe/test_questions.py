from pathlib import Path

import promql_parser
import pytest

from tests.support.policies import policy_of
from tuner.errors import ConfigError
from tuner.observe.questions import Reduction, questions, unreadable
from tuner.settings.loading import load_policy
from tuner.values.metrics import METRIC_NAMES

POLICIES = Path(__file__).parents[2] / "policies"


def test_questions_come_in_catalogue_order_and_only_for_what_is_mapped() -> None:
    policy = policy_of(
        {"queue_wait_seconds": {"query": "w"}, "queue_length": {"query": "q"}},
        context={"nodes_count": {"query": "n"}, "accelerators_count": {"query": "a"}},
    )

    asked = questions(policy, fuses=True)

    assert [each.name for each in asked] == ["queue_length", "queue_wait_seconds", "accelerators_count", "nodes_count"]
    assert [each.upper for each in asked[:2]] == [float("inf")] * 2


def test_per_node_metrics_are_means_but_the_hottest_node_is_what_is_hot_now() -> None:
    policy = policy_of(
        {
            "accelerator_utilization_ratio": {"query": "u", "node_label": "host"},
            "node_temperature_celsius": {"query": "t # hot", "node_label": "host"},
        }
    )

    utilization, temperature = questions(policy, fuses=True)

    assert (utilization.reduction, utilization.current_reduction) == (Reduction.MEAN, Reduction.MEAN)
    assert (temperature.reduction, temperature.current_reduction) == (Reduction.MEAN, Reduction.MAX)
    assert temperature.current.startswith("max(")
    for text in (temperature.expression, temperature.current, temperature.nodes or "", utilization.nodes or ""):
        promql_parser.parse(text)


def test_without_promql_series_are_read_by_name() -> None:
    policy = policy_of(
        {
            "queue_length": {"query": "sum(q)", "scrape": "recent_queue"},
            "queue_wait_seconds": {"query": "w"},
            "node_power_watts": {"absent": "no meters"},
        },
        context={"nodes_count": {"query": "n"}},
    )

    (asked,) = questions(policy, fuses=False)

    assert (asked.name, asked.expression) == ("queue_length", "recent_queue")
    assert unreadable(policy, fuses=False) == ("queue_wait_seconds",)
    assert unreadable(policy, fuses=True) == ()


def test_a_node_label_that_is_none_is_refused() -> None:
    policy = policy_of({"node_power_watts": {"query": "p", "node_label": 'no) or vector(1) # "'}})

    with pytest.raises(ConfigError, match=r"metrics\.node_power_watts\.node_label"):
        questions(policy, fuses=True)


def test_the_shipped_policy_asks_for_every_metric_in_valid_promql() -> None:
    asked = questions(load_policy(POLICIES / "reference.yaml"), fuses=True)

    assert {each.name for each in asked} >= set(METRIC_NAMES)
    for each in asked:
        for text in (each.expression, each.current, each.nodes):
            if text is not None:
                promql_parser.parse(text)
    assert "$" not in "".join(each.current for each in asked)
