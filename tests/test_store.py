"""The store: refs by compare-and-swap, packs, maintenance, doctor."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitmem import ConflictError, Home, Memory, UnavailableError
from gitmem.bulk import Bulk
from gitmem.doctor import check_home, check_memory, prove_loop
from gitmem.importers.entries import Entry as Said
from gitmem.importers.entries import take
from gitmem.importers.report import ImportReport
from gitmem.maintain import maintain
from gitmem.receive.install import uninstall
from gitmem.store import epochpack, loose, verify
from gitmem.store.objects import Entry, Oid, Person, Stage, format_tree, hash_object, parse_tree, reachable
from gitmem.store.pack import PackWriter, delta, pack_ids, pack_paths
from gitmem.store.refs import Refs, StaleRefError
from gitmem.store.repository import Repository
from tests.conftest import FakeClock

OIDS = st.binary(min_size=20, max_size=20)
NAMES = st.from_regex(rb"[a-z0-9][a-z0-9.-]{0,20}", fullmatch=True)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.create(str(tmp_path / "r.git"))


def fsck(repository: Repository) -> None:
    subprocess.run(
        ["git", "-C", repository.folder, "fsck", "--full", "--strict"], check=True, capture_output=True
    )


@given(st.dictionaries(NAMES, st.tuples(st.sampled_from([b"100644", b"40000"]), OIDS), max_size=12))
def test_trees_round_trip(entries: dict[bytes, tuple[bytes, bytes]]) -> None:
    data = format_tree(Entry(mode, name, oid) for name, (mode, oid) in entries.items())
    assert {e.name: (e.mode, e.oid) for e in parse_tree(data)} == entries


@given(
    st.dictionaries(NAMES, st.binary(max_size=8), max_size=8),
    st.dictionaries(NAMES, st.none() | st.binary(max_size=8), max_size=8),
)
def test_edit_sets_and_removes_files(before: dict[bytes, bytes], changes: dict[bytes, bytes | None]) -> None:
    stage = Stage(lambda oid: ("tree", b""))
    tree = stage.put("tree", b"")
    for files in (before, changes):
        edits = {f"d/{k.decode()}": None if v is None else stage.put("blob", v) for k, v in files.items()}
        tree = stage.edit(tree, edits)
    expected = {k: v for k, v in {**before, **changes}.items() if v is not None}
    entries = parse_tree(stage.data(tree))
    found = {e.name: stage.data(e.oid) for e in parse_tree(stage.data(entries[0].oid))} if entries else {}
    assert found == expected


@given(st.binary(max_size=300), st.binary(max_size=40), st.integers(0, 300), st.integers(0, 60))
def test_a_delta_gives_the_new_bytes(old: bytes, middle: bytes, at: int, cut: int) -> None:
    new = old[:at] + middle + old[at + cut :]
    assert _apply(old, delta(old, new)) == new


def _apply(old: bytes, change: bytes) -> bytes:
    """Git's delta format, read independently of the writer."""
    at = 0
    for _ in range(2):
        while change[at] & 0x80:
            at += 1
        at += 1
    out = b""
    while at < len(change):
        command = change[at]
        at += 1
        if not command & 0x80:
            out += change[at : at + command]
            at += command
            continue
        start = size = 0
        for i in range(7):
            if command & (1 << i):
                if i < 4:
                    start |= change[at] << (8 * i)
                else:
                    size |= change[at] << (8 * (i - 4))
                at += 1
        out += old[start : start + (size or 0x10000)]
    return out


def test_a_pack_of_deltas_reads_back_with_git_and_dulwich(repository: Repository) -> None:
    pick = random.Random(3)
    writer = PackWriter(f"{repository.objects}/pack")
    tree, base = b"", None
    ids: set[Oid] = set()
    for number in range(300):
        blob = writer.add("blob", pick.randbytes(pick.choice([1, 40, 3000])))
        tree += b"100644 %06d\0" % number + blob
        oid = writer.add("tree", tree, base=base)
        base = (oid, tree)
        ids |= {blob, oid}
    path = writer.finish(lambda name: None)
    assert pack_ids(path) == ids
    assert verify.check_pack(path) == len(ids)
    subprocess.run(["git", "verify-pack", path + ".idx"], check=True)
    assert repository.read(base[0] if base else b"") == ("tree", tree)


def test_an_unfinished_pack_is_not_seen(repository: Repository) -> None:
    writer = PackWriter(f"{repository.objects}/pack")
    writer.add("blob", b"half")
    assert pack_paths(f"{repository.objects}/pack") == []
    writer.abandon()
    assert os.listdir(f"{repository.objects}/pack") == []


