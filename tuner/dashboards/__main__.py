"""Writes the shipped dashboards anew: `python -m tuner.dashboards`."""

from tuner import assets
from tuner.dashboards.boards import build

build(assets.folder("dashboards"))
