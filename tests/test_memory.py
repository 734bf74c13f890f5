"""One persona's memory through the Python API, over real repositories."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitmem import (
    ConflictError,
    CorruptError,
    Home,
    Memory,
    NotFoundError,
    RefusedError,
    TracePath,
    UsageError,
)
from gitmem.receive.install import uninstall
from gitmem.store.objects import hash_object
from tests.conftest import FakeClock

EPOCH = "D118"
Git = Callable[..., bytes]
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=200)


@given(text=TEXTS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_comes_back_byte_for_byte(memory: Memory, text: str) -> None:
    """Emoji, rare Han, CRLF, BOM, NFD, full width: stored bytes are never normalised."""
    leaf = memory.write(text, epoch=EPOCH)
    assert leaf.blob == hash_object("blob", text.encode()).hex()
    found = memory.trace(leaf.trace_path)
    assert (found.content, found.status, found.ts) == (text, "active", leaf.ts)
    assert found.as_dict().keys() == {"found", "content", "trace_path", "status", "ts", "parent_branch"}
    memory.archive(leaf.trace_path)
    assert memory.remember(leaf.trace_path).content == text
    assert memory.remember(leaf.trace_path, restore=True).content == text


def test_write_answers_with_a_commit_that_holds_the_leaf(memory: Memory, git: Git) -> None:
    leaf = memory.write("今天下雨了。\r\n", epoch=EPOCH, tags=["雨"], role="user")
    folder = memory.repository.folder
    assert git(folder, "show", f"{leaf.commit}:{leaf.trace_path.leaf.path}") == "今天下雨了。\r\n".encode()
    assert git(folder, "rev-parse", EPOCH).decode().strip() == leaf.commit
    author, subject, body = git(folder, "log", "-1", "--format=%an%x00%s%x00%b", EPOCH).decode().split("\0")
    assert (author, subject) == ("冰朔", f"write {leaf.trace_path.leaf.path}")
    assert body.strip() == f"Leaf: {leaf.trace_path.leaf.path}"
    root = git(folder, "log", "--reverse", "--format=%s %T", EPOCH).decode().splitlines()[0]
    assert root == f"epoch YM001/ZY001/{EPOCH} 4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def test_no_sidecar_where_it_would_say_nothing(memory: Memory, git: Git) -> None:
    memory.write("只有名字。", epoch=EPOCH)
    assert b"meta" not in git(memory.repository.folder, "ls-tree", EPOCH)


def test_leaves_of_one_second_are_distinct_and_in_order(memory: Memory) -> None:
    labels = [None, "user", "companion", None]
    paths = [
        memory.write(f"第{n}句。", epoch=EPOCH, label=label).trace_path for n, label in enumerate(labels)
    ]
    assert len(set(paths)) == 4
    assert [e.trace_path for e in memory.timeline().entries] == paths[::-1]


def test_a_turn_is_written_once(memory: Memory, clock: FakeClock) -> None:
    """The same turn again changes nothing; another text under it is refused."""
    turn = memory.write_turn("t-1", user="你好呀", companion="你好，冰朔", epoch=EPOCH)
    assert turn.user.commit == turn.companion.commit
    assert (turn.user.created, turn.companion.created) == (True, True)
    clock.tick(100)
    again = memory.write_turn("t-1", user="你好呀", companion="你好，冰朔", epoch="D119")
    assert (again.user.trace_path, again.user.created) == (turn.user.trace_path, False)
    assert again.companion.trace_path == turn.companion.trace_path
    with pytest.raises(RefusedError, match="t-1"):
        memory.write_turn("t-1", user="你好", companion="你好，冰朔")
    assert len(memory.timeline().entries) == 2


@pytest.mark.parametrize("verb", ["archive", "wither", "release"])
def test_a_turn_stays_written_whatever_became_of_it(home: Home, memory: Memory, verb: str) -> None:
    text = "你好呀。今天怎么样？"
    turn = memory.write_turn("t-1", user=text, companion="很好。", epoch=EPOCH)
    getattr(memory, verb)(turn.user.trace_path)
    for path in home.path.glob("index.db*"):
        path.unlink()
    with Home(home.path) as other:
        again = other.persona("YM001/ZY001").write_turn("t-1", user=text, companion="很好。")
    assert (again.user.trace_path, again.user.created) == (turn.user.trace_path, False)


def test_without_an_epoch_a_first_write_begins_d1(memory: Memory) -> None:
    assert memory.write("第一句。").trace_path.epoch == "D1"
    memory.write("后来的。", epoch="D10")
    memory.write("之前的。", epoch="D9")
    assert memory.write("现在的。").trace_path.epoch == "D10"
    memory.start_epoch("D2")
    assert memory.write("回到二。").trace_path.epoch == "D2"
    assert [str(epoch) for epoch in memory.epochs()] == ["D1", "D2", "D9", "D10"]
    assert [epoch.name for epoch in memory.epochs() if epoch.current] == ["D2"]


def test_an_epoch_that_differs_only_in_case_is_a_conflict(memory: Memory) -> None:
    memory.write("一。", epoch="D118")
    with pytest.raises(ConflictError, match="case"):
        memory.write("二。", epoch="d118")


def test_trace_modes(memory: Memory) -> None:
    leaf = memory.write("今天下雨了。去了西湖。", epoch=EPOCH).trace_path
    assert memory.trace(leaf, mode="active").found
    refused = memory.trace(leaf, mode="archived")
    assert (refused.found, refused.status, refused.content, refused.reason) == (
        False,
        "active",
        None,
        "active",
    )
    memory.archive(leaf)
    hidden = {"content": None, "status": "archived", "ts": None, "reason": "archived"}
    assert memory.trace(leaf, mode="active").as_dict() == {"found": False, "trace_path": leaf} | hidden
    found = memory.trace(leaf, mode="archived").as_dict()
    assert found["found"]
    assert found["archived_at"] == "2026-05-31T11:54:47+08:00"
    assert found["compression_ratio"] > 0
    assert memory.trace(leaf, epoch="D119").status == "not_found"
    assert memory.trace(leaf, epoch=EPOCH).found


def test_hnl_strings_are_paths_too(memory: Memory) -> None:
    leaf = memory.write("今天下雨了。", epoch=EPOCH).trace_path
    tail = leaf.removeprefix("YM001/ZY001/")
    assert memory.trace(f"TRACE.YM001/ZY001.{tail}.LEAF_TO_ROOT").content == "今天下雨了。"
    memory.archive(leaf)
    assert memory.remember(f"REMEMBER.{leaf}").content == "今天下雨了。"


def test_case_of_root_and_persona_does_not_matter(memory: Memory) -> None:
    leaf = memory.write("今天下雨了。", epoch=EPOCH).trace_path
    assert memory.trace(leaf.replace("YM001/ZY001", "ym001/zy001")).trace_path == leaf


def test_a_foreign_path_is_refused_whether_it_exists_or_not(home: Home, memory: Memory) -> None:
    other = home.add_persona("YM001/SY001")
    there = other.write("别人的秘密。", epoch=EPOCH).trace_path
    absent = f"YM001/SY001/{EPOCH}/raw/19990101-000000.txt"
    messages = []
    for path in (there, absent):
        for verb in (
            memory.trace,
            memory.remember,
            memory.archive,
            memory.wither,
            memory.release,
            memory.history,
        ):
            with pytest.raises(RefusedError) as caught:
                verb(path)
            messages.append(caught.value.message.replace(path, "PATH"))
    assert len(set(messages)) == 1


def test_what_plain_git_removed_is_archived(memory: Memory, git: Git, tmp_path: Path) -> None:
    """A leaf that `git rm` archived, where no hook is, is found; archived_at is that commit's date."""
    uninstall(memory.repository.folder)
    path = memory.write("手工归档的一句话。", epoch=EPOCH).trace_path
    git(tmp_path, "clone", "-q", "-b", EPOCH, memory.repository.folder, "clone")
    git(tmp_path / "clone", "rm", "-q", path.leaf.path)
    git(tmp_path / "clone", "commit", "-qm", "archive by hand")
    git(tmp_path / "clone", "push", "-q", "origin", EPOCH)
    found = memory.trace(path)
    assert (found.content, found.status, found.archived_at) == (
        "手工归档的一句话。", "archived", "2026-05-31T12:00:00+08:00",
    )  # fmt: skip
    assert [e.status for e in memory.timeline().entries] == ["archived"]
    assert memory.remember(path, restore=True).status == "active"
    git(tmp_path / "clone", "pull", "-q", "--rebase")
    git(tmp_path / "clone", "rm", "-q", path.leaf.path)
    git(tmp_path / "clone", "commit", "-qm", "again")
    git(tmp_path / "clone", "push", "-q", "origin", EPOCH)
    memory.release(path)
    assert memory.trace(path).status == "released"


