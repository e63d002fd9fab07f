from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.bench.tuning_world import small
from tuner.bench.cases import RECOMMENDED, WIDE
from tuner.bench.remembered import Remembered, default_folder, key_of, sources_digest
from tuner.bench.replays import Outcome
from tuner.bench.tuners import Site
from tuner.values.metrics import METRIC_COUNT

SITE = Site(specs=RECOMMENDED.specs, start=RECOMMENDED.start, seed=1)


def _outcome() -> Outcome:
    generator = np.random.default_rng(1)
    metrics = generator.random(METRIC_COUNT)
    metrics[3] = np.nan
    return Outcome(
        metrics=metrics,
        windows=generator.random((4, METRIC_COUNT)),
        changes=5,
        rollbacks=2,
        facts={"lost_ratio": 0.1 + 0.2, "decision_seconds": float("nan")},
    )


def _never() -> Outcome:
    raise AssertionError("made anew")


def test_a_replay_comes_back_exactly(tmp_path: Path) -> None:
    made = Remembered(tmp_path / "new").outcome("key", _outcome)

    memory = Remembered(tmp_path / "new")
    recalled = memory.outcome("key", _never)

    np.testing.assert_array_equal(recalled.metrics, made.metrics)
    np.testing.assert_array_equal(recalled.windows, made.windows)
    assert (recalled.changes, recalled.rollbacks) == (5, 2)
    assert repr(dict(recalled.facts)) == repr(dict(made.facts))
    assert (memory.made, memory.recalled) == (0, 1)


@pytest.mark.parametrize("keep", [0, 10, 300])
def test_a_torn_file_is_made_anew(tmp_path: Path, keep: int) -> None:
    Remembered(tmp_path).outcome("key", _outcome)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:keep])

    memory = Remembered(tmp_path)
    memory.outcome("key", _outcome)

    assert (memory.made, memory.recalled) == (1, 0)
    assert Remembered(tmp_path).outcome("key", _never).changes == 5


def test_a_replay_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        Remembered(tmp_path).outcome("key", _never)

    assert not list(tmp_path.iterdir())


def test_all_that_decides_a_replay_is_in_its_key() -> None:
    base = key_of(small(), RECOMMENDED.settings, site=SITE)
    others = {
        key_of(small(2), RECOMMENDED.settings, site=SITE),
        key_of(replace(small(), cluster=small().cluster.sized(4)), RECOMMENDED.settings, site=SITE),
        key_of(small(), WIDE.settings, site=SITE),
        key_of(small(), RECOMMENDED.settings, site=replace(SITE, seed=2)),
        key_of(small(), RECOMMENDED.settings, site=SITE, tuner_name="random"),
        key_of(small(), RECOMMENDED.settings, site=SITE, tuner_name="tpe"),
        key_of(small(), RECOMMENDED.settings, site=replace(SITE, specs=WIDE.specs), tuner_name="tpe"),
    }

    assert base == key_of(small(), RECOMMENDED.settings, site=SITE)
    assert len(others | {base}) == 8


def test_bounds_do_not_matter_where_nobody_tunes() -> None:
    wide = replace(SITE, specs=WIDE.specs)

    assert key_of(small(), WIDE.settings, site=wide) == key_of(small(), WIDE.settings, site=SITE)


def test_a_tuned_replay_hangs_on_more_code_than_an_untouched_one() -> None:
    assert sources_digest(whole=True) != sources_digest(whole=False)


def test_replays_are_remembered_in_the_cache_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "clocktuner" / "bench-tuning"

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "clocktuner" / "bench-tuning"
