"""Many at once: writers, pushers, maintainers, releases, and a handle that lives through all of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gitmem import ConflictError, Home, Memory, Reach, RefusedError
from gitmem.doctor import check_home
from gitmem.maintain import maintain
from gitmem.receive.install import uninstall
from gitmem.store import erase
from tests.conftest import PERSONA, Done, run_git

Cli = Callable[..., Done]
WRITER = """
import sys
from gitmem import Home
place, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Home(place) as home:
    memory = home.persona("YM001/ZY001")
    for i in range(count):
        text = f"{name} {i}"
        leaf = memory.write(text, epoch="D1", at="2026-05-31T11:54:47", turn_id=f"{name}-{i}", role="user")
        print(leaf.trace_path, leaf.commit, text, sep="|", flush=True)
"""
MAINTAINER = """
import sys, time
from gitmem import Home
from gitmem.maintain import maintain
with Home(sys.argv[1]) as home:
    memory = home.persona("YM001/ZY001")
    for i in range(int(sys.argv[2])):
        print(maintain(memory).waiting, flush=True)
        time.sleep(0.02)
"""
READER = """
import sys
from gitmem import Home
place, path, how = sys.argv[1:]
print("begun", flush=True)
home = Home(place)
while True:
    if how == "fresh":
        home.close()
    memory = home.persona("YM001/ZY001")
    assert memory.trace(path).content == "dieser bleibt"
    listed = [str(entry.trace_path) for entry in memory.timeline().entries]
    assert path in listed, listed
    assert memory.history(path)
    if "END" in memory.epochs():
        break
print("ended")
"""
RELEASER = """
import sys, json
from gitmem import Home
with Home(sys.argv[1]) as home:
    report = home.persona("YM001/ZY001").release(*sys.argv[2:])
    print(json.dumps([report.complete, [r.status for r in report.results]]))
