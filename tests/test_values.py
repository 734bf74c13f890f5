"""Values without a disk: states, YAML, sidecars, manifests, settings, records, times."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from itertools import product
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gitmem import manifest, records, settings, sidecar, times, yamltext
from gitmem.errors import CorruptError, RefusedError, UsageError
from gitmem.manifest import Manifest
from gitmem.records import Record
from gitmem.sidecar import Sidecar
from gitmem.states import State, check_move, is_legal

SHANGHAI = ZoneInfo("Asia/Shanghai")
NEW_YORK = ZoneInfo("America/New_York")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
LEGAL = {
    ("active", "withered"), ("active", "archived"), ("active", "released"),
    ("withered", "active"), ("withered", "archived"), ("withered", "released"),
    ("archived", "active"), ("archived", "released"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), list(product(State, State)))
def test_every_move_is_as_the_table_says(old: State, new: State) -> None:
    assert is_legal(old, new) == ((old.value, new.value) in LEGAL)
    if not is_legal(old, new):
        with pytest.raises(RefusedError):
            check_move("raw/x.txt", old, new)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,12}", fullmatch=True), JSON, max_size=6))
def test_yaml_round_trips_any_json_value(fields: dict[str, Any]) -> None:
    data = yamltext.dump(fields)
    assert yamltext.load(data, "test") == fields
    assert yamltext.dump(yamltext.load(data, "test")) == data
    assert data.count(b"\n") == len(fields)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,12}", fullmatch=True), TEXT, max_size=4))
def test_yaml_text_is_read_alike_by_any_yaml_reader(fields: dict[str, str]) -> None:
    def plain(value: object) -> str:
        return value.isoformat() if isinstance(value, datetime) else str(value)

    read = yaml.load(yamltext.dump(fields), Loader=yaml.SafeLoader) or {}
    assert {k: v for k, v in read.items() if isinstance(v, str)} == {
        k: v for k, v in fields.items() if not isinstance(read[k], datetime)
    }


@pytest.mark.parametrize(
    "text", [b"a: b: c\n", b"- 1\n", b"[\n", b"\xff: 1\n", b"1: 2\n", b"a: &x [*x]\n", b"{" * 3000]
)
def test_yaml_that_is_no_mapping_is_refused(text: bytes) -> None:
    try:
        yamltext.load(text, "the file")
    except CorruptError as fault:
        assert "the file" in str(fault)


@pytest.mark.parametrize(
    "line", ["a: yes", "a: 12", "a: 1e5", "a: null", "a: 2026-01-01", "a: 'x'", "a: x # y", "a: [1]"]
)
def test_the_fast_reader_agrees_with_the_full_one(line: str) -> None:
    slow = yaml.load(line, Loader=yamltext._Loader)
    assert yamltext.load(line.encode() + b"\n", "x") == slow


SIDECARS = st.builds(
    Sidecar,
    state=st.sampled_from([State.ACTIVE, State.ARCHIVED, State.WITHERED]),
    ts=st.none() | st.just("2026-05-31T11:54:47+08:00"),
    blob=st.none() | st.from_regex(r"[0-9a-f]{40}", fullmatch=True),
    compression_ratio=st.none() | st.floats(0.1, 1000),
    summary=st.none() | TEXT,
    summary_by=st.none() | st.sampled_from(["extract", "model:x/y"]),
    tags=st.lists(TEXT, max_size=3).map(tuple),
    turn_id=st.none() | TEXT,
    role=st.none() | TEXT,
    affect=st.none()
    | st.fixed_dictionaries({"v": st.floats(-1, 1), "a": st.floats(0, 1), "d": st.floats(0, 1)}),
    salience=st.none() | st.floats(0, 1),
    human_visible=st.none() | st.booleans(),
    extra=st.dictionaries(st.from_regex(r"x_[a-z]{1,5}", fullmatch=True), JSON, max_size=2),
)


@given(SIDECARS)
def test_sidecars_round_trip(value: Sidecar) -> None:
    data = sidecar.dump(value)
    if data is None:
        assert value == Sidecar()
        return
    assert sidecar.parse(data, "x") == value
    assert not sidecar.is_tombstone(data)
    stone = sidecar.tombstone(value, "2026-06-01T00:00:00+08:00")
    assert sidecar.is_tombstone(stone)
    read = sidecar.parse(stone, "x")
    assert (read.state, read.turn_id, read.role, read.summary, read.tags) == (
        State.RELEASED, value.turn_id, value.role, None, (),
    )  # fmt: skip


@given(SIDECARS)
def test_a_sidecar_rid_of_its_original_says_the_rest(value: Sidecar) -> None:
    data = sidecar.dump(value)
    if data is None:
        return
    rid = sidecar.without_original(data)
    left = sidecar.parse(rid, "x") if rid else Sidecar()
    assert left.blob is None
    assert (left.tags, left.turn_id, left.extra) == (value.tags, value.turn_id, value.extra)
    assert left.summary == (None if value.summary_by == "extract" else value.summary)
    assert rid is None or sidecar.without_original(rid) == rid


@pytest.mark.parametrize(
    "text",
    [
        b"state: gone\n",
        b"blob: 12\n",
        b"tags: x\n",
        b"salience: high\n",
        b"affect: 3\n",
        b"human_visible: 1\n",
    ],
)
def test_a_malformed_sidecar_names_its_place(text: bytes) -> None:
    with pytest.raises(CorruptError, match="meta/raw/x"):
        sidecar.parse(text, "meta/raw/x")


def test_manifest_round_trips_and_keeps_unknown_keys() -> None:
    value = Manifest(
        root="YM001",
        persona="ZY001",
        timezone="Asia/Shanghai",
        human="冰朔",
        aliases=("铸渊",),
        extra={"x": 1},
    )
    assert manifest.parse(manifest.dump(value), "x") == value
    with pytest.raises(CorruptError, match="another version"):
        manifest.parse(b"format: 2\nroot: a\npersona: b\n", "x")
    with pytest.raises(CorruptError, match="persona"):
        manifest.parse(b"root: a\n", "x")
    with pytest.raises(CorruptError, match="time zone"):
        manifest.parse(b"root: a\npersona: b\ntimezone: Mars/Base\n", "x")


def test_settings_suggest_what_was_meant() -> None:
    assert settings.parse(settings.dump(settings.Settings(demo=True)), "x").demo
    with pytest.raises(UsageError) as caught:
        settings.parse(b"max_leaf_byte: 5\n", "settings.yaml")
    assert "max_leaf_bytes" in caught.value.hint
    for bad in (b"demo: 1\n", b"max_leaf_bytes: many\n", b"max_leaf_bytes: 0\n", b"lock_seconds: true\n"):
        with pytest.raises(UsageError, match=r"settings\.yaml"):
            settings.parse(bad, "settings.yaml")


@given(JSON, st.lists(TEXT, max_size=3), st.booleans(), st.none() | st.booleans())
def test_records_round_trip(value: Any, tags: list[str], visible: bool, told: bool | None) -> None:
    made = Record(
        id="mem_12345678", persona="A/B", timestamp="2026-05-31T11:54:47+08:00", hldp=value,
        tags=tuple(tags), human_visible=visible, told=told,
    )  # fmt: skip
    data = records.dump(made)
    assert records.parse(data, "x") == made
    assert json.loads(data)["hldp"] == value


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), {1, 2}, b"x", "\ud800", {1: 2}, {"a": [{2: 3}]}, object()]
)
def test_a_value_that_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="JSON"):
        records.dump(Record(id="mem_12345678", hldp=value))


def test_naive_times_are_local_and_impossible_ones_refused() -> None:
    assert times.iso(times.parse("2026-05-31T11:54:47", SHANGHAI)) == "2026-05-31T11:54:47+08:00"
    assert times.iso(times.parse("2026-05-31T03:54:47.9Z", SHANGHAI)) == "2026-05-31T11:54:47+08:00"
    assert times.iso(times.parse(date(2026, 5, 31), SHANGHAI)) == "2026-05-31T00:00:00+08:00"
    first = times.parse("2026-11-01T01:30:00", NEW_YORK)
    second = times.parse("2026-11-01T01:30:00-05:00", NEW_YORK)
    assert (times.iso(first), times.iso(second)) == ("2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00")
    assert (times.is_plain(first), times.is_plain(second)) == (True, False)
    with pytest.raises(UsageError, match="does not exist"):
        times.parse("2026-03-08T02:30:00", NEW_YORK)
    for bad in ("", "yesterday", "2026-13-01", "2026-05-31T25:00", "0001-01-01T00:00:00+23:59", 5):
        with pytest.raises(UsageError):
            times.parse(bad, SHANGHAI)  # type: ignore[arg-type]


def test_a_bare_day_belongs_whole_to_a_span() -> None:
    assert times.iso(times.parse_until("2026-05-31", SHANGHAI)) == "2026-06-01T00:00:00+08:00"
    assert times.iso(times.parse_until("2026-05-31T12:00", SHANGHAI)) == "2026-05-31T12:00:00+08:00"


@given(st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29), timezones=st.just(UTC)))
def test_names_give_their_time_back(moment: datetime) -> None:
    for zone in (SHANGHAI, NEW_YORK, ZoneInfo("Asia/Kathmandu"), ZoneInfo("Pacific/Apia"), UTC):
        local = times.parse(moment, zone)
        back = times.from_name(times.to_name(local), zone)
        if times.is_plain(local):
            assert times.seconds(back) == times.seconds(local)
        assert times.seconds_of(times.iso(local), zone) == times.seconds(local)


def test_unknown_zones_are_refused() -> None:
    for name in ("Mars/Base", "", "../etc/passwd", "Asia", "+08:00"):
        with pytest.raises(UsageError, match="time zone"):
            times.zone(name)


@pytest.mark.parametrize("key", ["off", "y", "no", "_x", "null"])
def test_a_key_that_yaml_takes_for_a_value_is_quoted(key: str) -> None:
    """Unquoted, `off:` is a key of the type bool to a YAML reader."""
    for value in ("", [1], "x"):
        assert yamltext.load(yamltext.dump({key: value}), "x") == {key: value}
