"""What the hooks do: pre-receive lets git take a push or not, post-receive purges what it released."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from gitmem import host
from gitmem import settings as settings_module
from gitmem.errors import CorruptError, GitmemError, UnavailableError, UsageError
from gitmem.policy.refs import Update
from gitmem.policy.rules import Violation
from gitmem.receive.examine import Examination, Push, examine
from gitmem.receive.identity import identify, is_wiki
from gitmem.report import Reach
from gitmem.settings import Settings
from gitmem.store import erase
from gitmem.store.objects import Oid
from gitmem.store.purge import Victims, find_victims
from gitmem.store.quiet import IN_FLIGHT, forget_ended
from gitmem.store.repository import GENERATION, LOCK, Repository
from gitmem.tracepath import LeafName

_QUARANTINE = ("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH")
_ZERO = "0" * 40
_MAX_LINES = 1000
_MARGIN = 5.0
"""Seconds by which two clocks of one machine may differ here."""


def settings_of(folder: str) -> Settings:
    """The settings of the home that a repository stands in; the defaults where it stands in none.

    Raises:
        UsageError: they are malformed.
    """
    path = str(Path(folder).parent.parent / settings_module.FILE_NAME)
    data = host.read_bytes(path)
    return Settings() if data is None else settings_module.parse(data, path)


def read_updates(lines: Iterable[bytes]) -> list[Update]:
    """The lines that git gives a receive hook: old id, new id, ref.

    Raises:
        UsageError: a line is of another shape.
    """
    updates = []
    for line in lines:
        words = line.rstrip(b"\n").split(b" ", 2)
        if len(words) == 3 and all(len(word) == 40 for word in words[:2]):
            old, new = (_oid(word) for word in words[:2])
            updates.append(Update(words[2].decode("utf-8", "surrogateescape"), old, new))
        elif line.strip():
            raise UsageError("git gave the hook a line that is not OLD NEW REF.", hint="Only SHA-1.")
    return updates


def _oid(word: bytes) -> Oid | None:
    text = word.decode("ascii", "replace")
    return None if text == _ZERO else bytes.fromhex(text)


def pre_receive(
    folder: str, lines: Iterable[bytes], environment: Mapping[str, str]
) -> tuple[bool, list[str]]:
    """Whether git may take a push, and what to tell the pusher.

    Holds the repository's lock with other pushes, so that no purge runs meanwhile. Before it says
    yes it promises the purge of what the push releases, and notes that the push is in flight.

    Raises:
        GitmemError: the push cannot be checked; it must be refused.
    """
    folder = os.path.abspath(folder)
    settings = settings_of(folder)
    wiki = is_wiki(folder, environment)
    quarantine = {key: environment[key] for key in _QUARANTINE if key in environment}
    pushed = environment.get("GIT_OBJECT_DIRECTORY", "")
    repository = Repository(folder, settings.lock_seconds, borrowed=pushed and os.path.abspath(pushed))
    updates = read_updates(lines)
    with host.locked(f"{folder}/{LOCK}", settings.lock_seconds, shared=True):
        push = Push(
            repository=repository,
            updates=updates,
            refs=repository.refs.all(),
            actor=identify(environment, settings.operators, wiki=wiki),
            settings=settings,
            wiki=wiki,
            environment=quarantine,
        )
        found = examine(push)
        if not found.refused:
            _check_complete(push)
            for epoch in found.releases:
                erase.begin(repository, epoch)
            _note_flight(folder)
    return not found.refused, report(found)


def report(found: Examination) -> list[str]:
    """What a push's examination says, a line for each violation."""
    lines = []
    if found.refused:
        count = sum(not violation.warning for violation in found.violations)
        lines.append(f"gitmem: push refused: {count} {'violation' if count == 1 else 'violations'}.")
    lines += [f"gitmem: {line_of(violation)}" for violation in found.violations[:_MAX_LINES]]
    if len(found.violations) > _MAX_LINES:
        lines.append(f"gitmem: and {len(found.violations) - _MAX_LINES} more.")
    return lines


