"""Orders: what may be asked, and that nothing else passes for it."""

import json
import math
import os
import pwd
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.orders import NOON, order
from tuner.control.orders import (
    ACT_WITHIN_SECONDS,
    MAX_BYTES,
    Direction,
    Order,
    OrderKind,
    asker,
    instant,
    is_id,
    new_id,
    parse,
)
from tuner.values.knobs import DESIGN_RANGES, KnobValues, Role, middle

SETTING = middle(DESIGN_RANGES.values())

ALL = (
    order(OrderKind.PAUSE, reason="the new racks come"),
    order(OrderKind.PAUSE, until_seconds=NOON + 3600.5),
    order(OrderKind.RESUME),
    order(OrderKind.FREEZE, role=Role.BASE_SLICE, direction=Direction.UP),
    order(OrderKind.THAW, role=Role.BASE_SLICE),
    order(OrderKind.THAW, role=Role.RESERVATION, direction=Direction.DOWN),
    order(OrderKind.APPROVE, cycle_id=412),
    order(OrderKind.ADOPT),
    order(OrderKind.ROLL_BACK),
    order(OrderKind.ROLL_BACK, known_good=0, knobs=SETTING),
    order(OrderKind.DRILL, reason="Überprüfung"),
)


@pytest.mark.parametrize("given_order", ALL, ids=lambda item: item.describe()[:50])
def test_what_was_written_is_read_again(given_order: Order) -> None:
    assert parse(given_order.to_json().encode()) == given_order


def test_every_kind_of_order_is_known_here() -> None:
    assert {item.kind for item in ALL} == set(OrderKind)


@pytest.mark.parametrize(
    ("given_order", "words"),
    [
        (ALL[0], "anna: pause (the new racks come)"),
        (ALL[1], "anna: pause until 2026-01-01 13:00 UTC"),
        (ALL[3], "anna: do not move base_slice_seconds up"),
        (ALL[4], "anna: let base_slice_seconds move up and down again"),
        (ALL[6], "anna: make the change that cycle 412 recommends"),
        (ALL[8], "anna: go back to the newest known good setting"),
        (ALL[9], f"anna: go back to setting 0: {SETTING.describe()}"),
    ],
)
def test_an_order_says_who_asks_for_what_and_why(given_order: Order, words: str) -> None:
    assert given_order.describe() == words


@pytest.mark.parametrize(
    ("details", "complaint"),
    [
        ({"kind": OrderKind.FREEZE, "role": Role.BASE_SLICE}, "freeze needs direction"),
        ({"kind": OrderKind.THAW}, "thaw needs role"),
        ({"kind": OrderKind.APPROVE}, "approve needs cycle_id"),
        ({"kind": OrderKind.APPROVE, "cycle_id": -1}, "count from 0"),
        ({"kind": OrderKind.RESUME, "cycle_id": 3}, "resume has no use for cycle_id"),
        ({"kind": OrderKind.PAUSE, "until_seconds": NOON}, "not after at_seconds"),
        ({"kind": OrderKind.PAUSE, "until_seconds": math.nan}, "not after at_seconds"),
        ({"kind": OrderKind.ROLL_BACK, "known_good": 3}, "belong together"),
        ({"kind": OrderKind.ROLL_BACK, "knobs": SETTING}, "belong together"),
        ({"kind": OrderKind.ADOPT, "by": ""}, "an order without a name is nobody's"),
        ({"kind": OrderKind.ADOPT, "by": "a" * 65}, "by is longer than 64 characters"),
        ({"kind": OrderKind.ADOPT, "by": "an\x1b[31mna"}, "by holds what cannot be printed"),
        ({"kind": OrderKind.ADOPT, "reason": "r" * 301}, "reason is longer than 300 characters"),
        ({"kind": OrderKind.ADOPT, "reason": "two\nlines"}, "reason holds what cannot be printed"),
        ({"kind": OrderKind.ADOPT, "at_seconds": math.inf, "order_id": new_id(NOON)}, "at_seconds is not a time"),
        ({"kind": OrderKind.ADOPT, "order_id": "../../etc/passwd"}, "order_id is not of the form"),
    ],
)
def test_an_order_that_cannot_be_meant_is_refused(details: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint.replace("(", r"\(")):
        Order(**{"order_id": new_id(NOON), "at_seconds": NOON, "by": "anna", **details})