"""


def start(code: str, *arguments: str | Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes], timeout: float = 600) -> list[str]:
    """Wait for a process to end well; its lines."""
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err.decode()
    return out.decode().splitlines()


def check_fsck(memory: Memory) -> None:
    done = run_git(memory.repository.folder, "fsck", "--full", "--strict", "--no-dangling", "--no-progress")
    assert done == b""


class Pusher(threading.Thread):
    """Pushes hand-made leaves from a plain clone; on a rejection fetches, rebases and tries again."""

    def __init__(self, repository: str, clone: Path, count: int, start_at: int = 0) -> None:
        super().__init__()
        self.clone, self.count, self.start_at = clone, count, start_at
        self.pushed: dict[str, str] = {}
        self.rejected = 0
        self.failure = ""
        run_git(clone.parent, "clone", "-q", "-b", "D1", repository, str(clone))

    def run(self) -> None:
        try:
            for i in range(self.start_at, self.start_at + self.count):
                self._push(i)
        except AssertionError as fault:
            self.failure = str(fault)

    def _push(self, i: int) -> None:
        name, text = f"20260601-{i // 60 % 24:02d}{i % 60:02d}00-pushed.txt", f"pushed {i}"
        (self.clone / "raw").mkdir(exist_ok=True)
        (self.clone / "raw" / name).write_text(text, "utf-8")
        run_git(self.clone, "add", "-A")
        run_git(self.clone, "commit", "-q", "-m", f"by hand {i}")
        for _ in range(400):
            command = ["git", "-C", str(self.clone), "push", "-q", "origin", "HEAD:D1"]
            ran = subprocess.run(command, capture_output=True, check=False)
            if ran.returncode == 0:
                self.pushed[f"{PERSONA}/D1/raw/{name}"] = text
                return
            said = ran.stderr.decode()
            assert "rejected" in said or "cannot lock ref" in said or "failed to" in said, said
            self.rejected += 1
            run_git(self.clone, "fetch", "-q", "origin")
            run_git(self.clone, "rebase", "-q", "origin/D1")
        raise AssertionError("a push never got through")


@pytest.fixture
def begun(memory: Memory) -> Memory:
    """The memory, with an epoch D1 to push to."""
    memory.write("the first", epoch="D1", at="2026-05-30T00:00:00")
    return memory


def write_and_push(
    memory: Memory, home: Home, folder: Path, writers: int, writes: int, pushes: int
) -> Pusher:
    """So many writers beside a pusher; checks that every write that answered is there once."""
    pusher = Pusher(memory.repository.folder, folder / "clone", pushes)
    processes = [start(WRITER, home.path, f"w{n}", str(writes)) for n in range(writers)]
    pusher.start()
    answered: dict[str, str] = {}
    for process in processes:
        for line in finish(process):
            path, commit, text = line.split("|")
            assert path not in answered, "two writers were given one name"
            assert len(commit) == 40
            answered[path] = text
    pusher.join()
    assert not pusher.failure
    assert len(answered) == writers * writes
    assert len(pusher.pushed) == pushes
    check_all_there_once(memory, answered | pusher.pushed)
    return pusher


def check_all_there_once(memory: Memory, wanted: dict[str, str]) -> None:
    check_fsck(memory)
    seen: list[str] = []
    cursor = None
    while True:
        page = memory.timeline(limit=500, before=cursor)
        seen += [str(entry.trace_path) for entry in page.entries]
        cursor = page.next
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == len(wanted) + 1
    texts = sorted(str(memory.trace(path).content) for path in seen)
    assert texts == sorted([*wanted.values(), "the first"])
    assert all(memory.trace(path).content == text for path, text in wanted.items())
    repository = memory.repository.folder
    files = run_git(repository, "ls-tree", "--name-only", "D1", "raw/").decode().split()
    assert len(files) == len(wanted) + 1
    subjects = run_git(repository, "log", "--format=%s", "D1").decode().splitlines()
    written = [subject for subject in subjects if subject.startswith("write ")]
    assert len(written) == len(set(written)), "a write was committed twice"


def test_writers_beside_pushes(begun: Memory, home: Home, tmp_path: Path) -> None:
    write_and_push(begun, home, tmp_path, 3, 20, 5)
    maintain(begun)  # a write that a push outran leaves objects, noted, for maintain to sweep
    assert check_home(home) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_many_writers_beside_pushes(begun: Memory, home: Home, tmp_path: Path) -> None:
    pusher = write_and_push(begun, home, tmp_path, 4, 250, 40)
    assert pusher.rejected > 0, "nobody ever met"
    maintain(begun)
    assert check_home(home) == []


def test_same_turns_from_two_processes_are_one(begun: Memory, home: Home) -> None:
    processes = [start(WRITER, home.path, "same", "15") for _ in range(3)]
    answers = [finish(process) for process in processes]
    assert len({tuple(line.split("|")[0] for line in lines) for lines in answers}) == 1
    assert len(begun.timeline(limit=1000).entries) == 16
    check_fsck(begun)


def test_threads_of_one_home(begun: Memory, home: Home) -> None:
    paths: list[str] = []
    failures: list[str] = []

    def work(name: str) -> None:
        try:
            for i in range(10):
                leaf = begun.write(f"{name} {i}", epoch="D1", at="2026-05-31T11:54:47")
                assert begun.trace(leaf.trace_path).content == f"{name} {i}"
                paths.append(leaf.trace_path)
        except Exception as fault:  # noqa: BLE001 - shown below
            failures.append(repr(fault))

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(set(paths)) == 40
    assert {str(e.trace_path) for e in begun.timeline(limit=1000).entries} > set(paths)
    check_fsck(begun)


def test_two_maintainers_while_writes_go_on(begun: Memory, home: Home) -> None:
    for epoch in ("D2", "D3", "D4"):
        for i in range(5):
            begun.write(f"{epoch} {i}", epoch=epoch, at=f"2026-05-30T00:00:0{i}")
    begun.start_epoch("D9")
    writers = [start(WRITER, home.path, f"w{n}", "25") for n in range(2)]
    maintainers = [start(MAINTAINER, home.path, "8") for _ in range(2)]
    answered = [line.split("|") for process in writers for line in finish(process)]
    for process in maintainers:
        finish(process)
    assert len(answered) == 50
    assert all(begun.trace(path).content == text for path, _, text in answered)
    assert len(begun.timeline(limit=1000).entries) == 50 + 15 + 1
    check_fsck(begun)
    assert maintain(begun).swept == 0
    assert check_home(home) == []


def objects(memory: Memory) -> bytes:
    """Every object of the store, as git reads it."""
    return run_git(memory.repository.folder, "cat-file", "--batch-all-objects", "--batch")


@pytest.mark.parametrize("packed", [False, True])
def test_two_processes_release_different_leaves(begun: Memory, home: Home, packed: bool) -> None:
    paths = [
        begun.write(
            f"secret words number {i} here", epoch=f"D{1 + i % 2}", at=f"2026-05-31T00:00:0{i}"
        ).trace_path
        for i in range(6)
    ]
    if packed:
        begun.start_epoch("D9")
        maintain(begun)
    processes = [start(RELEASER, home.path, *mine) for mine in (paths[0:2], paths[2:4])]
    for process in processes:
        complete, statuses = json.loads(finish(process)[0])
        assert complete
        assert statuses == ["released"] * 2
    everything = objects(begun)
    for i, path in enumerate(paths):
        assert begun.trace(path).status == ("released" if i < 4 else "active")
        assert (f"secret words number {i} here".encode() in everything) is (i >= 4)
    check_fsck(begun)
    assert check_home(home) == []


def test_the_same_leaf_released_twice_at_once(begun: Memory, home: Home) -> None:
    path = begun.write("only once", epoch="D1").trace_path
    processes = [start(RELEASER, home.path, path) for _ in range(2)]
    assert [json.loads(finish(process)[0])[1] for process in processes] == [["released"]] * 2
    assert b"only once" not in objects(begun)
    check_fsck(begun)


# -- a handle that lives through a release ------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("state", ["active", "archived"])
def test_stale_handle(begun: Memory, home: Home, cli: Cli, packed: bool, state: str) -> None:
    text = "这句话要被忘记，一个字也不留。"
    path = begun.write(text, epoch="D1", at="2026-05-31T11:54:47", summary="也要忘记的摘要").trace_path
    other = begun.write("这句话留下。", epoch="D1", at="2026-05-31T11:54:48").trace_path
    if state == "archived":
        begun.archive(path)
    if packed:
        begun.start_epoch("D9")
        maintain(begun)
    assert begun.trace(path).content == text
    assert len(begun.history(path)) >= 1
    assert path in {entry.trace_path for entry in begun.timeline().entries}
    cli("--home", home.path, "release", "--yes", path, check=0)
    answer = begun.trace(path)
    assert (answer.found, answer.content, answer.status, answer.compressed_summary) == (
        False,
        None,
        "released",
        None,
    )
    assert begun.remember(path).content is None
    listed = begun.timeline().entries
    assert path not in {entry.trace_path for entry in listed}
    assert "摘要" not in repr(listed)
    history = begun.history(path)
    assert "write" not in " ".join(entry.subject for entry in history)
    assert "20260531-115447" not in " ".join(entry.subject for entry in history)
    assert begun.trace(other).content == "这句话留下。"
    again = begun.write(text, epoch="D1", at="2026-05-31T12:00:00").trace_path
    begun.archive(other)
    check_fsck(begun)
    assert begun.trace(again).content == text
    assert begun.remember(other, restore=True).content == "这句话留下。"
    begun.release(again)
    assert text.encode() not in objects(begun)
    check_fsck(begun)
    assert check_home(home) == []


def test_stale_handle_in_another_thread(begun: Memory, home: Home, cli: Cli) -> None:
    path = begun.write("线程里读过的一句", epoch="D1").trace_path
    ready, go = threading.Event(), threading.Event()
    found: list[Any] = []

    def reader() -> None:
        found.append(begun.trace(path).content)
        ready.set()
        go.wait(60)
        found.append(begun.trace(path).content)
        found.append(begun.write("读者又写了一句", epoch="D1").trace_path)

    thread = threading.Thread(target=reader)
    thread.start()
    assert ready.wait(60)
    cli("--home", home.path, "release", "--yes", path, check=0)
    go.set()
    thread.join()
    assert found[:2] == ["线程里读过的一句", None]
    assert begun.trace(found[2]).content == "读者又写了一句"
    check_fsck(begun)


@pytest.mark.parametrize("fresh", [False, True])
def test_readers_beside_releases(begun: Memory, home: Home, fresh: bool) -> None:
    """Who reads a leaf while its neighbours are released always gets it."""
    kept = begun.write("dieser bleibt", epoch="D1", at="2026-05-31T23:00:00").trace_path
    gone = [
        begun.write(f"dieser geht {i}", epoch="D1", at=f"2026-05-31T00:{i:02}:00").trace_path
        for i in range(12)
    ]
    readers = [start(READER, home.path, kept, "fresh" if fresh else "kept") for _ in range(2)]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"begun\n"
    for path in gone:
        begun.release(path)
    begun.write("the end", epoch="END")
    for reader in readers:
        assert finish(reader, 100) == ["ended"]
    check_fsck(begun)


# -- git's own maintenance at the same time -----------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> float:
    """Let a release wait for others for one second only."""
    real = erase.purge_epoch

    def hurried(repository: Any, epoch: str, wait_seconds: float = 1) -> Any:
        return real(repository, epoch, min(wait_seconds, 1))

    monkeypatch.setattr(erase, "purge_epoch", hurried)
    return 1


@pytest.fixture
def busy_process() -> Iterator[subprocess.Popen[bytes]]:
    """Some process that is alive."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_gc_pid_of_a_living_process(
    begun: Memory, home: Home, cli: Cli, quick: float, busy_process: subprocess.Popen[bytes]
) -> None:
    text = "秘密的一句话，等 gc 结束。"
    path = begun.write(text, epoch="D1").trace_path
    pid_file = Path(begun.repository.folder, "gc.pid")
    pid_file.write_text(f"{busy_process.pid} {os.uname().nodename}", "utf-8")
    began = time.monotonic()
    report = begun.release(path)
    assert time.monotonic() - began < quick + 10, "release waited too long"
    assert report.results[0].status == "released"
    assert not report.complete
    place = next(place for place in report.places if place.reach is Reach.UNREACHED)
    assert str(busy_process.pid) in place.detail
    assert place.command
    assert begun.trace(path).status == "released"
    assert begun.write("写照常", epoch="D1").created, "a running gc stops no write"
    assert pid_file.exists(), "the file belongs to the gc"
    check_fsck(begun)
    assert any(finding.check == "journal" for finding in check_home(home))
    busy_process.kill()
    busy_process.wait()
    cli("--home", home.path, "write", PERSONA, data="下一个命令".encode(), check=0)
    assert text.encode() not in objects(begun)
    check_fsck(begun)
    assert check_home(home) == []


