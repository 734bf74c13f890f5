"""Working copies: ordinary git in them, and a released leaf that leaves every corner of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gitmem import (
    ConflictError,
    CorruptError,
    Home,
    Memory,
    NotFoundError,
    Reach,
    RefusedError,
    UnavailableError,
)
from gitmem.clone import CopyReport, clone, sync
from gitmem.receive.install import install
from gitmem.store.worktrees import Checkout
from tests.conftest import Done, FakeClock, run_git
from tests.forge import Forge
from tests.traces import raw_files, runs_of

SECRET = "这句话只说过一次：蓝色的钥匙在第七块砖下面。别告诉任何人，也别写下来。"
TWIN = "这一句没有人要求忘记：红色的伞还在门后面挂着。下雨的时候记得带上它呀。"
PERSONA = "YM001/ZY001"
NEW = "raw/20260601-080000.txt"
TOMBSTONE = "state: released\nreleased_at: 2026-06-01T00:00:00+08:00\n"


def found_below(folder: Path, text: str = SECRET) -> list[str]:
    """Files below a folder that hold a run of the text, also deflated or in a pack."""
    runs = runs_of(text, elsewhere=(TWIN if text is SECRET else SECRET).encode())
    places = [where for where, data in raw_files(folder) if any(run in data for run in runs)]
    command = ["git", "-C", str(folder), "cat-file", "--batch-all-objects", "--batch", "--buffer"]
    objects = subprocess.run(command, capture_output=True, check=True).stdout
    return places + (["git cat-file"] if any(run in objects for run in runs) else [])


def head(folder: Path, name: str = "HEAD") -> str:
    return run_git(folder, "rev-parse", name).decode().strip()


def show(folder: Path, name: str) -> bytes:
    return run_git(folder, "show", name)


def status(folder: Path) -> str:
    return run_git(folder, "status", "--porcelain").decode()


def commit(folder: Path, path: str, text: str, message: str = "a leaf by hand") -> str:
    """Write a file and commit it, as a person does; the commit."""
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).write_bytes(text.encode())
    run_git(folder, "add", "--", path)
    run_git(folder, "commit", "-q", "-m", message)
    return head(folder)


@dataclass
class World:
    """A persona on a server, and a working copy of it."""

    home: Home
    memory: Memory
    copy: Path
    secret: str
    twin: str

    @property
    def epoch(self) -> Path:
        return self.copy / "D118"

    @property
    def leaf(self) -> str:
        """The secret's file inside its epoch."""
        return "/".join(self.secret.split("/")[3:])

    @property
    def server(self) -> Path:
        return Path(self.memory.repository.folder)

    def release(self) -> None:
        self.memory.release(self.secret)

    def sync(self) -> CopyReport:
        return sync(self.copy)

    def assert_gone(self) -> None:
        """Nothing of the secret is below DIR, its twin is, and git is content."""
        assert found_below(self.copy) == []
        assert found_below(self.copy, TWIN)
        run_git(self.copy, "fsck", "--full", "--strict", "--no-dangling")
        assert not (self.epoch / self.leaf).exists()
        tombstone = show(self.epoch, f"HEAD:meta/{self.leaf.replace('.txt', '.yaml')}")
        assert tombstone.startswith(b"state: released\n")


@pytest.fixture
def filled(memory: Memory) -> tuple[str, str]:
    """Leaves in two epochs; paths of the secret and of its twin."""
    memory.write("前面的话。", epoch="D118")
    secret = memory.write(SECRET, epoch="D118", summary=SECRET[:20], tags=["钥匙"]).trace_path
    memory.write("中间的话。", epoch="D118")
    twin = memory.write(TWIN, epoch="D118").trace_path
    memory.write("别的纪元。", epoch="D119")
    return secret, twin


@pytest.fixture
def world(home: Home, memory: Memory, filled: tuple[str, str], tmp_path: Path) -> World:
    copy = tmp_path / "my 'copy'"
    clone(memory.repository.folder, copy)
    return World(home, memory, copy, *filled)


# -- clone ------------------------------------------------------------------------------------


def test_clone_has_a_folder_for_each_epoch_and_files_where_paths_say(world: World) -> None:
    assert sorted(p.name for p in world.copy.iterdir()) == [
        ".git",
        "D118",
        "D119",
        "README.md",
        "gitmem.yaml",
    ]
    assert (world.epoch / world.leaf).read_bytes() == SECRET.encode()
    for folder in (world.copy, world.epoch, world.copy / "D119"):
        assert status(folder) == ""
    assert run_git(world.epoch, "rev-parse", "--abbrev-ref", "@{u}").strip() == b"origin/D118"
    run_git(world.copy, "fsck", "--full", "--strict")


