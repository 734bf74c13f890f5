"""The grammar of trace paths, names and HNL strings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitmem.errors import UsageError
from gitmem.tracepath import (
    LeafName,
    PersonaName,
    TracePath,
    check_epoch,
    last_count,
    leaf_order,
    make_name,
    natural_order,
    parse_hnl,
)

PATH = "YM001/ZY001/D118/raw/20260531-115447.txt"
OWNERS = st.from_regex(r"[A-Za-z0-9]{1,8}([._-][A-Za-z0-9]{1,8}){0,2}", fullmatch=True)
EPOCHS = st.from_regex(r"[A-CE-GI-Z][A-Za-z0-9_-]{0,20}", fullmatch=True)
SECONDS = st.datetimes().map(lambda d: f"{d.year:04d}{d:%m%d-%H%M%S}")
LABELS = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,63}", fullmatch=True)


def test_parse_gives_the_parts() -> None:
    path = TracePath.parse(PATH)
    assert path == PATH
    assert path.persona_name == "YM001/ZY001"
    assert (path.epoch, path.kind, path.name) == ("D118", "raw", "20260531-115447.txt")
    assert path.leaf.sidecar == "meta/raw/20260531-115447.yaml"


@given(OWNERS, OWNERS, EPOCHS, SECONDS, st.none() | LABELS)
def test_every_well_formed_path_round_trips(
    root: str, persona: str, epoch: str, second: str, label: str | None
) -> None:
    name = f"{second}-{label}.txt" if label else f"{second}.txt"
    text = f"{root}/{persona}/{epoch}/raw/{name}"
    try:
        path = TracePath.parse(text)
    except UsageError as fault:  # a reserved word may come up
        assert "reserved" in str(fault) or "must not end" in str(fault) or "git's own" in str(fault)
        return
    assert TracePath.of(path.persona_name, path.epoch, path.kind, path.name) == text


@given(st.text(max_size=80))
def test_any_text_parses_or_is_refused(text: str) -> None:
    for parse in (TracePath.parse, parse_hnl, PersonaName.parse):
        try:
            parse(text)
        except UsageError as fault:
            assert "\n" not in str(fault)


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("", "trace path"),
        ("YM001/ZY001/D118/raw", "trace path"),
        (PATH + "/x", "trace path"),
        ("/" + PATH, "trace path"),
        ("-a/ZY001/D118/raw/20260531-115447.txt", "root"),
        ("admin/ZY001/D118/raw/20260531-115447.txt", "root"),
        ("YM001/a..b/D118/raw/20260531-115447.txt", "persona"),
        ("YM001/x.wiki/D118/raw/20260531-115447.txt", "persona"),
        ("YM001/x.git/D118/raw/20260531-115447.txt", "persona"),
        ("YM001/" + "a" * 41 + "/D118/raw/20260531-115447.txt", "persona"),
        ("YM001/铸渊/D118/raw/20260531-115447.txt", "persona"),
        ("YM001/ZY001/118/raw/20260531-115447.txt", "epoch"),
        ("YM001/ZY001/Main/raw/20260531-115447.txt", "epoch"),
        ("YM001/ZY001/D1.lock/raw/20260531-115447.txt", "epoch"),
        ("YM001/ZY001/D..1/raw/20260531-115447.txt", "epoch"),
        ("YM001/ZY001/D118/RAW/20260531-115447.txt", "kind"),
        ("YM001/ZY001/D118/raw/20260231-115447.txt", "date"),
        ("YM001/ZY001/D118/raw/20260531-245447.txt", "date"),
        ("YM001/ZY001/D118/raw/20260531-115447.TXT", "leaf name"),
        ("YM001/ZY001/D118/raw/20260531-115447-.txt", "leaf name"),
        ("YM001/ZY001/D118/raw/20260531-115447-A.txt", "label"),
        ("YM001/ZY001/D118/raw/20260531-115447-" + "a" * 65 + ".txt", "label"),
        ("YM001/ZY001/D118/raw/２０２６０５３１-115447.txt", "leaf name"),
        ("YM001/ZY001/D118/hldp/mem_ABCDEFGH.json", "record"),
        ("YM001/ZY001/D118/hldp/mem_1234567.json", "record"),
        ("YM001/ZY001/D118/raw/20260531-115447.txt\n", "leaf name"),
        ("YM001/ZY001/../raw/20260531-115447.txt", "epoch"),
    ],
)
def test_a_malformed_path_names_the_part(path: str, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        TracePath.parse(path)


def test_hnl_strings() -> None:
    trace = parse_hnl("TRACE.YM001/ZY001.D118/raw/20260531-115447.txt.LEAF_TO_ROOT")
    assert trace is not None
    assert (trace.verb, trace.paths) == ("trace", (TracePath(PATH),))
    assert parse_hnl(f"TRACE.{PATH}.LEAF_TO_ROOT") == trace
    remember = parse_hnl(f"REMEMBER.{PATH}")
    assert remember is not None
    assert (remember.verb, remember.paths) == ("remember", (TracePath(PATH),))
    assert parse_hnl(PATH) is None
    with pytest.raises(UsageError, match="LEAF_TO_ROOT"):
        parse_hnl(f"TRACE.{PATH}")


def test_hnl_with_dots_gives_every_reading() -> None:
    found = parse_hnl("TRACE.YM001/a.b.c/raw/20260531-115447.txt.LEAF_TO_ROOT")
    assert found is not None
    assert [(p.persona_name.persona, p.epoch) for p in found.paths] == [("a", "b.c"), ("a.b", "c")]


def test_names_of_one_second_sort_in_the_order_they_came() -> None:
    names: list[str] = []
    for label in (None, "user", "companion", None, "a"):
        names.append(make_name("20260531-115447", label, last_count(names) + 1))
    assert names[:3] == [
        "20260531-115447.txt",
        "20260531-115447-user-0002.txt",
        "20260531-115447-companion-0003.txt",
    ]
    assert sorted(names, key=leaf_order) == names


@given(st.lists(st.none() | LABELS, min_size=1, max_size=30))
def test_names_of_one_second_are_distinct_and_valid(labels: list[str | None]) -> None:
    names: list[str] = []
    for label in labels:
        names.append(make_name("20260531-115447", label, last_count(names) + 1))
        TracePath.parse(f"YM001/ZY001/D118/raw/{names[-1]}")
    assert len(set(names)) == len(names)


def test_epochs_in_natural_order() -> None:
    names = ["D118", "D99", "D100", "A", "D9b", "D9"]
    assert sorted(names, key=natural_order) == ["A", "D9", "D9b", "D99", "D100", "D118"]
    assert check_epoch("D118") == "D118"


def test_leaf_of_a_sidecar() -> None:
    for leaf in (LeafName("raw", "20260531-115447-a.txt"), LeafName("hldp", "mem_12345678.json")):
        assert LeafName.of_sidecar(leaf.kind, leaf.sidecar.rsplit("/", 1)[1]) == leaf
