"""Two homes and a remote: what one writes, archives or releases, the other comes to have."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gitmem import Home, Memory
from gitmem.errors import ConflictError, NotFoundError, RefusedError, UnavailableError, UsageError
from gitmem.host import wait
from gitmem.maintain import maintain
from gitmem.receive import install
from gitmem.report import Reach
from gitmem.store.wire import Reply, Wire
from gitmem.sync import RemoteReport, add_remote, list_remotes, remove_remote, status, sync
from tests.conftest import PERSONA, FakeClock, run_git
from tests.kill import secret
from tests.traces import found_in, runs_of

EPOCH = "D118"


def bare(folder: Path, *, hooks: bool = True) -> Path:
    """A bare repository such as a git host keeps; with our hooks, or without any."""
    run_git(folder.parent, "init", "-q", "--bare", str(folder))
    if hooks:
        install.install(str(folder))
    return folder


@dataclass
class Pair:
    """Two homes of one persona, and what lies between them."""

    one: Memory
    two: Memory
    homes: tuple[Home, Home]
    remote: Path

    def sync(self, *which: int, **options: bool) -> list[RemoteReport]:
        """Sync home 1 and 2 in the order given; every report must be calm."""
        reports = [self.ask(number, **options) for number in which]
        for report in reports:
            assert report.reached, report.error
            assert report.complete, str(report.as_dict())
        return reports

    def ask(self, number: int, **options: bool) -> RemoteReport:
        return sync(self.homes[number - 1], PERSONA, **options).remotes[0]

    def tips(self, epoch: str = EPOCH) -> set[str]:
        """Where the epoch stands in both homes and at the remote: one id, when all is in step."""
        folders = [self.one.repository.folder, self.two.repository.folder, str(self.remote)]
        return {run_git(f, "rev-parse", f"refs/heads/{epoch}").decode().strip() for f in folders}


@pytest.fixture(params=[True], ids=["hooks"])
def hooks(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def pair(tmp_path: Path, home: Home, memory: Memory, clock: FakeClock, hooks: bool) -> Iterator[Pair]:
    remote = bare(tmp_path / "host.git", hooks=hooks)
    memory.write("第一天。\n", epoch=EPOCH, tags=["雨"])
    assert add_remote(home, PERSONA, str(remote)) is None
    report = sync(home, PERSONA).remotes[0]
    assert report.complete, report.as_dict()
    with Home.init(tmp_path / "other", clock=clock) as other:
        taken = add_remote(other, PERSONA, str(remote))
        assert taken is not None
        assert taken.complete
        yield Pair(memory, other.persona(PERSONA), (home, other), remote)


def fsck(*folders: str | Path) -> None:
    for folder in folders:
        run_git(folder, "fsck", "--full", "--strict")


def test_a_persona_that_is_not_here_is_taken_from_the_url(pair: Pair) -> None:
    assert pair.two.trace(f"{PERSONA}/{EPOCH}/raw/20260531-115447.txt").content == "第一天。\n"
    assert pair.two.manifest == pair.one.manifest
    assert len(pair.tips()) == 1
    assert len(pair.tips("main")) == 1


def test_names_given_by_two_homes_never_meet(pair: Pair) -> None:
    mine = pair.one.write("here", epoch=EPOCH, label="walk").trace_path
    its = pair.two.write("there", epoch=EPOCH, label="walk").trace_path
    assert mine != its
    for memory, path in ((pair.one, mine), (pair.two, its)):
        label = memory.repository.label
        assert label is not None
        assert f"-walk-{label}" in path
    pair.sync(1, 2, 1)
    assert [pair.two.trace(mine).content, pair.one.trace(its).content] == ["here", "there"]
    assert len(pair.tips()) == 1


def test_both_sides_have_new_commits(pair: Pair, clock: FakeClock) -> None:
    for i in range(3):
        clock.tick()
        pair.one.write(f"one {i} 雨☔", epoch=EPOCH)
        pair.two.write(f"two {i} 雪❄", epoch=EPOCH, role="user", turn_id=f"t-{i}")
    pair.two.write("a new epoch", epoch="D119")
    first, second = pair.sync(1, 2)
    assert first.branches[EPOCH].sent == 3
    branch = second.branches[EPOCH]
    assert (branch.taken, branch.sent, branch.joined) == (3, 3, True)
    pair.sync(1)
    assert len(pair.tips()) == len(pair.tips("D119")) == len(pair.tips("main")) == 1
    texts = {entry.trace_path for entry in pair.one.timeline(limit=100).entries}
    assert len(texts) == 8
    authors = run_git(pair.remote, "log", "--format=%an", EPOCH).decode().split()
    assert authors.count("冰朔") == 3
    fsck(pair.remote, pair.one.repository.folder, pair.two.repository.folder)


def test_a_leaf_written_and_archived_offline_keeps_its_text_in_history(pair: Pair, clock: FakeClock) -> None:
    pair.two.write("something new there", epoch=EPOCH)
    pair.sync(2)
    path = pair.one.write("写了就收起来", epoch=EPOCH).trace_path
    pair.one.archive(path)
    pair.sync(1, 2)
    assert pair.two.remember(path).content == "写了就收起来"
    assert pair.two.trace(path).status == "archived"


def test_a_release_travels_and_leaves_nothing(pair: Pair, tmp_path: Path) -> None:
    text = secret("released")
    path = pair.one.write(text, epoch=EPOCH).trace_path
    pair.one.write("it stays", epoch=EPOCH)
    pair.sync(1, 2)
    assert pair.two.trace(path).content == text
    pair.two.release(path)
    sent = pair.sync(2)[0]
    assert any(place.reach is Reach.PURGED and "gone" in place.detail for place in sent.places)
    got = pair.sync(1)[0]
    assert got.branches[EPOCH].released == 1
    assert pair.one.trace(path).status == "released"
    assert len(pair.tips()) == 1
    runs = runs_of(text)
    assert found_in(tmp_path / "home", runs) == []
    assert found_in(tmp_path / "other", runs) == []
    assert found_in(tmp_path, runs) == []
    fsck(pair.remote, pair.one.repository.folder, pair.two.repository.folder)


def test_a_leaf_released_before_it_was_pushed(pair: Pair, tmp_path: Path) -> None:
    text = secret("offline")
    pair.one.write("before", epoch=EPOCH)
    path = pair.one.write(text, epoch=EPOCH).trace_path
    pair.one.write("after", epoch=EPOCH)
    pair.one.release(path)
    pair.sync(1, 2, 1)
    assert pair.two.trace(path).status == "released"
    assert len(pair.tips()) == 1
    assert found_in(tmp_path, runs_of(text)) == []


def test_released_on_both_sides_with_new_leaves_on_both(pair: Pair, clock: FakeClock, tmp_path: Path) -> None:
    texts = [secret(f"both {i}") for i in range(3)]
    paths = [pair.one.write(text, epoch=EPOCH).trace_path for text in texts]
    pair.sync(1, 2)
    clock.tick(60)
    pair.one.write("one more here", epoch=EPOCH)
    pair.one.release(paths[0], paths[1])
    clock.tick(60)
    pair.two.release(paths[1])
    pair.two.write("one more there", epoch=EPOCH)
    pair.two.release(paths[2])
    pair.sync(1, 2, 1)
    assert {pair.one.trace(path).status for path in paths} == {"released"}
    assert len(pair.tips()) == 1
    for text in texts:
        assert found_in(tmp_path, runs_of(text)) == []
    assert len(pair.two.timeline(limit=10).entries) == 3


def test_the_same_sync_again_does_nothing(pair: Pair) -> None:
    pair.one.write("x", epoch=EPOCH)
    pair.sync(1, 2, 1)
    before = run_git(pair.one.repository.folder, "for-each-ref")
    report = pair.sync(1)[0]
    assert report.told == []
    assert run_git(pair.one.repository.folder, "for-each-ref") == before


def test_a_dry_run_changes_nothing(pair: Pair) -> None:
    pair.one.write("x", epoch=EPOCH)
    pair.two.write("y", epoch=EPOCH)
    pair.sync(2)
    before = run_git(pair.one.repository.folder, "for-each-ref"), run_git(pair.remote, "for-each-ref")
    report = pair.ask(1, dry_run=True)
    assert (report.branches[EPOCH].taken, report.branches[EPOCH].sent) == (1, 1)
    assert before == (
        run_git(pair.one.repository.folder, "for-each-ref"),
        run_git(pair.remote, "for-each-ref"),
    )


def test_states_join(pair: Pair, clock: FakeClock) -> None:
    path = pair.one.write("一句。两句。三句。四句。", epoch=EPOCH).trace_path
    pair.sync(1, 2)
    pair.one.archive(path)
    clock.tick()
    pair.two.wither(path)
    pair.sync(1, 2, 1)
    assert pair.one.trace(path).status == pair.two.trace(path).status == "archived"
    assert pair.two.remember(path).content == "一句。两句。三句。四句。"
    assert len(pair.tips()) == 1


def test_a_forgotten_original_is_forgotten_everywhere(pair: Pair, clock: FakeClock, tmp_path: Path) -> None:
    text = secret("forget")
    path = pair.one.write(text, epoch=EPOCH).trace_path
    pair.sync(1, 2)
    pair.two.write("new there", epoch=EPOCH)
    pair.two.archive(path)
    pair.sync(2)
    clock.tick()
    leaf = pair.one.wither(path, 0.2, forget_original=True)
    assert leaf.report is not None
    pair.sync(1, 2)
    blur = pair.one.remember(path).content or ""
    assert pair.two.remember(path).content == blur
    runs = runs_of(text, elsewhere=blur.encode())
    assert found_in(tmp_path, runs) == []
    assert len(pair.tips()) == 1


def test_offline_is_told_and_writing_goes_on(pair: Pair) -> None:
    gone = pair.remote.rename(pair.remote.with_name("away.git"))
    path = pair.one.write("offline", epoch=EPOCH).trace_path
    report = pair.ask(1)
    assert not report.reached
    assert str(pair.remote) in report.error
    assert [(w.remote, w.commits) for w in status(pair.homes[0], PERSONA)] == [("origin", 1)]
    gone.rename(pair.remote)
    pair.sync(1, 2)
    assert status(pair.homes[0])[0].commits == 0
    assert pair.two.trace(path).content == "offline"


def test_a_branch_that_vanished_or_went_back_is_pushed_again(pair: Pair) -> None:
    pair.one.write("x", epoch=EPOCH)
    pair.sync(1, 2)
    run_git(pair.remote, "update-ref", f"refs/heads/{EPOCH}", f"{EPOCH}~1")
    pair.sync(1)
    assert len(pair.tips()) == 1
    run_git(pair.remote, "update-ref", "-d", f"refs/heads/{EPOCH}")
    pair.sync(2)
    assert len(pair.tips()) == 1


def test_history_rewritten_there_without_a_release_stops(pair: Pair) -> None:
    path = pair.one.write("ours", epoch=EPOCH).trace_path
    pair.sync(1, 2)
    before = pair.one.repository.refs.head(EPOCH)
    root = run_git(pair.remote, "rev-list", "--max-parents=0", EPOCH).decode().strip()
    tree = run_git(pair.remote, "rev-parse", f"{EPOCH}^{{tree}}").decode().strip()
    forged = run_git(pair.remote, "commit-tree", tree, "-p", root, "-m", "forged").decode().strip()
    run_git(pair.remote, "update-ref", f"refs/heads/{EPOCH}", forged)
    pair.one.write("new here", epoch="D119")
    report = pair.ask(1)
    assert report.reached
    assert "rewritten" in report.branches[EPOCH].stopped
    assert pair.one.repository.refs.head(EPOCH) == before
    rescue = pair.one.repository.refs.read(f"refs/rescue/origin/{EPOCH}")
    assert rescue is not None
    assert rescue.hex() == forged
    assert pair.one.trace(path).content == "ours"
    assert report.branches["D119"].sent == 2
    # The way out that the report names.
    run_git(pair.one.repository.folder, "update-ref", "-d", f"refs/remotes/origin/{EPOCH}")
    assert pair.ask(1).complete
    assert pair.one.trace(path).content == "ours"


def test_two_homes_begin_the_same_epoch(pair: Pair, clock: FakeClock) -> None:
    mine = pair.one.write("one begins", epoch="D200").trace_path
    clock.tick(5)
    its = pair.two.write("two begins", epoch="D200").trace_path
    pair.sync(1, 2, 1)
    assert len(pair.tips("D200")) == 1
    assert pair.one.trace(its).content == "two begins"
    assert pair.two.trace(mine).content == "one begins"
    roots = run_git(pair.remote, "rev-list", "--max-parents=0", "D200").split()
    assert len(roots) == 1
    assert len(run_git(pair.remote, "rev-list", "D200").split()) == 3


def test_two_homes_made_the_same_persona(
    tmp_path: Path, home: Home, memory: Memory, clock: FakeClock
) -> None:
    remote = bare(tmp_path / "host.git")
    mine = memory.write("here", epoch="D1").trace_path
    add_remote(home, PERSONA, str(remote))
    assert sync(home).exit_code == 0
    clock.tick(100)
    with Home.init(tmp_path / "other", clock=clock) as other:
        twin = other.add_persona(PERSONA, human="冰朔", timezone="Asia/Shanghai")
        its = twin.write("there", epoch="D1").trace_path
        add_remote(other, PERSONA, str(remote))
        assert sync(other).exit_code == 0
        assert twin.manifest.aliases == ("铸渊",)
        assert twin.trace(mine).content == "here"
        assert sync(home).exit_code == 0
        assert memory.trace(its).content == "there"


def test_the_same_turn_on_both_sides(pair: Pair, clock: FakeClock) -> None:
    for memory, text in ((pair.one, "the same"), (pair.two, "the same")):
        memory.write(text, epoch=EPOCH, role="user", turn_id="t-1")
        clock.tick()
    for memory, text in ((pair.one, "one's answer"), (pair.two, "two's answer")):
        memory.write(text, epoch=EPOCH, role="companion", turn_id="t-1")
        clock.tick()
    pair.sync(1)
    report = pair.ask(2)
    branch = report.branches[EPOCH]
    assert len(branch.dropped) == 1
    assert len(branch.conflicts) == 1
    assert "lost its turn_id" in branch.conflicts[0]
    pair.sync(1)
    assert len(pair.tips()) == 1
    found = pair.one.find_turn("t-1", "companion")
    assert found is not None
    assert pair.one.trace(found.trace_path).content == "one's answer"
    texts = [pair.one.trace(e.trace_path).content for e in pair.one.timeline(limit=20).entries]
    assert sorted(texts, key=str) == sorted(["第一天。\n", "the same", "one's answer", "two's answer"])


def test_another_persona_or_zone_is_refused(
    tmp_path: Path, home: Home, memory: Memory, pair: Pair, clock: FakeClock
) -> None:
    with Home.init(tmp_path / "third", clock=clock) as third:
        third.add_persona("YM001/ZY002", timezone="Asia/Shanghai")
        add_remote(third, "YM001/ZY002", str(pair.remote))
        report = sync(third).remotes[0]
        assert "holds YM001/ZY001, not YM001/ZY002" in report.error
        third.add_persona(PERSONA, timezone="UTC")
        add_remote(third, PERSONA, str(pair.remote))
        assert "time zone" in sync(third, PERSONA).remotes[0].error
        with pytest.raises(RefusedError, match="not YM001/ZY009"):
            add_remote(third, "YM001/ZY009", str(pair.remote))
        assert sorted(third.personas()) == ["YM001/ZY001", "YM001/ZY002"]
        assert not list((tmp_path / "third").glob("*/.new*"))
    assert len(pair.tips()) == 1


def test_taking_a_persona_is_all_or_nothing(tmp_path: Path, home: Home) -> None:
    with pytest.raises(UnavailableError, match="no git repository"):
        add_remote(home, "YM009/ZY009", str(tmp_path / "nowhere"))
    empty = bare(tmp_path / "empty.git")
    with pytest.raises(RefusedError):
        add_remote(home, "YM009/ZY009", str(empty))
    assert not (home.path / "ym009").exists()
    assert home.personas() == []


@pytest.mark.parametrize("url", ["", "-u", "ext::sh -c x", "http://h/a\nb"])
def test_a_url_that_is_none(memory: Memory, home: Home, url: str) -> None:
    with pytest.raises(UsageError):
        add_remote(home, PERSONA, url)
    assert list_remotes(home) == []


def test_the_list_of_remotes(
    tmp_path: Path, memory: Memory, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    add_remote(home, PERSONA, "host.git")
    add_remote(home, PERSONA, "https://u:geheim@example.invalid/x.git", remote="forge")
    found = [remote for _, remote in list_remotes(home)]
    assert [(r.name, r.url) for r in found] == [
        ("forge", "https://example.invalid/x.git"), ("origin", str(tmp_path / "host.git")),
    ]  # fmt: skip
    assert "geheim" not in repr(found)
    file = home.path / "credentials"
    assert file.stat().st_mode & 0o777 == 0o600
    assert b"geheim" not in Path(memory.repository.folder, "config").read_bytes()
    with pytest.raises(ConflictError):
        add_remote(home, PERSONA, "elsewhere.git")
    label = memory.repository.label
    remove_remote(home, PERSONA, "origin")
    assert memory.repository.label == label
    remove_remote(home, PERSONA, "forge")
    assert memory.repository.label is None
    assert b"geheim" not in file.read_bytes()
    with pytest.raises(NotFoundError):
        remove_remote(home, PERSONA, "forge")
    with pytest.raises(NotFoundError):
        sync(home, PERSONA)


@pytest.mark.parametrize("hooks", [False], indirect=True, ids=["no hooks"])
def test_a_host_without_hooks_keeps_the_text_and_sync_says_so(
    pair: Pair, tmp_path: Path, clock: FakeClock
) -> None:
    text = secret("kept there")
    path = pair.one.write(text, epoch=EPOCH).trace_path
    pair.sync(1, 2)
    pair.one.release(path)
    report = pair.ask(1)
    assert report.reached
    (place,) = [place for place in report.places if place.reach is Reach.UNREACHED]
    assert place.detail.startswith("still served")
    assert "--rewrite-remote" in place.command
    # The other home purges although the host did not, and neither takes the text in again.
    pair.ask(2)
    pair.two.write("later", epoch=EPOCH)
    pair.ask(2)
    pair.ask(1)
    assert pair.one.trace(path).status == pair.two.trace(path).status == "released"
    assert pair.one.repository.refs.head(EPOCH) == pair.two.repository.refs.head(EPOCH)
    for folder in ("home", "other"):
        assert found_in(tmp_path / folder, runs_of(text)) == []
    assert len(pair.tips()) == 2
    forced = pair.ask(1, rewrite_remote=True)
    assert len(pair.tips()) == 1
    assert any("still served" in place.detail for place in forced.places)
    run_git(pair.remote, "reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")
    run_git(pair.remote, "gc", "-q", "--prune=now")
    assert found_in(tmp_path, runs_of(text)) == []
    pair.sync(1, 2)


# -- pages -----------------------------------------------------------------------------------


def page(folder: Path, name: str, text: str) -> None:
    """One more version of a page, as somebody with plain git makes it."""
    blob = run_git(folder, "hash-object", "-w", "--stdin", data=text.encode()).decode().strip()
    tip = run_git(folder, "rev-parse", "--verify", "-q", "main", ok=(0, 1)).decode().strip()
    lines = run_git(folder, "ls-tree", tip).decode().splitlines() if tip else []
    lines = [line for line in lines if not line.endswith(f"\t{name}")] + [f"100644 blob {blob}\t{name}"]
    tree = run_git(folder, "mktree", data="".join(f"{line}\n" for line in lines).encode()).decode().strip()
    parents = ["-p", tip] if tip else []
    made = run_git(folder, "commit-tree", tree, "-m", f"page {name}", *parents).decode().strip()
    run_git(folder, "update-ref", "refs/heads/main", made)


def test_pages_go_both_ways(pair: Pair) -> None:
    there = bare(pair.remote.with_name("host.wiki.git"), hooks=False)
    pair.sync(1)
    page(there, "Home.md", "# 家\n")
    report = pair.sync(1, 2)[0]
    assert report.branches["wiki"].taken == 1
    mine, its = (Path(m.repository.folder).with_name("zy001.wiki.git") for m in (pair.one, pair.two))
    assert run_git(mine, "show", "main:Home.md") == run_git(its, "show", "main:Home.md") == "# 家\n".encode()
    page(mine, "A.md", "a")
    page(its, "B.md", "b")
    pair.sync(1, 2, 1)
    tips = {run_git(folder, "rev-parse", "main") for folder in (mine, its, there)}
    assert len(tips) == 1
    page(mine, "Home.md", "one")
    page(its, "Home.md", "two")
    pair.sync(1)
    report = pair.ask(2)
    assert "Home.md was changed on both sides." in report.branches["wiki"].stopped
    assert run_git(its, "show", "main:Home.md") == b"two"
    assert run_git(there, "show", "main:Home.md") == b"one"
    fsck(mine, its, there)


def test_pages_that_are_only_here_stay_here(pair: Pair) -> None:
    mine = bare(Path(pair.one.repository.folder).with_name("zy001.wiki.git"), hooks=False)
    page(mine, "Home.md", "x")
    report = pair.sync(1)[0]
    assert "not exchanged" in report.branches["wiki"].notes[0]


def test_an_original_forgotten_before_it_was_ever_sent(pair: Pair, tmp_path: Path) -> None:
    text = secret("never sent")
    path = pair.one.write(text, epoch="D300").trace_path
    pair.one.wither(path, 0.2, forget_original=True)
    other = pair.one.write(text + "再说一句。", epoch=EPOCH).trace_path
    pair.one.wither(other, 0.6)
    pair.one.archive(other)
    pair.one.remember(other, restore=True)
    pair.one.wither(other, 0.6)
    pair.one.wither(other, 0.2, forget_original=True)
    pair.one.archive(other)
    pair.sync(1, 2)
    for leaf in (path, other):
        shown = pair.one.remember(leaf).content
        assert shown != text
        assert pair.two.remember(leaf).content == shown
    assert len(pair.tips()) == len(pair.tips("D300")) == 1


def in_both(memory: Memory, texts: dict[str, str]) -> str:
    """Write a leaf of one name into several epochs, as was possible before; its name in each."""
    name = "raw/20260101-000000.txt"
    with memory.repository.locked():
        who = memory.gitmem_person(memory.now())
        for epoch, text in texts.items():
            root = memory.ensure_epoch(epoch)
            memory.repository.commit(
                epoch, {name: text.encode()}, "write\n", base=root, author=who, committer=who
            )
    return name


def test_a_name_that_two_epochs_have_and_one_releases(pair: Pair) -> None:
    """Such names come from before the first remote. The other epoch goes first."""
    name = in_both(pair.one, {"D301": "D301", "D302": "D302"})
    pair.one.release(f"{PERSONA}/D301/{name}")
    pair.sync(1, 2)
    assert pair.two.trace(f"{PERSONA}/D301/{name}").status == "released"
    assert pair.two.trace(f"{PERSONA}/D302/{name}").content == "D302"


def test_names_of_one_second_differ_over_all_epochs_once_there_is_a_remote(pair: Pair) -> None:
    names = {pair.one.write("x", epoch=epoch).trace_path.name for epoch in ("D1", "D2", EPOCH)}
    assert len(names) == 3


def test_the_same_name_is_purged_in_two_epochs_at_once(pair: Pair) -> None:
    """The purge of one epoch leaves what the other's still has to read."""
    name = in_both(pair.one, {epoch: secret(epoch) for epoch in ("D301", "D302")})
    pair.sync(1, 2)
    pair.two.write("new", epoch="D301")
    pair.two.write("new", epoch="D302")
    for epoch in ("D301", "D302"):
        pair.one.wither(f"{PERSONA}/{epoch}/{name}", 0.6, forget_original=True)
    pair.sync(1, 2, 1)
    assert len(pair.tips("D301")) == len(pair.tips("D302")) == 1
    fsck(pair.two.repository.folder)


