"""Rules for `main`: the manifest and the README."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gitmem import manifest as manifests
from gitmem.errors import CorruptError
from gitmem.manifest import Manifest
from gitmem.policy.commits import NewCommit, steps
from gitmem.policy.files import MAIN_FILES, check_content, check_place, check_twins
from gitmem.policy.rules import Limits, Violation
from gitmem.store.objects import Read

_MANIFEST = MAIN_FILES[0]
_FIXED = ("format", "purge", "root", "persona", "timezone")


def check_main(
    commits: Iterable[NewCommit], read: Read, limits: Limits, *, operator: bool
) -> Iterator[Violation]:
    """Check every new commit of `main`."""
    for step in steps(commits, read):
        added = [path for path, file in step.changes.items() if file and path not in step.before]
        found = [*check_twins(added, [*step.before, *step.changes])]
        for path, file in step.changes.items():
            if file is None:
                continue
            found += check_place(path, file, main=True)
            if file.mode != b"160000":
                found += check_content(path, read(file.oid)[1], limits)
        if _MANIFEST in step.changes:
            old, new = step.before.get(_MANIFEST), step.changes[_MANIFEST]
            found += _check_manifest(
                read(old.oid)[1] if old else None, read(new.oid)[1] if new else None, operator=operator
            )
        for violation in found:
            yield violation.by(step.commit.oid)


def _check_manifest(before: bytes | None, after: bytes | None, *, operator: bool) -> Iterator[Violation]:
    if after is None:
        yield Violation("manifest.form", manifests.FILE_NAME, "it is gone.")
        return
    try:
        new = manifests.parse(after, manifests.FILE_NAME)
    except CorruptError as fault:
        yield Violation("manifest.form", manifests.FILE_NAME, fault.message)
        return
    old = _old(before)
    if old is None:
        return
    fixed = [name for name in _FIXED if getattr(old, name) != getattr(new, name)]
    if fixed:
        yield Violation("manifest.fixed", manifests.FILE_NAME, f"changed: {', '.join(fixed)}.")
    elif not operator and replace(old, epoch=new.epoch) != new:
        yield Violation("manifest.role", manifests.FILE_NAME, "more than its epoch was changed.")


def _old(data: bytes | None) -> Manifest | None:
    """The manifest before; None where there was none that could be read."""
    try:
        return manifests.parse(data, manifests.FILE_NAME) if data is not None else None
    except CorruptError:
        return None
