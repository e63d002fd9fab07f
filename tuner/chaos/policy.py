"""The policy of scenarios: the one that is shipped, made eager, so that little time holds much."""

from pathlib import Path
from typing import Any, Final

from tuner import assets
from tuner.settings.loading import load_policy
from tuner.settings.model import Policy

CYCLE_SECONDS: Final = 300.0
"""Distance of two cycles."""


def eager(
    journal: Path,
    *,
    source: dict[str, Any],
    actuator: dict[str, Any],
    by_name: bool = False,
    **sections: dict[str, Any],
) -> Policy:
    """Return the reference policy, changing settings at once and on the least gain, in legs of one cycle.

    Args:
        journal: Its journal.
        source: Where its metrics are.
        actuator: Where its settings are, and how long a value is awaited; over HTTP.
        by_name: Whether series are asked for by the names on the scheduler's page, instead of by PromQL.
        **sections: Further sections, instead of those that are shipped.
    """
    document = load_policy(assets.folder("policies") / "reference.yaml").model_dump(mode="json", exclude_unset=True)
    if by_name:
        for section in ("metrics", "context"):
            for mapping in document[section].values():
                mapping["query"] = mapping.get("scrape") or "no_such_series"
    document |= {
        "source": source,
        "actuator": {"kind": "http", "effective_within_seconds": 0.2, **actuator},
        "journal": {"path": str(journal)},
        "forecast": {"lstm": False, "statistical": False},
        "cycle": {
            "period_seconds": CYCLE_SECONDS,
            "cooldown_seconds": 0.0,
            "context_shift": 0.0,
            "min_gain_ratio": 0.0,
            "min_fidelity_ratio": 0.0,
        },
        "verify": {
            "wash_out_seconds": CYCLE_SECONDS,
            "leg_seconds": CYCLE_SECONDS,
            "max_wash_out_seconds": CYCLE_SECONDS,
        },
        "guard": {"latency_breaker": {"cool_down_seconds": 60.0, "probe_samples": 3}},
        **sections,
    }
    return Policy.model_validate(document)
