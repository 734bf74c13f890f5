"""Who pushes, and as what: from the variables of Forgejo or of gitmem's own server."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from gitmem.errors import UsageError

Role = Literal["persona", "human", "operator"]
_ROLES: tuple[Role, ...] = ("persona", "human", "operator")


@dataclass(frozen=True, slots=True)
class Actor:
    """An account, and what it counts as."""

    name: str
    role: Role


def is_wiki(folder: str, environment: Mapping[str, str]) -> bool:
    """Whether a repository is a wiki: a memory's human pages."""
    said = environment.get("GITEA_REPO_IS_WIKI", "").lower()
    return said == "true" or folder.rstrip("/").lower().endswith(".wiki.git")


def identify(environment: Mapping[str, str], operators: Collection[str], *, wiki: bool) -> Actor:
    """Who pushes.

    Forgejo's variables come first: a host that sets them lets no client choose any. Its accounts
    are operators where `operators` names them (case does not matter), and a deploy key never is.
    Next come GITMEM_PUSHER_NAME and GITMEM_PUSHER_ROLE, set by gitmem's own server or, for a local
    push, by the owner of the files. Else it is a local push by a persona, or to a wiki by a human.

    Raises:
        UsageError: GITMEM_PUSHER_ROLE is no role.
    """
    common: Role = "human" if wiki else "persona"
    account = environment.get("GITEA_PUSHER_NAME", "")
    if account:
        deploy = environment.get("GITEA_DEPLOY_KEY_ID", "0") not in ("", "0")
        chief = not deploy and account.lower() in {name.lower() for name in operators}
        return Actor(account, "operator" if chief else common)
    role = environment.get("GITMEM_PUSHER_ROLE", "")
    for known in _ROLES:
        if role == known:
            return Actor(environment.get("GITMEM_PUSHER_NAME", known), known)
    if role:
        raise UsageError(f"GITMEM_PUSHER_ROLE is {role!r}, not one of: {', '.join(_ROLES)}.")
    return Actor(environment.get("GITMEM_PUSHER_NAME", common), common)
