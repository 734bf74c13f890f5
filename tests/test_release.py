"""Release: after it no byte of the leaf is anywhere in the home, whatever state git was in."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gitmem import Home, Memory, NotFoundError, Reach, RefusedError
from gitmem.export import export
from gitmem.importers.stored import init_from
from gitmem.maintain import maintain
from gitmem.store import erase, pack
from gitmem.store.objects import hash_object
from gitmem.store.repository import Repository
from tests.traces import found_in, runs_of

SECRET = "这句话只说过一次：蓝色的钥匙在第七块砖下面。别告诉任何人，也别写下来。"
TWIN = "这一句没有人要求忘记：红色的伞还在门后面挂着。下雨的时候记得带上它呀。"
EPOCH = "D118"


def git(repository: str | Path, *arguments: str, data: bytes = b"") -> str:
    command = ["git", "--git-dir", str(repository), *arguments]
    done = subprocess.run(command, input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def folder(memory: Memory) -> Path:
    return Path(memory.repository.folder)


def filled(memory: Memory) -> tuple[str, str]:
    """Some leaves, among them the secret and its never-released twin; their paths."""
    memory.write("前面的话。", epoch=EPOCH)
    secret = memory.write(SECRET, epoch=EPOCH, summary=SECRET[:20], tags=["钥匙"]).trace_path
    memory.write("中间的话。", epoch=EPOCH)
    twin = memory.write(TWIN, epoch=EPOCH, summary=TWIN[:20]).trace_path
    memory.write("别的纪元。", epoch="D119")
    return secret, twin


def assert_gone(home: Home, memory: Memory, path: str, text: str = SECRET) -> None:
    """The leaf is gone from every byte of the home, and the repository is sound."""
    answer = memory.trace(path)
    assert (answer.found, answer.content, answer.ts) == (False, None, None)
    assert answer.status == answer.reason == "released"
    assert found_in(home.path, runs_of(text, elsewhere=TWIN.encode())) == []
    git(folder(memory), "fsck", "--full", "--strict")


def assert_there(home: Home, memory: Memory, path: str, text: str = TWIN) -> None:
    """The same search finds a leaf that was not released: it cannot pass emptily."""
    assert memory.trace(path).content == text
    assert found_in(home.path, runs_of(text, elsewhere=SECRET.encode()))


def archived(memory: Memory, path: str) -> None:
    memory.archive(path)


def withered(memory: Memory, path: str) -> None:
    memory.wither(path)


def withered_then_archived(memory: Memory, path: str) -> None:
    memory.wither(path)
    memory.archive(path)


def restored(memory: Memory, path: str) -> None:
    memory.archive(path)
    memory.remember(path, restore=True)


def forgotten(memory: Memory, path: str) -> None:
    memory.wither(path, forget_original=True)


BEFORE = [archived, withered, withered_then_archived, restored, forgotten]


def test_release_of_an_active_leaf(home: Home, memory: Memory) -> None:
    secret, twin = filled(memory)
    assert found_in(home.path, runs_of(SECRET))
    report = memory.release(secret)
    assert report.complete
    assert report.objects > 0
    assert [(r.trace_path, r.status) for r in report.results] == [(secret, "released")]
    assert report.results[0].commit == git(folder(memory), "rev-parse", EPOCH)
    assert_gone(home, memory, secret)
    assert_there(home, memory, twin)


@pytest.mark.parametrize("change", BEFORE, ids=lambda change: change.__name__)
def test_release_after_other_states(
    home: Home, memory: Memory, change: Callable[[Memory, str], None]
) -> None:
    secret, twin = filled(memory)
    change(memory, secret)
    change(memory, twin)
    memory.release(secret)
    assert_gone(home, memory, secret)
    assert found_in(home.path, runs_of(TWIN, elsewhere=SECRET.encode()))


def test_release_leaves_other_epochs_personas_and_paths_alone(home: Home, memory: Memory) -> None:
    other = home.add_persona("YM001/SY001")
    other.write("另一个人的话。", epoch=EPOCH)
    secret, _ = filled(memory)
    refs = git(folder(memory), "rev-parse", "main", "D119")
    others = git(folder(other), "show-ref")
    before = _tree_without(memory, secret)
    memory.release(secret)
    assert git(folder(memory), "rev-parse", "main", "D119") == refs
    assert git(folder(other), "show-ref") == others
    assert _tree_without(memory, secret) == before


def _tree_without(memory: Memory, path: str) -> list[str]:
    stem = path.rsplit("/", 1)[1].removesuffix(".txt")
    return [
        line for line in git(folder(memory), "ls-tree", "-r", EPOCH).splitlines() if stem + "." not in line
    ]


def loose(repository: Path) -> None:
    """As written: every object in a file of its own."""
    del repository


def one_pack(repository: Path) -> None:
    git(repository, "gc", "--prune=now", "--quiet")


def cruft(repository: Path) -> None:
    """Unreachable leavings in the store: an amended commit and its text."""
    blob = git(repository, "hash-object", "-w", "--stdin", data=(SECRET + "第二稿").encode())
    inner = git(repository, "mktree", data=f"100644 blob {blob}\t20260531-115447-0002.txt\n".encode())
    tree = git(repository, "mktree", data=f"040000 tree {inner}\traw\n".encode())
    git(repository, "commit-tree", "-m", "amended away", tree)


def many_packs(repository: Path) -> None:
    git(repository, "repack", "-d", "-q")
    git(repository, "update-ref", "refs/heads/keepsake", "D119")
    git(repository, "repack", "-a", "-d", "-q", "--write-bitmap-index")
    git(repository, "update-ref", "-d", "refs/heads/keepsake")


def caches(repository: Path) -> None:
    git(repository, "repack", "-a", "-d", "-q")
    git(repository, "commit-graph", "write", "--reachable", "--changed-paths")
    git(repository, "multi-pack-index", "write", "--bitmap")
    git(repository, "update-server-info")


def split_commit_graph(repository: Path) -> None:
    git(repository, "commit-graph", "write", "--reachable", "--split")


def reflogs(repository: Path) -> None:
    tip = git(repository, "rev-parse", EPOCH)
    git(repository, "config", "core.logAllRefUpdates", "always")
    git(repository, "update-ref", "--create-reflog", "-m", "moved", f"refs/heads/{EPOCH}", f"{EPOCH}~1")
    git(repository, "update-ref", "--create-reflog", "-m", "moved", f"refs/heads/{EPOCH}", tip)


def pull_refs_tags_notes(repository: Path) -> None:
    tip = git(repository, "rev-parse", EPOCH)
    git(repository, "update-ref", "refs/pull/1/head", f"{EPOCH}~1")
    git(repository, "update-ref", "refs/tags/light", tip)
    git(repository, "tag", "-a", "-m", "annotated", "heavy", tip)
    git(repository, "notes", "add", "-m", SECRET[:20], tip)
    git(repository, "update-ref", "refs/heads/D120", f"{EPOCH}~1")
    git(repository, "update-ref", "refs/original/refs/heads/D118", tip)
    git(repository, "update-ref", "refs/replace/0123456789012345678901234567890123456789", tip)


def packed_refs(repository: Path) -> None:
    git(repository, "pack-refs", "--all")


def fetch_heads(repository: Path) -> None:
    tip = git(repository, "rev-parse", EPOCH)
    for name in ("FETCH_HEAD", "ORIG_HEAD"):
        (repository / name).write_text(tip + "\n")


def abandoned_temporary_files(repository: Path) -> None:
    """A write that was killed: its text is in an unfinished object, and in a noted stray."""
    blob = git(repository, "hash-object", "-w", "--stdin", data=("草稿：" + SECRET).encode())
    (repository / "gitmem.strays").write_text(blob + "\n")
    loose_file = repository / "objects" / blob[:2] / blob[2:]
    shutil.copy(loose_file, repository / "objects" / "tmp_object_git2_abc123")


STATES = [
    loose, one_pack, cruft, many_packs, caches, split_commit_graph, reflogs, pull_refs_tags_notes,
    packed_refs, fetch_heads, abandoned_temporary_files,
]  # fmt: skip


@pytest.mark.parametrize("prepare", STATES, ids=lambda prepare: prepare.__name__)
def test_release_in_any_git_state(home: Home, memory: Memory, prepare: Callable[[Path], None]) -> None:
    secret, twin = filled(memory)
    old = git(folder(memory), "rev-parse", EPOCH)
    prepare(folder(memory))
    report = memory.release(secret)
    assert report.complete, report.places
    assert_gone(home, memory, secret)
    assert_there(home, memory, twin)
    assert not any(old in path.read_bytes().decode("latin-1") for path in _text_files(folder(memory)))


def _text_files(repository: Path) -> list[Path]:
    """Files in which an old commit id would be readable; the list of purged ids is its purpose."""
    kept = [
        p
        for p in repository.rglob("*")
        if p.is_file() and "objects/pack" not in str(p) and p.name != "gitmem.purged"
    ]
    return [path for path in kept if len(path.name) != 38]


def test_release_moves_and_drops_refs_and_says_so(home: Home, memory: Memory) -> None:
    secret, _ = filled(memory)
    pull_refs_tags_notes(folder(memory))
    report = memory.release(secret)
    told = " ".join(report.notes)
    for ref in (
        "refs/pull/1/head",
        "refs/tags/light",
        "refs/tags/heavy",
        "refs/notes/commits",
        "refs/heads/D120",
    ):
        assert ref in told
    refs = git(folder(memory), "show-ref")
    assert "refs/tags/heavy" not in refs
    assert "refs/notes/commits" not in refs
    assert "refs/tags/light" in refs
    assert git(folder(memory), "log", "--format=%s", "refs/pull/1/head").count("gitmem: purged") == 1


def test_release_after_maintain(home: Home, memory: Memory) -> None:
    """Whole epochs in closed packs, two of them in one pack."""
    secret, twin = filled(memory)
    memory.write("最新的纪元。", epoch="D200")
    memory.start_epoch("D200")
    done = maintain(memory)
    assert done.epochs == 2
    assert maintain(memory).packs == 0
    d119 = git(folder(memory), "rev-parse", "D119")
    memory.release(secret)
    assert_gone(home, memory, secret)
    assert_there(home, memory, twin)
    assert git(folder(memory), "rev-parse", "D119") == d119


def test_release_of_many_leaves_is_one_rewrite_for_each_epoch(
    home: Home, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {memory.write(f"{SECRET}{n}", epoch=EPOCH).trace_path: f"{SECRET}{n}" for n in range(8)}
    other = memory.write("别的纪元：" + SECRET, epoch="D119").trace_path
    twin = memory.write(TWIN, epoch=EPOCH).trace_path
    calls: list[str] = []
    real = erase.purge_epoch
    monkeypatch.setattr(
        erase,
        "purge_epoch",
        lambda repository, epoch, *rest: calls.append(epoch) or real(repository, epoch, *rest),
    )
    report = memory.release(*texts, other)
    assert sorted(calls) == [EPOCH, "D119"]
    assert len(report.results) == 9
    for path in (*texts, other):
        assert_gone(home, memory, path)
    assert_there(home, memory, twin)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_release_of_1001_leaves(home: Home, memory: Memory) -> None:
    """No cap silently ends a long list."""
    with memory.transaction(epoch=EPOCH) as tx:
        paths = [tx.write(f"{SECRET}第{n}遍。").trace_path for n in range(1001)]
        twin = tx.write(TWIN).trace_path
    memory.release(*paths)
    assert {answer.status for answer in memory.trace_many(paths)} == {"released"}
    assert [entry.trace_path for entry in memory.timeline().entries] == [twin]
    assert_gone(home, memory, paths[500])
    assert_there(home, memory, twin)


def test_release_of_one_of_two_leaves_with_the_same_text(home: Home, memory: Memory) -> None:
    """The other leaf keeps its text; when it is released too, nothing is left."""
    first = memory.write(SECRET, epoch=EPOCH).trace_path
    second = memory.write(SECRET, epoch=EPOCH).trace_path
    third = memory.write(SECRET, epoch="D119").trace_path
    memory.release(first)
    assert memory.trace(first).status == "released"
    assert memory.trace(second).content == SECRET
    memory.release(second)
    assert memory.trace(third).content == SECRET
    memory.release(third)
    for path in (first, second, third):
        assert_gone(home, memory, path)


def test_release_keeps_turn_and_role_and_nothing_else(home: Home, memory: Memory) -> None:
    leaf = memory.write(SECRET, epoch=EPOCH, turn_id="t-9", role="user", tags=["钥匙"], summary="一把钥匙")
    memory.release(leaf.trace_path)
    stem = leaf.trace_path.rsplit("/", 1)[1].removesuffix(".txt")
    text = git(folder(memory), "show", f"{EPOCH}:meta/raw/{stem}.yaml")
    assert text == f"state: released\nreleased_at: {leaf.ts}\nturn_id: t-9\nrole: user"
    again = memory.write(SECRET, turn_id="t-9", role="user")
    assert (again.trace_path, again.created, again.blob) == (leaf.trace_path, False, None)
    assert_gone(home, memory, leaf.trace_path)


def test_a_released_name_never_returns_in_any_epoch(memory: Memory) -> None:
    leaf = memory.write(SECRET, epoch=EPOCH)
    memory.release(leaf.trace_path)
    for epoch in (EPOCH, "D119"):
        assert memory.write("新的话。", epoch=epoch).trace_path.name != leaf.trace_path.name
    record = memory.record({"a": 1}, epoch=EPOCH, id="mem_aaaaaaaa")
    memory.release(record.trace_path)
    with pytest.raises(RefusedError, match="released"):
        memory.record({"a": 2}, epoch="D119", id="mem_aaaaaaaa")


def test_release_again_changes_nothing(home: Home, memory: Memory) -> None:
    secret, _ = filled(memory)
    memory.release(secret)
    before = git(folder(memory), "show-ref")
    report = memory.release(secret)
    assert report.complete
    assert git(folder(memory), "show-ref") == before


def test_release_of_an_unknown_leaf_changes_nothing(memory: Memory) -> None:
    secret, _ = filled(memory)
    before = git(folder(memory), "show-ref")
    with pytest.raises(NotFoundError):
        memory.release(secret, f"YM001/ZY001/{EPOCH}/raw/19990101-000000.txt")
    assert git(folder(memory), "show-ref") == before
    assert memory.trace(secret).content == SECRET


def test_dry_run_changes_nothing_and_counts_what_release_deletes(home: Home, memory: Memory) -> None:
    secret, _ = filled(memory)
    before = git(folder(memory), "show-ref")
    told = memory.release(secret, dry_run=True)
    assert told.dry_run
    assert told.objects > 0
    assert git(folder(memory), "show-ref") == before
    assert not (folder(memory) / erase.JOURNALS).exists()
    assert memory.trace(secret).content == SECRET


def test_release_names_exports_that_hold_the_leaf(home: Home, memory: Memory, tmp_path: Path) -> None:
    secret, _ = filled(memory)
    export(home, tmp_path / "out")
    report = memory.release(secret)
    [place] = [place for place in report.places if place.name.startswith("export")]
    assert place.reach is Reach.UNREACHED
    assert not report.complete
    subprocess.run(place.command, shell=True, check=True)
    assert found_in(tmp_path / "out", runs_of(SECRET, elsewhere=TWIN.encode())) == []


def test_release_reports_an_alternate_that_holds_the_text(home: Home, memory: Memory, tmp_path: Path) -> None:
    """Objects of another store are not ours to delete; the report says where they are."""
    secret, _ = filled(memory)
    store = tmp_path / "other.git"
    git(store, "init", "-q", "--bare")
    git(store, "fetch", "-q", str(folder(memory)), f"{EPOCH}:refs/heads/{EPOCH}")
    info = folder(memory) / "objects" / "info"
    info.mkdir(exist_ok=True)
    (info / "alternates").write_text(str(store / "objects") + "\n")
    report = memory.release(secret)
    [place] = [place for place in report.places if place.name.startswith("alternate")]
    assert place.reach is Reach.UNREACHED
    assert place.command
    assert memory.trace(secret).status == "released"
    git(folder(memory), "fsck", "--full")


def test_every_known_place_has_a_name(home: Home, memory: Memory) -> None:
    """A file of a new kind in a home must come with a rule for release, or this fails."""
    secret, _ = filled(memory)
    memory.archive(secret)
    maintain(memory)
    memory.release(secret)
    known = {"HEAD", "config", "description", "packed-refs", "gitmem.lock", "gitmem.generation", "exclude",
             "gitmem.purged", "settings.yaml", "index.db", "index.db-wal", "index.db-shm", "state.db",
             "README.sample", "gitmem.hooks", "gitmem.tombstones", "10-gitmem", "pre-receive",
             "post-receive"}  # fmt: skip
    for path in home.path.rglob("*"):
        if path.is_file() and "/objects/" not in str(path) and "/refs/" not in str(path):
            assert path.name in known, path


# -- the four faults named in the protocol ------------------------------------------------------


def test_objects_still_in_use_elsewhere_are_kept(home: Home, memory: Memory) -> None:
    """Trees, sidecars and texts that other commits or epochs use survive: nothing is pruned by guess."""
    paths = [
        memory.write("同样的话。", epoch=epoch, tags=["同"]).trace_path for epoch in (EPOCH, "D119", EPOCH)
    ]
    one_pack(folder(memory))
    memory.release(paths[0])
    assert [memory.trace(path).content for path in paths[1:]] == ["同样的话。"] * 2
    git(folder(memory), "fsck", "--full", "--strict")


def test_a_handle_opened_before_the_purge_serves_nothing(home: Home, memory: Memory) -> None:
    """Another process's open store neither serves the text nor writes a commit that lacks an object."""
    secret, _ = filled(memory)
    one_pack(folder(memory))
    with Home(home.path) as other:
        theirs = other.persona("YM001/ZY001")
        assert theirs.trace(secret).content == SECRET
        memory.release(secret)
        assert theirs.trace(secret).status == "released"
        blob = hash_object("blob", SECRET.encode())
        assert blob not in theirs.repository
        written = theirs.write(SECRET + "又说了一遍。", epoch=EPOCH)
        same = theirs.write(SECRET, epoch=EPOCH)
        assert theirs.trace(written.trace_path).found
        assert memory.trace(same.trace_path).content == SECRET
    git(folder(memory), "fsck", "--full", "--strict")


