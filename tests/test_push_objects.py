"""Pushes of trees and commits that git would not make: read differently by different programs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gitmem import Memory
from gitmem.receive.check import check
from gitmem.receive.install import place, status, uninstall
from gitmem.store.objects import Entry, hash_object
from tests.conftest import run_git

NEW = b"20260701-000000.txt"
Entries = list[Entry]


def entries(work: Path, tree: str) -> Entries:
    lines = run_git(work, "ls-tree", "-z", tree).split(b"\0")[:-1]
    found = []
    for line in lines:
        head, name = line.split(b"\t", 1)
        mode, _, oid = head.split()
        found.append(Entry(mode.lstrip(b"0"), name, bytes.fromhex(oid.decode())))
    return found


def store(work: Path, kind: str, data: bytes) -> bytes:
    made = run_git(work, "hash-object", "-t", kind, "-w", "--stdin", "--literally", data=data)
    return bytes.fromhex(made.decode())


def tree(work: Path, found: Entries) -> bytes:
    return store(work, "tree", b"".join(b"%s %s\0%s" % entry for entry in found))


def doubled(work: Path, root: Entries, raw: Entries) -> bytes:
    two = [Entry(b"100644", NEW, store(work, "blob", text)) for text in (b"one", b"two")]
    return tree(work, [*root, Entry(b"40000", b"raw", tree(work, [*raw, *two]))])


def padded(work: Path, root: Entries, raw: Entries) -> bytes:
    mine = [Entry(b"0" + mode, name, oid) for mode, name, oid in root]
    return tree(work, [*mine, Entry(b"40000", b"raw", with_new(work, raw))])


def out_of_order(work: Path, root: Entries, raw: Entries) -> bytes:
    return tree(work, [Entry(b"40000", b"raw", with_new(work, raw)), *root])


def odd_mode(work: Path, root: Entries, raw: Entries) -> bytes:
    mine = [Entry(b"100664", NEW, store(work, "blob", b"text"))]
    return tree(work, [*root, Entry(b"40000", b"raw", tree(work, [*raw, *mine]))])


def with_new(work: Path, raw: Entries) -> bytes:
    return tree(work, [*raw, Entry(b"100644", NEW, store(work, "blob", b"text"))])


@pytest.fixture
def work(memory: Memory, tmp_path: Path) -> Path:
    gone = memory.write("放下的。", epoch="D1", at="2026-06-01T00:00:00").trace_path
    memory.write("留下的。", epoch="D1", at="2026-06-01T00:01:00")
    memory.release(gone)
    run_git(tmp_path, "clone", "-q", "-b", "D1", memory.repository.folder, "work")
    return tmp_path / "work"


def push(work: Path, root: bytes, header: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    parent = run_git(work, "rev-parse", "origin/D1").strip()
    who = b"T <t@e> 1700000000 +0000"
    lines = [b"tree " + root.hex().encode(), b"parent " + parent, b"author " + who, b"committer " + who]
    commit = store(work, "commit", b"\n".join(lines) + b"\n" + header + b"\nx")
    command = ["git", "-C", str(work), "push", "-q", "origin", f"{commit.hex()}:refs/heads/D1"]
    return subprocess.run(command, capture_output=True, check=False)


@pytest.mark.parametrize("git_looks", [True, False])
@pytest.mark.parametrize("make", [doubled, padded, out_of_order, odd_mode])
def test_malformed_trees(
    memory: Memory, work: Path, git_looks: bool, make: Callable[[Path, Entries, Entries], bytes]
) -> None:
    if not git_looks:  # as in a repository that somebody else made
        run_git(memory.repository.folder, "config", "receive.fsckObjects", "false")
    root = [entry for entry in entries(work, "origin/D1") if entry.name != b"raw"]
    made = make(work, root, entries(work, "origin/D1:raw"))
    done = push(work, made)
    assert done.returncode == 1
    assert (b"history.damaged" in done.stderr) is not git_looks, done.stderr.decode()
    uninstall(memory.repository.folder)
    run_git(memory.repository.folder, "config", "receive.fsckObjects", "false")
    assert push(work, made).returncode == 0
    assert {violation.rule for violation in check(memory.repository.folder, None).violations} == {
        "history.damaged"
    }


def test_unknown_headers_hold_no_text(memory: Memory, work: Path) -> None:
    done = push(
        work,
        bytes.fromhex(run_git(work, "rev-parse", "origin/D1^{tree}").decode().strip()),
        b"note a secret\n",
    )
    assert done.returncode == 1
    assert b"history.damaged" in done.stderr
    assert hash_object("blob", b"x") not in memory.repository


def test_another_name_of_the_same_python_is_no_other(memory: Memory, tmp_path: Path) -> None:
    """`python` and `python3` of one environment."""
    folder = memory.repository.folder
    assert {hook.state for hook in status(folder)} == {"ready"}
    (tmp_path / "python").symlink_to("/usr/bin/env")
    place(folder, str(tmp_path / "python"))
    assert {hook.state for hook in status(folder)} == {"broken"}
