"""The shipped dashboards, and what a Prometheus answers to their expressions."""

import json
import re
from typing import Any

import requests

from tuner import assets


def expressions(*names: str) -> list[tuple[str, str]]:
    """Return title and expression of every panel of some dashboards, each once."""
    boards = [json.loads((assets.folder("dashboards") / f"{name}.json").read_text(encoding="utf-8")) for name in names]
    top = [panel for board in boards for panel in board["panels"]]
    every = [*top, *(inner for panel in top for inner in panel.get("panels", ()))]
    return sorted({(panel["title"], target["expr"]) for panel in every for target in panel.get("targets", ())})


def answered(url: str, expression: str, *, start_seconds: float, end_seconds: float) -> list[Any]:
    """Return the series that a panel would draw, for all clusters and policies."""
    expression = re.sub(r"\$__rate_interval|\$__interval|\$__range", "1h", expression)
    expression = re.sub(r"\$\{?(\w+)\}?", ".*", expression)
    answer = requests.post(
        f"{url}/api/v1/query_range",
        data={"query": expression, "start": start_seconds, "end": end_seconds, "step": 300},
        timeout=10,
    )
    assert answer.status_code == 200, answer.text
    result: list[Any] = answer.json()["data"]["result"]
    return result