def test_a_kill_between_unlinks_is_finished_by_the_next_command(
    home: Home, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pack without its index, or half the loose objects, left behind: the journal has the list."""
    secret, twin = filled(memory)
    one_pack(folder(memory))

    def die(base: str) -> None:
        os.unlink(base + ".idx")
        raise KeyboardInterrupt

    monkeypatch.setattr(pack, "remove_pack", die)
    with pytest.raises(KeyboardInterrupt):
        memory.release(secret)
    monkeypatch.undo()
    memory.write("下一句话。", epoch="D119")
    assert_gone(home, memory, secret)
    assert_there(home, memory, twin)
    assert erase.pending(memory.repository) == []


def test_a_running_gc_is_waited_for_then_reported(
    home: Home, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another process holds gc.pid nothing is deleted, the report says so, and later it is done."""
    secret, twin = filled(memory)
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        (folder(memory) / "gc.pid").write_text(f"{sleeper.pid} {os.uname().nodename}")
        real = erase.purge_epoch
        monkeypatch.setattr(
            erase, "purge_epoch", lambda repository, epoch, wait_seconds=0.1: real(repository, epoch, 0.1)
        )
        report = memory.release(secret)
        assert not report.complete
        assert any("git gc" in place.detail for place in report.places)
        assert memory.trace(secret).status == "released"
        assert erase.pending(memory.repository) == [EPOCH]
    finally:
        sleeper.kill()
        sleeper.wait()
    memory.write("gc 结束之后。", epoch="D119")
    assert_gone(home, memory, secret)
    assert_there(home, memory, twin)


def test_a_dead_gc_does_not_hold_a_release_up(home: Home, memory: Memory) -> None:
    secret, _ = filled(memory)
    done = subprocess.Popen(["true"])
    done.wait()
    (folder(memory) / "gc.pid").write_text(f"{done.pid} {os.uname().nodename}")
    assert memory.release(secret).complete
    assert not (folder(memory) / "gc.pid").exists()


# -- forgetting the original --------------------------------------------------------------------


@pytest.mark.parametrize("prepare", [loose, one_pack, caches], ids=lambda prepare: prepare.__name__)
def test_forget_original_purges_what_the_blur_left_out(
    home: Home, memory: Memory, prepare: Callable[[Path], None]
) -> None:
    secret = memory.write(SECRET, epoch=EPOCH).trace_path
    twin = memory.write(TWIN, epoch=EPOCH).trace_path
    prepare(folder(memory))
    memory.wither(secret, forget_original=True)
    answer = memory.trace(secret)
    assert answer.status == "wither"
    assert answer.content is not None
    lost = runs_of(SECRET, elsewhere=answer.content.encode() + TWIN.encode())
    assert found_in(home.path, lost) == []
    assert memory.trace(twin).content == TWIN
    git(folder(memory), "fsck", "--full", "--strict")
    with pytest.raises(RefusedError, match="forgotten"):
        memory.remember(secret, restore=True)
    memory.archive(secret)
    assert memory.remember(secret).content == answer.content
    memory.release(secret)
    assert_gone(home, memory, secret)


def test_forget_original_of_a_leaf_withered_before(home: Home, memory: Memory) -> None:
    secret = memory.write(SECRET, epoch=EPOCH).trace_path
    memory.wither(secret)
    blurred = memory.trace(secret).content
    memory.wither(secret, forget_original=True)
    assert memory.trace(secret).content == blurred
    assert found_in(home.path, runs_of(SECRET, elsewhere=(blurred or "").encode())) == []


def test_two_homes_reach_the_same_ids(home: Home, memory: Memory, tmp_path: Path) -> None:
    """A copy that is given the same tombstone purges itself to the same commit, without contact."""
    secret, _ = filled(memory)
    copy = tmp_path / "copy"
    shutil.copytree(home.path, copy)
    memory.release(secret)
    with Home(copy, clock=memory.now) as other:
        theirs = other.persona("YM001/ZY001")
        theirs.release(secret)
        assert Repository(theirs.repository.folder).refs.head(EPOCH) == memory.repository.refs.head(EPOCH)


def test_release_in_an_epoch_that_is_long_for_one(
    home: Home, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unchanged beginning of a long epoch stays where it is; nothing of the leaf does."""
    monkeypatch.setattr(erase, "_BIG", 2)
    secret, twin = filled(memory)
    one_pack(folder(memory))
    memory.write("后来的话。", epoch=EPOCH)
    memory.release(secret)
    assert_gone(home, memory, secret)
    assert_there(home, memory, twin)
    memory.release(twin)
    assert found_in(home.path, runs_of(TWIN)) == []


def test_release_names_a_worktree_that_shows_the_leaf(home: Home, memory: Memory, tmp_path: Path) -> None:
    secret, _ = filled(memory)
    subprocess.run(
        ["git", "-C", memory.repository.folder, "worktree", "add", "-q", tmp_path / "wt", EPOCH], check=True
    )
    places = memory.release(secret).places
    [place] = [place for place in places if place.name.startswith("worktree")]
    assert place.reach is Reach.UNREACHED


def test_a_leaf_that_is_no_text_can_be_released(memory: Memory) -> None:
    """What plain git let in goes the same way."""
    memory.write("先有纪元。", epoch=EPOCH)
    repository = memory.repository
    who = memory.gitmem_person(memory.now())
    files = {
        "raw/20260601-000000.txt": b"\xff\xfe not text \xff",
        "raw/20260601-000001.txt": b"x",
        "meta/raw/20260601-000001.yaml": b"[bad: yaml",
    }
    repository.commit(EPOCH, files, "by hand\n", base=repository.refs.head(EPOCH), author=who, committer=who)
    paths = [f"YM001/ZY001/{EPOCH}/raw/20260601-00000{n}.txt" for n in (0, 1)]
    memory.release(*paths, dry_run=True)
    assert [result.status for result in memory.release(*paths).results] == ["released", "released"]


def test_a_living_leaf_of_a_name_released_elsewhere_survives_export(
    home: Home, memory: Memory, tmp_path: Path
) -> None:
    one = memory.write("先说的。", epoch="D1").trace_path
    two = memory.write("后说的。", epoch="D2").trace_path
    assert one.name == two.name
    memory.release(one)
    export(home, tmp_path / "out")
    init_from(tmp_path / "copy", tmp_path / "out")
    with Home(tmp_path / "copy") as copy:
        assert copy.persona("YM001/ZY001").trace(two).content == "后说的。"
        assert copy.persona("YM001/ZY001").trace(one).status == "released"