def test_a_pushed_leaf_needs_no_sidecar(memory: Memory, git: Git, tmp_path: Path) -> None:
    memory.write("先有纪元。", epoch=EPOCH)
    git(tmp_path, "clone", "-q", "-b", EPOCH, memory.repository.folder, "clone")
    (tmp_path / "clone/raw/20260601-080000-hand.txt").write_bytes("手写的。\r\n".encode())
    git(tmp_path / "clone", "add", ".")
    git(tmp_path / "clone", "commit", "-qm", "by hand")
    git(tmp_path / "clone", "push", "-q", "origin", EPOCH)
    path = f"YM001/ZY001/{EPOCH}/raw/20260601-080000-hand.txt"
    found = memory.trace(path)
    assert (found.content, found.ts) == ("手写的。\r\n", "2026-06-01T08:00:00+08:00")
    assert memory.timeline().entries[0].trace_path == path


def test_wither_rederives_an_extract_and_keeps_other_summaries(memory: Memory) -> None:
    text = "今天下雨了。我们去了西湖。你说荷花开了。晚上吃了面。"
    leaf = memory.write(text, epoch=EPOCH, summary="一天").trace_path
    memory.wither(leaf, keep=0.5)
    found = memory.trace(leaf)
    assert (found.status, found.compressed_summary) == ("wither", "一天")
    assert found.content is not None
    assert "……" in found.content
    memory.archive(leaf)
    assert memory.trace(leaf).content == text
    assert memory.remember(leaf, restore=True).status == "active"
    assert memory.trace(leaf).compressed_summary == "一天"


