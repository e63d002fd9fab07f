"""Small policies for tests."""

from typing import Any

from tuner.settings.model import Policy


def policy_of(
    metrics: dict[str, dict[str, Any]], *, context: dict[str, dict[str, Any]] | None = None, **sections: Any
) -> Policy:
    """Return a policy that reads some metrics and tunes nothing."""
    return Policy.model_validate(
        {
            "version": 1,
            "name": "test",
            "cluster": "north",
            "metrics": metrics,
            "context": context or {},
            "knobs": {},
            **sections,
        }
    )