def test_commit_push_and_pull_are_plain_git(world: World) -> None:
    commit(world.epoch, NEW, "手写的一句。\r\n")
    run_git(world.epoch, "push", "-q")
    assert world.memory.trace(f"{PERSONA}/D118/{NEW}").content == "手写的一句。\r\n"
    world.memory.write("服务器上的。", epoch="D118", at="2026-06-02T08:00:00+08:00")
    run_git(world.epoch, "pull", "-q")
    assert (world.epoch / "raw/20260602-080000.txt").read_text("utf-8") == "服务器上的。"


def test_clone_takes_the_last_epochs_in_natural_order(memory: Memory, tmp_path: Path) -> None:
    for number in (2, 9, 10, 99, 100):
        memory.write(f"{number}", epoch=f"D{number}")
    report = clone(memory.repository.folder, tmp_path / "c", last=3)
    assert [branch.name for branch in report.branches] == ["D10", "D99", "D100"]
    assert not (tmp_path / "c/D9").exists()


def test_clone_again_adds_what_is_new_and_touches_nothing_else(world: World) -> None:
    (world.epoch / world.leaf).write_text("edited")
    world.memory.write("新的纪元。", epoch="D120")
    world.memory.write("更新。", epoch="D119")
    before = head(world.copy / "D119")
    report = clone(str(world.server), world.copy)
    assert [branch.name for branch in report.branches] == ["D120"]
    assert (world.epoch / world.leaf).read_text() == "edited"
    assert head(world.copy / "D119") == before
    assert list((world.copy / "D120/raw").iterdir())
    assert status(world.copy) == ""


def test_folder_that_was_moved_still_works(world: World, tmp_path: Path) -> None:
    moved = tmp_path / "搬走了 🎒"
    world.copy.rename(moved)
    commit(moved / "D118", NEW, "搬家以后。")
    run_git(moved / "D118", "push", "-q")
    world.release()
    world.copy = moved
    assert world.sync().complete
    world.assert_gone()


