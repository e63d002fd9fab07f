"""Grafana dashboards, written as code: the JSON beside the policies is generated, and never edited by hand.

Run `python -m tuner.dashboards` after a change here.
"""
