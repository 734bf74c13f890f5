"""Rules for the wiki, the repository of the human pages: its files. Page rules stand here as they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gitmem.policy.commits import NewCommit, steps
from gitmem.policy.files import (
    FOR_FORGE,
    File,
    check_markers,
    check_secrets,
    check_text,
    check_twins,
    is_for_forge,
)
from gitmem.policy.rules import Limits, Violation, shown
from gitmem.store.objects import BLOB_MODE, Read

PAGE_BYTES = 8 * 1024 * 1024
"""Forgejo neither shows nor edits a longer page."""
_NO_NAMES = (b"", b".", b"..", b".git")


def check_wiki(commits: Iterable[NewCommit], read: Read, limits: Limits) -> Iterator[Violation]:
    """Check every new commit of a wiki's branch."""
    for step in steps(commits, read):
        added = [path for path, file in step.changes.items() if file and path not in step.before]
        found = [*check_twins(added, [*step.before, *step.changes])]
        for path, file in step.changes.items():
            if file is not None:
                found += _check_file(path, file, read, limits)
        for violation in found:
            yield violation.by(step.commit.oid)


def _check_file(path: bytes, file: File, read: Read, limits: Limits) -> Iterator[Violation]:
    text = shown(path)
    if is_for_forge(path):
        yield Violation("file.workflow", text, FOR_FORGE)
    if any(part.lower() in _NO_NAMES for part in path.split(b"/")):
        yield Violation("file.path", text, "no file can be named so.")
    if file.mode != BLOB_MODE:
        yield Violation("file.mode", text, "it is a link, a submodule or executable.")
        return
    data = read(file.oid)[1]
    if len(data) > PAGE_BYTES:
        yield Violation("file.size", text, f"it has {len(data)} bytes; the limit is {PAGE_BYTES}.")
    elif path.lower().endswith((b".md", b".markdown")):
        yield from check_text(text, data)
        yield from check_markers(text, data)
        yield from check_secrets(text, data, limits)
