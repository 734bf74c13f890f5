"""The purge function: its laws, over random histories, and golden ids that pin version 1."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gitmem import sidecar as sidecars
from gitmem.store.objects import TREE_MODE, Commit, Oid, Stage, hash_object, history, items, parse_tree
from gitmem.store.purge import MESSAGE, Rewrite, Victims, find_victims
from gitmem.tracepath import LeafName
from tests.histories import LEAVES, History, all_files

SEEDS = st.integers(0, 10**9)
SUBSETS = st.lists(st.sampled_from(LEAVES), min_size=1, max_size=4, unique=True)
BLUR = "昨天……".encode()


def purge(stage: Stage, tip: Oid, victims: Victims) -> Oid:
    """The rewritten tip; new objects are added to the stage."""
    rewrite = Rewrite(stage.read, victims)
    rewrite.run([tip])
    stage.new.update(rewrite.stage.new)
    return rewrite.commits[tip]


def released(*leaves: LeafName) -> Victims:
    return Victims(frozenset(leaves))


@given(SEEDS, SUBSETS, st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_purge_commutes_and_is_idempotent(seed: int, leaves: list[LeafName], order: object) -> None:
    """purge(a) then purge(b) = purge(b) then purge(a) = purge({a, b}) = purge of itself."""
    made = History(seed)
    tip = made.tombstones(leaves)
    once = purge(made.stage, tip, released(*leaves))
    one_by_one = tip
    shuffled = list(leaves)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    for leaf in shuffled:
        one_by_one = purge(made.stage, one_by_one, released(leaf))
    growing = purge(made.stage, purge(made.stage, tip, released(*leaves[:1])), released(*leaves))
    assert once == one_by_one == growing == purge(made.stage, once, released(*leaves))


@given(SEEDS, SUBSETS)
@settings(max_examples=100, deadline=None)
def test_purge_of_released_and_forgotten_leaves_commutes(seed: int, leaves: list[LeafName]) -> None:
    """Forgetting an original and releasing another leaf, or the same one, in any order."""
    made = History(seed)
    tip = made.tombstones(leaves[1:])
    blur = made.stage.put("blob", BLUR)
    forgotten = Victims(forgotten={leaves[0]: blur})
    both = Victims(frozenset(leaves[1:]), {leaves[0]: blur})
    together = purge(made.stage, tip, both)
    first = purge(made.stage, purge(made.stage, tip, forgotten), released(*leaves[1:]))
    last = purge(made.stage, purge(made.stage, tip, released(*leaves[1:])), forgotten)
    assert together == first == last == purge(made.stage, together, both)
    after = purge(made.stage, together, released(leaves[0]))
    assert after == purge(made.stage, tip, released(*leaves))


@given(SEEDS, SUBSETS)
@settings(max_examples=100, deadline=None)
def test_purge_removes_the_leaf_and_nothing_else(seed: int, leaves: list[LeafName]) -> None:
    """No commit holds a victim; every other path at every commit keeps its blob, its date, its parents."""
    made = History(seed)
    tip = made.tombstones(leaves)
    rewrite = Rewrite(made.stage.read, released(*leaves))
    rewrite.run([tip])
    new = rewrite.commits[tip]
    gone = {path for leaf in leaves for path in (leaf.path, leaf.sidecar)}
    before, after = all_files(made.stage, tip), all_files(rewrite.stage, new)
    assert after.keys() == set(rewrite.commits.values())  # twins that differed only in a victim become one
    for oid, files in before.items():
        mine = after[rewrite.commits[oid]]
        assert {p: b for p, b in mine.items() if p not in gone} == {
            p: b for p, b in files.items() if p not in gone
        }
        for path in gone & mine.keys():
            assert sidecars.is_tombstone(rewrite.stage.data(mine[path]))
    for oid, commit in history([tip], made.stage.read):
        twin = Commit.parse(rewrite.stage.data(rewrite.commits[oid]))
        assert (twin.author, twin.committer) == (commit.author, commit.committer)
        assert set(twin.parents) == {rewrite.commits[parent] for parent in commit.parents}


@given(SEEDS, SUBSETS)
@settings(max_examples=60, deadline=None)
def test_purge_keeps_ids_before_the_first_change(seed: int, leaves: list[LeafName]) -> None:
    made = History(seed)
    rewrite = Rewrite(made.stage.read, released(*leaves))
    rewrite.run([made.tip])
    names = {path for leaf in leaves for path in (leaf.path, leaf.sidecar)}
    untouched: set[Oid] = set()
    for oid, commit in history([made.tip], made.stage.read):
        if not names & made.files[oid].keys() and all(parent in untouched for parent in commit.parents):
            untouched.add(oid)
            assert rewrite.commits[oid] == oid


@given(SEEDS, SUBSETS)
@settings(max_examples=60, deadline=None)
def test_purged_messages_name_no_victim(seed: int, leaves: list[LeafName]) -> None:
    """A commit that touched a victim has the fixed message; the others keep theirs."""
    made = History(seed)
    tip = made.tombstones(leaves)
    rewrite = Rewrite(made.stage.read, released(*leaves))
    rewrite.run([tip])
    names = [path for leaf in leaves for path in (leaf.path, leaf.sidecar)]
    for oid, commit in history([tip], made.stage.read):
        held = [made.files[oid].get(name) for name in names]
        before = [[made.files[p].get(name) for name in names] for p in commit.parents] or [
            [None] * len(names)
        ]
        touched = any(held != other for other in before)
        new = Commit.parse(rewrite.stage.data(rewrite.commits[oid]))
        assert new.message == (MESSAGE if touched else commit.message)
        if rewrite.commits[oid] != oid:
            assert not [h for h in new.headers if h.startswith((b"gpgsig", b"mergetag"))]


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_a_forgotten_original_is_in_no_commit(seed: int) -> None:
    made = History(seed)
    leaf = LEAVES[0]
    blur = made.stage.put("blob", BLUR)
    new = purge(made.stage, made.tip, Victims(forgotten={leaf: blur}))
    for files in all_files(made.stage, new).values():
        assert files.get(leaf.path, blur) == blur
        if leaf.sidecar in files:
            assert b"blob:" not in made.stage.data(files[leaf.sidecar])
            assert b"extract" not in made.stage.data(files[leaf.sidecar])


def test_without_victims_nothing_changes() -> None:
    made = History(7)
    assert purge(made.stage, made.tip, Victims()) == made.tip


def test_golden_ids() -> None:
    """The ids that version 1 must give for ever: two homes reach the same history without contact."""
    found = {}
    for seed in (1, 2, 3):
        made = History(seed)
        tip = made.tombstones(LEAVES[:2])
        victims = find_victims(made.stage.read, tip)
        assert set(LEAVES[:2]) <= victims.released
        found[seed] = (tip.hex(), purge(made.stage, tip, victims).hex())
    assert found == GOLDEN


GOLDEN: dict[int, tuple[str, str]] = {
    1: ("e6179d3d1521953b9349411acf44ea12e1f00b5d", "605940194b7f2c42d482b4eff4ee36d74a05e336"),
    2: ("45ac363e856414c7c7887375492e5f48dd07c3db", "a98f3586d183ce87eaafab45ab260f8f07c2f003"),
    3: ("e152bf2e46ab640927fe08f506e9e7b45db9f832", "5b3e875879954fbd60fb7f0fd4ac8929684fb40c"),
}


def test_find_victims_reads_tombstones_and_forgotten_sidecars() -> None:
    stage = Stage(lambda oid: ("tree", b""))
    empty = stage.put("tree", b"")
    blur = hash_object("blob", BLUR)
    files = {
        LEAVES[0].sidecar: b"state: released\nreleased_at: 2026-06-01T00:00:00+08:00\n",
        LEAVES[1].sidecar: b'state: withered\nforgotten: true\nblur: "%s"\n' % blur.hex().encode(),
        LEAVES[2].sidecar: b"state: archived\n",
        LEAVES[3].sidecar: b"# state: released\n",
    }
    tree = stage.edit(empty, {path: stage.put("blob", data) for path, data in files.items()})
    commit = stage.put(
        "commit", Commit(tree, (), (b"author a <a> 0 +0000", b"committer a <a> 0 +0000"), b"x").format()
    )
    victims = find_victims(stage.read, commit)
    assert victims.released == {LEAVES[0]}
    assert victims.forgotten == {LEAVES[1]: blur}


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_items_gives_every_object_once(seed: int) -> None:
    """The walk that deletions rely on misses nothing, though it skips what trees share."""
    made = History(seed)
    met = [item.oid for item in items([made.tip], made.stage.read)]
    assert len(met) == len(set(met))
    wanted = set()
    for oid, commit in history([made.tip], made.stage.read):
        wanted |= {oid} | _below(made.stage, commit.tree)
    assert set(met) == wanted


def _below(stage: Stage, tree: Oid) -> set[Oid]:
    found = {tree}
    for entry in parse_tree(stage.data(tree)):
        found |= _below(stage, entry.oid) if entry.mode == TREE_MODE else {entry.oid}
    return found