def test_a_release_comes_to_an_epoch_that_shares_its_pack(pair: Pair, tmp_path: Path) -> None:
    """What comes is purged already: what it shares with the old history stands in the old pack alone."""
    text = secret("in a shared pack")
    kept = pair.one.write("stays", epoch="D1").trace_path
    path = pair.one.write(text, epoch="D1").trace_path
    other = pair.one.write("another epoch", epoch="D2").trace_path
    pair.one.write("open", epoch="D900")
    pair.sync(1, 2)
    maintain(pair.one)
    keeps = [f.read_text() for f in Path(pair.one.repository.objects, "pack").glob("*.keep")]
    assert any("D1 " in keep and "D2 " in keep for keep in keeps)
    pair.two.release(path)
    pair.sync(2, 1)
    fsck(pair.one.repository.folder)
    assert [pair.one.trace(p).status for p in (kept, path, other)] == ["active", "released", "active"]
    assert found_in(tmp_path, runs_of(text)) == []


# -- a host that is slow, or has its own mind ------------------------------------------------


def test_a_purge_that_has_not_ended_there_is_waited_for(pair: Pair) -> None:
    """Another home pushes a release; the host moves the branch first, and purges a little later."""
    path = pair.one.write(secret("slow"), epoch=EPOCH).trace_path
    pair.sync(1, 2)
    slow = pair.remote / "hooks" / "post-receive.d" / "00-slow"
    slow.write_text("#!/bin/sh\ntouch there\nsleep 2\n")
    slow.chmod(0o755)
    pair.two.release(path)
    pusher = threading.Thread(target=pair.ask, args=(2,))
    pusher.start()
    assert wait((pair.remote / "there").exists, 60)
    report = pair.ask(1)
    pusher.join(60)
    assert report.complete, report.as_dict()
    assert report.branches[EPOCH].released == 1
    pair.sync(1, 2)
    assert len(pair.tips()) == 1


