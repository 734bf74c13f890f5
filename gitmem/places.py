"""Places outside a repository where released text may be: exports, remotes and the wiki."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

import pygit2

from gitmem import host
from gitmem.errors import CorruptError, UnavailableError
from gitmem.fade import sentences
from gitmem.local import LocalState
from gitmem.report import Place, Reach
from gitmem.store.objects import items
from gitmem.store.repository import MAIN, Repository
from gitmem.store.wire import REMOTE_NAME, scrub
from gitmem.tracepath import TracePath

_QUOTE = 12
"""The fewest bytes of a sentence that are looked for in pages: shorter ones stand anywhere."""


def wiki_folder(repository: Path) -> Path:
    """The repository of the human pages that belong to a memory repository."""
    return repository.with_name(repository.name.removesuffix(".git") + ".wiki.git")


def other_places(
    repository: Repository,
    local: LocalState,
    key: str,
    paths: Collection[TracePath],
    texts: Collection[bytes],
) -> list[Place]:
    """What became of released leaves outside their repository; `texts` are what they said."""
    found = [Place("catalog (index.db)", Reach.NOT_PRESENT, "it holds names and times, no text")]
    try:
        found += [_look_into_export(folder, paths) for folder in local.exports(key)]
    except UnavailableError as fault:
        found.append(
            Place("exports", Reach.UNREACHED, fault.message, "find exports made before, and remove them")
        )
    for name, url in remotes(repository.folder):
        persona = next(iter(paths)).persona_name
        known = REMOTE_NAME.fullmatch(name)
        command = (
            f"gitmem sync {persona}" if known else f"gitmem remote add {persona} {url}, then gitmem sync"
        )
        found.append(Place(f"remote {url}", Reach.UNREACHED, "gitmem does not know what it holds", command))
    found += _look_into_worktrees(repository.folder, paths)
    wiki = wiki_folder(Path(repository.folder))
    if wiki.is_dir():
        found.append(_look_into_wiki(wiki, texts))
    return found


def _look_into_export(folder: str, paths: Iterable[TracePath]) -> Place:
    name = f"export {folder}"
    if not os.path.isdir(folder):
        gone = "the folder is not there; a copy of it would still hold the text"
        reachable = os.path.isdir(os.path.dirname(folder))
        return Place(name, Reach.NOT_PRESENT if reachable else Reach.UNREACHED, gone)
    held = [file for path in paths for file in _exported_files(folder, path) if os.path.exists(file)]
    if not held:
        return Place(name, Reach.NOT_PRESENT)
    shown = " ".join(f"'{file}'" for file in held)
    return Place(name, Reach.UNREACHED, f"{len(held)} files hold it", f"rm {shown}")


def _exported_files(folder: str, path: TracePath) -> tuple[str, ...]:
    place = f"{folder}/{path.persona_name}/{path.epoch}"
    return tuple(
        f"{place}/{name}" for name in (path.leaf.path, f"history/{path.leaf.path}", path.leaf.sidecar)
    )


def _look_into_worktrees(repository: str, paths: Iterable[TracePath]) -> list[Place]:
    """Working copies that `git worktree` made of the repository."""
    found = []
    for name in host.list_folder(f"{repository}/worktrees"):
        link = (host.read_bytes(f"{repository}/worktrees/{name}/gitdir") or b"").decode(
            "utf-8", "surrogateescape"
        )
        folder = os.path.dirname(link.strip())
        held = [file for path in paths if os.path.exists(file := f"{folder}/{path.leaf.path}")]
        if held:
            command = f"git -C '{folder}' reset --hard (its index and files still hold the leaf)"
            found.append(Place(f"worktree {folder}", Reach.UNREACHED, f"{len(held)} files hold it", command))
    return found


def remotes(folder: str) -> list[tuple[str, str]]:
    """Names and URLs of the remotes in a repository's configuration, URLs without login."""
    config = pygit2.Config(f"{folder}/config")
    found = [e for e in config if e.name.startswith("remote.") and e.name.endswith(".url")]
    return [(e.name[len("remote.") : -len(".url")], scrub(e.value or "")) for e in found]


def _look_into_wiki(folder: Path, texts: Iterable[bytes]) -> Place:
    """Whether a page, or an old version of one, quotes a whole sentence of a leaf. Pages are human words."""
    name = f"pages ({folder.name})"
    quotes = {quote for text in texts for quote in _quotes(text)}
    wiki = Repository(str(folder))
    try:
        tip = wiki.refs.head(MAIN)
        blobs = [item for item in items([tip], wiki.read) if item.kind == "blob"] if tip else []
        held = {item.path.decode("utf-8", "replace") for item in blobs if _holds(wiki.blob(item.oid), quotes)}
    except CorruptError as fault:
        return Place(name, Reach.UNREACHED, fault.message, "gitmem doctor")
    finally:
        wiki.close()
    if held:
        return Place(name, Reach.KEPT, f"quoted in {', '.join(sorted(held))}")
    return Place(name, Reach.NOT_PRESENT)


def _quotes(text: bytes) -> list[bytes]:
    found = [sentence.strip().encode() for sentence in sentences(text.decode("utf-8", "replace"))]
    return [quote for quote in found if len(quote) >= _QUOTE]


def _holds(data: bytes, quotes: Iterable[bytes]) -> bool:
    return any(quote in data for quote in quotes)
