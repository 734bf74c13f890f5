"""Remotes and syncs of the personas of a home."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gitmem.errors import GitmemError, NotFoundError, UnavailableError
from gitmem.home import Home
from gitmem.memory import Memory
from gitmem.store.objects import Oid
from gitmem.store.repository import Repository
from gitmem.store.wire import split_url
from gitmem.sync import exchange, pages, plan, remotes
from gitmem.sync.remotes import ORIGIN, Remote
from gitmem.sync.report import RemoteReport, SyncReport
from gitmem.tracepath import PersonaName


def add_remote(
    home: Home, name: str, url: str, *, remote: str = ORIGIN, token: str | None = None
) -> RemoteReport | None:
    """Note a remote of a persona. A persona that this home lacks is taken from there at once.

    What was taken is in the report; None where the persona was here and nothing was exchanged.

    Raises:
        UsageError: a malformed name or URL.
        ConflictError: the name of the remote is taken by another URL.
        UnavailableError, RefusedError: the persona cannot be taken; then nothing is left behind.
    """
    remotes.check_name(remote)
    with contextlib.suppress(NotFoundError):
        memory = home.persona(name)
        remotes.write(memory.repository, home.path, memory.name, url, name=remote, token=token)
        return None
    persona = PersonaName.parse(name)
    address = split_url(remotes.full_url(url), token)
    there = Remote(remote, address.url, address.user, token or address.token)
    report = RemoteReport(str(persona), remote, there.url)

    def fill(repository: Repository) -> None:
        exchange.Exchange(repository, there, report, manifest=None).run()

    memory = home.take(persona, fill)
    remotes.write(memory.repository, home.path, memory.name, there.url, name=remote, token=there.token)
    if there.user:
        remotes.keep_login(home.path, memory.name, there)
    pages.sync_pages(memory.repository.folder, there, report)
    return report


def list_remotes(home: Home, name: str | None = None) -> list[tuple[str, Remote]]:
    """The remotes of one persona, or of all, in the order of their names: persona and remote."""
    found = [
        (str(memory.name), remote)
        for memory in _memories(home, name)
        for remote in remotes.remotes(memory.repository, home.path, memory.name)
    ]
    return sorted(found, key=lambda each: (each[0].lower(), each[1].name))


def remove_remote(home: Home, name: str, remote: str = ORIGIN) -> None:
    """Forget a remote and its token.

    Raises:
        NotFoundError: there is no such persona, or remote.
    """
    memory = home.persona(name)
    remotes.remove(memory.repository, home.path, memory.name, remote)


def _memories(home: Home, name: str | None) -> Iterator[Memory]:
    if name is not None:
        yield home.persona(name)
        return
    for persona in home.personas():
        yield home.persona(persona)


def sync(
    home: Home,
    name: str | None = None,
    *,
    remote: str | None = None,
    token: str | None = None,
    dry_run: bool = False,
    rewrite_remote: bool = False,
) -> SyncReport:
    """Bring a persona, or all that have remotes, to the same state here and there.

    Args:
        remote: Only with this one.
        token: Opens remotes that have none stored.
        dry_run: Say what would be done; nothing is changed here or there.
        rewrite_remote: Where a remote still holds released text, replace its branch by force.

    What could not be done is in the report, remote by remote; only a persona that is not here, or
    has no such remote, is an error.
    """
    report = SyncReport()
    for memory in _memories(home, name):
        known = remotes.remotes(memory.repository, home.path, memory.name, token)
        chosen = [there for there in known if remote in (None, there.name)]
        if not chosen and name is not None:
            raise NotFoundError(
                f"{memory.name} has no remote{f' {remote}' if remote else ''}.",
                hint=f"gitmem remote add {memory.name} URL",
            )
        for there in chosen:
            found = RemoteReport(str(memory.name), there.name, there.url, dry_run=dry_run)
            _sync_one(memory, there, found, rewrite_remote=rewrite_remote)
            report.remotes.append(found)
    if remote is not None and not report.remotes:
        raise NotFoundError(f"no persona has a remote {remote}.", hint="gitmem remote list shows them.")
    return report


def _sync_one(memory: Memory, there: Remote, report: RemoteReport, *, rewrite_remote: bool) -> None:
    try:
        exchange.Exchange(
            memory.repository, there, report, manifest=memory.manifest, rewrite_remote=rewrite_remote
        ).run()
        pages.sync_pages(memory.repository.folder, there, report)
    except UnavailableError as fault:
        report.reached, report.error, report.hint = False, fault.message, fault.hint
    except GitmemError as fault:
        report.error, report.hint = fault.message, fault.hint
    report.waiting = sum(_waiting(memory.repository, there.name).values())


# -- what waits ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Waiting:
    """Commits that one remote did not have when it was last asked."""

    persona: str
    remote: str
    url: str
    epochs: dict[str, int]
    stopped: list[str]
    """Branches that the last sync left apart: rewritten there, or behind what the remote has."""

    @property
    def commits(self) -> int:
        return sum(self.epochs.values())

    def as_dict(self) -> dict[str, Any]:
        return {
            "persona": self.persona,
            "remote": self.remote,
            "url": self.url,
            "waiting": self.commits,
            "branches": self.epochs,
            "stopped": self.stopped,
        }


def status(home: Home, name: str | None = None) -> list[Waiting]:
    """How many commits wait for which remote. Looks only at what is here; no network."""
    return [
        Waiting(
            str(memory.name),
            remote.name,
            remote.url,
            _waiting(memory.repository, remote.name),
            _stopped(memory.repository, remote.name),
        )
        for memory in _memories(home, name)
        for remote in remotes.remotes(memory.repository, home.path, memory.name)
    ]


def _seen(repository: Repository, remote: str) -> dict[str, Oid]:
    folder = f"refs/remotes/{remote}/"
    return {ref[len(folder) :]: oid for ref, oid in repository.refs.all(folder).items()}


def _stopped(repository: Repository, remote: str) -> list[str]:
    """Branches with a rescue ref, and those that lack what the remote was seen to have."""
    rescue = f"refs/rescue/{remote}/"
    rescued = {ref[len(rescue) :] for ref in repository.refs.all(rescue)}

    def apart() -> set[str]:
        seen = _seen(repository, remote)
        return set(plan.waiting(seen, repository.refs.heads(), repository.reader()))

    return sorted(rescued | repository.steady(apart))


def _waiting(repository: Repository, remote: str) -> dict[str, int]:
    return repository.steady(
        lambda: plan.waiting(repository.refs.heads(), _seen(repository, remote), repository.reader())
    )
