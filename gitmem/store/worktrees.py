"""Working copies: what a clone that people work in keeps outside its refs.

Reflogs, `ORIG_HEAD` and its kin, and a detached `HEAD` hold ids of commits; the index of each
worktree holds ids of blobs; files and half-written messages hold the text itself. A purge of such
a clone maps the first, empties the second and removes the third.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gitmem import host
from gitmem.errors import ConflictError, CorruptError, UnavailableError
from gitmem.store import objects as git
from gitmem.store.epochpack import Needed
from gitmem.store.objects import Entry, Oid, Read
from gitmem.store.trees import Change

_HEX = re.compile(rb"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
_HEAD_NAME = re.compile(r"[A-Z_]*HEAD|AUTO_MERGE|MERGE_AUTOSTASH|BISECT_EXPECTED_REV")
_ZERO = bytes(20)
_RUN = 24
IN_PROGRESS = {
    "MERGE_HEAD": "git merge --continue, or --abort",
    "CHERRY_PICK_HEAD": "git cherry-pick --continue, or --abort",
    "REVERT_HEAD": "git revert --continue, or --abort",
    "rebase-merge": "git rebase --continue, or --abort",
    "rebase-apply": "git rebase --continue, or --abort",
    "BISECT_LOG": "git bisect reset",
}
_MESSAGES = (
    "COMMIT_EDITMSG", "MERGE_MSG", "SQUASH_MSG", "TAG_EDITMSG", "NOTES_EDITMSG", "MERGE_RR",
    "ADD_EDIT.patch", "addp-hunk-edit.diff", "gitk.cache",
)  # fmt: skip
_COPIES = ("rr-cache", "lost-found")
"""Folders in which git keeps contents of files: remembered conflicts, and what fsck found."""
_QUOTES_NOTHING = (b"checkout", b"reset", b"branch", b"clone")


class Staged(NamedTuple):
    """One entry of an index."""

    mode: bytes
    oid: Oid
    stage: bytes
    path: bytes


@dataclass(frozen=True, slots=True)
class Worktree:
    """A folder of checked-out files."""

    folder: str
    gitdir: str
    """Where its index, HEAD and logs are."""
    branch: str
    """The ref that is checked out; empty where HEAD is detached."""
    detached: Oid | None

    @property
    def name(self) -> str:
        """The folder's own name."""
        return os.path.basename(self.folder)

    @property
    def is_there(self) -> bool:
        """Whether the folder exists: it may have been removed, or be unmounted."""
        return os.path.lexists(f"{self.folder}/.git")

    def git(self, *arguments: str, data: bytes = b"") -> bytes:
        """Run git in it; see `host.git`."""
        place = self.folder if self.is_there else self.gitdir
        return host.git(self.gitdir, "-C", place, *arguments, data=data)


def is_working(folder: str) -> bool:
    """Whether a repository's folder belongs to a working copy: git calls it `.git` there."""
    return os.path.basename(folder) == ".git"


def worktrees(folder: str) -> list[Worktree]:
    """The main worktree of a working copy, and its linked ones by name. `folder` is its `.git`."""
    found = [_worktree(os.path.dirname(folder), folder)]
    for name in host.list_folder(f"{folder}/worktrees"):
        gitdir = f"{folder}/worktrees/{name}"
        link = host.read_bytes(f"{gitdir}/gitdir")
        if link is not None:
            found.append(_worktree(os.path.dirname(os.fsdecode(link.rstrip(b"\n"))), gitdir))
    return found


def _worktree(place: str, gitdir: str) -> Worktree:
    head = (host.read_bytes(f"{gitdir}/HEAD") or b"").strip()
    if head.startswith(b"ref: "):
        return Worktree(place, gitdir, os.fsdecode(head[5:].strip()), None)
    found = _HEX.fullmatch(head)
    return Worktree(place, gitdir, "", bytes.fromhex(found[0].decode()) if found else None)


# -- ids ------------------------------------------------------------------------------------


def logs(folder: str) -> list[str]:
    """Every reflog of a working copy, those of its worktrees too."""
    found = []
    for place in _places(folder):
        for where, _, names in os.walk(f"{place}/logs"):
            found += [f"{where}/{name}" for name in sorted(names)]
    return found