def with_field(name: str, value: object) -> bytes:
    return json.dumps({**json.loads(order(OrderKind.PAUSE).to_json()), name: value}).encode()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "Expecting value"),
        (b"\xff\xfe", "utf-8"),
        (b"[]", "not a JSON object"),
        (b'"pause"', "not a JSON object"),
        (b"{}", "lacks at_seconds, by, kind, order_id"),
        (b"[" * 4000, "nested too deeply"),
        (b" " * (MAX_BYTES + 1), "longer than 4096 bytes"),
        (b'{"kind": "pause", "kind": "resume"}', "a key stands twice"),
        (b'{"at_seconds": NaN}', "NaN, which is no JSON"),
        (b'{"at_seconds": -Infinity}', "-Infinity, which is no JSON"),
        (with_field("at_seconds", "noon"), "at_seconds is not a number"),
        (with_field("at_seconds", True), "at_seconds is not a number"),
        (with_field("at_seconds", 10**400), "at_seconds is not a number"),
        (with_field("by", 0), "by is not text"),
        (with_field("by", None), "by is not text"),
        (with_field("kind", "reboot"), "'reboot' is not a valid OrderKind"),
        (with_field("kind", ["pause"]), "kind is not text"),
        (with_field("command", "rm -rf /"), "1 unknown keys"),
        (with_field("cycle_id", 1.5), "cycle_id is not a whole number"),
        (with_field("knobs", {}), "knobs is not a setting"),
        (with_field("knobs", {"volume": 11}), "'volume' is not a valid Role"),
        (with_field("knobs", {"reservation_ratio": None}), "knobs.reservation_ratio is not a number"),
        (with_field("until_seconds", 5), "until_seconds is not after"),
    ],
)
def test_whatever_is_no_order_is_refused_with_what_is_wrong_about_it(text: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse(text)


@given(st.binary(max_size=200) | st.sampled_from(ALL).flatmap(lambda item: mutated(item.to_json())))
def test_no_text_whatever_does_more_than_be_refused(text: bytes) -> None:
    try:
        found = parse(text)
    except ValueError:
        return
    assert parse(found.to_json().encode()) == found


def mutated(text: str) -> st.SearchStrategy[bytes]:
    """Return strategies that change a few bytes of a sound order."""
    raw = text.encode()
    edits = st.lists(st.tuples(st.integers(0, len(raw) - 1), st.integers(0, 255)), min_size=1, max_size=4)
    return edits.map(lambda changes: bytes(dict(changes).get(index, byte) for index, byte in enumerate(raw)))


@given(st.lists(st.floats(0, 4e9), min_size=2, max_size=20))
def test_identities_are_in_the_order_of_time(times: list[float]) -> None:
    identities = [new_id(at_seconds) for at_seconds in times]

    assert all(map(is_id, identities))
    assert len(set(identities)) == len(identities)
    for (earlier, first), (later, second) in pairwise(sorted(zip(times, identities, strict=True))):
        assert first < second or later - earlier < 0.002


@pytest.mark.parametrize(
    ("age_seconds", "obeyed"),
    [(0, True), (ACT_WITHIN_SECONDS - 1, True), (ACT_WITHIN_SECONDS, False), (-60, True), (-ACT_WITHIN_SECONDS, False)],
)
def test_only_what_asks_for_something_now_grows_old(age_seconds: float, obeyed: bool) -> None:
    current = {item.kind: item.current(NOON + age_seconds) for item in ALL}

    acting = {OrderKind.APPROVE, OrderKind.ADOPT, OrderKind.ROLL_BACK, OrderKind.DRILL}
    assert {current[kind] for kind in acting} == {obeyed}
    assert all(current[kind] for kind in OrderKind if kind not in acting)


def test_who_asks_is_whom_the_system_knows_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(variable, "mallory")
    monkeypatch.delenv("SUDO_UID", raising=False)

    assert asker() == pwd.getpwuid(os.getuid()).pw_name


def test_behind_sudo_the_caller_is_named_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", "54321")

    assert asker() == "root (uid 54321)"


@pytest.mark.parametrize("feigned", ["", "-1", "mallory", "99999999999999", "٣"])
def test_a_caller_that_is_no_number_is_left_out(feigned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", feigned)

    assert asker() == "root"


def test_only_root_can_have_been_called_by_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    monkeypatch.setenv("SUDO_UID", "0")

    assert asker() == "uid 54321"


def test_times_are_told_in_utc() -> None:
    assert instant(NOON) == "2026-01-01 12:00 UTC"
    assert instant(math.nan) == "never"


def test_a_setting_survives_to_the_last_bit() -> None:
    setting = KnobValues.of({Role.BASE_SLICE: 0.1 + 0.2})

    again = parse(order(OrderKind.ROLL_BACK, known_good=1, knobs=setting).to_json().encode())

    assert again.knobs == setting
