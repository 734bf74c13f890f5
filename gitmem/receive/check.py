"""The policy asked by hand: for hosts that allow no hooks, and for a look before a push."""

from __future__ import annotations

import os

from gitmem import host
from gitmem.errors import CorruptError, UsageError
from gitmem.policy.refs import HEADS, Update
from gitmem.receive.examine import Examination, Push, examine
from gitmem.receive.hook import settings_of
from gitmem.receive.identity import Actor, Role, is_wiki
from gitmem.store.objects import Oid
from gitmem.store.repository import Repository


def check(place: str, span: str | None, *, branch: str | None = None, role: Role = "persona") -> Examination:
    """What the policy says of the commits `OLD..NEW` of a repository, bare or a working copy.

    Without `span` every branch is looked at as if it were pushed anew, all in one push.

    Raises:
        UsageError: no repository, no such commit, or `span` is of another shape.
    """
    folder = _git_folder(place)
    repository = Repository(folder)
    refs = repository.refs.all()
    heads = {ref: oid for ref, oid in refs.items() if ref.startswith(HEADS)}
    if span is None:
        updates = [Update(ref, None, oid) for ref, oid in sorted(heads.items())]
        before: dict[str, Oid] = {}
    else:
        update = _update(folder, span, branch, heads)
        updates = [update]
        # Every other branch stands as it is; this one stood at OLD.
        before = {ref: oid for ref, oid in heads.items() if ref != update.ref}
        before |= {update.ref: update.old} if update.old else {}
    wiki = is_wiki(os.path.abspath(place), {})
    push = Push(
        repository=repository,
        updates=updates,
        refs=before,
        actor=Actor(role, role),
        settings=settings_of(folder),
        wiki=wiki,
    )
    return examine(push)


def _git_folder(place: str) -> str:
    """The folder with the refs and objects of a repository, a working copy or one of its worktrees."""
    try:
        where = host.git_at(place, "rev-parse", "--path-format=absolute", "--git-common-dir")
    except CorruptError:
        raise UsageError(
            f"{place} is no git repository.", hint="Name a repository, or go into one."
        ) from None
    return os.path.realpath(where.decode("utf-8", "surrogateescape").rstrip("\n"))


def _update(folder: str, span: str, branch: str | None, heads: dict[str, Oid]) -> Update:
    old, dots, new = span.partition("..")
    if not dots or not new or new.startswith("."):
        raise UsageError(f"{span!r} is not of the form OLD..NEW.", hint="For instance origin/D118..D118.")
    tip = _commit(folder, new)
    name = branch or new.removeprefix(HEADS)
    if branch is None and HEADS + name not in heads:
        names = [ref.removeprefix(HEADS) for ref, oid in heads.items() if oid == tip]
        if len(names) != 1:
            raise UsageError(f"{new} is no branch.", hint="Say which it belongs to: --branch EPOCH.")
        name = names[0]
    return Update(HEADS + name, None if not old.strip("0") else _commit(folder, old), tip)


def _commit(folder: str, name: str) -> Oid:
    try:
        out = host.git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", name + "^{commit}")
    except CorruptError:
        raise UsageError(f"there is no commit {name!r} in {folder}.") from None
    return bytes.fromhex(out.decode("ascii").strip())