def test_gc_pid_of_a_dead_process(begun: Memory, busy_process: subprocess.Popen[bytes]) -> None:
    path = begun.write("早就没有 gc 了", epoch="D1").trace_path
    busy_process.kill()
    busy_process.wait()
    pid_file = Path(begun.repository.folder, "gc.pid")
    pid_file.write_text(f"{busy_process.pid} {os.uname().nodename}", "utf-8")
    began = time.monotonic()
    assert begun.release(path).complete
    assert time.monotonic() - began < 20
    assert not pid_file.exists()


@pytest.mark.parametrize(
    ("content", "hours"),
    [("{pid} {host}", 13), ("{pid} elsewhere", 13), ("", 13), ("", 0), ("{pid}", 0), ("no number", 0)],
)
def test_gc_pid_that_means_nothing(
    begun: Memory, cli: Cli, home: Home, busy_process: subprocess.Popen[bytes], content: str, hours: int
) -> None:
    """As git has it: after twelve hours the number may be another program's; half a line is no gc."""
    path = begun.write("hinter einer alten Datei", epoch="D1").trace_path
    pid_file = Path(begun.repository.folder, "gc.pid")
    pid_file.write_text(content.format(pid=busy_process.pid, host=os.uname().nodename), "utf-8")
    moment = time.time() - hours * 3600
    os.utime(pid_file, (moment, moment))
    report = json.loads(cli("--home", home.path, "release", "--yes", path, "--json", check=0).out)["report"]
    assert report["complete"], report["places"]
    assert b"hinter einer alten Datei" not in objects(begun)
    assert not pid_file.exists()