def test_a_branch_that_never_rests_is_named(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    push = Wire.push

    def faster(wire: Wire, folder: str, updates: dict[str, bytes], lease: dict[str, bytes]) -> Reply:
        tree = run_git(pair.remote, "rev-parse", f"{EPOCH}^{{tree}}").decode().strip()
        made = run_git(pair.remote, "commit-tree", tree, "-p", EPOCH, "-m", "more").decode().strip()
        run_git(pair.remote, "update-ref", f"refs/heads/{EPOCH}", made)
        return push(wire, folder, updates, lease)

    monkeypatch.setattr(Wire, "push", faster)
    pair.one.write("x", epoch=EPOCH)
    report = pair.ask(1)
    assert [branch.branch for branch in report.told if branch.stopped] == [EPOCH]
    assert f"{EPOCH} moved" in report.branches[EPOCH].stopped


@pytest.mark.parametrize("hooks", [False], indirect=True, ids=["no hooks"])
def test_an_amended_tombstone_is_no_released_text(pair: Pair, tmp_path: Path) -> None:
    """The text was released before it was ever sent; then somebody gave that commit other words."""
    text = secret("never there")
    path = pair.one.write(text, epoch=EPOCH).trace_path
    pair.one.release(path)
    pair.sync(1, 2)
    head = f"refs/heads/{EPOCH}"
    tree = run_git(pair.remote, "rev-parse", f"{EPOCH}^{{tree}}").decode().strip()
    amended = run_git(pair.remote, "commit-tree", tree, "-p", f"{EPOCH}~1", "-m", "amended").decode().strip()
    run_git(pair.remote, "update-ref", head, amended)
    assert "rewritten" in pair.ask(1).branches[EPOCH].stopped
    assert status(pair.homes[0])[0].stopped == [EPOCH]
    folder = pair.one.repository.folder
    run_git(folder, "update-ref", "-d", f"refs/remotes/origin/{EPOCH}")
    for number in (1, 1):
        report = pair.sync(number)[0]
        assert report.places == []
    assert pair.one.repository.refs.all("refs/rescue/") == {}
    assert status(pair.homes[0])[0].stopped == []
    pair.one.write("goes on", epoch=EPOCH)
    assert pair.sync(1)[0].branches[EPOCH].sent == 1
    assert pair.sync(1)[0].told == []
    assert found_in(tmp_path, runs_of(text)) == []


def test_only_epochs_that_released_something_are_asked_for(pair: Pair) -> None:
    path = pair.one.write(secret("asked"), epoch=EPOCH).trace_path
    pair.sync(1)
    pair.one.release(path)
    pair.one.write("another", epoch="D119")
    places = pair.sync(1)[0].places
    assert [place.name for place in places] == [f"{pair.remote} {EPOCH}"]