def test_records(memory: Memory, git: Git) -> None:
    leaf = memory.record(
        {"mode": "链", "n": [1, None]}, tags=["a"], human_visible=True, told=False, epoch=EPOCH
    )
    assert leaf.trace_path.kind == "hldp"
    entry = memory.timeline().entries[0]
    assert (entry.kind, entry.human_visible, entry.tags, entry.ts) == ("hldp", True, ("a",), leaf.ts)
    before = git(memory.repository.folder, "rev-parse", f"{EPOCH}:{leaf.trace_path.leaf.path}")
    memory.set_visible(leaf.trace_path, False)
    memory.mark_told(leaf.trace_path)
    assert git(memory.repository.folder, "rev-parse", f"{EPOCH}:{leaf.trace_path.leaf.path}") == before
    assert memory.timeline().entries[0].human_visible is False
    with pytest.raises(RefusedError, match="record"):
        memory.wither(leaf.trace_path)
    memory.archive(leaf.trace_path)
    assert memory.trace(leaf.trace_path).ts == leaf.ts
    memory.remember(leaf.trace_path, restore=True)
    with pytest.raises(ConflictError, match="exists"):
        memory.record(1, id=leaf.trace_path.leaf.stem, epoch=EPOCH)


def test_archive_of_many_is_all_or_none(memory: Memory) -> None:
    paths = [memory.write(f"第{n}句。", epoch=f"D{n}").trace_path for n in (1, 2)]
    memory.archive(paths[1])
    with pytest.raises(RefusedError, match="already archived"):
        memory.archive(*paths)
    assert memory.trace(paths[0]).status == "active"
    with pytest.raises(NotFoundError):
        memory.archive(paths[0], "YM001/ZY001/D1/raw/19990101-000000.txt")
    assert memory.trace(paths[0]).status == "active"


