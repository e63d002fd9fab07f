"""Alerts, written as code: rules, their tests, and a linter for the rules of others.

An alert is one row (`tuner.alerts.rows.Alert`) in the module of its subsystem, with the example from which its tests
are made. Thresholds come from a policy (`tuner.alerts.thresholds`), so that what pages is what the tuner acts on.

The files beside the policies are generated, and never edited by hand: run `python -m tuner.alerts` after a change here.
"""
