import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.apply.native import from_native, get_path, put_path, same_native, settle, to_native
from tuner.settings.model import KnobMapping
from tuner.values.knobs import KnobValues, Role

MILLISECONDS = KnobMapping(native="slice", scale=1000, round_to=1)
PERCENT = KnobMapping(native="reserve", scale=100, round_to=0.5)
WORDS = KnobMapping(native="slice", choices={"short": 0.08, "default": 0.1, "long": 0.15})

scales = st.sampled_from([0.001, 0.01, 1.0, 60.0, 100.0, 1000.0, 1e6])
roundings = st.sampled_from([0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 50.0])


@pytest.mark.parametrize(
    ("value", "mapping", "native"),
    [
        (0.115, KnobMapping(), 0.115),
        (0.1 + 0.2, KnobMapping(), 0.3),
        (0.115, MILLISECONDS, 115),
        (0.11549, MILLISECONDS, 115),
        (0.173, PERCENT, 17.5),
        (900.0, KnobMapping(scale=1 / 60, round_to=1), 15),
        (0.08, WORDS, "short"),
        (0.12, WORDS, "default"),
        (9.0, WORDS, "long"),
    ],
)
def test_values_become_what_the_scheduler_writes(value: float, mapping: KnobMapping, native: object) -> None:
    written = to_native(value, mapping)

    assert written == native
    assert type(written) is type(native)


@pytest.mark.parametrize(
    ("native", "mapping", "value"),
    [(115, MILLISECONDS, 0.115), (115.0, MILLISECONDS, 0.115), (17.5, PERCENT, 0.175), ("long", WORDS, 0.15)],
)
def test_native_settings_become_values(native: object, mapping: KnobMapping, value: float) -> None:
    assert from_native(native, mapping) == value


@pytest.mark.parametrize("native", [True, None, "115", float("nan"), float("inf"), [115], {}])
def test_what_is_no_number_is_refused(native: object) -> None:
    with pytest.raises(ValueError, match="must be a finite number"):
        from_native(native, MILLISECONDS)


@pytest.mark.parametrize("native", ["Long", "", 0.1, None, ["long"]])
def test_what_is_no_known_word_is_refused(native: object) -> None:
    with pytest.raises(ValueError, match="must be one of short, default, long"):
        from_native(native, WORDS)


@given(multiple=st.integers(0, 10_000), scale=scales, round_to=roundings)
def test_what_the_scheduler_can_hold_survives_both_ways(multiple: int, scale: float, round_to: float) -> None:
    mapping = KnobMapping(scale=scale, round_to=round_to)
    native = to_native(multiple * round_to / scale, mapping)

    assert to_native(from_native(native, mapping), mapping) == native


@given(value=st.floats(1e-6, 1e6), scale=scales)
def test_without_rounding_a_native_setting_survives_both_ways(value: float, scale: float) -> None:
    mapping = KnobMapping(scale=scale)
    native = to_native(value, mapping)

    assert same_native(to_native(from_native(native, mapping), mapping), native)
    assert from_native(native, mapping) == pytest.approx(value, rel=1e-11)


@given(value=st.floats(0, 1e5), scale=scales, round_to=roundings)
def test_rounding_moves_a_value_by_half_a_step_at_most(value: float, scale: float, round_to: float) -> None:
    mapping = KnobMapping(scale=scale, round_to=round_to)

    moved = abs(from_native(to_native(value, mapping), mapping) - value)

    assert moved <= round_to / scale / 2 * (1 + 1e-6) + value * 1e-9


@given(st.sampled_from(["short", "default", "long"]))
def test_words_survive_both_ways(word: str) -> None:
    assert to_native(from_native(word, WORDS), WORDS) == word


@given(slice_seconds=st.floats(0.08, 0.15), reservation=st.floats(0.15, 0.25))
def test_a_settled_setting_settles_no_further(slice_seconds: float, reservation: float) -> None:
    mappings = {Role.BASE_SLICE: WORDS, Role.RESERVATION: PERCENT}
    settled = settle(KnobValues.of({Role.BASE_SLICE: slice_seconds, Role.RESERVATION: reservation}), mappings)

    assert settle(settled, mappings) == settled
    assert settled[Role.BASE_SLICE] in {0.08, 0.1, 0.15}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (0.3, 0.1 + 0.2, True),
        (0.3, 0.300001, False),
        (0.0, 0.0, True),
        ("a", "a", True),
        ("1", 1, False),
        (True, True, True),
        (True, 1, False),
        (None, 0, False),
    ],
)
def test_native_settings_are_the_same_but_for_floating_point(one: object, other: object, same: bool) -> None:
    assert same_native(one, other) is same


def test_paths_reach_into_a_document() -> None:
    document = {"gpu": {"slice": 1, "other": 2}, "top": 3}

    assert get_path(document, "gpu.slice") == 1
    assert put_path(document, "gpu.slice", 9) == {"gpu": {"slice": 9, "other": 2}, "top": 3}
    assert put_path(document, "new.deep", 9) == {**document, "new": {"deep": 9}}
    assert document["gpu"] == {"slice": 1, "other": 2}


@pytest.mark.parametrize("path", ["missing", "gpu.missing", "top.slice", "gpu.slice.deeper"])
def test_a_path_to_nothing_is_an_error(path: str) -> None:
    with pytest.raises(KeyError):
        get_path({"gpu": {"slice": 1}, "top": 3}, path)


def test_a_value_is_never_replaced_by_a_mapping_to_make_room() -> None:
    with pytest.raises(KeyError):
        put_path({"top": 3}, "top.slice", 9)