def test_timeline_pages_visit_every_leaf_once(memory: Memory, clock: FakeClock) -> None:
    paths = []
    for n in range(23):
        clock.tick(n % 3)
        paths.append(memory.write(f"第{n}句。", epoch=f"D{n % 4}").trace_path)
    seen: list[str] = []
    cursor = None
    while True:
        page = memory.timeline(limit=5, before=cursor)
        seen += [entry.trace_path for entry in page.entries]
        memory.write("后来的话，不该打乱翻页。", epoch="D9", at="2027-01-01")
        if page.next is None:
            break
        cursor = page.next
    assert sorted(seen) == sorted(paths)
    assert [path.name[:15] for path in map(_path, seen)] == sorted((p.name[:15] for p in paths), reverse=True)


def _path(text: str) -> object:
    return TracePath.parse(text)


def test_timeline_spans_are_days_of_the_persona(memory: Memory) -> None:
    """Midnight is midnight in Shanghai, not in UTC."""
    for at in ("2026-05-30T23:59:59", "2026-05-31T00:00:00", "2026-05-31T23:59:59", "2026-06-01T00:00:00"):
        memory.write("一句话。", at=at, epoch=EPOCH)
    day = memory.timeline(since="2026-05-31", until="2026-05-31").entries
    assert [entry.ts for entry in day] == ["2026-05-31T23:59:59+08:00", "2026-05-31T00:00:00+08:00"]
    assert len(memory.timeline(until="2026-05-30T16:00:00Z").entries) == 1


def test_the_hour_that_comes_twice_keeps_its_order(home: Home) -> None:
    memory = home.add_persona("YM001/NY001", timezone="America/New_York")
    first = memory.write("夏令时。", at="2026-11-01T01:30:00-04:00", epoch=EPOCH)
    second = memory.write("标准时。", at="2026-11-01T01:10:00-05:00", epoch=EPOCH)
    assert (first.ts, second.ts) == ("2026-11-01T01:30:00-04:00", "2026-11-01T01:10:00-05:00")
    assert memory.trace(second.trace_path).ts == second.ts
    assert [e.ts for e in memory.timeline().entries] == [second.ts, first.ts]


def test_history_lists_the_commits_of_a_leaf(memory: Memory) -> None:
    leaf = memory.write("今天下雨了。", epoch=EPOCH)
    memory.write("别的话。", epoch=EPOCH)
    memory.archive(leaf.trace_path)
    memory.remember(leaf.trace_path, restore=True)
    subjects = [entry.subject.split()[0] for entry in memory.history(leaf.trace_path)]
    assert subjects == ["remember", "archive", "write"]
    assert memory.history(leaf.trace_path)[-1].commit == leaf.commit
    assert memory.history(f"YM001/ZY001/{EPOCH}/raw/19990101-000000.txt") == []


def test_a_transaction_is_one_commit(memory: Memory, git: Git) -> None:
    with memory.transaction(epoch=EPOCH) as tx:
        leaves = [tx.write(f"第{n}句。") for n in range(5)]
        leaves.append(tx.record([1, 2]))
        assert {leaf.commit for leaf in leaves} == {None}
    assert len({leaf.commit for leaf in leaves}) == 1
    assert git(memory.repository.folder, "rev-list", "--count", EPOCH).strip() == b"2"
    assert all(memory.trace(leaf.trace_path).found for leaf in leaves)


