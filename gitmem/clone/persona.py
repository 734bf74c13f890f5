"""Whose memory a working copy holds, and whether the other side still holds that one."""

from __future__ import annotations

from gitmem import manifest as manifests
from gitmem.clone.folder import TRACKING, WorkingCopy, quoted
from gitmem.clone.plan import Roots
from gitmem.errors import CorruptError, NotFoundError, RefusedError
from gitmem.manifest import Manifest
from gitmem.store.objects import Oid
from gitmem.store.refs import HEADS
from gitmem.store.repository import MAIN, Repository
from gitmem.store.trees import find_file


def check_persona(copy: WorkingCopy, incoming: Repository, url: str, roots: Roots) -> Manifest | None:
    """The manifest of a copy's persona. An empty copy takes whoever is there; None where both are empty.

    Raises:
        NotFoundError: the copy is empty, and the other side holds no persona.
        RefusedError: the other side holds another persona, none any more, or one that was made anew.
    """
    theirs = incoming.refs.head(MAIN)
    there = _manifest(incoming, theirs, url)
    refs = copy.repository.refs
    tips = [tip for tip in (refs.read(TRACKING + MAIN), refs.read(HEADS + MAIN)) if tip is not None]
    ours = [(tip, found) for tip in tips if (found := _ours(copy, tip)) is not None]
    if there is None:
        if not ours:
            raise NotFoundError(
                f"{url} holds no persona: its main has no {manifests.FILE_NAME}.", hint="Check the URL."
            )
        if incoming.refs.heads():
            raise _refused(copy, f"{url} holds no persona any more, and {copy.folder} is {ours[0][1].name}")
        return ours[0][1]
    for tip, here in ours:
        if here.name.key != there.name.key:
            raise _refused(copy, f"{url} holds {there.name}, and {copy.folder} is {here.name}")
        if here.timezone != there.timezone:
            zones = f"has the time zone {there.timezone} there and {here.timezone} in {copy.folder}"
            raise _refused(copy, f"{there.name} {zones}")
        assert theirs is not None
        if not roots.of(tip) & roots.of(theirs):
            what = f"main of {url} has no commit in common with that of {copy.folder}"
            raise _refused(copy, f"{what}: {there.name} was made anew there")
    return there


def _refused(copy: WorkingCopy, what: str) -> RefusedError:
    change = quoted("git", "-C", copy.folder, "remote", "set-url", "origin") + " URL"
    return RefusedError(
        f"{what}; nothing was changed.",
        hint=f"Set the right URL: {change}. Or clone again: gitmem clone URL NEWDIR.",
    )


def _ours(copy: WorkingCopy, tip: Oid) -> Manifest | None:
    try:
        return _manifest(copy.repository, tip, copy.folder)
    except CorruptError:  # a person's own edit; the hook of the other side has a word on that
        return None


def _manifest(repository: Repository, tip: Oid | None, place: str) -> Manifest | None:
    if tip is None:
        return None
    tree = repository.commit_at(tip).tree
    file = find_file(tree, manifests.FILE_NAME.encode(), repository.read)
    if file is None:
        return None
    return manifests.parse(repository.blob(file.oid), f"{manifests.FILE_NAME} of {place}")