def test_clone_is_all_or_nothing(memory: Memory, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        clone(str(tmp_path / "nowhere"), tmp_path / "c")
    other = tmp_path / "other.git"
    run_git(tmp_path, "init", "-q", "--bare", str(other))
    with pytest.raises(NotFoundError):
        clone(str(other), tmp_path / "c")
    memory.write("x", epoch="README.md")
    with pytest.raises(ConflictError, match=r"README\.md"):
        clone(memory.repository.folder, tmp_path / "c")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(ConflictError):
        clone(memory.repository.folder, tmp_path / "full")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["full", "home", "other.git", "user"]


# -- sync after a release ---------------------------------------------------------------------


def test_release_leaves_a_clean_clone(world: World) -> None:
    assert found_below(world.copy)
    world.release()
    report = world.sync()
    assert [branch.released for branch in report.branches] == [[world.leaf]]
    assert report.complete
    world.assert_gone()
    assert status(world.epoch) == ""
    assert head(world.epoch) == head(world.server, "D118")
    again = world.sync()
    assert again.branches == []
    assert again.places == []


def test_release_keeps_unpushed_commits(world: World) -> None:
    commit(world.epoch, NEW, "还没有推送。", "first")
    commit(world.epoch, "raw/20260601-090000.txt", "也没有。", "second")
    world.release()
    report = world.sync()
    assert report.waiting == 2
    world.assert_gone()
    assert (world.epoch / NEW).read_text("utf-8") == "还没有推送。"
    log = run_git(world.epoch, "log", "--format=%s", "origin/D118..").decode().split()
    assert log == ["second", "first"]
    run_git(world.epoch, "push", "-q")
    assert world.memory.trace(f"{PERSONA}/D118/{NEW}").content == "还没有推送。"


def test_release_takes_a_staged_edit_of_the_leaf(world: World) -> None:
    (world.epoch / world.leaf).write_text(SECRET + "!", "utf-8")
    run_git(world.epoch, "add", world.leaf)
    (world.epoch / world.leaf).write_text(SECRET + "?", "utf-8")
    world.release()
    assert world.sync().complete
    world.assert_gone()
    assert status(world.epoch) == ""


def test_release_keeps_other_uncommitted_work(world: World) -> None:
    twin = world.epoch / "/".join(world.twin.split("/")[3:])
    twin.write_text("改过的", "utf-8")
    (world.epoch / "raw/20260601-100000.txt").write_text("没有加进去", "utf-8")
    (world.epoch / NEW).write_text("加进去了", "utf-8")
    run_git(world.epoch, "add", NEW)
    before = status(world.epoch)
    world.release()
    assert world.sync().complete
    assert found_below(world.copy) == []
    assert status(world.epoch) == before
    assert twin.read_text("utf-8") == "改过的"


def test_release_reaches_the_stash_and_keeps_what_else_is_in_it(world: World) -> None:
    (world.epoch / NEW).write_text("在储藏里", "utf-8")
    (world.epoch / world.leaf).write_text(SECRET + "!", "utf-8")
    run_git(world.epoch, "add", "-A")
    run_git(world.epoch, "stash", "push", "-q", "-m", SECRET[:30])
    run_git(world.epoch, "stash", "push", "-q", "--include-untracked", ok=(0, 1))
    world.release()
    assert world.sync().complete
    world.assert_gone()
    run_git(world.epoch, "stash", "pop", "-q")
    assert (world.epoch / NEW).read_text("utf-8") == "在储藏里"
    assert not (world.epoch / world.leaf).exists()


def test_release_reaches_detached_heads_tags_and_other_branches(world: World) -> None:
    run_git(world.epoch, "tag", "light")
    run_git(world.epoch, "tag", "-a", "-m", SECRET, "heavy")
    run_git(world.epoch, "tag", "-a", "-m", "before it", "clean", "HEAD~3")
    run_git(world.epoch, "branch", "try")
    run_git(world.epoch, "notes", "add", "-m", SECRET)
    run_git(world.epoch, "checkout", "-q", "--detach", "HEAD~1")
    world.release()
    report = world.sync()
    assert any("heavy" in note for note in report.notes)
    assert not any("clean" in note or "was moved" in note for note in report.notes)
    assert found_below(world.copy) == []
    run_git(world.copy, "fsck", "--full", "--strict", "--no-dangling")
    assert status(world.epoch) == ""
    for name in ("light", "try", "HEAD", "clean"):
        run_git(world.epoch, "log", name)


def test_undo_by_reflog_still_works(world: World) -> None:
    commit(world.epoch, NEW, "说过又收回的。", "to be undone")
    run_git(world.epoch, "reset", "-q", "--hard", "HEAD~1")
    world.release()
    assert world.sync().complete
    world.assert_gone()
    entries = run_git(world.epoch, "reflog", "--format=%H %gs").decode().splitlines()
    undone = next(line.split()[0] for line in entries if "to be undone" in line)
    run_git(world.epoch, "cherry-pick", undone)
    assert (world.epoch / NEW).read_text("utf-8") == "说过又收回的。"


def test_commit_whose_message_quotes_the_leaf_leaves_the_reflog(world: World) -> None:
    commit(world.epoch, NEW, TWIN, f"quote {SECRET}")
    run_git(world.epoch, "push", "-q")
    path = f"{PERSONA}/D118/{NEW}"
    world.memory.release(path)
    world.release()
    assert sync(world.copy).complete
    assert found_below(world.copy) == []


def test_amended_and_forgotten_versions_are_found(world: World) -> None:
    run_git(world.epoch, "checkout", "-q", "-b", "side", "HEAD~3")
    run_git(world.epoch, "commit", "-q", "--amend", "-m", "another root of the leaf")
    run_git(world.epoch, "checkout", "-q", "D118")
    run_git(world.epoch, "branch", "-q", "-D", "side")
    run_git(world.epoch, "repack", "-q", "-a", "-d")
    world.release()
    assert world.sync().complete
    world.assert_gone()


def test_same_text_elsewhere_stays_though_garbage_has_it_too(world: World) -> None:
    same = world.memory.write(SECRET, epoch="D119", at="2026-06-03T08:00:00+08:00").trace_path
    world.sync()
    commit(world.epoch, "raw/20260601-070000.txt", "只在垃圾里。", "garbage soon")
    run_git(world.epoch, "reset", "-q", "--hard", "origin/D118")
    run_git(world.epoch, "reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")
    run_git(world.epoch, "update-ref", "-d", "ORIG_HEAD")
    world.release()
    assert world.sync().complete
    assert (world.copy / "D119" / "/".join(same.split("/")[3:])).read_text("utf-8") == SECRET
    assert world.memory.trace(same).content == SECRET
    run_git(world.copy, "fsck", "--full", "--strict", "--no-dangling")


def test_plain_pull_recovers_and_sync_cleans_up_later(world: World) -> None:
    commit(world.epoch, NEW, "没有推送的。")
    world.release()
    run_git(world.epoch, "pull", "-q")
    assert (world.epoch / NEW).exists()
    assert not (world.epoch / world.leaf).exists()
    run_git(world.epoch, "push", "-q")
    assert found_below(world.copy)  # plain git keeps the old objects and reflogs
    assert world.sync().complete
    world.assert_gone()


def test_other_commits_and_a_release_meet_unpushed_ones(world: World) -> None:
    commit(world.epoch, NEW, "这里的。")
    world.memory.write("那里的。", epoch="D118", at="2026-06-03T08:00:00+08:00")
    world.release()
    report = world.sync()
    (branch,) = report.branches
    assert (branch.waiting, branch.stopped) == (1, "")
    world.assert_gone()
    assert (world.epoch / "raw/20260603-080000.txt").exists()
    run_git(world.epoch, "push", "-q")


def test_file_in_the_way_stops_and_loses_nothing(world: World) -> None:
    world.memory.write("那里的。", epoch="D118", at="2026-06-03T08:00:00+08:00")
    there = world.epoch / "raw/20260603-080000.txt"
    there.write_text("这里的，没有提交。", "utf-8")
    (world.epoch / world.leaf).write_text("edited")
    world.release()
    before = head(world.epoch)
    report = world.sync()
    assert report.stopped
    assert head(world.epoch) == before
    assert there.read_text("utf-8") == "这里的，没有提交。"
    assert (world.epoch / world.leaf).read_text() == "edited"
    there.unlink()
    assert world.sync().complete
    world.assert_gone()


def test_rebase_in_progress_stops(world: World) -> None:
    commit(world.epoch, NEW, "一")
    commit(world.epoch, NEW, "二")
    run_git(world.epoch, "-c", "sequence.editor=sed -i s/^pick/edit/", "rebase", "-q", "-i", "HEAD~2")
    world.release()
    report = world.sync()
    assert report.stopped
    assert "rebase" in report.branches[0].remedy
    run_git(world.epoch, "rebase", "--abort")
    assert world.sync().complete
    world.assert_gone()


def test_release_made_by_hand_waits_for_its_push(world: World) -> None:
    sidecar = f"meta/{world.leaf.replace('.txt', '.yaml')}"
    run_git(world.epoch, "rm", "-q", world.leaf)
    commit(world.epoch, sidecar, TOMBSTONE, "release it")
    report = world.sync()
    assert any(place.reach is Reach.UNREACHED and "push" in place.command for place in report.places)
    run_git(world.epoch, "push", "-q")
    world.memory.repository.close()
    assert world.memory.trace(world.secret).status == "released"
    assert world.sync().complete
    world.assert_gone()


def test_forgotten_original_leaves_the_clone(world: World) -> None:
    world.memory.wither(world.secret, 0.3, forget_original=True)
    shown = world.memory.trace(world.secret).content or ""
    assert world.sync().complete
    kept = shown.replace("……", "")
    tail = SECRET.replace(kept, "")
    assert (world.epoch / world.leaf).read_text("utf-8") == shown
    assert tail
    runs = runs_of("也别写下来。" if "也别写下来" not in shown else "这句话只说过一次")
    assert not [w for w, data in raw_files(world.copy) if any(run in data for run in runs)]


def test_packed_clone_with_a_commit_graph(world: World) -> None:
    run_git(world.epoch, "tag", "light")
    run_git(world.epoch, "stash", ok=(0, 1))
    run_git(world.copy, "gc", "-q")
    run_git(world.copy, "commit-graph", "write", "--reachable")
    run_git(world.copy, "multi-pack-index", "write")
    world.release()
    assert world.sync().complete
    world.assert_gone()


def test_folder_that_was_deleted_is_purged_all_the_same(world: World) -> None:
    (world.epoch / world.leaf).write_text(SECRET + "!", "utf-8")
    run_git(world.epoch, "add", world.leaf)
    shutil.rmtree(world.epoch)
    world.release()
    assert world.sync().complete
    assert found_below(world.copy) == []
    assert not world.epoch.exists()
    run_git(world.copy, "fsck", "--full", "--strict", "--no-dangling")


def test_odd_names_of_other_files_survive(world: World) -> None:
    odd = ["小伴 🌙.txt", "new\nline", "quote\"'s", "NFD e\u0301", "-dash", " lead"]
    for name in odd:
        (world.epoch / name).write_text(name, "utf-8")
        run_git(world.epoch, "add", "--", name)
        (world.epoch / "raw" / name).write_text(name, "utf-8")
    before = run_git(world.epoch, "status", "--porcelain", "-z")
    world.release()
    world.memory.write("那里的。", epoch="D118", at="2026-06-03T08:00:00+08:00")
    assert world.sync().complete
    assert run_git(world.epoch, "status", "--porcelain", "-z") == before
    assert found_below(world.copy) == []


def test_index_in_use_stops_that_epoch_alone(world: World) -> None:
    lock = world.copy / ".git/worktrees/D118/index.lock"
    lock.touch()
    world.release()
    world.memory.write("别处。", epoch="D119", at="2026-06-03T08:00:00+08:00")
    report = world.sync()
    stopped = {branch.name: branch.stopped for branch in report.branches}
    assert "index.lock" in stopped["D118"]
    assert stopped["D119"] == ""
    lock.unlink()
    assert world.sync().complete
    world.assert_gone()


def test_main_follows(world: World) -> None:
    world.memory.start_epoch("D121")
    assert world.sync().complete
    assert "epoch: D121" in (world.copy / "gitmem.yaml").read_text()
    assert status(world.copy) == ""


def test_stale_clone_is_refused_and_has_a_way_out(world: World) -> None:
    run_git(world.epoch, "rm", "-q", world.leaf)
    commit(world.epoch, NEW, SECRET)
    world.release()
    refused = subprocess.run(["git", "-C", world.epoch, "push"], capture_output=True, check=False)
    assert refused.returncode
    run_git(world.epoch, "push", "-q", "--force", ok=(1,))
    run_git(world.epoch, "push", "-q", "origin", "HEAD:refs/heads/D999", ok=(1,))
    assert not found_below(world.server)


def test_two_releases_one_after_the_other(world: World) -> None:
    world.release()
    assert world.sync().complete
    world.memory.release(world.twin)
    report = world.sync()
    assert [branch.released for branch in report.branches] == [["/".join(world.twin.split("/")[3:])]]
    assert found_below(world.copy) == found_below(world.copy, TWIN) == []


def test_file_that_an_editor_saved_again_is_told_of(world: World) -> None:
    (world.epoch / f"{world.leaf}~").write_text(SECRET, "utf-8")
    world.release()
    report = world.sync()
    assert [place.name for place in report.places if not place.name.startswith("git")] == [
        str(world.epoch / f"{world.leaf}~")
    ]
    assert not report.complete


def test_new_branch_of_ones_own_waits(world: World) -> None:
    run_git(world.epoch, "switch", "-q", "--orphan", "D130")
    commit(world.epoch, NEW, "新纪元。")
    assert [(branch.name, branch.waiting) for branch in world.sync().branches] == [("D130", 1)]
    run_git(world.epoch, "push", "-q")
    assert world.memory.trace(f"{PERSONA}/D130/{NEW}").found
    assert world.sync().waiting == 0


def test_merge_of_theirs_is_put_in_a_row(world: World) -> None:
    commit(world.epoch, NEW, "这里的。")
    world.memory.write("那里的。", epoch="D118", at="2026-06-03T08:00:00+08:00")
    run_git(world.epoch, "pull", "-q", "--no-rebase", "--no-edit")
    world.memory.write("又一句。", epoch="D118", at="2026-06-04T08:00:00+08:00")
    world.release()
    assert world.sync().complete
    world.assert_gone()
    assert run_git(world.epoch, "log", "--merges", "origin/D118..") == b""
    run_git(world.epoch, "push", "-q")


def test_history_rewritten_on_the_other_side_stops(world: World) -> None:
    commit(world.epoch, NEW, "推送过的。")
    run_git(world.epoch, "push", "-q")
    run_git(world.server, "update-ref", "refs/heads/D118", "D118~2")
    tree = run_git(world.server, "rev-parse", "D118^{tree}").decode().strip()
    forged = run_git(world.server, "commit-tree", tree, "-p", "D118", "-m", "forged").decode().strip()
    run_git(world.server, "update-ref", "refs/heads/D118", forged)
    before = head(world.epoch)
    report = world.sync()
    assert "rewritten" in report.branches[0].stopped
    assert head(world.epoch) == before == head(world.epoch, "origin/D118")


def _refs(folder: Path) -> bytes:
    return run_git(folder, "for-each-ref")


@pytest.mark.parametrize("fetched", [False, True])
@pytest.mark.parametrize("kind", ["another", "anew", "zone", "none"])
def test_other_side_that_became_another_persona_is_refused(
    world: World, clock: FakeClock, tmp_path: Path, kind: str, *, fetched: bool
) -> None:
    commit(world.epoch, NEW, "没有推送的。")
    with Home.init(tmp_path / "elsewhere", clock=clock) as home:
        name = "YM001/ZY002" if kind == "another" else PERSONA
        zone = "Europe/Berlin" if kind == "zone" else "Asia/Shanghai"
        memory = home.add_persona(name, timezone=zone, human="别人")
        memory.write("不相干的。", epoch="D118")
        other = memory.repository.folder
        if kind == "none":
            run_git(Path(other), "branch", "-m", "main", "elsewhere")
        run_git(world.copy, "remote", "set-url", "origin", other)
        if fetched:
            run_git(world.copy, "fetch", "-q", "--prune")
        before = _refs(world.copy), status(world.epoch), status(world.copy)
        said = {
            "another": "YM001/ZY002",
            "anew": "made anew",
            "zone": "Europe/Berlin",
            "none": "holds no persona",
        }
        with pytest.raises(RefusedError, match=said[kind]) as fault:
            world.sync()
        assert "set-url" in fault.value.hint
        with pytest.raises(RefusedError, match=said[kind]):
            clone(other, world.copy)
    assert before == (_refs(world.copy), status(world.epoch), status(world.copy))


def test_failure_of_git_names_the_command(world: World) -> None:
    (world.copy / ".git/worktrees/D118/index").write_bytes(b"junk")
    world.release()
    with pytest.raises(CorruptError, match="git ls-files failed in"):
        world.sync()


@pytest.mark.parametrize("name", ["main", "D118", "D119"])
def test_way_out_of_a_rewritten_history_keeps_what_is_here(world: World, name: str) -> None:
    folder = world.copy if name == "main" else world.copy / name
    mine = commit(folder, "notes.txt" if name == "main" else NEW, "没有推送的。")
    if name == "D119":  # not checked out any more
        run_git(world.copy, "worktree", "remove", "--force", "D119")
        folder = world.copy
    if name == "main":
        run_git(world.server, "fetch", "-q", str(world.copy), "+main:main")
        run_git(world.copy, "fetch", "-q")
        base = "main~1"
    else:
        base = f"{name}~1" if name == "D118" else ""
    tree = run_git(world.server, "rev-parse", f"{name}^{{tree}}").decode().strip()
    above = ["-p", base] if base else []
    forged = run_git(world.server, "commit-tree", tree, *above, "-m", "forged").decode().strip()
    run_git(world.server, "update-ref", f"refs/heads/{name}", forged)
    branch = next(each for each in world.sync().branches if each.name == name)
    assert "rewritten" in branch.stopped
    command = branch.remedy.partition("take theirs: ")[2].partition(". What")[0]
    subprocess.run(command, shell=True, check=True, env=os.environ | {"GIT_CONFIG_GLOBAL": os.devnull})
    assert head(world.copy, f"{name}-before") == mine
    assert head(world.copy, name) == forged
    assert not world.sync().stopped


@pytest.mark.parametrize("kind", ["--depth=1", "--filter=blob:none"])
def test_shallow_and_partial_clones_are_refused(world: World, tmp_path: Path, kind: str) -> None:
    run_git(world.server, "config", "uploadpack.allowFilter", "true")
    run_git(tmp_path, "clone", "-q", kind, f"file://{world.server}", "small")
    with pytest.raises(RefusedError, match="lacks the history"):
        sync(tmp_path / "small")


def test_clone_made_by_git_alone_is_synced_too(world: World, tmp_path: Path) -> None:
    mine = tmp_path / "by hand"
    run_git(tmp_path, "clone", "-q", str(world.server), str(mine))
    run_git(mine, "worktree", "add", "-q", str(tmp_path / "elsewhere"), "D118")
    world.release()
    assert sync(tmp_path / "elsewhere").complete
    assert found_below(mine) == []
    assert not (tmp_path / "elsewhere" / world.leaf).exists()


def test_host_without_hooks_is_told_of(world: World, tmp_path: Path) -> None:
    bare = tmp_path / "plain.git"
    shutil.copytree(world.server, bare)
    shutil.rmtree(bare / "hooks", ignore_errors=True)
    copy = tmp_path / "c"
    clone(str(bare), copy)
    world.release()
    tip = head(world.server, "D118")
    sidecar = f"meta/{world.leaf.replace('.txt', '.yaml')}"
    run_git(copy / "D118", "rm", "-q", world.leaf)
    commit(copy / "D118", sidecar, TOMBSTONE)
    run_git(copy / "D118", "push", "-q")
    report = sync(copy)
    assert any("still serves" in place.detail for place in report.places)
    assert found_below(copy) == []
    assert tip != head(copy / "D118")


@pytest.fixture
def hookless(world: World, tmp_path: Path) -> Path:
    """A host without hooks."""
    bare = tmp_path / "plain.git"
    shutil.copytree(world.server, bare)
    shutil.rmtree(bare / "hooks", ignore_errors=True)
    return bare


def release_by_hand(url: Path, leaf: str, place: Path) -> None:
    """Push a tombstone from a clone of its own."""
    run_git(place.parent, "clone", "-q", "-b", "D118", str(url), str(place))
    run_git(place, "rm", "-q", leaf)
    commit(place, f"meta/{leaf.replace('.txt', '.yaml')}", TOMBSTONE)
    run_git(place, "push", "-q")


def serves(report: CopyReport) -> bool:
    return any("still serves" in place.detail for place in report.places)


@pytest.mark.parametrize("unpushed", [False, True])
def test_release_elsewhere_on_a_host_without_hooks(
    world: World, hookless: Path, tmp_path: Path, *, unpushed: bool
) -> None:
    copy = tmp_path / "c"
    clone(str(hookless), copy)
    mine = commit(copy / "D118", NEW, "没有推送的。") if unpushed else ""
    release_by_hand(hookless, world.leaf, tmp_path / "other")
    for news in (True, False, False):
        report = sync(copy)
        assert serves(report)
        assert not report.stopped
        assert bool(report.released) == news
        assert found_below(copy) == []
        assert not (copy / ".git/gitmem.purge/D118.json").exists()
        run_git(copy, "fsck", "--full", "--strict", "--no-dangling")
    if mine:
        assert show(copy / "D118", f"HEAD:{NEW}") == "没有推送的。".encode()
    run_git(copy, "fetch", "-q")  # plain git brings the text back
    assert found_below(copy)
    assert serves(sync(copy))
    assert found_below(copy) == []


def test_clone_of_a_host_that_still_serves_a_released_text(
    world: World, hookless: Path, tmp_path: Path
) -> None:
    release_by_hand(hookless, world.leaf, tmp_path / "other")
    copy = tmp_path / "c"
    report = clone(str(hookless), copy, last=1)
    assert serves(report)
    assert found_below(copy) == []
    assert clone(str(hookless), copy).branches[0].added
    assert found_below(copy) == []
    assert serves(sync(copy))
    assert status(copy / "D118") == ""


def test_journal_that_names_what_was_never_here_is_carried_out(
    world: World, hookless: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "c"
    clone(str(hookless), copy)
    old = head(copy / "D118")
    release_by_hand(hookless, world.leaf, tmp_path / "other")
    journal = {"old": [old, head(hookless, "D118")], "doomed": [], "packs": []}
    (copy / ".git/gitmem.purge").mkdir()
    (copy / ".git/gitmem.purge/D118.json").write_text(json.dumps(journal), "utf-8")
    assert sync(copy).released
    assert found_below(copy) == []


@pytest.mark.parametrize("names", [("D118", "D119"), ("D119", "D120")])
def test_new_leaf_that_quotes_a_released_one_arrives(world: World, names: tuple[str, str]) -> None:
    world.sync()
    quote = f"有人说过：{SECRET}"
    for number, epoch in enumerate(names):
        world.memory.write(quote, epoch=epoch, at=f"2026-06-03T08:0{number}:00+08:00")
    world.release()
    run_git(world.server, "tag", "beside", names[1])
    report = world.sync()
    assert report.complete
    assert report.released == 1
    for epoch in names:
        assert (
            show(world.copy, f"origin/{epoch}:raw/20260603-080{names.index(epoch)}00.txt").decode() == quote
        )
    assert head(world.copy, "beside") == head(world.copy, f"origin/{names[1]}")
    run_git(world.copy, "fsck", "--full", "--strict", "--no-dangling")
    assert not (world.epoch / world.leaf).exists()


def test_branch_that_cannot_be_moved_does_not_hold_up_a_purge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.memory.write("别处。", epoch="D119", at="2026-06-03T08:00:00+08:00")
    world.release()
    carry_out = Checkout.carry_out

    def in_the_way(checkout: Checkout) -> None:
        if checkout.worktree.name == "D119":
            raise ConflictError("a file was put there.", hint="Move it.")
        carry_out(checkout)

    monkeypatch.setattr(Checkout, "carry_out", in_the_way)
    report = world.sync()
    assert [(each.stopped, each.remedy) for each in report.branches if each.name == "D119"] == [
        ("a file was put there", "Move it.")
    ]
    world.assert_gone()
    monkeypatch.undo()
    assert world.sync().complete
    assert head(world.copy / "D119") == head(world.server, "D119")


def test_over_http_with_a_token(world: World, make_forge: Callable[..., Forge], tmp_path: Path) -> None:
    forge = make_forge("v16")
    folder = forge.create(stale=False)
    forge.git(folder, "fetch", "-q", str(world.server), "+refs/heads/*:refs/heads/*")
    install(str(folder))
    token = "token-of-zhuyuan"
    one, other = tmp_path / "one", tmp_path / "other"
    helper = f"!f() {{ echo username=zhuyuan; echo password={token}; }}; f"
    with forge.http() as server:
        url = server.url("YM001/ZY001")
        for wrong in (None, "no token"):
            with pytest.raises(UnavailableError, match="token") as fault:
                clone(url, one, token=wrong)
            assert "GITMEM_TOKEN" in fault.value.hint
        assert not one.exists()
        clone(url, one, token=token)
        clone(server.url("YM001/ZY001", "zhuyuan", token), other)
        run_git(one / "D118", "rm", "-q", world.leaf)
        commit(one / "D118", f"meta/{world.leaf.replace('.txt', '.yaml')}", TOMBSTONE)
        run_git(one / "D118", "-c", f"credential.helper={helper}", "push", "-q")
        for copy in (one, other):
            assert sync(copy, token=token).complete
            assert found_below(copy) == []
            assert not [where for where, data in raw_files(copy) if token.encode() in data]
    with pytest.raises(UnavailableError):
        sync(one, token=token)
    assert status(one / "D118") == ""


@pytest.mark.parametrize("user", ["zhuyuan", ""])
def test_token_of_a_url_is_used_and_neither_shown_nor_stored(
    world: World, make_forge: Callable[..., Forge], cli: Callable[..., Done], tmp_path: Path, user: str
) -> None:
    forge = make_forge("v16")
    folder = forge.create(stale=False)
    forge.git(folder, "fetch", "-q", str(world.server), "+refs/heads/*:refs/heads/*")
    token = "token-of-zhuyuan"
    env = {"GITMEM_TOKEN": ""}
    with forge.http() as server:
        bare = server.url(PERSONA)
        login = f"{user}:{token}@" if user else f"{token}@"
        url = bare.replace("://", f"://{login}")
        done = cli("clone", url, tmp_path / "c", check=0, env=env)
        assert f"Cloning {bare} …" in done.err
        assert "GITMEM_TOKEN" in done.text
        again = cli("clone", url, tmp_path / "c", "--json", check=0, env=env)
        assert again.json()["remote"] == bare
        assert run_git(tmp_path / "c", "remote", "get-url", "origin").decode().strip() == bare
        run_git(tmp_path / "c", "remote", "set-url", "origin", url)  # as plain git clone leaves it
        synced = cli("sync", tmp_path / "c", check=0, env=env)
        run_git(tmp_path / "c", "remote", "set-url", "origin", bare)
        wrong = cli("clone", url.replace(PERSONA, "YM001/NOBODY"), tmp_path / "d", check=5, env=env)
        other = cli("clone", url.replace(PERSONA, "YM001/NOBODY"), tmp_path / "c", check=3, env=env)
    down = cli("clone", url, tmp_path / "d", check=5, env=env)
    for said in (done, again, synced, wrong, other, down):
        assert token not in said.text + said.err
    assert not [where for where, data in raw_files(tmp_path / "c") if token.encode() in data]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://u:SECRET@h/zz", "ftp"),
        ("ssh://u:SECRET@h/zz", "password"),
        ("u:SECRET@h:zz", "password"),
        ("http://u:SECRET@127.0.0.1:x/zz", "malformed"),
        ("http://u:SECRET@127.0.0.1:1/zz", "reached"),
    ],
)
def test_secret_of_a_url_given_by_mistake_is_not_repeated(
    cli: Callable[..., Done], tmp_path: Path, url: str, said: str
) -> None:
    done = cli("clone", url, tmp_path / "d", "--json")
    assert done.code in (2, 5)
    assert said in done.json()["error"]["message"]
    assert "SECRET" not in done.text + done.err
    assert not (tmp_path / "d").exists()


