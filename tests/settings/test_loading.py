import subprocess
import sys
from pathlib import Path

import pytest

from tuner.errors import ConfigError
from tuner.settings.documents import MAX_BYTES
from tuner.settings.loading import load_policy, with_overrides
from tuner.settings.model import HttpActuator, TunerMode
from tuner.values.knobs import DESIGN_RANGES, Role

POLICIES = Path(__file__).parent / "policies"
GOOD = sorted((POLICIES / "good").glob("*.yaml"))
BAD = sorted((POLICIES / "bad").glob("*.yaml"))
EXPECT = "# expect: "


def name_of(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", GOOD, ids=name_of)
def test_a_good_policy_loads(path: Path) -> None:
    policy = load_policy(path)

    assert len(policy.fingerprint()) == 64
    assert policy.weights().sum() > 0


@pytest.mark.parametrize("path", BAD, ids=name_of)
def test_a_bad_policy_is_refused_with_the_messages_in_its_first_line(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    expected = first.removeprefix(EXPECT).split(" | ")
    assert first.startswith(EXPECT)

    with pytest.raises(ConfigError) as caught:
        load_policy(path)

    for message in expected:
        assert message in str(caught.value)


@pytest.mark.parametrize("path", BAD, ids=name_of)
def test_every_line_of_an_error_names_the_file(path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_policy(path)

    assert all(line.startswith(str(path)) for line in str(caught.value).splitlines())


def test_all_problems_are_told_at_once_each_with_its_line() -> None:
    path = POLICIES / "bad" / "many_at_once.yaml"

    with pytest.raises(ConfigError) as caught:
        load_policy(path)

    lines = [int(line.removeprefix(f"{path}:").split(":")[0]) for line in str(caught.value).splitlines()]
    assert lines == [2, 3, 9, 22, 22, 23]


def test_a_missing_file_is_told_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: the file cannot be read \(No such file or directory\)"):
        load_policy(tmp_path / "none.yaml")


def test_a_folder_is_no_policy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the file cannot be read \(Is a directory\)"):
        load_policy(tmp_path)


def test_an_unreadable_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "secret.yaml"
    path.touch(mode=0o000)
    # Root may read every file, so it becomes somebody else first, who may look into the folder.
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    program = (
        "import os, sys; from pathlib import Path; from tuner.errors import ConfigError; "
        "from tuner.settings.loading import load_policy\n"
        "if os.geteuid() == 0: os.setuid(54321)\n"
        "try: load_policy(Path(sys.argv[1]))\n"
        "except ConfigError as error: print(error)"
    )

    told = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True, timeout=60
    )

    assert told.stdout.startswith(f"{path}: the file cannot be read (Permission denied), must be a readable YAML file")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name: caf\xe9\n", "1: the byte 0xe9 is not UTF-8"),
        (b"version: 1\nname: \xff\n", "2: the byte 0xff is not UTF-8"),
        (b"#" * (MAX_BYTES + 1), "more than 1048576 bytes"),
        (b"[" * 20_000, "nested too deeply"),
        (b"version: 1\n---\nversion: 1\n", "expected a single document"),
        (b"name: 2024-13-45\n", "a value cannot be read"),
        (b"name: \x00\n", "not plain YAML"),
        (b"a: &a [1, *a]\n", "anchors in themselves"),
        (b"? [1]\n: 2\n", "unhashable key"),
    ],
)
def test_what_is_no_plain_yaml_is_told_in_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        load_policy(path)

    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_nested_anchors_cannot_exhaust_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "laughs.yaml"
    levels = [f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 10)}]" for i in range(9)]
    path.write_text("\n".join(["a: &a [1, 2]", *levels]))

    with pytest.raises(ConfigError, match="anchors expand to more than"):
        load_policy(path)


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + (POLICIES / "good" / "smallest.yaml").read_bytes())

    assert load_policy(path).name == "small"


def test_merged_keys_take_their_values_from_the_anchor() -> None:
    metrics = load_policy(POLICIES / "good" / "anchors.yaml").metrics

    assert metrics["resource_idle_ratio"].query == "idle"
    assert metrics["queue_length"].query == "latency"
    assert metrics["node_power_watts"].node_label == "node"
    assert metrics["node_power_watts"].scale == 0.001