def clear_drafts(folder: str) -> None:
    """Remove what a killed process left half written. Call under the repository's lock."""
    for place in _places(folder):
        inner = [where for top in ("logs", "refs", "info") for where, _, _ in os.walk(f"{place}/{top}")]
        for where in (place, *inner):
            for name in filter(host.is_draft, host.list_folder(where)):
                host.remove(f"{where}/{name}")
    for each in worktrees(folder):
        for name in host.list_folder(each.folder) if each.is_there else []:
            if name.startswith(".git.") and host.is_draft(name):
                host.remove(f"{each.folder}/{name}")


def _places(folder: str) -> list[str]:
    linked = f"{folder}/worktrees"
    return [folder, *(f"{linked}/{name}" for name in host.list_folder(linked))]


def _heads(folder: str) -> Iterator[str]:
    """Files that hold ids: pseudo refs, detached heads, and refs that belong to one worktree."""
    for place in _places(folder):
        yield from (f"{place}/{name}" for name in host.list_folder(place) if _HEAD_NAME.fullmatch(name))
        if place != folder:
            for where, _, names in os.walk(f"{place}/refs"):
                yield from (f"{where}/{name}" for name in sorted(names) if not name.endswith(".lock"))


def ids_in(path: str) -> set[Oid]:
    """Ids named in a file."""
    return {bytes.fromhex(word.decode()) for word in _HEX.findall(host.read_bytes(path) or b"")} - {_ZERO}


def known_ids(folder: str) -> dict[str, set[Oid]]:
    """Ids that a working copy knows besides its refs, by the file that names them."""
    return {path: ids_in(path) for path in (*logs(folder), *_heads(folder))}


def add_needed(folder: str, refs: Collection[str], read: Read, needed: Needed) -> None:
    """Add what the indexes, reflogs and heads of a working copy need. Nothing where it is none.

    A reflog may lead to what git has thrown away long ago: such an entry needs nothing, nor does
    that of a ref which is not one of `refs`.
    """
    if not is_working(folder):
        return
    for each in worktrees(folder):
        needed |= {entry.oid for entry in index(each)}
    named: set[Oid] = set()
    for path, ids in known_ids(folder).items():
        ref = path.removeprefix(f"{folder}/logs/")
        if os.path.basename(path) != "FETCH_HEAD" and (not ref.startswith("refs/") or ref in refs):
            named |= ids
    for oid in named:
        if oid in needed:
            continue
        found = Needed([needed])
        try:
            git.reachable_from([oid], read, found)
        except CorruptError:
            continue
        needed |= set(found)


def map_ids(folder: str, new: Mapping[Oid, Oid], hushed: Collection[Oid]) -> None:
    """Put new ids in the place of old ones in reflogs and heads, so that undoing still works.

    A line about one of the commits `hushed` loses what it quotes of that commit's message.
    """
    for path in logs(folder):
        data = host.read_bytes(path) or b""
        lines = [_map_line(line, new, hushed) for line in data.splitlines(keepends=True)]
        _replace(path, data, b"".join(lines))
    for path in _heads(folder):
        if os.path.basename(path) == "FETCH_HEAD":
            if ids_in(path) & new.keys():
                host.remove(path)
            continue
        data = host.read_bytes(path) or b""
        _replace(path, data, _mapped(data, new))


def _replace(path: str, old: bytes, new: bytes) -> None:
    if new != old:
        host.write_durable(path, new)


def _mapped(data: bytes, new: Mapping[Oid, Oid]) -> bytes:
    def one(found: re.Match[bytes]) -> bytes:
        oid = bytes.fromhex(found[0].decode())
        return new.get(oid, oid).hex().encode()

    return _HEX.sub(one, data)


def _map_line(line: bytes, new: Mapping[Oid, Oid], hushed: Collection[Oid]) -> bytes:
    head, tab, message = line.partition(b"\t")
    ids = {bytes.fromhex(word.decode()) for word in _HEX.findall(head[:81])}
    verb, colon, _ = message.partition(b":")
    if tab and ids & set(hushed) and verb not in _QUOTES_NOTHING:
        message = (verb + b": purged\n") if colon else b"purged\n"
    return _mapped(head + tab + message, new)