def test_cli_clones_a_persona_and_syncs(world: World, cli: Callable[..., Done], tmp_path: Path) -> None:
    done = cli("--home", world.home.path, "clone", PERSONA, tmp_path / "c", "--json", check=0).json()
    assert [each["epoch"] for each in done["epochs"]] == ["D118", "D119"]
    said = cli("--home", world.home.path, "clone", PERSONA, tmp_path / "c", check=0).text
    assert "no epoch that was not there" in said
    assert os.path.isdir(tmp_path / "c/D118/raw")
    world.release()
    said = cli("sync", tmp_path / "c", check=0).text
    assert f"D118: 1 commit taken, 1 released and purged ({world.leaf})" in said
    (tmp_path / "c/.git/worktrees/D119/index.lock").touch()
    world.memory.write("别处。", epoch="D119", at="2026-06-03T08:00:00+08:00")
    done = cli("sync", tmp_path / "c/D118", "--json", check=3)
    assert done.json()["epochs"][0]["remedy"]
    cli("clone", tmp_path / "nowhere", tmp_path / "d", check=5)
    cli("clone", "a b", tmp_path / "d", check=5)
    cli("--home", world.home.path, "clone", "YM001/NOBODY", tmp_path / "d", check=1)
    for words in ((PERSONA, " "), (PERSONA, ""), ("", tmp_path / "d"), (" ", tmp_path / "d")):
        assert "empty" in cli("--home", world.home.path, "clone", *words, check=2).err
    file = tmp_path / "file"
    file.write_text("mine", "utf-8")
    for there in (file, file / "below", "/proc/x"):
        said = cli("--home", world.home.path, "clone", PERSONA, there, "--json").json()["error"]
        assert "Errno" not in said["message"]
        assert said["code"] == ("conflict" if there == file else "unavailable")
        assert (f"{there} is a file" if there == file else str(there)) in said["message"]
        assert said["hint"]
    assert file.read_text("utf-8") == "mine"
    assert cli("sync", tmp_path / "c", "--json", check=3).json()["persona"] == PERSONA
    assert not (tmp_path / "d").exists()