def test_a_failed_transaction_changes_nothing(memory: Memory, git: Git) -> None:
    kept = memory.write("在的。", epoch=EPOCH)
    before = git(memory.repository.folder, "show-ref")
    with pytest.raises(ZeroDivisionError), memory.transaction(epoch=EPOCH) as tx:
        tx.write("不在的。")
        tx.archive(kept.trace_path)
        raise ZeroDivisionError
    assert git(memory.repository.folder, "show-ref") == before
    with pytest.raises(RefusedError, match="new in this transaction"), memory.transaction(epoch=EPOCH) as tx:
        tx.archive(tx.write("刚写就归档。").trace_path)
    assert git(memory.repository.folder, "show-ref") == before


def test_a_corrupt_object_is_named_and_nothing_is_taken_for_deleted(memory: Memory) -> None:
    leaf = memory.write("会坏掉的一句话。", epoch=EPOCH)
    assert leaf.blob is not None
    file = Path(memory.repository.objects) / leaf.blob[:2] / leaf.blob[2:]
    os.chmod(file, 0o644)
    file.write_bytes(b"garbage")
    memory.repository.close()
    with pytest.raises(CorruptError, match=leaf.blob):
        memory.trace(leaf.trace_path)
    before = memory.repository.refs.head(EPOCH)
    with pytest.raises(CorruptError):
        memory.archive(leaf.trace_path)
    assert memory.repository.refs.head(EPOCH) == before


def test_add_persona_refuses_what_is_taken(home: Home, memory: Memory) -> None:
    assert home.persona("铸渊").name == memory.name
    assert home.persona("ym001/zy001") is memory
    for name in ("YM001/ZY001", "ym001/zy001"):
        with pytest.raises(ConflictError):
            home.add_persona(name)
    with pytest.raises(ConflictError, match="alias"):
        home.add_persona("YM001/X", aliases=["铸渊"])
    with pytest.raises(NotFoundError):
        home.persona("没有这个人")
    for bad in ({"timezone": "Mars"}, {"aliases": ["a/b"]}, {"human": "\n"}, {"aliases": "abc"}):
        with pytest.raises(UsageError):
            home.add_persona("YM001/X", **bad)  # type: ignore[arg-type]
    assert [str(persona) for persona in home.personas()] == ["YM001/ZY001"]
    assert (home.personas()[0].aliases, home.personas()[0].human) == (("铸渊",), "冰朔")


def test_a_plain_clone_shows_the_leaf(memory: Memory, git: Git, tmp_path: Path) -> None:
    path = memory.write("克隆得到的话。", epoch=EPOCH).trace_path
    git(tmp_path, "clone", "-q", memory.repository.folder, "clone")
    assert "gitmem.yaml" in os.listdir(tmp_path / "clone")
    assert b"origin/D118" in git(tmp_path / "clone", "branch", "-r")
    assert git(tmp_path / "clone", "show", f"origin/D118:{path.leaf.path}") == "克隆得到的话。".encode()


def test_a_home_can_be_moved_and_read_only_files_stay(home: Home, memory: Memory, tmp_path: Path) -> None:
    path = memory.write("搬家。", epoch=EPOCH).trace_path
    home.close()
    home.path.rename(tmp_path / "moved")
    with Home(tmp_path / "moved") as moved:
        assert moved.persona("YM001/ZY001").trace(path).content == "搬家。"


def test_the_clock_is_the_homes(home: Home, memory: Memory, clock: FakeClock) -> None:
    clock.set("2030-01-02T03:04:05+00:00")
    assert memory.write("将来。", epoch=EPOCH).trace_path.name == "20300102-110405.txt"
    assert (
        datetime.fromisoformat(memory.history(memory.timeline().entries[0].trace_path)[0].ts) == clock.utc()
    )


def test_subprocess_git_sees_no_user_configuration(memory: Memory) -> None:
    """Repositories made by gitmem never collect garbage by themselves."""
    done = subprocess.run(
        ["git", "-C", memory.repository.folder, "config", "--get", "gc.auto"], capture_output=True, check=True
    )
    assert done.stdout == b"0\n"