def drop_messages(folder: str) -> list[str]:
    """Remove half-written messages, and git's own copies of files; names of the latter, if any."""
    for place in _places(folder):
        for name in _MESSAGES:
            host.remove(f"{place}/{name}")
    dropped = []
    for name in _COPIES:
        inside = [f"{where}/{file}" for where, _, files in os.walk(f"{folder}/{name}") for file in files]
        for path in inside:
            host.remove(path)
        dropped += [name] if inside else []
    return dropped


class Quotes:
    """Runs of bytes that stand in some texts."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        self._runs = {
            size: {
                text[i : i + size]
                for text in texts
                if min(len(text), _RUN) == size
                for i in _starts(text, size)
            }
            for size in {min(len(text), _RUN) for text in texts if text}
        }

    def stand_in(self, data: bytes) -> bool:
        """Whether one of the runs stands in `data`."""
        return any(data[i : i + n] in runs for n, runs in self._runs.items() for i in _starts(data, n))


def _starts(data: bytes, size: int) -> range:
    return range(len(data) - size + 1)


# -- the index and the files ----------------------------------------------------------------


def index(worktree: Worktree) -> list[Staged]:
    """Every entry of a worktree's index."""
    if not os.path.exists(f"{worktree.gitdir}/index"):
        return []
    found = []
    for line in worktree.git("ls-files", "-s", "-z").split(b"\0"):
        if line:
            head, _, path = line.partition(b"\t")
            mode, oid, stage = head.split()
            found.append(Staged(mode, bytes.fromhex(oid.decode()), stage, path))
    return found


def in_progress(worktree: Worktree) -> str:
    """What was begun in a worktree and must be ended first, as the command to run; empty for nothing."""
    for name, command in IN_PROGRESS.items():
        if os.path.exists(f"{worktree.gitdir}/{name}"):
            return command
    return ""


