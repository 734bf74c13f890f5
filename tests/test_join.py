"""The rules by which two changes of one thing become one, as laws that hold for any two."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gitmem import sidecar as sidecars
from gitmem.manifest import Manifest
from gitmem.sidecar import Sidecar
from gitmem.states import State
from gitmem.store import trees
from gitmem.store.objects import EMPTY_TREE, Commit, Oid, Stage, hash_object
from gitmem.sync.join import Side, is_clash, join_leaf, join_manifest, join_mapping, join_value
from gitmem.sync.replay import Replay, leaf_of, side_of
from gitmem.tracepath import LeafName

FULL = hash_object("blob", "一句。两句。三句。".encode())
BLURS = [hash_object("blob", f"……{i}句。".encode()) for i in range(3)]
WHEN = "2026-06-01T00:00:00+08:00"
words = st.sampled_from(["雨", "rain", "☔", "a: b", "'", "x\ny"])


@st.composite
def sides(draw: st.DrawFn) -> Side:
    """One leaf, in any state that gitmem itself makes."""
    plain: dict[str, Any] = {
        "summary": draw(st.none() | words),
        "tags": tuple(draw(st.lists(words, max_size=2))),
        "told_at": draw(st.none() | st.just(WHEN)),
        "extra": draw(st.dictionaries(st.sampled_from(["x", "y"]), st.integers(0, 3), max_size=2)),
    }
    state = draw(st.sampled_from([*State]))
    blur = draw(st.sampled_from(BLURS))
    forgotten = draw(st.booleans())
    if state is State.RELEASED:
        return Side(None, sidecars.tombstone(Sidecar(turn_id="t"), draw(st.sampled_from([WHEN, "2027"]))))
    if state is State.ACTIVE:
        return Side(FULL, sidecars.dump(Sidecar(**plain)))
    named: dict[str, Any] = {"forgotten": True, "blur": blur.hex()} if forgotten else {"blob": FULL.hex()}
    if state is State.WITHERED:
        return Side(blur, sidecars.dump(Sidecar(state=state, withered_at=WHEN, **named, **plain)))
    return Side(None, sidecars.dump(Sidecar(state=state, archived_at=WHEN, **named, **plain)))


@given(sides(), sides(), st.booleans())
def test_where_one_side_changed_that_side_counts(base: Side, other: Side, later: bool) -> None:
    assert join_leaf(base, other, base, ours_later=later) == other
    assert join_leaf(base, base, other, ours_later=later) == other
    assert join_leaf(base, other, other, ours_later=later) == other


@given(sides(), sides(), sides(), st.booleans())
@settings(max_examples=500)
def test_what_a_join_comes_to(base: Side, ours: Side, theirs: Side, later: bool) -> None:
    joined = join_leaf(base, ours, theirs, ours_later=later)
    if theirs.is_tombstone or ours.is_tombstone:
        if ours not in (base, theirs) and theirs != base:
            assert joined == Side(None, (theirs if theirs.is_tombstone else ours).sidecar)
        return
    parsed = joined.parsed
    # It is a leaf that gitmem could have made.
    assert (joined.shown is None) is (parsed.state is State.ARCHIVED)
    assert not (parsed.forgotten and parsed.blob)
    assert parsed.forgotten is (parsed.blur is not None)
    if parsed.state in (State.ARCHIVED, State.WITHERED):
        assert parsed.full_text is not None
    if parsed.state is State.ACTIVE:
        assert joined.shown == FULL
    if parsed.forgotten and parsed.state is State.WITHERED:
        assert joined.shown is not None
        assert joined.shown.hex() == parsed.blur
    # Joining it once more with either side changes nothing.
    if not base.is_tombstone:
        assert join_leaf(theirs, joined, theirs, ours_later=later) == joined


@given(sides(), sides(), sides(), st.booleans())
@settings(max_examples=300)
def test_states_have_an_order(base: Side, ours: Side, theirs: Side, later: bool) -> None:
    order = [State.ACTIVE, State.WITHERED, State.ARCHIVED, State.RELEASED]
    forgotten = ours.parsed.forgotten or theirs.parsed.forgotten
    assume(ours.state is not base.state and theirs.state is not base.state and not forgotten)
    joined = join_leaf(base, ours, theirs, ours_later=later)
    assert joined.state is max(ours.state, theirs.state, key=lambda s: order.index(s or State.ACTIVE))


@given(sides(), sides(), sides(), st.booleans())
def test_what_one_side_forgot_is_forgotten(base: Side, ours: Side, theirs: Side, later: bool) -> None:
    assume(not base.is_tombstone and not ours.is_tombstone and not theirs.is_tombstone)
    assume(not base.parsed.forgotten)
    joined = join_leaf(base, ours, theirs, ours_later=later).parsed
    assert joined.forgotten is (ours.parsed.forgotten or theirs.parsed.forgotten)


@given(sides(), sides(), sides())
def test_fields_join_one_by_one(base: Side, ours: Side, theirs: Side) -> None:
    assume(not any(side.is_tombstone for side in (base, ours, theirs)))
    for later in (True, False):
        joined = join_leaf(base, ours, theirs, ours_later=later).parsed
        was, mine, its = base.parsed, ours.parsed, theirs.parsed
        for name in ("tags", "told_at"):
            wanted = join_value(getattr(was, name), getattr(mine, name), getattr(its, name), ours_later=later)
            assert getattr(joined, name) == wanted
        assert joined.extra == join_mapping(was.extra, mine.extra, its.extra, ours_later=later)


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "clash"),
    [
        (Side(), Side(FULL), Side(BLURS[0]), True),
        (Side(), Side(FULL), Side(FULL), False),
        (Side(), Side(FULL), Side(None, b"state: archived\nblob: " + FULL.hex().encode() + b"\n"), False),
        (Side(), Side(FULL), Side(None, b"state: released\n"), False),
        (Side(), Side(FULL), Side(), False),
        (Side(FULL), Side(FULL), Side(BLURS[0]), False),
        (Side(FULL), Side(BLURS[1]), Side(BLURS[0]), True),
    ],
)
def test_clashes(base: Side, ours: Side, theirs: Side, clash: bool) -> None:
    assert is_clash(base, ours, theirs) is clash


def test_manifests_join_field_by_field() -> None:
    base = Manifest(root="YM001", persona="ZY001", timezone="UTC", aliases=("甲",), epoch="D1")
    ours = replace(base, epoch="D2", human="冰朔", extra={"x": 1})
    theirs = replace(base, aliases=("甲", "乙"), epoch="D3", extra={"y": [2]})
    for later in (True, False):
        joined = join_manifest(base, ours, theirs, ours_later=later)
        assert joined.aliases == ("甲", "乙")
        assert joined.human == "冰朔"
        assert joined.epoch == ("D2" if later else "D3")
        assert joined.extra == {"y": [2], "x": 1}
    made_apart = join_manifest(None, replace(ours, timezone="Asia/Tokyo"), theirs, ours_later=True)
    assert (made_apart.timezone, made_apart.epoch, made_apart.human) == ("UTC", "D3", "冰朔")
    assert {f.name for f in fields(Manifest)} >= {"root", "persona"}


# -- recreating commits ----------------------------------------------------------------------


def _no_store(oid: Oid) -> Any:
    raise AssertionError(oid.hex())


class Branch:
    """A branch in a stage, built commit by commit."""

    def __init__(self, stage: Stage, tip: Oid | None = None) -> None:
        self.stage = stage
        self.tip = tip
        self.commits: list[tuple[Oid, Commit]] = []
        if tip is None:
            self.commit({}, "root")

    def commit(self, files: dict[str, bytes | None], message: str, when: int = 0) -> Branch:
        tree = self.stage.put("tree", b"") if self.tip is None else self.tree
        edits = {path: None if data is None else self.stage.put("blob", data) for path, data in files.items()}
        tree = self.stage.edit(tree, edits) if edits else tree
        parents = () if self.tip is None else (self.tip,)
        at = 1780000000 + (when or len(self.commits))
        headers = tuple(f"{who} A <a@x> {at} +0000".encode() for who in ("author", "committer"))
        made = Commit(tree, parents, headers, message.encode() + b"\n")
        self.tip = self.stage.put("commit", made.format())
        self.commits.append((self.tip, made))
        return self

    @property
    def tree(self) -> Oid:
        assert self.tip is not None
        return Commit.parse(self.stage.data(self.tip)).tree

    def files(self) -> dict[str, bytes]:
        found = trees.changed_blobs(EMPTY_TREE, self.tree, self.stage.read)
        return {path: self.stage.data(new) for path, (_, new) in found if new is not None}


def replayed(base: Branch, ours: Branch, theirs: Branch) -> tuple[Branch, Any]:
    assert theirs.tip is not None
    outcome = Replay(ours.stage, theirs.tip, theirs.commits).run(ours.commits)
    return Branch(ours.stage, outcome.tip), outcome


@pytest.fixture
def base() -> Branch:
    return Branch(Stage(_no_store)).commit({"raw/20260531-115447.txt": b"one"}, "write")


def fork(base: Branch) -> Branch:
    return Branch(base.stage, base.tip)


def test_each_commit_is_recreated(base: Branch) -> None:
    ours = fork(base).commit({"raw/20260531-115448.txt": b"two"}, "write two").commit({}, "empty")
    ours.commit({"raw/20260531-115447.txt": None, "meta/raw/20260531-115447.yaml": b"state: archived\n"}, "x")
    theirs = fork(base).commit({"raw/20260531-115449.txt": b"three"}, "write three")
    done, outcome = replayed(base, ours, theirs)
    assert len(outcome.made) == 3
    assert set(done.files()) == {
        "raw/20260531-115448.txt", "raw/20260531-115449.txt", "meta/raw/20260531-115447.yaml",
    }  # fmt: skip
    for made, (_, old) in zip(outcome.made, ours.commits, strict=True):
        new = Commit.parse(done.stage.data(made))
        assert (new.headers, new.message) == (old.headers, old.message)


def test_a_commit_that_changes_nothing_any_more_is_left_out(base: Branch) -> None:
    ours = fork(base).commit({"raw/20260531-115448.txt": b"same"}, "ours")
    theirs = fork(base).commit({"raw/20260531-115448.txt": b"same"}, "theirs")
    _, outcome = replayed(base, ours, theirs)
    assert outcome.made == []
    assert outcome.tip == theirs.tip


def test_a_name_given_twice_is_changed_and_later_commits_follow(base: Branch) -> None:
    name, side = "raw/20260531-115448-x.txt", "meta/raw/20260531-115448-x.yaml"
    ours = fork(base).commit({name: b"ours"}, "write").commit({side: b"tags: [a]\n"}, "tag")
    theirs = fork(base).commit({name: b"theirs"}, "write")
    done, outcome = replayed(base, ours, theirs)
    assert outcome.renamed == {name: "raw/20260531-115448-x-0002.txt"}
    assert done.files() == {
        "raw/20260531-115447.txt": b"one",
        name: b"theirs",
        "raw/20260531-115448-x-0002.txt": b"ours",
        "meta/raw/20260531-115448-x-0002.yaml": b"tags: [a]\n",
    }


def test_a_record_of_a_name_given_twice_names_itself_anew(base: Branch) -> None:
    ours = fork(base).commit({"hldp/mem_aaaaaaaa.json": b'{"id": "mem_aaaaaaaa", "hldp": 1}'}, "record")
    oid = hash_object("blob", b'{"id": "mem_aaaaaaaa", "hldp": 1}').hex().encode()
    ours.commit(
        {
            "hldp/mem_aaaaaaaa.json": None,
            "meta/hldp/mem_aaaaaaaa.yaml": b"state: archived\nblob: " + oid + b"\n",
        },
        "archive",
    )
    theirs = fork(base).commit({"hldp/mem_aaaaaaaa.json": b'{"id": "mem_aaaaaaaa", "hldp": 2}'}, "record")
    done, outcome = replayed(base, ours, theirs)
    (new,) = outcome.renamed.values()
    files = done.files()
    sidecar = files[f"meta/{new.removesuffix('.json')}.yaml"]
    first = Commit.parse(done.stage.data(outcome.made[0]))
    blob = trees.find_blob(first.tree, new, done.stage.read)
    assert blob is not None
    assert blob.hex().encode() in sidecar
    stem = new.removeprefix("hldp/").removesuffix(".json")
    assert done.stage.data(blob) == f'{{"id": "{stem}", "hldp": 1}}'.encode()


def test_a_tombstone_counts_for_the_name(base: Branch) -> None:
    side = "meta/raw/20260531-115448.yaml"
    ours = fork(base).commit({"raw/20260531-115448.txt": b"ours"}, "write")
    theirs = fork(base).commit({side: b"state: released\n"}, "release")
    done, outcome = replayed(base, ours, theirs)
    assert done.files() == {"raw/20260531-115447.txt": b"one", side: b"state: released\n"}
    assert outcome.made == []


@pytest.mark.parametrize("theirs_first", [True, False])
def test_a_turn_on_both_sides(base: Branch, theirs_first: bool) -> None:
    turn = b"turn_id: t-1\nrole: user\n"
    mine, its = ("115448", "115449") if not theirs_first else ("115449", "115448")
    ours = fork(base).commit({f"raw/20260531-{mine}.txt": b"a", f"meta/raw/20260531-{mine}.yaml": turn}, "w")
    theirs = fork(base).commit({f"raw/20260531-{its}.txt": b"b", f"meta/raw/20260531-{its}.yaml": turn}, "w")
    done, outcome = replayed(base, ours, theirs)
    files = done.files()
    assert files["meta/raw/20260531-115448.yaml"] == turn
    assert files["meta/raw/20260531-115449.yaml"] == b"role: user\n"
    assert len(outcome.conflicts) == 1
    same = fork(base).commit({f"raw/20260531-{its}.txt": b"a", f"meta/raw/20260531-{its}.yaml": turn}, "w")
    done, outcome = replayed(base, ours, same)
    assert outcome.dropped == {f"raw/20260531-{mine}.txt": f"raw/20260531-{its}.txt"}
    assert done.tip == same.tip


def test_files_that_are_no_leaves(base: Branch) -> None:
    ours = fork(base).commit({"README.md": b"ours", "a\nb": b"x", "dir/文": b"y"}, "files")
    theirs = fork(base).commit({"README.md": b"theirs"}, "files")
    done, outcome = replayed(base, ours, theirs)
    assert done.files()["README.md"] == b"theirs"
    assert done.files()["dir/文"] == b"y"
    assert outcome.conflicts == ["README.md was changed on both sides; theirs is kept."]
    assert leaf_of("raw/x/y.txt") is None
    assert leaf_of("meta/raw/x.yaml") == LeafName("raw", "x.txt")


def test_a_file_name_that_is_no_text(base: Branch) -> None:
    name = b"raw/\xff\xfe.txt".decode("utf-8", "surrogateescape")
    ours = fork(base).commit({name: b"x"}, "odd")
    theirs = fork(base).commit({"raw/20260531-115449.txt": b"three"}, "write three")
    done, _ = replayed(base, ours, theirs)
    assert done.files()[name] == b"x"


def test_a_sidecar_that_is_none_does_not_stop_the_rest(base: Branch) -> None:
    side = "meta/raw/20260531-115447.yaml"
    ours = fork(base).commit({side: b"tags: [a]\n"}, "tag").commit({"raw/20260531-115448.txt": b"two"}, "two")
    theirs = fork(base).commit({side: b"[not a mapping"}, "odd")
    done, outcome = replayed(base, ours, theirs)
    assert done.files()["raw/20260531-115448.txt"] == b"two"
    assert done.files()[side] == b"[not a mapping"
    assert len(outcome.conflicts) == 1
    assert side_of(done.stage, done.tree, LeafName("raw", "20260531-115448.txt")) == Side(
        hash_object("blob", b"two")
    )
