"""Writes the shipped rules and their tests anew: `python -m tuner.alerts`."""

from tuner import assets
from tuner.alerts.shipped import write

write(assets.folder("alerts"))
