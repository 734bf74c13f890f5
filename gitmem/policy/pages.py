"""Rules for the wiki, the repository of the human pages: its files. Page rules stand here as they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gitmem.policy.commits import NewCommit, steps
from gitmem.policy.files import File, check_markers, check_secrets, check_twins
from gitmem.policy.rules import Limits, Violation, shown
from gitmem.store.objects import BLOB_MODE, Read

PAGE_BYTES = 8 * 1024 * 1024
"""Forgejo neither shows nor edits a longer page."""
_NO_NAMES = (b"", b".", b"..", b".git")
_FORGES = (b".forgejo", b".gitea", b".github")


def check_wiki(commits: Iterable[NewCommit], read: Read, limits: Limits) -> Iterator[Violation]:
    """Check every new commit of a wiki's branch."""
    for step in steps(commits, read):
        added = [path for path, file in step.changes.items() if file and path not in step.before]
        found = [*check_twins(added, [*step.before, *step.changes])]
        for path, file in step.changes.items():
            if file is not None:
                found += _check_file(path, file, read, limits)
        for violation in found:
            yield violation.at("", step.commit.oid)


def _check_file(path: bytes, file: File, read: Read, limits: Limits) -> Iterator[Violation]:
    text = shown(path)
    if path.lower().split(b"/")[0] in _FORGES:
        yield Violation("file.workflow", text, "a forge would take it as instructions.")
    if any(part.lower() in _NO_NAMES for part in path.split(b"/")):
        yield Violation("file.path", text, "no file can be named so.")
    if file.mode != BLOB_MODE:
        yield Violation("file.mode", text, "it is a link, a submodule or executable.")
        return
    data = read(file.oid)[1]
    if len(data) > PAGE_BYTES:
        yield Violation("file.size", text, f"it has {len(data)} bytes; the limit is {PAGE_BYTES}.")
    elif path.lower().endswith((b".md", b".markdown")):
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as fault:
            yield Violation("file.utf8", text, f"it is not UTF-8 at byte {fault.start}: {fault.reason}.")
        if (at := data.find(0)) >= 0:
            yield Violation("file.nul", text, f"a NUL character stands at byte {at}.")
        yield from check_markers(text, data)
        yield from check_secrets(text, data, limits)