@dataclass(slots=True)
class Checkout:
    """A worktree that is to show another commit."""

    worktree: Worktree
    old: Oid
    new: Oid
    changes: Mapping[bytes, Change]
    """Files that differ between the two commits."""
    victims: Mapping[bytes, Change]
    """Paths of which the files are not to be kept, whatever was done to them."""

    def staged_victims(self) -> set[Oid]:
        """Blobs in the index at the paths of victims, other than those that stay."""
        kept = {after.oid for _, after in self.victims.values() if after is not None}
        return {entry.oid for entry in index(self.worktree) if entry.path in self.victims} - kept

    def in_the_way(self) -> list[bytes]:
        """Files with other, uncommitted work that the new commit changes as well. Changes nothing.

        Raises:
            UnavailableError: another git command holds the index.
        """
        if os.path.exists(f"{self.worktree.gitdir}/index.lock"):
            raise _locked(self.worktree)
        staged = {entry.path: entry for entry in index(self.worktree)}
        unmerged = {path for path, entry in staged.items() if entry.stage != b"0"}
        dirty = self._dirty()
        return [
            path
            for path, change in self.changes.items()
            if path not in self.victims
            and (path in unmerged or self._is_taken(path, change, staged.get(path), path in dirty))
        ]

    def _dirty(self) -> set[bytes]:
        if not self.worktree.is_there:
            return set()
        self._refresh()
        return set(self.worktree.git("diff-files", "-z", "--name-only").split(b"\0")) - {b""}

    def _refresh(self) -> None:
        if os.path.exists(f"{self.worktree.gitdir}/index"):
            with contextlib.suppress(CorruptError):  # it says so where files are not up to date
                self.worktree.git("update-index", "-q", "--refresh")

    def _is_taken(self, path: bytes, change: Change, entry: Staged | None, is_dirty: bool) -> bool:  # noqa: FBT001
        before, after = change
        if is_dirty or (entry is None and before is None):
            on_disk = _hash_of(self._file(path))
            return on_disk is not None and (after is None or on_disk != after.oid)
        if entry is None:
            return after is not None
        return all(side is None or entry.oid != side.oid for side in change)

    def _file(self, path: bytes) -> str:
        return os.path.join(self.worktree.folder, os.fsdecode(path))

    def carry_out(self) -> None:
        """Let index and files follow from the old commit to the new one; other work stays.

        Raises:
            UnavailableError: another git command holds the index.
            ConflictError: a file stands in the way after all.
        """
        if not os.path.exists(f"{self.worktree.gitdir}/index"):
            return
        try:
            self._set_aside()
            self._refresh()
            if self.old != self.new:
                how = "-u" if self.worktree.is_there else "-i"
                self.worktree.git("read-tree", "-m", how, self.old.hex(), self.new.hex())
            self._show_victims()
        except CorruptError as fault:
            if "index.lock" in fault.message:
                raise _locked(self.worktree) from None
            message = f"{self.worktree.folder} cannot be brought up to date: {fault.message}"
            hint = "Commit, stash or move away what stands in the way, then run gitmem sync again."
            raise ConflictError(message, hint=hint) from None

    def _set_aside(self) -> None:
        """In the index victims as in the old commit, their files gone; files of a killed run are taken in."""
        lines = b""
        for path, (before, _) in self.victims.items():
            lines += b"0 %s\t%s\0" % (_ZERO.hex().encode(), path)
            lines += _line(path, before)
            self._unlink(path)
        present = {entry.path: entry.oid for entry in index(self.worktree)}
        for path, (before, after) in self.changes.items():
            if path in self.victims or after is None or present.get(path) == after.oid:
                continue
            if (before is None or before.oid != after.oid) and _hash_of(self._file(path)) == after.oid:
                lines += _line(path, after)
        if lines:
            self.worktree.git("update-index", "-z", "--index-info", data=lines)

    def _unlink(self, path: bytes) -> None:
        file = self._file(path)
        inside = os.path.realpath(os.path.dirname(file))
        if self.worktree.is_there and f"{inside}/".startswith(os.path.realpath(self.worktree.folder) + "/"):
            host.remove(file)

    def _show_victims(self) -> None:
        shown = [path for path, (_, after) in self.victims.items() if after is not None]
        if shown and self.worktree.is_there:
            self.worktree.git("checkout-index", "-q", "-f", "-u", "-z", "--stdin", data=b"\0".join(shown))

    def is_needed(self) -> bool:
        """Whether there is anything to do."""
        if self.old != self.new:
            return True
        staged = {entry.path: entry.oid for entry in index(self.worktree)}
        return any(
            staged.get(path) != (after and after.oid) or (after is None and os.path.lexists(self._file(path)))
            for path, (_, after) in self.victims.items()
        )


def _line(path: bytes, entry: Entry | None) -> bytes:
    return b"" if entry is None else b"%s %s\t%s\0" % (entry.mode, entry.oid.hex().encode(), path)


def _hash_of(path: str) -> Oid | None:
    """The id of a plain file as a blob; None where there is none, all zeros where it is something else."""
    if not os.path.lexists(path):
        return None
    if os.path.islink(path) or not os.path.isfile(path):
        return _ZERO
    data = host.read_bytes(path)
    return _ZERO if data is None else git.hash_object("blob", data)


def _locked(worktree: Worktree) -> UnavailableError:
    lock = f"{worktree.gitdir}/index.lock"
    return UnavailableError(
        f"another git command is at work in {worktree.folder} ({lock}).",
        hint="Wait for it to end. If none is running, remove that file.",
    )


def leftovers(worktree: Worktree, names: Iterable[str]) -> list[str]:
    """Files beside a worktree's leaves that are called like one of `names` with something added.

    Editors and merge tools leave such copies: `NAME.txt~`, `.NAME.txt.swp`, `NAME.txt.orig`.
    """
    wanted = set(names)
    found = []
    for kind in ("raw", "hldp", "."):
        place = f"{worktree.folder}/{kind}"
        names_there = host.list_folder(place) if os.path.isdir(place) else []
        found += [
            os.path.normpath(f"{place}/{name}")
            for name in names_there
            if any(leaf in name and leaf != name for leaf in wanted)
        ]
    return found
