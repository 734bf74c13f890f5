"""Tombstones that arrive by push: what is purged, what the pusher is told, and that nothing comes back."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from tests.forge import Clone, write_script
from tests.pushing import LEAF, RAIN, SIDECAR, TOMBSTONE, Site, rules, taken

NEW = "raw/20260601-080000.txt"
PERSONA = "YM001/ZY001"


def release(work: Clone) -> list[str]:
    """Release the leaf with plain git, and push; what the pusher was told."""
    work.commit({LEAF: None, SIDECAR: TOMBSTONE}, "release")
    done = work.push()
    taken(done)
    return done.remote


def objects(site: Site) -> str:
    return site.git("cat-file", "--batch-check", "--batch-all-objects").decode()


def holds(folder: Path, text: bytes) -> list[str]:
    """Plain files below a folder that hold a text."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]


def check_gone(site: Site, blob: str, commits: list[str]) -> None:
    """Neither the blob nor the old commits are in the repository, in no form."""
    known = objects(site)
    assert blob not in known
    assert not [commit for commit in commits if commit in known]
    site.git("fsck", "--strict", "--full")
    assert not holds(site.folder, RAIN[:8].encode())
    for log in (site.folder / "logs").rglob("*"):
        assert not log.is_file() or not [commit for commit in commits if commit in log.read_text()]
    assert not list((site.folder / "gitmem.purge").glob("*"))
    assert not list((site.folder / "gitmem.inflight").glob("*"))


def test_tombstone_purges_and_tells(site: Site) -> None:
    work = site.clone()
    blob = work.git("rev-parse", f"D1:{LEAF}")
    old = work.git("rev-list", "D1").split()[:-1]
    told = release(work)
    mine = [line for line in told if line.startswith("gitmem: ")]
    assert any("released" in line and "D1" in line for line in mine), told
    assert any("gitmem sync" in line and "git pull --rebase" in line for line in mine), told
    assert "雨" not in "".join(told)
    check_gone(site, blob, [*old, work.git("rev-parse", "HEAD")])
    with site.home() as home:
        assert home.persona(PERSONA).trace(f"{PERSONA}/D1/{LEAF}").status == "released"


def test_plain_git_recovers_by_pull_rebase(site: Site) -> None:
    one, two = site.clone("a"), site.clone("b")
    two.commit({NEW: "还没有推。"})
    release(one)
    for work in (one, two):
        work.git("pull", "-q", "--rebase")
        assert work.git("ls-tree", "-r", "--name-only", "HEAD", LEAF) == ""
    assert one.git("rev-parse", "HEAD") == site.git("rev-parse", "D1").decode().strip()
    taken(two.push())
    assert site.git("show", f"D1:{NEW}").decode() == "还没有推。"


def test_many_leaves_of_many_epochs_in_one_push(site: Site) -> None:
    work = site.clone()
    for epoch in ("E1", "E2", "E3"):
        work.orphan(epoch)
        work.commit({f"raw/20260601-08000{i}.txt": f"秘密 {epoch} {i}\n" for i in range(4)})
        taken(work.push(epoch))
    blobs = [work.git("rev-parse", f"{e}:raw/20260601-08000{i}.txt") for e in ("E1", "E2") for i in range(3)]
    for epoch in ("E1", "E2"):
        work.git("switch", "-q", epoch)
        for i in range(3):
            path = f"raw/20260601-08000{i}.txt"
            work.commit({path: None, f"meta/{path[:-4]}.yaml": TOMBSTONE})
    done = work.push("E1", "E2")
    taken(done)
    assert all(any(epoch in line for line in done.remote) for epoch in ("E1", "E2")), done.remote
    known = objects(site)
    assert not [blob for blob in blobs if blob in known]
    assert site.git("show", "E3:raw/20260601-080000.txt").decode() == "秘密 E3 0\n"
    site.git("fsck", "--strict")


def test_written_and_released_in_one_push(site: Site) -> None:
    work = site.clone()
    work.commit({NEW: "说了又后悔。"})
    blob = work.git("rev-parse", f"HEAD:{NEW}")
    work.commit({NEW: None, "meta/raw/20260601-080000.yaml": TOMBSTONE})
    taken(work.push())
    assert blob not in objects(site)


def test_tombstone_of_a_leaf_that_the_host_never_saw(site: Site) -> None:
    work = site.clone()
    work.commit({"meta/raw/20260601-080000.yaml": TOMBSTONE})
    taken(work.push())
    work.git("fetch", "-q")
    work.git("reset", "-q", "--hard", "origin/D1")
    work.commit({NEW: "还是来了", "meta/raw/20260601-080000.yaml": None})
    assert rules(work.push()) == {"leaf.released"}


# -- what a stale clone may try ---------------------------------------------------------------


