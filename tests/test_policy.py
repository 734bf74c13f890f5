"""The rules of the receive policy, as pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitmem import fade
from gitmem import sidecar as sidecars
from gitmem.errors import RefusedError
from gitmem.policy.commits import EpochCheck, NewCommit, listing
from gitmem.policy.files import File, check_content, check_place, check_twins, leaf_of
from gitmem.policy.leaves import NOTHING, Held, check_leaf
from gitmem.policy.manifests import check_main
from gitmem.policy.objects import commit_fault, tree_fault
from gitmem.policy.refs import Update, check_history, check_update
from gitmem.policy.rules import RULES, Limits, Violation, shown
from gitmem.policy.secrets import find
from gitmem.sidecar import Sidecar
from gitmem.states import State, is_legal
from gitmem.store.objects import EMPTY_TREE, Entry, Oid, Stage, hash_object
from gitmem.tracepath import LeafName

LEAF = LeafName("raw", "20260531-115447.txt")
RECORD = LeafName("hldp", "mem_a1b2c3d4.json")
TEXT = "今天下雨了。猫睡在键盘旁边。晚上想煮一碗面。".encode()
WHEN = "2026-06-01T10:00:00+08:00"


class Blobs(dict[Oid, bytes]):
    """Blobs by id, and back."""

    def put(self, data: bytes) -> Oid:
        oid = hash_object("blob", data)
        self[oid] = data
        return oid


def rules(found: Iterable[Violation]) -> list[str]:
    return sorted(violation.rule for violation in found)


# -- the pages -----------------------------------------------------------------------------------


def test_every_rule_is_documented_and_used() -> None:
    root = Path(__file__).parent.parent
    page = (root / "docs/policy.md").read_text("utf-8")
    assert set(re.findall(r"^### ([a-z]+\.[a-z0-9]+)$", page, re.MULTILINE)) == set(RULES)
    sources = "".join(path.read_text("utf-8") for path in (root / "gitmem").rglob("*.py"))
    for rule in RULES:
        assert sources.count(f'"{rule}"') > 1, f"{rule} is never asked"


def test_a_violation_is_one_printable_line() -> None:
    assert shown("raw/坏\n名\x1b[31m\u202e.txt".encode() + b"\xff").isprintable()


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        (b"raw/20260531-115447.txt", []),
        (b"raw/20260531-115447-rain.txt", []),
        (b"hldp/mem_a1b2c3d4.json", []),
        (b"meta/raw/20260531-115447.yaml", []),
        (b"raw/20260230-115447.txt", ["file.path"]),
        (b"raw/20260531-115447.TXT", ["file.path"]),
        (b"RAW/20260531-115447.txt", ["file.path"]),
        ("raw/日记.txt".encode(), ["file.path"]),
        (b"raw/\xff.txt", ["file.path"]),
        (b"raw/x\n20260531-115447.txt", ["file.path"]),
        (b"raw/20260531-115447.txt\n", ["file.path"]),
        (b"raw/sub/20260531-115447.txt", ["file.path"]),
        (b"meta/20260531-115447.yaml", ["file.path"]),
        (b"meta/raw/20260531-115447.yml", ["file.path"]),
        (b"README.md", ["file.path"]),
        (b".forgejo/workflows/x.yml", ["file.workflow"]),
        (b".GitHub/workflows/x.yml", ["file.workflow"]),
        (b"../raw/20260531-115447.txt", ["file.path"]),
    ],
)
def test_places(path: bytes, rule: list[str]) -> None:
    assert rules(check_place(path, File(b"100644", b"\1" * 20), main=False)) == rule


@pytest.mark.parametrize("mode", [b"120000", b"160000", b"100755", b"100664"])
def test_only_plain_files(mode: bytes) -> None:
    assert rules(check_place(LEAF.path.encode(), File(mode, b"\1" * 20), main=False)) == ["file.mode"]


@given(st.binary(max_size=60))
def test_any_path_has_a_verdict(path: bytes) -> None:
    found = rules(check_place(path, File(b"100644", b"\1" * 20), main=False))
    assert (found == []) is (leaf_of(path) is not None)


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (TEXT, []),
        ("\ufeff带 BOM 的\r\n一行".encode(), []),
        (b"<<<<<<< quoted\n=======\n>>>>>>> x\n", []),
        (b"", ["file.empty"]),
        (b"a\0b", ["file.nul"]),
        (b"\xff\xfe", ["file.utf8"]),
        (b"x" * 101, ["file.size"]),
    ],
)
def test_texts(data: bytes, rule: list[str]) -> None:
    assert rules(check_content(LEAF.path.encode(), data, Limits(max_bytes=100))) == rule


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"tags: [a]\n", []),
        (b"state: [\n", ["sidecar.form"]),
        (b"state: gone\n", ["sidecar.form"]),
        (b"<<<<<<< a\nstate: archived\n=======\n>>>>>>> b\n", ["file.conflict", "sidecar.form"]),
        (b"", []),
    ],
)  # fmt: skip
def test_sidecars(data: bytes, rule: list[str]) -> None:
    assert rules(check_content(LEAF.sidecar.encode(), data, Limits())) == rule


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b'{"id": "mem_a1b2c3d4", "hldp": 1}', []),
        (b'{"id": "mem_other000"}', ["record.form"]),
        (b"{}", ["record.form"]),
        (b"[1]", ["record.form"]),
        (b"not json", ["record.form"]),
        (b"[" * 100_000, ["record.form"]),
    ],
)
def test_records(data: bytes, rule: list[str]) -> None:
    assert rules(check_content(RECORD.path.encode(), data, Limits())) == rule


def test_twins_by_case_and_by_unicode_form() -> None:
    nfc, nfd = "é.md".encode(), "e\u0301.md".encode()
    assert rules(check_twins([nfd], [nfc, nfd])) == ["file.twin"]
    assert rules(check_twins([b"Home.md"], [b"home.md", b"Home.md"])) == ["file.twin"]
    assert rules(check_twins([b"A/x.md"], [b"a/y.md", b"A/x.md"])) == ["file.twin"]
    assert rules(check_twins([b"b.md"], [b"a.md", b"b.md"])) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("the build needs no API key, and sk-learn is a library", 0),
        ("密码是什么？ghp_ 开头的那种", 0),
        ("ghp_" + "a1B2" * 9, 1),
        ("first\nAKIAABCDEFGHIJKLMNOP here", 1),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nabc", 1),
        ("glpat-" + "x" * 20 + " and sk-ant-" + "y" * 40, 2),
    ],
)
def test_credentials_by_shape(text: str, count: int) -> None:
    assert len(find(text.encode())) == count


def test_credentials_warn_refuse_or_pass() -> None:
    data = b"ghp_" + b"a1B2" * 9
    path = LEAF.path.encode()
    assert [v.warning for v in check_content(path, data, Limits(secrets="warn"))] == [True]
    assert [v.warning for v in check_content(path, data, Limits(secrets="refuse"))] == [False]
    assert [*check_content(path, data, Limits(secrets="off"))] == []


# -- leaves --------------------------------------------------------------------------------------


def sidecar_of(state: State, text: Oid, blur: Oid) -> Sidecar:
    blob = None if state in (State.ACTIVE, State.RELEASED) else text.hex()
    when = WHEN if state is State.RELEASED else None
    del blur
    return Sidecar(state=state, blob=blob, released_at=when, tags=() if when else ("雨",))


def held(blobs: Blobs, state: State | None, leaf: LeafName = LEAF) -> Held:
    """A leaf of TEXT in that state, as the library would leave it."""
    del leaf
    if state is None:
        return NOTHING
    text, blur = blobs.put(TEXT), blobs.put(fade.blur(TEXT.decode(), 0.4).encode())
    data = sidecars.dump(sidecar_of(state, text, blur))
    shown_text = {State.ACTIVE: text, State.WITHERED: blur}.get(state)
    return Held(shown_text, blobs.put(data) if data else None)


def never(leaf: LeafName) -> None:
    """No name stands in a tombstone."""


def check(blobs: Blobs, before: Held, after: Held, *, joined: bool = False, **limits: bool) -> list[str]:
    read, bounds = blobs.__getitem__, Limits(**limits)
    return rules(check_leaf(LEAF, before, after, read, limits=bounds, released=never, joined=joined))


STATES = [None, *State]


@pytest.mark.parametrize("old", STATES)
@pytest.mark.parametrize("new", STATES)
def test_moves_are_those_of_the_table(old: State | None, new: State | None) -> None:
    blobs = Blobs()
    found = check(blobs, held(blobs, old), held(blobs, new))
    if old is None:
        legal = new in (None, State.ACTIVE, State.RELEASED)
    else:
        legal = old is new or (new is not None and is_legal(old, new))
    assert (found == []) is legal, found


@pytest.mark.parametrize("new", [State.ARCHIVED, State.WITHERED])
def test_a_merge_may_bring_what_its_other_parent_has(new: State) -> None:
    blobs = Blobs()
    assert check(blobs, NOTHING, held(blobs, new)) == ["leaf.move"]
    assert check(blobs, NOTHING, held(blobs, new), joined=True) == []
    assert check(blobs, held(blobs, State.RELEASED), held(blobs, new), joined=True) == ["leaf.released"]


def test_bytes_never_change() -> None:
    blobs = Blobs()
    other = Held(blobs.put(TEXT + b"!"))
    assert check(blobs, Held(blobs.put(TEXT)), other) == ["leaf.changed"]
    archived = held(blobs, State.ARCHIVED)
    assert check(blobs, archived, other) == ["leaf.changed"]
    named = Held(None, blobs.put(b"state: archived\nblob: " + b"a1" * 20 + b"\n"))
    assert check(blobs, Held(blobs.put(TEXT)), named) == ["leaf.blob"]
    assert check(blobs, Held(blobs.put(TEXT)), Held(None, blobs.put(b"state: archived\n"))) == ["leaf.blob"]


def test_a_blur_makes_nothing_up() -> None:
    blobs = Blobs()
    text = blobs.put(TEXT)
    side = blobs.put(sidecars.dump(Sidecar(state=State.WITHERED, blob=text.hex())) or b"")
    for blur, verdict in [
        ("今天下雨了。……", []),
        ("今天出太阳了。……", ["leaf.blur"]),
        (TEXT.decode(), ["leaf.blur"]),
        ("晚上想煮一碗面。……今天下雨了。", ["leaf.blur"]),
    ]:
        assert check(blobs, Held(text), Held(blobs.put(blur.encode()), side)) == verdict, blur


@given(st.text(min_size=1, max_size=80), st.floats(0, 1))
def test_every_blur_of_the_library_is_one(text: str, keep: float) -> None:
    try:
        blurred = fade.blur(text, keep)
    except RefusedError:
        return
    assert fade.is_blur(text, blurred)


def test_a_forgotten_original_stays_forgotten() -> None:
    blobs = Blobs()
    withered = held(blobs, State.WITHERED)
    assert withered.text is not None
    said = Sidecar(state=State.WITHERED, forgotten=True, blur=withered.text.hex())
    forgotten = Held(withered.text, blobs.put(sidecars.dump(said) or b""))
    assert check(blobs, withered, forgotten) == []
    assert check(blobs, withered, forgotten, may_release=False) == ["release.role"]
    assert check(blobs, forgotten, withered) == ["leaf.forgotten"]
    assert check(blobs, forgotten, Held(blobs.put(TEXT))) == ["leaf.forgotten"]
    assert check(blobs, forgotten, held(blobs, State.RELEASED)) == []


def test_tombstones_are_canonical_and_stay() -> None:
    blobs = Blobs()
    said = Sidecar(turn_id="t-1", role="user")
    before = Held(blobs.put(TEXT), blobs.put(sidecars.dump(said) or b""))
    good = Held(None, blobs.put(sidecars.tombstone(said, WHEN)))
    assert check(blobs, before, good) == []
    assert check(blobs, before, good, may_release=False) == ["release.role"]
    bare = Held(None, blobs.put(sidecars.tombstone(Sidecar(), WHEN)))
    assert check(blobs, before, bare) == ["tombstone.form"]
    for data in (
        b"state: released\n",
        b"state: released\nreleased_at: " + WHEN.encode() + b"\nsummary: text\n",
    ):
        assert check(blobs, Held(blobs.put(TEXT)), Held(None, blobs.put(data))) == ["tombstone.form"]
    assert check(blobs, good, bare) == ["leaf.released"]
    assert check(blobs, good, NOTHING) == ["leaf.released"]
    assert check(blobs, good, Held(blobs.put(TEXT), good.sidecar)) == ["leaf.released"]


def test_a_released_name_never_returns() -> None:
    blobs = Blobs()
    new = Held(blobs.put(TEXT))
    known = {LEAF: "D7"}
    found = check_leaf(LEAF, NOTHING, new, blobs.__getitem__, limits=Limits(), released=known.get)
    assert [violation.rule for violation in found] == ["leaf.released"]


# -- chains of commits ---------------------------------------------------------------------------


class History:
    """Commits over a stage, as git log tells of them."""

    def __init__(self) -> None:
        self.stage = Stage(
            lambda oid: ("tree", b"") if oid == EMPTY_TREE else (_ for _ in ()).throw(KeyError(oid))
        )
        self.trees: dict[Oid, Oid] = {}

    def commit(self, files: dict[str, bytes | None], *parents: Oid) -> NewCommit:
        base = self.trees[parents[0]] if parents else EMPTY_TREE
        changes = {
            path: None if data is None else self.stage.put("blob", data) for path, data in files.items()
        }
        tree = self.stage.edit(base, changes)
        lines = [b"tree " + tree.hex().encode(), *(b"parent " + parent.hex().encode() for parent in parents)]
        oid = self.stage.put("commit", b"\n".join(lines) + b"\n\n" + str(len(self.trees)).encode())
        self.trees[oid] = tree
        raw = {path.encode(): oid and File(b"100644", oid) for path, oid in changes.items()}
        return NewCommit(oid, tree, parents, {} if len(parents) > 1 else raw)

    def check(self, *commits: NewCommit) -> list[str]:
        checked = EpochCheck(self.stage.read, Limits(), never)
        return rules(checked.run(commits, commits[-1].tree))


def test_a_commit_in_the_middle_is_checked() -> None:
    past = History()
    root = past.commit({})
    bad = past.commit({"raw/x.txt": b"x"}, root.oid)
    good = past.commit({"raw/x.txt": None}, bad.oid)
    assert past.check(root, bad, good) == ["file.path"]


def test_merges_are_checked_against_every_parent() -> None:
    past = History()
    root = past.commit({})
    first = past.commit({LEAF.path: TEXT}, root.oid)
    other = past.commit({"raw/20260601-000000.txt": b"other"}, root.oid)
    merge = past.commit({"raw/20260601-000000.txt": b"other"}, first.oid, other.oid)
    assert past.check(root, first, other, merge) == []
    ours = past.commit({}, first.oid, other.oid)
    assert past.check(root, first, other, ours) == ["leaf.vanished"]


def test_a_turn_stands_once() -> None:
    past = History()
    turn = b'turn_id: "t-1"\nrole: user\n'
    root = past.commit({LEAF.path: TEXT, LEAF.sidecar: turn})
    second = LeafName("raw", "20260601-000000.txt")
    again = past.commit({second.path: b"again", second.sidecar: turn}, root.oid)
    assert past.check(root) == []
    assert past.check(root, again) == ["leaf.turn"]
    assert past.check(again) == ["leaf.turn"]


def test_listing_is_what_was_committed() -> None:
    past = History()
    root = past.commit({LEAF.path: TEXT, LEAF.sidecar: b"tags: [a]\n", RECORD.path: b"{}"})
    assert set(listing(root.tree, past.stage.read)) == {
        name.encode() for name in (LEAF.path, LEAF.sidecar, RECORD.path)
    }


# -- main ----------------------------------------------------------------------------------------

MANIFEST = b"format: 1\npurge: 1\nroot: YM001\npersona: ZY001\ntimezone: Asia/Shanghai\n"


@pytest.mark.parametrize(
    ("after", "persona", "operator"),
    [
        (MANIFEST + b"epoch: D5\n", [], []),
        (MANIFEST + b'human: "\xe5\x86\xb0\xe6\x9c\x94"\n', ["manifest.role"], []),
        (MANIFEST.replace(b"Asia/Shanghai", b"UTC"), ["manifest.fixed"], ["manifest.fixed"]),
        (MANIFEST.replace(b"ZY001", b"ZY002"), ["manifest.fixed"], ["manifest.fixed"]),
        (b"- a list\n", ["manifest.form"], ["manifest.form"]),
        (None, ["manifest.form"], ["manifest.form"]),
    ],
)
def test_the_manifest(after: bytes | None, persona: list[str], operator: list[str]) -> None:
    past = History()
    root = past.commit({"gitmem.yaml": MANIFEST, "README.md": b"# x\n"})
    change = past.commit({"gitmem.yaml": after}, root.oid)
    for is_operator, expected in ((False, persona), (True, operator)):
        assert rules(check_main([change], past.stage.read, Limits(), operator=is_operator)) == expected
    assert rules(check_main([root], past.stage.read, Limits(), operator=False)) == []


# -- refs and history ----------------------------------------------------------------------------

A, B, C = (bytes([n]) * 20 for n in (1, 2, 3))


@pytest.mark.parametrize(
    ("update", "rule"),
    [
        (Update("refs/heads/D2", None, A), []),
        (Update("refs/heads/d1", None, A), ["ref.twin"]),
        (Update("refs/heads/D1", A, B), []),
        (Update("refs/heads/D1", C, B), ["history.stale"]),
        (Update("refs/heads/D1", A, None), ["ref.delete"]),
        (Update("refs/heads/HEAD", None, A), ["ref.name"]),
        (Update("refs/heads/a b", None, A), ["ref.name"]),
        (Update("refs/heads/日", None, A), ["ref.name"]),
        (Update("refs/heads/fork/page", None, A), ["ref.name"]),
        (Update("refs/for/D1", None, A), ["ref.name"]),
        (Update("refs/notes/commits", None, A), ["ref.name"]),
        (Update("refs/tags/v1", None, A), []),
    ],
)
def test_updates(update: Update, rule: list[str]) -> None:
    refs = {"refs/heads/D1": A, "refs/heads/main": C}
    assert rules(check_update(update, refs, [update.ref], wiki=False)) == rule


def test_the_shape_of_history() -> None:
    root, child, merge = NewCommit(A, A, (), {}), NewCommit(B, B, (A,), {}), NewCommit(C, C, (A, B), {})

    def shape(old: Oid | None, *commits: NewCommit, below: set[Oid], purged: set[Oid]) -> list[str]:
        update = Update("refs/heads/D1", old, commits[-1].oid if commits else A)
        return rules(check_history(update, commits, below_old=below, shared=(), purged=purged))

    assert shape(None, root, child, below=set(), purged=set()) == []
    assert shape(A, child, below={A}, purged=set()) == []
    assert shape(A, child, below=set(), purged=set()) == ["history.shared"]
    assert shape(None, below=set(), purged=set()) == ["history.shared"]
    assert shape(None, child, below=set(), purged=set()) == ["history.shared"]
    assert shape(B, root, merge, below={B}, purged=set()) == ["history.root"]
    assert shape(A, child, below={A}, purged={B}) == ["history.purged"]


# -- git's own objects ---------------------------------------------------------------------------


def tree(*entries: tuple[bytes, bytes]) -> bytes:
    return b"".join(mode + b" " + name + b"\0" + A for mode, name in entries)


@pytest.mark.parametrize(
    "data",
    [
        tree((b"100644", b"a"), (b"100644", b"a")),
        tree((b"100644", b"a"), (b"40000", b"a")),
        tree((b"100644", b"b"), (b"100644", b"a")),
        tree((b"40000", b"raw"), (b"40000", b"meta")),
        tree((b"040000", b"meta")),
        tree((b"100664", b"a")),
        b"100644 a\0short",
    ],
)
def test_malformed_trees(data: bytes) -> None:
    assert tree_fault(data)


def test_a_tree_that_grew_is_looked_at_where_it_grew() -> None:
    first, last = tree((b"100644", b"a"), (b"100644", b"b")), Entry(b"100644", b"b", A)
    assert tree_fault(first + tree((b"100644", b"c")), first, last) == ""
    assert tree_fault(first, first, last) == ""
    assert tree_fault(first + tree((b"100644", b"b")), first, last)
    assert tree_fault(first + tree((b"40000", b"a")), first, last)
    assert tree_fault(first + tree((b"40000", b"b")), first, last)
    assert tree_fault(first + tree((b"100664", b"c")), first, last)
    assert tree_fault(tree((b"100644", b"b"), (b"100644", b"a")), first, last)


def test_well_formed_trees() -> None:
    assert tree_fault(tree((b"100644", b"a.txt"), (b"40000", b"a"), (b"100755", b"b"))) == ""
    assert tree_fault(b"") == ""


WHO = b"author A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000"


@pytest.mark.parametrize(
    ("head", "message", "fine"),
    [
        (WHO, b"x\n", True),
        (WHO + b"\nencoding GBK\ngpgsig -----\n folded\n -----", b"x\n", True),
        (WHO, b"a\0b", False),
        (WHO + b"\nnote secret", b"x\n", False),
        (b"author A <a@b> 1 +0000", b"x\n", False),
        (WHO + b"\nauthor B <a@b> 1 +0000", b"x\n", False),
    ],
)
def test_commits_have_their_form(head: bytes, message: bytes, fine: bool) -> None:
    assert (commit_fault(b"tree " + b"1" * 40 + b"\n" + head + b"\n\n" + message) == "") is fine


def test_a_leaf_may_come_with_its_original_forgotten() -> None:
    """The history that a purge leaves: the blur from the start, and sidecars without an original."""
    past = History()
    blur = "今天下雨了。……".encode()
    named = hash_object("blob", blur).hex()
    root = past.commit({})
    first = past.commit({LEAF.path: blur}, root.oid)
    withered = past.commit({LEAF.sidecar: b"state: withered\n"}, first.oid)
    last = Sidecar(state=State.WITHERED, forgotten=True, blur=named)
    forgotten = past.commit({LEAF.sidecar: sidecars.dump(last)}, withered.oid)
    assert past.check(root, first, withered, forgotten) == []
    assert "leaf.blob" in past.check(root, first, withered)
    wrong = past.commit({LEAF.path: blur + b"!"}, forgotten.oid)
    assert "leaf.blob" in past.check(root, first, withered, forgotten, wrong)
