"""Writes the shipped dashboards anew: `python -m tuner.dashboards`."""

from tuner import assets
from tuner.dashboards.overview import build

build(assets.folder("dashboards") / "overview.json")
