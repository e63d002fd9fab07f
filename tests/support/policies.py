"""Small policies for tests."""

from typing import Any, Final

from tuner import assets
from tuner.settings.model import Policy

REFERENCE: Final = assets.folder("policies") / "reference.yaml"
"""The policy that is shipped for the reference scheduler."""


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
