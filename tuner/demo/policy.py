"""The policy of the demonstration: the one that is shipped, with addresses and budgets of its own."""

from pathlib import Path
from typing import Final

from tuner import assets
from tuner.demo.replay import CYCLE_SECONDS
from tuner.demo.world import CLUSTER_LABEL
from tuner.settings.loading import load_policy
from tuner.settings.model import Policy

MAX_SEARCHES: Final = 60

REFIT_SECONDS: Final = 3600.0
"""Simulated time between two fits of the statistical models: they take a second or two of real time each."""

WINDOW_SAMPLES: Final = 4
"""Looks at a change in a window of a quarter of an hour, one every five minutes, both ends counted."""


def demo_policy(page_url: str, prometheus_url: str | None, *, run: str, journal: Path, seed: int) -> Policy:
    """Return the reference policy, with the addresses and budgets of the demonstration.

    Args:
        page_url: Where the tuned scheduler is served.
        prometheus_url: Where its metrics are; None to scrape its own page.
        run: Value of the label `run` of that scheduler.
        journal: Its journal, which begins anew.
        seed: Seed of the searches.
    """
    for leftover in (journal, Path(f"{journal}-wal"), Path(f"{journal}-shm"), Path(f"{journal}.lock")):
        leftover.unlink(missing_ok=True)
    policy = load_policy(assets.folder("policies") / "reference.yaml")
    source: dict[str, object] = {"labels": {"run": run}, "kind": "prometheus", "url": prometheus_url}
    if prometheus_url is None:
        source = {"kind": "scrape", "url": f"{page_url}/metrics"}
    changed = {
        "cluster": CLUSTER_LABEL,
        "source": policy.source.model_copy(update=source),
        "actuator": policy.actuator.model_copy(
            update={"url": f"{page_url}/config", "forecast_url": f"{page_url}/forecast"}
        ),
        "cycle": policy.cycle.model_copy(update={"period_seconds": CYCLE_SECONDS, "max_searches": MAX_SEARCHES}),
        "forecast": policy.forecast.model_copy(update={"refit_seconds": REFIT_SECONDS}),
        "verify": policy.verify.model_copy(update={"min_samples": WINDOW_SAMPLES, "max_inconclusive": 0}),
        "search": policy.search.model_copy(update={"seed": seed}),
        "journal": policy.journal.model_copy(update={"path": str(journal)}),
    }
    return Policy.model_validate(policy.model_copy(update=changed).model_dump(exclude_unset=False))
