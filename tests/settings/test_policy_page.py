"""The page on policies speaks of keys that exist, and of every reason not to believe a metric."""

import re
from pathlib import Path

from tuner.record.families import PROBLEMS
from tuner.settings.schema import policy_schema

PAGE = (Path(__file__).parents[2] / "docs" / "policy.md").read_text(encoding="utf-8")


def test_every_key_on_the_page_is_a_key_of_the_schema() -> None:
    sections = policy_schema()["$defs"]
    of = {"source": "SourceSettings", "actuator": "HttpActuator", "cycle": "CycleSettings"}

    keys = set(re.findall(rf"`({'|'.join(of)})\.(\w+)`", PAGE))

    assert {("source", "token_file"), ("actuator", "instance_header"), ("actuator", "mode_key")} <= keys
    assert [key for key in sorted(keys) if key[1] not in sections[of[key[0]]]["properties"]] == []


def test_every_reason_not_to_believe_a_metric_is_on_the_page() -> None:
    told = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## Why a metric is not believed")[2], re.MULTILINE)

    assert sorted(told) == sorted(PROBLEMS)
