"""The files that are shipped: rules of the reference policy for all clusters, and their tests."""

from collections.abc import Mapping
from pathlib import Path

from tuner import assets
from tuner.alerts.examples import FILES
from tuner.alerts.render import rules_text
from tuner.alerts.site import Site
from tuner.alerts.thresholds import thresholds
from tuner.settings.loading import load_policy


def site() -> Site:
    """Return the site of the shipped rules: the reference policy's limits, for every cluster that Prometheus holds."""
    return Site(thresholds=thresholds(load_policy(assets.folder("policies") / "reference.yaml")))


def texts() -> Mapping[str, str]:
    """Return what the shipped files have to hold, by name."""
    here = site()
    return {"clocktuner.rules.yaml": rules_text(here), **{file.name: file.text(here) for file in FILES}}


def write(folder: Path) -> None:
    """Write the shipped files anew."""
    for name, text in texts().items():
        (folder / name).write_text(text, encoding="utf-8")
