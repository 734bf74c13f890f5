"""Places outside a repository where released text may be: exports and remotes gitmem knows of."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pygit2

from gitmem.report import Place, Reach
from gitmem.store.repository import Repository
from gitmem.tracepath import TracePath


def other_places(repository: Repository, exports: Iterable[str], paths: list[TracePath]) -> list[Place]:
    """What became of released leaves outside their repository."""
    found = [Place("catalog (index.db)", Reach.NOT_PRESENT, "it holds names and times, no text")]
    found += [_look_into_export(folder, paths) for folder in exports]
    for url in remotes(repository.folder):
        command = f"git -C {repository.folder} push {url} (its administrator must then purge it too)"
        found.append(Place(f"remote {url}", Reach.UNREACHED, "gitmem does not know what it holds", command))
    return found


def _look_into_export(folder: str, paths: Iterable[TracePath]) -> Place:
    name = f"export {folder}"
    if not os.path.isdir(folder):
        gone = "the folder is not there; a copy of it would still hold the text"
        return Place(
            name, Reach.UNREACHED if not os.path.isdir(os.path.dirname(folder)) else Reach.NOT_PRESENT, gone
        )
    held = []
    for path in paths:
        place = f"{folder}/{path.persona_name}/{path.epoch}"
        candidates = (
            f"{place}/{path.leaf.path}",
            f"{place}/history/{path.leaf.path}",
            f"{place}/{path.leaf.sidecar}",
        )
        held += [file for file in candidates if os.path.exists(file)]
    if not held:
        return Place(name, Reach.NOT_PRESENT)
    shown = " ".join(f"'{file}'" for file in held[:20]) + (" …" if len(held) > 20 else "")
    return Place(name, Reach.UNREACHED, f"{len(held)} files hold it", f"rm {shown}")


def remotes(folder: str) -> list[str]:
    """URLs of the remotes in a repository's configuration, without user names and passwords."""
    config = pygit2.Config(f"{folder}/config")
    values = [e.value or "" for e in config if e.name.startswith("remote.") and e.name.endswith(".url")]
    return [_without_user(url) for url in values]


def _without_user(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}" if mark else url