def test_a_fault_in_a_merged_key_has_the_line_of_the_anchor(tmp_path: Path) -> None:
    text = (POLICIES / "good" / "anchors.yaml").read_text()
    path = tmp_path / "policy.yaml"
    path.write_text(text.replace("&plain {query: latency}", "&plain {query: latency, limt: 3}"))

    with pytest.raises(ConfigError) as caught:
        load_policy(path)

    anchor_line = text[: text.index("&plain")].count("\n") + 1
    assert f"{path}:{anchor_line}: metrics.scheduling_latency_seconds.limt is an unknown key" in str(caught.value)
    assert "did you mean limit?" in str(caught.value)


def test_durations_are_read_as_people_write_them() -> None:
    policy = load_policy(POLICIES / "good" / "native_units.yaml")

    assert policy.cycle.period_seconds == 300.0
    assert isinstance(policy.actuator, HttpActuator)
    assert policy.actuator.effective_within_seconds == 90.0


def test_relative_paths_count_from_the_policy(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    text = (POLICIES / "good" / "native_units.yaml").read_text()
    path.write_text(
        text.replace("kind: http,", "kind: http, token_file: token,")
        + "journal: {path: /var/j.sqlite}\ncontrol: {kill_file: stop}\n"
    )

    policy = load_policy(path)

    assert policy.journal.path == "/var/j.sqlite"
    assert isinstance(policy.actuator, HttpActuator)
    assert policy.actuator.token_file == str(tmp_path / "token")
    assert policy.control.kill_file == str(tmp_path / "stop")
    assert load_policy(POLICIES / "good" / "smallest.yaml").journal.path == str(POLICIES / "good" / "clocktuner.sqlite")


def test_the_fingerprint_depends_on_what_decides_and_on_nothing_else(tmp_path: Path) -> None:
    original = POLICIES / "good" / "native_units.yaml"
    elsewhere = tmp_path / "policy.yaml"
    text = original.read_text()
    elsewhere.write_text("# Another comment, another port.\n" + text.replace("127.0.0.1:1/", "127.0.0.1:2/"))
    other = tmp_path / "other.yaml"
    other.write_text(text.replace("round_to: 50", "round_to: 25"))

    fingerprint = load_policy(original).fingerprint()

    assert load_policy(elsewhere).fingerprint() == fingerprint
    assert load_policy(other).fingerprint() != fingerprint


def test_overrides_replace_only_what_they_name(tmp_path: Path) -> None:
    policy = load_policy(POLICIES / "good" / "native_units.yaml")

    changed = with_overrides(
        policy,
        prometheus_url="http://127.0.0.1:9999",
        mode=TunerMode.RECOMMEND,
        journal=tmp_path / "j.sqlite",
        listen="127.0.0.1:0",
    )

    assert changed.source.url == "http://127.0.0.1:9999"
    assert changed.mode is TunerMode.RECOMMEND
    assert changed.journal.path == str(tmp_path / "j.sqlite")
    assert changed.web.listen == "127.0.0.1:0"
    assert changed.knobs == policy.knobs
    assert changed.metrics == policy.metrics
    assert with_overrides(policy) == policy


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"prometheus_url": "localhost:9090"}, 'source.url is "localhost:9090"'),
        ({"mode": "auto"}, "mode is auto, must be observe or recommend"),
        ({"mode": "automatic"}, "mode is \"automatic\", must be 'observe', 'recommend' or 'auto'"),
        ({"listen": "9464"}, 'web.listen is "9464", must be text that matches'),
        ({"labels": {"run": "c"}}, "must be used by a query"),
    ],
)
def test_overrides_are_checked_like_the_policy(overrides: dict[str, object], message: str) -> None:
    policy = load_policy(POLICIES / "good" / "smallest.yaml")

    with pytest.raises(ConfigError, match="policy small, as overridden: ") as caught:
        with_overrides(policy, **overrides)  # type: ignore[arg-type]

    assert message in str(caught.value)


def test_knobs_take_the_design_s_bounds_where_the_policy_sets_none() -> None:
    specs = load_policy(POLICIES / "good" / "native_units.yaml").knob_specs()

    assert specs == tuple(DESIGN_RANGES[role] for role in Role)


def test_absent_roles_are_left_out_of_the_search() -> None:
    specs = load_policy(POLICIES / "good" / "smallest.yaml").knob_specs()

    assert [spec.role for spec in specs] == [Role.PREDICTION_WINDOW]
