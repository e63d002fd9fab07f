import math
from collections.abc import Callable

import numpy as np
import pytest

from tuner.bench.cases import LIVE_ARMS, RECOMMENDED, WIDE, BoundSet
from tuner.bench.tuners import BASELINE_WINDOWS, RunningBaseline, Site, TunerFactory
from tuner.values.knobs import KnobValues
from tuner.values.metrics import METRIC_COUNT, METRIC_INDEX, MetricVector, metric_vector


def _site(bounds: BoundSet = RECOMMENDED, *, seed: int = 1) -> Site:
    return Site(specs=bounds.specs, start=bounds.start, seed=seed)


def _window(wait: float) -> MetricVector:
    return metric_vector({"queue_wait_seconds": wait, "accelerator_utilization_ratio": 0.5})


def _asked(
    factory: TunerFactory, site: Site, *, windows: int, score: Callable[[KnobValues], float]
) -> list[KnobValues]:
    """Let a tuner try windows; the first one runs under the start setting."""
    tuner = factory(site)
    tried = [site.start]
    for _ in range(windows):
        tuner.tell(score(tried[-1]), np.full(METRIC_COUNT, np.nan))
        tried.append(tuner.ask())
    return tried


def _distance(site: Site, knobs: KnobValues, share: float) -> float:
    return float(sum((spec.position(knobs[spec.role]) - share) ** 2 for spec in site.specs))


@pytest.mark.parametrize("bounds", [RECOMMENDED, WIDE], ids=lambda bounds: bounds.name)
@pytest.mark.parametrize("factory", LIVE_ARMS.values(), ids=LIVE_ARMS.keys())
def test_live_methods_keep_to_the_grid(factory: TunerFactory, bounds: BoundSet) -> None:
    site = _site(bounds)

    tried = _asked(factory, site, windows=25, score=lambda knobs: _distance(site, knobs, 0.2))

    for knobs in tried[1:]:
        assert all(math.isclose(knobs[spec.role], spec.snap(knobs[spec.role])) for spec in site.specs)
        assert all(spec.contains(knobs[spec.role]) for spec in site.specs)
    assert len(set(tried)) > 10


@pytest.mark.parametrize("factory", LIVE_ARMS.values(), ids=LIVE_ARMS.keys())
def test_live_methods_repeat_for_a_seed(factory: TunerFactory) -> None:
    def tried(seed: int) -> list[KnobValues]:
        site = _site(seed=seed)
        return _asked(factory, site, windows=15, score=lambda knobs: _distance(site, knobs, 0.2))

    assert tried(3) == tried(3)
    assert tried(3) != tried(4)


@pytest.mark.parametrize("name", ["tpe_live", "cmaes_live"])
def test_live_methods_learn_from_what_they_are_told(name: str) -> None:
    site = _site(WIDE)

    tried = _asked(LIVE_ARMS[name], site, windows=120, score=lambda knobs: _distance(site, knobs, 0.8))

    distances = [_distance(site, knobs, 0.8) for knobs in tried]
    assert np.mean(distances[-20:]) < 0.6 * np.mean(distances[1:21])


@pytest.mark.parametrize("name", ["tpe_live", "cmaes_live"])
def test_a_window_without_samples_is_no_success(name: str) -> None:
    site = _site()

    tried = _asked(LIVE_ARMS[name], site, windows=20, score=lambda _: math.nan)

    assert len(tried) == 21


def test_the_first_window_scores_nothing_and_later_ones_against_the_past() -> None:
    baseline = RunningBaseline()

    scores = [baseline.score(_window(wait)) for wait in (10.0, 20.0, 10.0)]

    assert scores[0] == pytest.approx(0.0)
    assert scores[1] == pytest.approx(0.25 * math.log(2))
    assert scores[2] == pytest.approx(-0.25 * math.log(2) / 2)


def test_the_past_that_counts_is_two_hours_long() -> None:
    baseline = RunningBaseline()
    baseline.score(_window(1000.0))
    for _ in range(BASELINE_WINDOWS):
        baseline.score(_window(10.0))

    assert baseline.score(_window(10.0)) == pytest.approx(0.0)


def test_what_has_no_sample_neither_scores_nor_spoils_the_past() -> None:
    baseline = RunningBaseline()
    baseline.score(_window(10.0))
    unseen = np.full(METRIC_COUNT, np.nan)

    assert math.isnan(baseline.score(unseen))
    assert baseline.score(_window(20.0)) == pytest.approx(0.25 * math.log(2))


def test_a_metric_that_was_never_seen_before_waits_for_a_past() -> None:
    baseline = RunningBaseline()
    baseline.score(_window(10.0))
    more = _window(10.0)
    more[METRIC_INDEX["scheduling_latency_seconds"]] = 5.0

    assert baseline.score(more) == pytest.approx(0.0)