def test_maintain_beside_a_gc_leaves_things_alone(
    begun: Memory, home: Home, cli: Cli, busy_process: subprocess.Popen[bytes]
) -> None:
    pid_file = Path(begun.repository.folder, "gc.pid")
    pid_file.write_text(f"{busy_process.pid} {os.uname().nodename}", "utf-8")
    begun.start_epoch("D9")
    done = cli("--home", home.path, "maintain", "--json", check=0)
    assert str(busy_process.pid) in done.json()["entries"][0]["waiting"]
    assert done.json()["entries"][0]["epochs"] == 0


@pytest.mark.parametrize("options", [(), ("--aggressive",)])
def test_a_real_gc_while_leaves_are_released(begun: Memory, home: Home, options: tuple[str, ...]) -> None:
    paths = [
        begun.write(f"released beside a gc {i:03}", epoch="D1", at=f"2026-05-31T00:{i:02}:00").trace_path
        for i in range(24)
    ]
    stop = threading.Event()
    ran: list[int] = []

    def collect() -> None:
        while not stop.is_set():
            command = ["git", "-C", begun.repository.folder, "gc", "-q", *options]
            ran.append(subprocess.run(command, capture_output=True, check=False).returncode)

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        reports = [begun.release(*paths[i : i + 4]) for i in range(0, 16, 4)]
    finally:
        stop.set()
        thread.join()
    assert ran.count(0) > 0
    begun.write("the next command", epoch="D1")
    everything = objects(begun)
    for i, path in enumerate(paths):
        assert begun.trace(path).status == ("released" if i < 16 else "active")
        assert (f"released beside a gc {i:03}".encode() in everything) is (i >= 16), reports
    check_fsck(begun)
    assert check_home(home) == []