@pytest.fixture
def stale(site: Site) -> tuple[Clone, str]:
    """A clone from before a release, with one commit of its own; and the released blob."""
    work, releaser = site.clone("stale"), site.clone("releaser")
    blob = work.git("rev-parse", f"D1:{LEAF}")
    work.git("tag", "before")
    work.commit({NEW: "旧世界里的新话。"})
    release(releaser)
    return work, blob


def refuse(site: Site, work: Clone, blob: str, *refs: str) -> set[str]:
    with site.unchanged():
        found = rules(work.push(*refs))
    assert blob not in objects(site)
    return found


def test_stale_clone_pushes_its_history(site: Site, stale: tuple[Clone, str]) -> None:
    work, blob = stale
    assert work.push().code
    assert refuse(site, work, blob, "--force") == {"history.purged"}
    assert refuse(site, work, blob, "HEAD:refs/heads/D9") == {"history.purged"}
    assert refuse(site, work, blob, "before:refs/heads/D9") == {"history.purged"}
    assert refuse(site, work, blob, "before") == {"ref.tag"}
    assert refuse(site, work, blob, "HEAD:refs/for/D1/x") == {"ref.name"}
    assert refuse(site, work, blob, "HEAD:refs/notes/x") == {"ref.name"}


@pytest.mark.parametrize("strategy", ["ours", "ort"])
def test_stale_clone_merges(site: Site, stale: tuple[Clone, str], strategy: str) -> None:
    work, blob = stale
    work.git("fetch", "-q")
    options = ["-X", "ours"] if strategy == "ort" else []
    work.ask("merge", "-q", "-s", strategy, *options, "-m", "merged", "origin/D1")
    if work.ask("rev-parse", "-q", "--verify", "MERGE_HEAD").code == 0:
        work.git("add", "-A")
        work.git("commit", "-q", "-m", "merged")
    assert len(work.git("rev-list", "--parents", "-1", "HEAD").split()) == 3
    assert refuse(site, work, blob) == {"history.purged"}


def test_stale_clone_merges_the_other_way(site: Site, stale: tuple[Clone, str]) -> None:
    """The tombstone stays at the tip; only the old history would come back."""
    work, blob = stale
    work.git("fetch", "-q")
    work.git("switch", "-q", "-C", "fresh", "origin/D1")
    work.git("merge", "-q", "-s", "ours", "-m", "merged", "before")
    assert refuse(site, work, blob, "HEAD:refs/heads/D1") == {"history.purged"}


def test_stale_clone_rewrites_its_history_and_merges(site: Site, stale: tuple[Clone, str]) -> None:
    """Other commit ids, the same leaf: the ids are unknown, the name is not."""
    work, blob = stale
    work.git("fetch", "-q")
    root = work.git("rev-list", "--max-parents=0", "D1")
    tree = work.git("rev-parse", "before^{tree}")
    forged = work.commit_tree(tree, root, message="another id")
    merged = work.commit_tree(work.git("rev-parse", "origin/D1^{tree}"), "origin/D1", forged)
    assert refuse(site, work, blob, f"{merged}:refs/heads/D1") == {"leaf.released"}


def test_stale_clone_adds_it_again(site: Site, stale: tuple[Clone, str]) -> None:
    work, blob = stale
    work.git("fetch", "-q")
    work.git("switch", "-q", "-C", "fresh", "origin/D1")
    base = work.git("rev-parse", "HEAD")
    for change in (
        {LEAF: RAIN, SIDECAR: None},
        {LEAF: RAIN},
        {LEAF: "别的话", SIDECAR: None},
        {SIDECAR: None},
    ):
        work.commit(change)
        assert "leaf.released" in refuse(site, work, blob, "HEAD:refs/heads/D1"), change
        work.git("reset", "-q", "--hard", base)
    for change in ({LEAF: RAIN, SIDECAR: None}, {LEAF: None, SIDECAR: TOMBSTONE}):
        work.commit(change)
    assert "leaf.released" in refuse(site, work, blob, "HEAD:refs/heads/D1")
    work.git("reset", "-q", "--hard", base)
    work.commit({SIDECAR: TOMBSTONE.replace("04:00", "05:00")})
    assert refuse(site, work, blob, "HEAD:refs/heads/D1") == {"leaf.released"}


def test_the_name_never_returns_in_any_epoch(site: Site, stale: tuple[Clone, str]) -> None:
    work, blob = stale
    for text in (RAIN, "别的话"):
        work.git("switch", "-q", "--orphan", f"D9{len(text)}")
        work.commit({LEAF: text})
        assert refuse(site, work, blob, "HEAD:refs/heads/D9") == {"leaf.released"}


def test_stale_clone_renames_it(site: Site, stale: tuple[Clone, str]) -> None:
    work, blob = stale
    work.git("mv", LEAF, "raw/20260531-115448.txt")
    work.git("commit", "-q", "-m", "another name")
    assert work.push().code
    assert refuse(site, work, blob, "--force") == {"history.purged"}
    work.git("fetch", "-q")
    work.git("merge", "-q", "-s", "ours", "-m", "merged", "origin/D1")
    assert refuse(site, work, blob) == {"history.purged"}


