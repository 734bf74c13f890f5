"""The manifest of a persona: `gitmem.yaml` on the branch `main` of its repository."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field, fields
from typing import Any

from gitmem import yamltext
from gitmem.errors import CorruptError, UsageError
from gitmem.times import zone
from gitmem.tracepath import PersonaName, check_epoch, check_owner

FILE_NAME = "gitmem.yaml"
FORMAT = 1
"""Version of the layout of a repository."""
PURGE = 1
"""Version of the purge function that this repository's history went through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a persona's repository says about itself. Fields in the order of the file."""

    format: int = FORMAT
    purge: int = PURGE
    root: str
    persona: str
    timezone: str = "UTC"
    """IANA name; all names of leaves and all day boundaries are in it. Fixed when made."""
    human: str | None = None
    """The human this persona talks to."""
    aliases: tuple[str, ...] = ()
    epoch: str | None = None
    """The epoch that new leaves go to."""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> PersonaName:
        return PersonaName(f"{self.root}/{self.persona}")


def check_alias(value: str) -> str:
    """Return `value` if it may be another name of a persona."""
    if not value or len(value) > 64 or not value.isprintable() or value != value.strip() or "/" in value:
        raise UsageError(f"alias {value[:80]!r} is not valid: 1 to 64 printable characters, no slash.")
    return value


def alias_key(value: str) -> str:
    """The form in which aliases are compared: case and Unicode form do not matter."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", value).casefold())


def check_human(value: str) -> str:
    """Return `value` if it may be the name of a human."""
    if not value.strip() or len(value) > 64 or not value.isprintable():
        raise UsageError(f"human {value[:80]!r} is not valid: 1 to 64 printable characters.")
    return value


def check(manifest: Manifest) -> Manifest:
    """Return the manifest if each of its values obeys its rule, else raise `UsageError`."""
    check_owner(manifest.root, "root")
    check_owner(manifest.persona, "persona")
    zone(manifest.timezone)
    for alias in manifest.aliases:
        check_alias(alias)
    if manifest.human is not None:
        check_human(manifest.human)
    if manifest.epoch is not None:
        check_epoch(manifest.epoch)
    return manifest


def parse(data: bytes, where: str) -> Manifest:
    """Read a manifest.

    Raises:
        CorruptError: unreadable, incomplete, or written by a newer gitmem; names `where`.
    """
    raw = yamltext.load(data, where)
    known = {f.name for f in fields(Manifest)} - {"extra"}
    values = {key: value for key, value in raw.items() if key in known and value is not None}
    if values.get("format", FORMAT) != FORMAT or values.get("purge", PURGE) != PURGE:
        raise CorruptError(f"{where} was written by another version of gitmem.", hint="Upgrade gitmem.")
    for key in ("root", "persona"):
        if not isinstance(values.get(key), str):
            raise CorruptError(f"{where} lacks the field {key}.")
    aliases = values.get("aliases", [])
    if not isinstance(aliases, list):
        raise CorruptError(f"{where}: aliases must be a list.")
    values["aliases"] = tuple(str(alias) for alias in aliases)
    for key in ("timezone", "human", "epoch"):
        if key in values:
            values[key] = str(values[key])
    try:
        return check(Manifest(**values, extra={key: raw[key] for key in raw if key not in known}))
    except UsageError as fault:
        raise CorruptError(f"{where}: {fault}") from None


def dump(manifest: Manifest) -> bytes:
    """The canonical bytes of a manifest."""
    out: dict[str, Any] = {}
    for f in fields(Manifest):
        value = getattr(manifest, f.name)
        if f.name != "extra" and value not in (None, ()):
            out[f.name] = list(value) if isinstance(value, tuple) else value
    return yamltext.dump(out | manifest.extra)
