"""Rules for one file: its path, its mode and its content."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from gitmem import checks, records, sidecar
from gitmem.errors import CorruptError, UsageError
from gitmem.manifest import FILE_NAME as MANIFEST
from gitmem.policy import secrets
from gitmem.policy.rules import Limits, Violation, shown
from gitmem.store.objects import BLOB_MODE, Oid
from gitmem.tracepath import KINDS, LeafName, check_name

MAIN_FILES = (MANIFEST.encode(), b"README.md")
_FORGES = (b".forgejo", b".gitea", b".github")
FOR_FORGE = "a forge would take it as instructions."
_MARKER = re.compile(rb"^(?:<{7}|={7}|>{7}|\|{7})(?: |\r?$)", re.MULTILINE)
_MODES = {b"120000": "a symbolic link", b"160000": "a submodule", b"100755": "executable"}


class File(NamedTuple):
    """What a tree holds under a path."""

    mode: bytes
    oid: Oid


@lru_cache(maxsize=65536)
def leaf_of(path: bytes) -> LeafName | None:
    """The leaf that a file of an epoch is, or is the sidecar of; None for any other path."""
    folder, _, name = path.rpartition(b"/")
    try:
        text = name.decode("ascii")
    except UnicodeDecodeError:
        return None
    for kind in KINDS:
        leaf = LeafName(kind, text) if folder == kind.encode() else None
        if folder == b"meta/" + kind.encode() and text.endswith(".yaml"):
            leaf = LeafName.of_sidecar(kind, text)
        if leaf is not None:
            try:
                check_name(kind, leaf.name)
            except UsageError:
                return None
            return leaf
    return None


def _path_fault(path: bytes) -> str:
    """Why a path has no place in an epoch."""
    folder, _, name = path.rpartition(b"/")
    for kind in KINDS:
        if folder in (kind.encode(), b"meta/" + kind.encode()):
            text = name.decode("utf-8", "backslashreplace")
            if folder.startswith(b"meta/"):
                if not text.endswith(".yaml"):
                    return "a sidecar's name ends in .yaml."
                text = LeafName.of_sidecar(kind, text).name
            try:
                check_name(kind, text)
            except UsageError as fault:
                return fault.message
    return "an epoch holds only raw/, hldp/, meta/raw/ and meta/hldp/, without further folders."


def is_for_forge(path: bytes) -> bool:
    """Whether a forge would look into a file of that path by itself."""
    return path.lower().split(b"/")[0] in _FORGES


def check_place(path: bytes, file: File, *, main: bool) -> Iterator[Violation]:
    """A file's path and mode."""
    text = shown(path)
    if is_for_forge(path):
        yield Violation("file.workflow", text, FOR_FORGE)
    elif main:
        if path not in MAIN_FILES:
            yield Violation("file.path", text, "main holds only gitmem.yaml and README.md.")
    elif leaf_of(path) is None:
        yield Violation("file.path", text, _path_fault(path))
    if file.mode != BLOB_MODE:
        yield Violation("file.mode", text, f"it is {_MODES.get(file.mode, 'no plain file')}.")


def check_twins(added: Iterable[bytes], present: Iterable[bytes]) -> Iterator[Violation]:
    """New names against all names there are, folders included."""
    names: dict[str, set[str]] = {}
    for path in present:
        for part in _parts(path):
            names.setdefault(_folded(part), set()).add(part)
    for path in sorted(added):
        text = path.decode("utf-8", "backslashreplace")
        others = {name for part in _parts(path) for name in names[_folded(part)] - {part}}
        if others:
            other = shown(sorted(others)[0].encode("utf-8", "surrogatepass"))
            yield Violation("file.twin", shown(text.encode()), f"it is the same name as {other}.")


def _parts(path: bytes) -> list[str]:
    """The path and the folders it lies in."""
    names = path.decode("utf-8", "backslashreplace").split("/")
    return ["/".join(names[: count + 1]) for count in range(len(names))]


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def check_content(path: bytes, data: bytes, limits: Limits) -> Iterator[Violation]:
    """A file's bytes, by what the path says it is."""
    text = shown(path)
    if len(data) > limits.max_bytes:
        what = f"it has {len(data)} bytes; the limit is {limits.max_bytes} (max_leaf_bytes in settings.yaml)."
        yield Violation("file.size", text, what)
        return
    yield from check_text(text, data)
    leaf = leaf_of(path)
    is_sidecar = leaf is not None and path == leaf.sidecar.encode()
    if leaf is not None and not is_sidecar and not data:
        yield Violation("file.empty", text, "there is nothing to remember in it.")
    if is_sidecar or leaf is None:
        yield from check_markers(text, data)
    if is_sidecar:
        yield from _check_sidecar(text, data)
    elif leaf is not None and leaf.kind == "hldp" and data:
        yield from _check_record(leaf, text, data)
    yield from check_secrets(text, data, limits)


def check_text(text: str, data: bytes) -> Iterator[Violation]:
    """Bytes that are text: UTF-8 without NUL."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as fault:
        yield Violation("file.utf8", text, f"it is not UTF-8 at byte {fault.start}: {fault.reason}.")
    if (at := data.find(0)) >= 0:
        yield Violation("file.nul", text, f"a NUL character stands at byte {at}.")


def check_markers(text: str, data: bytes) -> Iterator[Violation]:
    """No markers of an unfinished merge."""
    found = _MARKER.search(data)
    # A line of equals signs alone underlines a heading: two different markers make a conflict.
    if found and len({match[0][:1] for match in _MARKER.finditer(data)}) > 1:
        line = data.count(b"\n", 0, found.start()) + 1
        yield Violation("file.conflict", text, f"a conflict marker of a merge stands in line {line}.")


def check_secrets(text: str, data: bytes, limits: Limits) -> Iterator[Violation]:
    """No credentials, where the settings care."""
    if limits.secrets != "off":
        for name, line in secrets.find(data):
            what = f"line {line} seems to hold {name}."
            yield Violation("file.secret", text, what, warning=limits.secrets != "refuse")


def _check_sidecar(text: str, data: bytes) -> Iterator[Violation]:
    try:
        said = sidecar.parse(data, text)
        checks.check_word("turn_id", said.turn_id, 200)
        checks.check_word("role", said.role)
        checks.check_words("tag", said.tags)
        checks.check_summary(said.summary)
    except (CorruptError, UsageError) as fault:
        yield Violation("sidecar.form", text, _without(fault.message, text))


def _check_record(leaf: LeafName, text: str, data: bytes) -> Iterator[Violation]:
    try:
        record = records.parse(data, text)
    except CorruptError as fault:
        yield Violation("record.form", text, _without(fault.message, text))
        return
    if record.id != leaf.stem:
        yield Violation("record.form", text, f"its id is {record.id[:80]!r}, and its name says {leaf.stem}.")


def _without(message: str, where: str) -> str:
    """An error's words without the name of the file, which the violation has already."""
    return message.removeprefix(where).removeprefix(":").strip()