def test_the_same_text_said_again_tomorrow_is_taken(site: Site, stale: tuple[Clone, str]) -> None:
    work, blob = stale
    work.git("pull", "-q", "--rebase")
    work.commit({"raw/20260602-080000.txt": RAIN})
    taken(work.push())
    assert blob in objects(site)
    with site.home() as home:
        memory = home.persona(PERSONA)
        assert memory.trace(f"{PERSONA}/D1/raw/20260602-080000.txt").content == RAIN
        assert memory.trace(f"{PERSONA}/D1/{LEAF}").status == "released"


# -- what else held it on the host ------------------------------------------------------------


def test_reflogs_pull_refs_tags_and_packs(site: Site) -> None:
    work = site.clone()
    work.git("tag", "kept")
    work.git("tag", "-a", "-m", "note", "noted")
    taken(work.push("kept", "noted"))
    blob = work.git("rev-parse", f"D1:{LEAF}")
    site.git("update-ref", "refs/pull/1/head", "refs/heads/D1")
    site.git("-c", "gc.writeCommitGraph=true", "gc", "-q")
    site.git("pack-refs", "--all")
    old = site.git("rev-parse", "D1").decode().strip()
    told = "\n".join(release(work))
    check_gone(site, blob, [old])
    assert site.git("rev-parse", "refs/pull/1/head", "kept").split() != [old.encode()] * 2
    assert b"noted" not in site.git("for-each-ref")
    assert "refs/tags/noted" in told
    fresh = site.clone("fresh")
    assert fresh.ask("fetch", "origin", blob).code
    assert fresh.ask("fetch", "origin", old).code


# -- a purge that fails -----------------------------------------------------------------------


def hold_lock(site: Site, seconds: float) -> None:
    """Another program takes the lock right after the push was checked, and keeps it."""
    (site.forge.root / "settings.yaml").write_text("lock_seconds: 1\n")
    write_script(
        site.folder / "hooks/pre-receive.d/20-hold",
        f"#!/bin/sh\nflock gitmem.lock sleep {seconds} >/dev/null 2>&1 &\nsleep 0.2\n",
    )


def test_purge_that_fails_leaves_the_push_and_is_mended(site: Site, cli: Callable[..., Done]) -> None:
    hold_lock(site, 5)
    work = site.clone()
    blob = work.git("rev-parse", f"D1:{LEAF}")
    work.commit({LEAF: None, SIDECAR: TOMBSTONE})
    done = work.push()
    taken(done)
    assert any(line.startswith("gitmem: ") and "taken" in line for line in done.remote), done.remote
    assert "doctor --fix" in done.text
    assert site.git("rev-parse", "D1").decode().strip() == work.git("rev-parse", "HEAD")
    assert blob in objects(site)
    # While the other program is at work doctor can only show it.
    seen = cli("--home", site.forge.root, "doctor", check=5)
    assert "purge" in seen.text, seen.text
    (site.folder / "hooks/pre-receive.d/20-hold").unlink()
    with open(site.folder / "gitmem.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    # The next command goes on with it, whatever it is.
    cli("--home", site.forge.root, "timeline", PERSONA, check=0)
    check_gone(site, blob, [work.git("rev-parse", "HEAD")])
    cli("--home", site.forge.root, "doctor", check=0)


def test_the_next_push_goes_on_with_a_purge(site: Site) -> None:
    hold_lock(site, 3)
    work = site.clone()
    blob = work.git("rev-parse", f"D1:{LEAF}")
    work.commit({LEAF: None, SIDECAR: TOMBSTONE})
    taken(work.push())
    (site.folder / "hooks/pre-receive.d/20-hold").unlink()
    assert blob in objects(site)
    with open(site.folder / "gitmem.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    work.commit({NEW: "后来"})
    taken(work.push())
    assert blob not in objects(site)


def test_post_receive_without_its_python(site: Site, cli: Callable[..., Done]) -> None:
    hook = site.folder / "hooks/post-receive.d/10-gitmem"
    text = hook.read_text()
    hook.write_text(re.sub(r"^python=.*$", "python=/no/such/python3", text, flags=re.MULTILINE))
    work = site.clone()
    blob = work.git("rev-parse", f"D1:{LEAF}")
    told = "\n".join(release(work))
    assert "gitmem: your push was taken" in told
    assert blob in objects(site)
    assert "broken" in cli("hooks", "status", site.folder, check=5).text
    hook.write_text(text)
    assert cli("hooks", "status", site.folder, check=0).text
    cli("--home", site.forge.root, "timeline", PERSONA, check=0)
    assert blob not in objects(site)
