"""The remotes of a persona's repository, and the tokens that open them.

A remote's URL stands in the repository's git configuration, without a fetch refspec: a plain
`git fetch` must not bring history that is not purged. Its token stands in HOME/credentials.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import string
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gitmem import host
from gitmem.errors import ConflictError, CorruptError, NotFoundError, UsageError
from gitmem.store.repository import Repository
from gitmem.store.wire import REMOTE_NAME, Wire, scrub, split_url
from gitmem.tracepath import PersonaName

CREDENTIALS = "credentials"
SEEN = "gitmem.remotes"
ORIGIN = "origin"
_KEY = re.compile(r"remote\.(.+)\.url", re.DOTALL)
_PATH = re.compile(r"[^/:]*:")
_LABEL_LENGTH = 4


@dataclass(frozen=True, slots=True)
class Remote:
    """Another repository that a persona is kept in step with."""

    name: str
    url: str
    """Without a login."""
    user: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    def wire(self, *, wiki: bool = False) -> Wire:
        """The way there; with `wiki`, to the pages beside it."""
        return Wire(self.url.removesuffix(".git") + ".wiki.git" if wiki else self.url, self.token, self.user)

    def as_dict(self) -> dict[str, Any]:
        return {"remote": self.name, "url": self.url, "token": self.token is not None}


def check_name(name: str) -> str:
    """Return `name` if a remote may be called so, else raise `UsageError`."""
    if not REMOTE_NAME.fullmatch(name):
        raise UsageError(f"remote name {name[:80]!r} is not valid: a-z, 0-9 and hyphens, at most 32.")
    return name


def full_url(url: str) -> str:
    """The URL, a path made absolute."""
    if not url or "://" in url or _PATH.match(url) or url.startswith("-"):
        return url
    return os.path.abspath(url)


# -- the list -------------------------------------------------------------------------------


def remotes(
    repository: Repository, home: Path, persona: PersonaName, token: str | None = None
) -> list[Remote]:
    """The remotes of a persona, by name. `token` opens those that have none stored."""
    out = host.git(repository.folder, "config", "--local", "-z", "--list").decode("utf-8", "surrogateescape")
    logins = _load(home).get(persona.key, {})
    found = []
    for entry in out.split("\0"):
        name, _, value = entry.partition("\n")
        match = _KEY.fullmatch(name)
        if match and REMOTE_NAME.fullmatch(match[1]):
            login = logins.get(match[1], {})
            # A hand may have put a login into the configuration.
            found.append(Remote(match[1], scrub(value), login.get("user"), login.get("token") or token))
    return sorted(found, key=lambda remote: remote.name)


def write(
    repository: Repository,
    home: Path,
    persona: PersonaName,
    url: str,
    *,
    name: str = ORIGIN,
    token: str | None = None,
) -> Remote:
    """Note a remote, its token apart from its URL. One of that name and URL only gets the new token.

    Raises:
        UsageError: a malformed name, URL or token.
        ConflictError: the name is taken by another URL.
    """
    check_name(name)
    address = split_url(full_url(url), token)
    Wire(address.url, token or address.token, address.user)  # checks the login
    before = {remote.name: remote for remote in remotes(repository, home, persona)}.get(name)
    if before is not None and before.url != address.url:
        message = f"{persona} has a remote {name} already: {before.url}."
        raise ConflictError(message, hint="gitmem remote remove it first, or choose another --name.")
    if token or address.token or address.user:
        _store(home, persona.key, name, {"user": address.user, "token": token or address.token})
    if before is None:
        host.git(repository.folder, "config", "--local", f"remote.{name}.url", address.url)
        _give_label(repository)
    return next(remote for remote in remotes(repository, home, persona) if remote.name == name)


def keep_login(home: Path, persona: PersonaName, remote: Remote) -> None:
    """Keep the user and token of a remote."""
    _store(home, persona.key, remote.name, {"user": remote.user, "token": remote.token})


def remove(repository: Repository, home: Path, persona: PersonaName, name: str) -> None:
    """Forget a remote, what was seen of it, and its token.

    Raises:
        NotFoundError: there is no such remote.
    """
    here = remotes(repository, home, persona)
    if name not in {remote.name for remote in here}:
        raise NotFoundError(f"{persona} has no remote {name}.", hint="gitmem remote list shows those it has.")
    host.git(repository.folder, "config", "--local", "--remove-section", f"remote.{name}")
    _store(home, persona.key, name, None)
    with repository.locked():
        for folder in (f"refs/remotes/{name}/", f"refs/rescue/{name}/"):
            for ref in repository.refs.all(folder):
                repository.refs.delete(ref)
        forget_seen(repository, name)
        if len(here) == 1:
            host.git(repository.folder, "config", "--local", "--unset-all", "gitmem.label")
    repository.close()


def _give_label(repository: Repository) -> None:
    """A short label that sets names given here apart from those that another home gives."""
    if repository.label is None:
        letters = string.ascii_lowercase
        more = "".join(secrets.choice(letters + string.digits) for _ in range(_LABEL_LENGTH - 1))
        host.git(repository.folder, "config", "--local", "gitmem.label", secrets.choice(letters) + more)


# -- tokens ---------------------------------------------------------------------------------


def _load(home: Path) -> dict[str, dict[str, dict[str, str]]]:
    path = str(home / CREDENTIALS)
    data = host.read_bytes(path)
    if data is None:
        return {}
    try:
        loaded = json.loads(data)
    except ValueError:
        loaded = None
    if not isinstance(loaded, dict):
        raise CorruptError(f"{path} is damaged.", hint="Remove it, then store the tokens again.") from None
    return loaded


def _store(home: Path, key: str, name: str, login: dict[str, str | None] | None) -> None:
    """Keep a login, or forget it where None. Only its owner can read the file."""
    with host.locked(str(home / "gitmem.lock"), 60):
        known = _load(home)
        mine = {other: entry for other, entry in known.get(key, {}).items() if other != name}
        if login is not None:
            mine[name] = {field: value for field, value in login.items() if value is not None}
        if known.get(key, {}) == mine:
            return
        known[key] = mine
        kept = {persona: entries for persona, entries in known.items() if entries}
        data = json.dumps(kept, ensure_ascii=False, indent=2, sort_keys=True) + "\n"
        host.write_durable(str(home / CREDENTIALS), data.encode(), 0o600)


# -- what was seen ---------------------------------------------------------------------------


def load_seen(repository: Repository, name: str) -> dict[str, bytes]:
    """Tips, by branch, at which a remote still held released text when it was last asked."""
    try:
        loaded = json.loads(host.read_bytes(f"{repository.folder}/{SEEN}") or b"{}")
        return {branch: bytes.fromhex(oid) for branch, oid in loaded.get(name, {}).items()}
    except (ValueError, AttributeError, TypeError):
        return {}  # it only spares a fetch


def save_seen(repository: Repository, name: str, tips: dict[str, bytes]) -> None:
    """Note those tips. Call under the repository's lock."""
    if load_seen(repository, name) == tips:
        return
    path = f"{repository.folder}/{SEEN}"
    try:
        loaded = json.loads(host.read_bytes(path) or b"{}")
    except ValueError:
        loaded = {}
    kept = {other: entry for other, entry in loaded.items() if other != name}
    if tips:
        kept[name] = {branch: oid.hex() for branch, oid in sorted(tips.items())}
    if kept:
        host.write_durable(path, json.dumps(kept, indent=2).encode() + b"\n")
    else:
        host.remove(path)


def forget_seen(repository: Repository, name: str) -> None:
    """Forget what was seen of a remote."""
    save_seen(repository, name, {})
