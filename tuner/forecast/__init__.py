"""Forecasting: quantiles of the load ahead, for every series, whatever state its history is in.

The law of this package: a forecast is always finite and ordered, and it never costs more than it gains. Whatever
fails (no torch, no weights, a short history, a regime shift, a model that is slow), a lower rung stands in:

    selected     the best of all members, series by series, by rolling quantile loss
    smoothing    the best of last value and batch smoothing, NumPy only
    last_value   the last value, with the spread that its own changes had

Words: a *member* is one model that forecasts a whole batch of series; an *origin* is the time of the last sample
that a forecast knows; a window *closes* when all its truths are known. Spreads are quantiles 0.1 and 0.9.

Nothing here reads a clock that could steer a decision; torch and statsmodels load when they are first used.
"""

from tuner.forecast.stage import Forecasting

__all__ = ["Forecasting"]