def line_of(violation: Violation) -> str:
    """A violation as one line: ref, path, rule, what, what to do."""
    ref = violation.ref.removeprefix("refs/heads/")
    ref = "".join(char if char.isprintable() else "?" for char in ref)
    where = ": ".join(part for part in (ref, violation.path) if part)
    commit = f" (commit {violation.commit[:10]})" if violation.commit else ""
    mark = "warning: " if violation.warning else ""
    return f"{mark}{where}: {violation.rule}: {violation.what}{commit} {violation.remedy}"


def _check_complete(push: Push) -> None:
    """Every object the push relies on is here: a purge may have taken away what git counted on.

    git itself looked before it called the hook, so only a purge since the push began matters.
    """
    generation = f"{push.repository.folder}/{GENERATION}"
    began = host.process_age(host.receive_pack())
    if not erase.pending(push.repository) and not (
        os.path.exists(generation) and host.age_or_zero(generation) < began + _MARGIN
    ):
        return
    tips = [update.new.hex() for update in push.updates if update.new is not None]
    if not tips:
        return
    lines = "\n".join(tips) + "\n"
    try:
        host.git(
            push.repository.folder, "rev-list", "--objects", "--quiet", "--stdin", "--not", "--all",
            data=lines.encode(), more=push.environment,
        )  # fmt: skip
    except CorruptError as fault:
        message = (
            f"objects that this push relies on are not here, perhaps purged meanwhile ({fault.message})."
        )
        raise UnavailableError(
            message, hint="Run gitmem sync, or git pull --rebase, then push again."
        ) from None


def _flight(folder: str) -> str:
    return f"{folder}/{IN_FLIGHT}/{host.process_mark(host.receive_pack(), '-')}"


def _note_flight(folder: str) -> None:
    path = _flight(folder)
    forget_ended(folder)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    host.write_new(path, b"")


def post_receive(folder: str, lines: Iterable[bytes]) -> list[str]:
    """Purge what a push released; what to tell the pusher. Never undoes the push.

    A purge that fails stays in its journal: doctor shows it, and the next command goes on with it.
    """
    folder = os.path.abspath(folder)
    host.remove(_flight(folder))
    try:
        updates = read_updates(lines)
        repository = Repository(folder, settings_of(folder).lock_seconds)
        waiting = erase.pending(repository)
        return [line for update in updates if update.branch in waiting for line in _purge(repository, update)]
    except GitmemError as fault:
        return _failed(fault)


def _purge(repository: Repository, update: Update) -> list[str]:
    epoch = update.branch
    try:
        with repository.locked():
            count = _new_victims(repository, update)
            outcome = erase.purge_epoch(repository, epoch)
    except GitmemError as fault:
        return _failed(fault)
    done = (
        f"{count} {'leaf' if count == 1 else 'leaves'} of {epoch}; {outcome.deleted} git objects are deleted"
    )
    lines = [f"gitmem: released {done}; run gitmem sync (plain git: git pull --rebase)"]
    lines += [f"gitmem: {note}" for note in outcome.notes]
    return lines + [
        f"gitmem: {place.name}: {place.reach}: {place.detail} {place.command}".rstrip()
        for place in outcome.places
        if place.reach is Reach.UNREACHED
    ]


def _new_victims(repository: Repository, update: Update) -> int:
    """How many leaves the push released, or took the original from."""

    def victims(tip: Oid | None) -> set[LeafName]:
        found = find_victims(repository.reader(), tip) if tip else Victims()
        return {*found.released, *found.forgotten}

    try:
        return len(victims(update.new) - victims(update.old))
    except CorruptError:  # a purge was faster
        return 0


def _failed(fault: GitmemError) -> list[str]:
    return [
        "gitmem: your push was taken, and the purge of what it released has not ended.",
        f"gitmem: {fault.message} {fault.hint}",
        "gitmem: the next gitmem command on the server goes on with it; gitmem doctor --fix does so at once.",
    ]