def test_a_ref_moves_only_from_what_it_was(repository: Repository) -> None:
    one, two = (hash_object("blob", bytes([n])) for n in (1, 2))
    refs = repository.refs
    refs.update("refs/heads/D1", one, None)
    with pytest.raises(StaleRefError):
        refs.update("refs/heads/D1", two, None)
    with pytest.raises(StaleRefError):
        refs.update("refs/heads/D1", one, two)
    assert refs.head("D1") == one
    assert not [n for n in os.listdir(repository.folder) if n.startswith("gitmem.ref-")]
    refs.update("refs/heads/D1", two, one)
    assert refs.heads() == {"D1": two}


def test_refs_are_read_loose_and_packed(memory: Memory) -> None:
    memory.write("一。", epoch="D1")
    memory.write("二。", epoch="D2")
    before = memory.repository.refs.all()
    subprocess.run(["git", "-C", memory.repository.folder, "pack-refs", "--all"], check=True)
    assert memory.repository.refs.all() == before
    memory.write("三。", epoch="D1")
    after = memory.repository.refs.heads()
    assert after["D1"] != before["refs/heads/D1"]
    assert after["D2"] == before["refs/heads/D2"]


def test_a_lock_that_git_holds_is_waited_for_and_never_removed(
    tmp_path: Path, repository: Repository
) -> None:
    refs = Refs(repository.folder, 0.2)
    lock = Path(repository.folder) / "refs/heads/D1.lock"
    lock.touch()
    with pytest.raises(UnavailableError, match=r"D1\.lock"):
        refs.update("refs/heads/D1", hash_object("blob", b""), None)
    assert lock.exists()


def test_a_lock_left_by_a_killed_writer_is_removed_by_the_next(memory: Memory) -> None:
    memory.write("一。", epoch="D1")
    folder = Path(memory.repository.folder)
    (folder / "gitmem.ref-1-dead").write_text("0" * 40 + "\n")
    os.link(folder / "gitmem.ref-1-dead", folder / "refs/heads/D1.lock")
    memory.write("二。", epoch="D1")
    assert not (folder / "refs/heads/D1.lock").exists()
    assert not (folder / "gitmem.ref-1-dead").exists()


def fill(memory: Memory, clock: FakeClock, epochs: int, leaves: int) -> None:
    for n in range(epochs):
        for m in range(leaves):
            clock.tick()
            memory.write(f"第{n}纪元第{m}句。", epoch=f"D{n}", tags=["t"] if m % 2 else [])


