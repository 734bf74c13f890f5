"""The plain-file layout of a home: what `gitmem export` writes and `gitmem init --from` reads.

    ROOT/PERSONA/gitmem.yaml             the manifest
    ROOT/PERSONA/EPOCH/raw/NAME.txt      texts in the branch (of a withered leaf: its blur)
    ROOT/PERSONA/EPOCH/hldp/NAME.json    records in the branch
    ROOT/PERSONA/EPOCH/meta/KIND/STEM.yaml     sidecars; of a released leaf only its tombstone
    ROOT/PERSONA/EPOCH/history/KIND/NAME       full texts that only git history holds
    ROOT/PERSONA/pages/NAME.md           human pages

Reading checks everything before anything is made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gitmem import host, records
from gitmem import manifest as manifests
from gitmem import sidecar as sidecars
from gitmem.errors import CorruptError, UnavailableError, UsageError
from gitmem.manifest import Manifest
from gitmem.sidecar import Sidecar
from gitmem.states import State
from gitmem.store.objects import hash_object
from gitmem.tracepath import KINDS, Kind, LeafName, check_epoch, check_name, natural_order

HISTORY = "history"
PAGES = "pages"


@dataclass(frozen=True, slots=True)
class StoredLeaf:
    """A leaf as files."""

    leaf: LeafName
    shown: bytes | None
    """What the branch holds."""
    full: bytes | None
    """The full text, where the branch does not hold it."""
    sidecar: bytes | None
    parsed: Sidecar

    @property
    def state(self) -> State:
        return self.parsed.state


@dataclass(frozen=True, slots=True)
class StoredPersona:
    """A persona as files."""

    manifest: Manifest
    epochs: dict[str, list[StoredLeaf]]
    pages: dict[str, bytes] = field(default_factory=dict)


def is_layout(folder: Path) -> bool:
    """Whether a folder holds `ROOT/PERSONA/gitmem.yaml`."""
    return any(folder.glob(f"*/*/{manifests.FILE_NAME}"))


def read(folder: Path, max_bytes: int) -> list[StoredPersona]:
    """Read and check every persona of a folder.

    Raises:
        UsageError: something in it breaks a rule; the message names the file.
        UnavailableError: it cannot be read, or holds no persona.
    """
    if not folder.is_dir():
        raise UnavailableError(f"{folder} is not a folder that can be read.")
    found = []
    for root in host.list_folder(str(folder)):
        if root.startswith(".") or not (folder / root).is_dir():
            continue
        for persona in host.list_folder(str(folder / root)):
            place = folder / root / persona
            if (place / manifests.FILE_NAME).is_file():
                found.append(_read_persona(place, max_bytes))
    if not found:
        raise UsageError(f"{folder} holds no persona: no ROOT/PERSONA/gitmem.yaml below it.")
    return found


def _read_persona(place: Path, max_bytes: int) -> StoredPersona:
    manifest = manifests.parse(_file(place / manifests.FILE_NAME), str(place / manifests.FILE_NAME))
    if (manifest.root, manifest.persona) != (place.parent.name, place.name):
        raise UsageError(f"{place}/gitmem.yaml speaks of {manifest.name}, not of the folder it stands in.")
    epochs: dict[str, list[StoredLeaf]] = {}
    pages: dict[str, bytes] = {}
    for entry in sorted(host.list_folder(str(place)), key=natural_order):
        if entry == PAGES:
            pages = {
                path.relative_to(place / PAGES).as_posix(): _file(path) for path in _files(place / PAGES)
            }
        elif not entry.startswith(".") and (place / entry).is_dir():
            epochs[check_epoch(entry)] = _read_epoch(place / entry, max_bytes)
    return StoredPersona(manifest, epochs, pages)


def _read_epoch(place: Path, max_bytes: int) -> list[StoredLeaf]:
    allowed = {*KINDS, "meta", HISTORY}
    for entry in host.list_folder(str(place)):
        if not entry.startswith(".") and entry not in allowed:
            raise UsageError(f"{place / entry} is not part of an epoch: raw, hldp, meta, history.")
    names: set[LeafName] = set()
    for kind in KINDS:
        for folder in (place / kind, place / HISTORY / kind):
            names |= {LeafName(kind, _checked_name(kind, path)) for path in _files(folder)}
        for path in _files(place / "meta" / kind):
            leaf = LeafName.of_sidecar(kind, path.name)
            _checked_name(kind, path.with_name(leaf.name))
            names.add(leaf)
    return [_read_leaf(place, leaf, max_bytes) for leaf in sorted(names)]


def _checked_name(kind: Kind, path: Path) -> str:
    try:
        return check_name(kind, path.name)
    except UsageError as fault:
        raise UsageError(f"{path}: {fault}") from None


def _read_leaf(place: Path, leaf: LeafName, max_bytes: int) -> StoredLeaf:
    shown = _file_or_none(place / leaf.path)
    full = _file_or_none(place / HISTORY / leaf.path)
    data = _file_or_none(place / leaf.sidecar)
    where = str(place / leaf.sidecar)
    try:
        parsed = sidecars.parse(data, where) if data is not None else Sidecar()
    except CorruptError as fault:
        raise UsageError(str(fault)) from None
    for text in (shown, full):
        if text is not None:
            check_leaf_bytes(text, leaf, str(place / leaf.path), max_bytes)
    _check_consistent(shown, full, parsed, data, str(place / leaf.path))
    return StoredLeaf(leaf, shown, full, data, parsed)


def check_leaf_bytes(data: bytes, leaf: LeafName, where: str, max_bytes: int) -> None:
    """Raise `UsageError` naming `where` unless the bytes may be a leaf of that kind."""
    if not data:
        raise UsageError(f"{where} is empty.")
    if len(data) > max_bytes:
        raise UsageError(f"{where} is {len(data)} bytes long; the limit is {max_bytes}.")
    if b"\0" in data:
        raise UsageError(f"{where} holds a NUL character.")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise UsageError(f"{where} is not UTF-8: {fault.reason} at byte {fault.start}.") from None
    if leaf.kind == "hldp":
        try:
            records.parse(data, where)
        except CorruptError as fault:
            raise UsageError(str(fault)) from None


def _check_consistent(
    shown: bytes | None, full: bytes | None, parsed: Sidecar, data: bytes | None, where: str
) -> None:
    state = parsed.state
    if state is State.RELEASED:
        if shown is not None or full is not None:
            raise UsageError(f"{where}: a released leaf has no text; remove the file, or its tombstone.")
        if data is None or not sidecars.is_tombstone(data):
            raise UsageError(f"{where}: its tombstone must begin with the line 'state: released'.")
        return
    if state is State.ARCHIVED and shown is not None:
        raise UsageError(f"{where}: an archived leaf's text belongs into the folder history.")
    if state is not State.ARCHIVED and shown is None:
        raise UsageError(f"{where}: a leaf that is {state} has its text in the branch; the file is missing.")
    if state is State.ACTIVE and full is not None:
        raise UsageError(f"{where}: an active leaf has no second text in history.")
    wanted = parsed.full_text
    held = full if full is not None else shown if parsed.forgotten else None
    if state in (State.ARCHIVED, State.WITHERED):
        if held is None:
            raise UsageError(f"{where}: the full text is missing in the folder history.")
        if wanted is None or hash_object("blob", held).hex() != wanted:
            raise UsageError(f"{where}: the text in the folder history is not the one its sidecar names.")


def _files(folder: Path) -> Iterator[Path]:
    """Files below a folder, sorted; hidden ones and links are not followed."""
    for entry in host.list_folder(str(folder)):
        path = folder / entry
        if entry.startswith("."):
            continue
        if path.is_symlink():
            raise UsageError(f"{path} is a symbolic link; only plain files are read.")
        if path.is_dir():
            yield from _files(path)
        elif path.is_file():
            yield path
        else:
            raise UsageError(f"{path} is not a plain file.")


def _file(path: Path) -> bytes:
    data = host.read_bytes(str(path))
    if data is None:
        raise UnavailableError(f"{path} cannot be read: it is gone.")
    return data


def _file_or_none(path: Path) -> bytes | None:
    return host.read_bytes(str(path))


def write_file(path: Path, data: bytes) -> None:
    """Write a file of the layout, with its folders."""
    os.makedirs(path.parent, mode=0o700, exist_ok=True)
    with open(path, "xb") as file:
        file.write(data)