# -- transactions -------------------------------------------------------------------------------


def test_exception_changes_nothing(begun: Memory) -> None:
    path = begun.write("在", epoch="D1").trace_path
    before = run_git(begun.repository.folder, "for-each-ref")
    stored = objects(begun)
    with pytest.raises(ZeroDivisionError), begun.transaction("D1") as tx:
        tx.write("不会在")
        tx.archive(path)
        raise ZeroDivisionError
    assert run_git(begun.repository.folder, "for-each-ref") == before
    assert objects(begun) == stored
    assert begun.trace(path).status == "active"
    with pytest.raises(RefusedError), begun.transaction("D1") as tx:
        tx.write("也不会在")
        tx.archive(path)
        tx.archive(path)
    assert run_git(begun.repository.folder, "for-each-ref") == before
    assert begun.write("能写", epoch="D1").created


def test_exception_in_a_new_epoch_changes_nothing(begun: Memory) -> None:
    before = run_git(begun.repository.folder, "for-each-ref")
    with pytest.raises(ZeroDivisionError), begun.transaction("D7") as tx:
        tx.write("不会在")
        raise ZeroDivisionError
    assert run_git(begun.repository.folder, "for-each-ref") == before


def test_many_changes_are_one_commit(begun: Memory) -> None:
    path = begun.write("旧的", epoch="D1").trace_path
    with begun.transaction("D1") as tx:
        first = tx.write("一")
        second = tx.write("二")
        tx.archive(path)
        assert first.commit is None
    assert (
        first.commit == second.commit == run_git(begun.repository.folder, "rev-parse", "D1").decode().strip()
    )
    assert first.trace_path != second.trace_path
    assert begun.trace(path).status == "archived"


def push_one(memory: Memory, clone: Path, name: str, text: str) -> None:
    """Push where no hook is: a hook would wait for an open transaction."""
    uninstall(memory.repository.folder)
    if not clone.exists():
        run_git(clone.parent, "clone", "-q", "-b", "D1", memory.repository.folder, str(clone))
    (clone / "raw").mkdir(exist_ok=True)
    (clone / "raw" / name).write_text(text, "utf-8")
    run_git(clone, "add", "-A")
    run_git(clone, "commit", "-q", "-m", "by hand")
    run_git(clone, "push", "-q", "origin", "HEAD:D1")


def test_push_in_the_middle_of_a_transaction(begun: Memory, tmp_path: Path) -> None:
    path = begun.write("要归档的", epoch="D1").trace_path
    with begun.transaction("D1") as tx:
        mine = tx.write("我的", at="2026-05-31T12:00:00")
        tx.archive(path)
        push_one(begun, tmp_path / "clone", "20260531-130000.txt", "推来的")
    assert begun.trace(mine.trace_path).content == "我的"
    assert begun.trace(f"{PERSONA}/D1/raw/20260531-130000.txt").content == "推来的"
    assert begun.trace(path).status == "archived"
    tip = run_git(begun.repository.folder, "rev-parse", "D1").decode().strip()
    assert mine.commit == tip
    assert run_git(begun.repository.folder, "log", "-1", "--format=%s", "D1^").strip() == b"by hand"
    check_fsck(begun)