def test_a_gc_may_take_a_new_object_and_its_folder_away(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `git prune-packed` does: the object is in a pack by then, and its folder goes when empty."""
    rename = os.rename

    def rename_then_prune(draft: str, path: str) -> None:
        rename(draft, path)
        os.unlink(path)
        os.rmdir(os.path.dirname(path))

    monkeypatch.setattr(os, "rename", rename_then_prune)
    loose.write(repository.objects, {hash_object("blob", b"packed"): ("blob", b"packed")})
    assert not any(len(name) == 2 for name in os.listdir(repository.objects))


def test_maintain_packs_closed_epochs_once(memory: Memory, clock: FakeClock) -> None:
    fill(memory, clock, 4, 5)
    before = memory.repository.refs.all()
    texts = {e.trace_path: memory.trace(e.trace_path).content for e in memory.timeline(limit=100).entries}
    done = maintain(memory)
    assert (done.epochs, done.packs) == (3, 1)
    assert (maintain(memory).epochs, maintain(memory).packs) == (0, 0)
    assert memory.repository.refs.all() == before
    assert {path: memory.trace(path).content for path in texts} == texts
    fsck(memory.repository)
    [base] = pack_paths(f"{memory.repository.objects}/pack")
    tips = epochpack.read_keep(base)
    assert set(tips) == {"D0", "D1", "D2"}
    assert pack_ids(base) == reachable(tips.values(), memory.repository.read)
    subprocess.run(["git", "-C", memory.repository.folder, "gc", "-q", "--prune=now"], check=True)
    assert base in pack_paths(f"{memory.repository.objects}/pack")


def test_maintain_again_after_an_old_epoch_grew(memory: Memory, clock: FakeClock) -> None:
    fill(memory, clock, 3, 3)
    maintain(memory)
    path = memory.write("后来补的一句。", epoch="D0").trace_path
    done = maintain(memory)
    assert done.epochs == 1
    assert memory.trace(path).found
    memory.release(path)
    fsck(memory.repository)


def test_maintain_sweeps_what_a_killed_write_left(memory: Memory) -> None:
    memory.write("一。", epoch="D1")
    stray = memory.repository._fresh().odb.write(3, "没写成的话。".encode()).raw
    path = Path(memory.repository.folder) / "gitmem.strays"
    kept = memory.repository.refs.head("D1")
    assert kept is not None
    path.write_text(f"{stray.hex()}\n{kept.hex()}\n")
    assert maintain(memory).swept == 1
    assert stray not in memory.repository
    assert not path.exists()
    fsck(memory.repository)


def test_bulk_gives_the_history_that_single_writes_give(home: Home, memory: Memory) -> None:
    """The fast path differs from the slow one in nothing but speed."""
    other = home.add_persona("YM001/SY001", timezone="Asia/Shanghai")
    now = memory.now()
    texts = [f"第{n}句。" for n in range(30)]
    said = [Said(str(n), text.encode(), now, turn_id=f"t-{n}", role="user") for n, text in enumerate(texts)]
    take(other, said, "D1", ImportReport())
    for n, text in enumerate(texts):
        memory.write(text, epoch="D1", turn_id=f"t-{n}", role="user")
    trees = [m.repository.commit_at(m.repository.refs.head("D1") or b"").tree for m in (memory, other)]
    assert trees[0] == trees[1]
    fsck(other.repository)


def test_bulk_on_a_moved_branch_changes_nothing(memory: Memory) -> None:
    memory.write("一。", epoch="D1")
    with memory.repository.locked():
        bulk = Bulk(memory.repository, memory.root_commit)
        who = Person("a", "a@a", memory.now())
        bulk.commit("D1", {"raw/20260531-000000.txt": b"x"}, "write", who, who)
        root = subprocess.run(
            ["git", "-C", memory.repository.folder, "rev-parse", "D1~1"], capture_output=True, check=True
        ).stdout.decode()
        subprocess.run(
            ["git", "-C", memory.repository.folder, "update-ref", "refs/heads/D1", root.strip()], check=True
        )
        with pytest.raises(ConflictError, match="faster"):
            bulk.finish()
    assert maintain(memory).swept > 0
    assert memory.repository.refs.head("D1") is not None
    assert [e.trace_path for e in memory.timeline().entries] == []
    fsck(memory.repository)


def test_doctor_is_content_with_a_healthy_home(home: Home, memory: Memory, clock: FakeClock) -> None:
    fill(memory, clock, 2, 4)
    paths = [entry.trace_path for entry in memory.timeline().entries]
    memory.archive(paths[0])
    memory.release(paths[1])
    memory.wither(paths[2])
    assert check_home(home) == []
    assert all(ok for _, ok in prove_loop(home))
    assert [str(p) for p in home.personas()] == ["YM001/ZY001"]
    assert check_home(home) == []


def test_doctor_finds_a_missing_object(memory: Memory) -> None:
    leaf = memory.write("会丢的话。", epoch="D1")
    assert leaf.blob is not None
    os.unlink(f"{memory.repository.objects}/{leaf.blob[:2]}/{leaf.blob[2:]}")
    memory.repository.close()
    assert any(leaf.blob in finding.what for finding in check_memory(memory))


def test_doctor_finds_released_text_in_a_history_and_purges_it(memory: Memory, tmp_path: Path) -> None:
    """A tombstone pushed where no hook is: the text is still there until somebody purges."""
    uninstall(memory.repository.folder)
    path = memory.write("该忘记的话。", epoch="D1").trace_path
    clone = tmp_path / "clone"
    run = ["git", "-C", str(clone)]
    subprocess.run(["git", "clone", "-q", "-b", "D1", memory.repository.folder, str(clone)], check=True)
    os.unlink(clone / path.leaf.path)
    (clone / "meta/raw").mkdir(parents=True)
    (clone / path.leaf.sidecar).write_text("state: released\nreleased_at: 2026-06-01T00:00:00+08:00\n")
    subprocess.run([*run, "add", "-A"], check=True)
    subprocess.run([*run, "commit", "-qm", "release by hand"], check=True)
    subprocess.run([*run, "push", "-q"], check=True)
    assert [f.check for f in check_memory(memory) if f.check != "hooks"] == ["tombstone"]
    assert all(finding.fixed for finding in check_memory(memory, fix=True))
    assert check_memory(memory) == []
    assert hash_object("blob", "该忘记的话。".encode()) not in memory.repository


def test_doctor_finds_sidecars_that_do_not_fit(memory: Memory) -> None:
    memory.write("在的。", epoch="D1")
    repository = memory.repository
    who = memory.gitmem_person(memory.now())
    files = {
        "meta/raw/20260101-000000.yaml": b"state: archived\nblob: %s\n" % (b"'" + b"1" * 40 + b"'"),
        "meta/raw/20260102-000000.yaml": b"state: nonsense\n",
        "meta/raw/20260103-000000.yaml": b"tags: [a]\n",
    }
    repository.commit("D1", files, "by hand\n", base=repository.refs.head("D1"), author=who, committer=who)
    found = {finding.where.rsplit("/", 1)[1]: finding.what for finding in check_memory(memory)}
    assert "not in the history" in found["20260101-000000.txt"]
    assert "nonsense" in found["20260102-000000.txt"]
    assert "not there" in found["20260103-000000.txt"]
