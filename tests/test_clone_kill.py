"""kill -9 in the middle of `gitmem sync DIR`: the next one finishes it, and nothing of the user's is lost."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gitmem import Home, Memory
from gitmem.clone import clone, sync
from tests.conftest import run_git
from tests.kill import MODES, Killer
from tests.test_clone import NEW, SECRET, TWIN, commit, found_below, head, status

LOCAL = "raw/20260601-090000.txt"
_LEFT = re.compile(
    r"gitmem\.(ref-|incoming|new-|purge/.)|(?<!gitmem)\.lock$|tmp_(object|pack|idx)_|\.gitmem-new$"
)


@dataclass
class Scene:
    """A working copy full of half-done work, and a server that has released a leaf of it."""

    home: Path
    copy: Path
    leaf: str
    twin: str

    def expected(self) -> dict[str, str]:
        """What must be the same after every sync, killed before or not."""
        folder = self.copy / "D118"
        return {
            "tip": head(folder),
            "tag": head(folder, "light"),
            "tracking": head(folder, "origin/D118"),
            "other": head(self.copy / "D119"),
            "status": status(folder),
            "stash": head(folder, "stash^{tree}"),
            "stashes": str(len(run_git(folder, "stash", "list").splitlines())),
            "log": run_git(folder, "log", "--format=%an %ad %s %T").decode(),
            "undo": run_git(folder, "reflog", "--format=%H %gs").decode().rpartition("gone again")[0][-40:],
            "dirty": (folder / self.twin).read_text("utf-8"),
        }

    def leavings(self) -> list[str]:
        names = (os.path.join(where, name) for where, _, files in os.walk(self.copy) for name in files)
        return [name for name in names if _LEFT.search(os.path.relpath(name, self.copy))]


@pytest.fixture
def scene(home: Home, memory: Memory, tmp_path: Path) -> Scene:
    memory.write("前面的话。", epoch="D118")
    secret = memory.write(SECRET, epoch="D118").trace_path
    memory.write("中间的话。", epoch="D118")
    twin = memory.write(TWIN, epoch="D118").trace_path
    memory.write("别的纪元。", epoch="D119")
    copy = tmp_path / "copy"
    clone(memory.repository.folder, copy)
    folder = copy / "D118"
    leaf, other = ("/".join(path.split("/")[3:]) for path in (secret, twin))
    run_git(folder, "tag", "light")
    commit(folder, LOCAL, "收回的。", "gone again")
    run_git(folder, "reset", "-q", "--hard", "HEAD~1")
    (folder / leaf).write_text(SECRET + "!", "utf-8")
    run_git(folder, "stash", "push", "-q")
    commit(folder, NEW, "没有推送的。", "first")
    commit(folder, LOCAL, "也没有。", "second")
    (folder / leaf).write_text(SECRET + "?", "utf-8")
    run_git(folder, "add", leaf)
    (folder / other).write_text("改过的。", "utf-8")
    memory.write("那里的。", epoch="D118", at="2026-06-03T08:00:00+08:00")
    memory.release(secret)
    memory.write("又一句。", epoch="D119", at="2026-06-03T08:00:00+08:00")
    home.close()
    return Scene(home.path, copy, leaf, other)


@pytest.fixture
def killer(tmp_path: Path) -> Iterator[Killer]:
    made = Killer(tmp_path / "scratch")
    yield made
    made.close()


def sweep(scene: Scene, killer: Killer, tmp_path: Path, every: int) -> None:
    """Kill at every so many steps, in one mode after the other; each time on a fresh copy of the scene."""
    prepared = tmp_path / "prepared"
    shutil.move(scene.copy, prepared)
    shutil.copytree(prepared, scene.copy, symlinks=True)
    steps = killer.steps(scene.home, "sync_copy", str(scene.copy))
    expected = scene.expected()
    assert found_below(scene.copy) == []
    assert found_below(scene.copy, TWIN)
    assert len(steps) > 60
    for number in range(1, len(steps) + 1, every):
        mode = MODES[(number // every) % len(MODES)]
        shutil.rmtree(scene.copy)
        shutil.copytree(prepared, scene.copy, symlinks=True)
        step = killer.kill(scene.home, "sync_copy", str(scene.copy), number, mode)
        run_git(scene.copy, "fsck", "--full", "--no-dangling")
        report = killer.run(scene.home, "sync_copy", str(scene.copy))
        assert report["complete"], (step, report)
        assert found_below(scene.copy) == [], step
        assert scene.expected() == expected, step
        assert scene.leavings() == [], step
        run_git(scene.copy, "fsck", "--full", "--strict", "--no-dangling")


def test_killed_sync_is_finished_by_the_next(scene: Scene, killer: Killer, tmp_path: Path) -> None:
    sweep(scene, killer, tmp_path, 9)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_sync_killed_at_every_step(scene: Scene, killer: Killer, tmp_path: Path) -> None:
    sweep(scene, killer, tmp_path, 1)


@pytest.mark.parametrize("there", [False, True])
def test_killed_clone_is_whole_or_not_there(
    home: Home, memory: Memory, killer: Killer, tmp_path: Path, there: bool
) -> None:
    """A new one; and one that is there and gets the folder of a new epoch."""
    memory.write("一句。", epoch="D1")
    place = tmp_path / "place"
    place.mkdir()
    copy, prepared = place / "copy", tmp_path / "prepared"
    if there:
        clone(memory.repository.folder, prepared)
    memory.write("又一句。", epoch="D2")
    home.close()

    def begin() -> None:
        shutil.rmtree(place)
        place.mkdir()
        if there:
            shutil.copytree(prepared, copy)

    begin()
    steps = killer.steps(home.path, "clone", str(copy))
    for number in range(1, len(steps) + 1, 4):
        begin()
        step = killer.kill(home.path, "clone", str(copy), number, MODES[number // 4 % 3])
        if copy.exists():
            run_git(copy, "status")
        killer.run(home.path, "clone", str(copy))
        assert [path.name for path in place.iterdir()] == ["copy"], step
        names = sorted(path.name for path in copy.iterdir())
        assert names == [".git", "D1", "D2", "README.md", "gitmem.yaml"], step
        for name in ("D1", "D2"):
            assert status(copy / name) == "", step
            assert head(copy / name, "@{u}") == head(copy / name), step
        assert status(copy) == "", step
        left = [
            w
            for w, _, files in os.walk(copy)
            for f in files
            if _LEFT.search(f"{os.path.relpath(w, copy)}/{f}")
        ]
        assert left == [], step
        listed = run_git(copy, "worktree", "list", "--porcelain").decode()
        assert listed.count("worktree ") == 3, step
        assert "prunable" not in listed
        run_git(copy, "fsck", "--full", "--strict", "--no-dangling")


def test_files_written_and_index_not(scene: Scene) -> None:
    """Git is killed with its caller while it checks out: files are new, the index is old."""
    sync_index = scene.copy / ".git/worktrees/D119/index"
    old = sync_index.read_bytes()
    folder = scene.copy / "D119"
    before = head(folder)
    run_git(folder, "fetch", "-q")
    run_git(folder, "read-tree", "-m", "-u", before, "origin/D119")
    sync_index.write_bytes(old)
    assert status(folder)
    assert sync(scene.copy).complete
    assert status(folder) == ""
    assert head(folder) == head(folder, "origin/D119") != before