def test_a_checked_push_waits_for_an_open_transaction(begun: Memory, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    run_git(tmp_path, "clone", "-q", "-b", "D1", begun.repository.folder, str(clone))
    (clone / "raw").mkdir(exist_ok=True)
    (clone / "raw/20260531-130000.txt").write_text("推来的", "utf-8")
    run_git(clone, "add", "-A")
    run_git(clone, "commit", "-q", "-m", "by hand")
    with begun.transaction("D1") as tx:
        mine = tx.write("我的", at="2026-05-31T12:00:00")
        push = subprocess.Popen(["git", "-C", str(clone), "push", "-q"], stderr=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            push.wait(1)
    said = push.communicate(timeout=60)[1].decode()
    assert push.returncode == 1
    assert "history.stale" in said
    assert begun.trace(mine.trace_path).content == "我的"


def test_push_that_takes_the_name(begun: Memory, tmp_path: Path) -> None:
    """A name that was given out already is not given to another text in silence."""
    with pytest.raises(ConflictError), begun.transaction("D1") as tx:
        mine = tx.write("我的", at="2026-05-31T12:00:00")
        push_one(begun, tmp_path / "clone", mine.trace_path.name, "推来的")
    assert begun.trace(mine.trace_path).content == "推来的"
    assert run_git(begun.repository.folder, "log", "-1", "--format=%s", "D1").strip() == b"by hand"
    assert (
        begun.write("我的", at="2026-05-31T12:00:00", epoch="D1").trace_path.name
        == "20260531-120000-0002.txt"
    )
    check_fsck(begun)


def test_push_that_archives_what_we_archive(begun: Memory, tmp_path: Path) -> None:
    path = begun.write("两边都要归档", epoch="D1", at="2026-05-31T12:00:00").trace_path
    clone = tmp_path / "clone"
    push_one(begun, clone, "20260531-130000.txt", "推来的")
    before = begun.trace(path)
    with pytest.raises(RefusedError), begun.transaction("D1") as tx:
        tx.archive(path)
        run_git(clone, "rm", "-q", "raw/20260531-120000.txt")
        run_git(clone, "commit", "-q", "-m", "archive by hand")
        run_git(clone, "push", "-q", "origin", "HEAD:D1")
    assert begun.trace(path).status == "archived"
    assert begun.trace(path).content == before.content
    check_fsck(begun)


@pytest.mark.parametrize(
    "verb",
    [
        lambda m, path: m.write("x"),
        lambda m, path: m.write("x", epoch="D5"),
        lambda m, path: m.archive(path),
        lambda m, path: m.wither(path),
        lambda m, path: m.release(path),
        lambda m, path: m.remember(path, restore=True),
        lambda m, path: m.start_epoch("D5"),
        lambda m, path: maintain(m),
        lambda m, path: m.transaction("D1").__enter__(),
    ],
)
def test_nested_write_is_a_clear_conflict(begun: Memory, verb: Callable[[Memory, str], Any]) -> None:
    path = begun.write("一句。两句。三句。", epoch="D1").trace_path
    with begun.transaction("D1") as tx:
        leaf = tx.write("外面的")
        with pytest.raises(ConflictError, match="transaction"):
            verb(begun, path)
        assert begun.trace(path).found
    assert begun.trace(leaf.trace_path).content == "外面的"
    assert begun.trace(path).status == "active"


def test_other_thread_waits_for_a_transaction(begun: Memory) -> None:
    order: list[str] = []

    def write() -> None:
        begun.write("从别的线程", epoch="D1")
        order.append("other")

    with begun.transaction("D1") as tx:
        tx.write("先")
        thread = threading.Thread(target=write)
        thread.start()
        time.sleep(0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "other"]
    check_fsck(begun)


def test_waiting_has_an_end(begun: Memory, home: Home, cli: Cli) -> None:
    (home.path / "settings.yaml").write_text("lock_seconds: 1\n", "utf-8")
    with begun.transaction("D1") as tx:
        tx.write("lange")
        began = time.monotonic()
        done = cli("--home", home.path, "write", PERSONA, data=b"x", check=5)
        assert time.monotonic() - began < 30
        assert "gitmem.lock" in done.err
        assert cli("--home", home.path, "timeline", PERSONA, check=0).text
