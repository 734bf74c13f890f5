"""The settings of a home: `settings.yaml`, a plain block mapping."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields

from gitmem import yamltext
from gitmem.errors import UsageError

FILE_NAME = "settings.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting with its default."""

    demo: bool = False
    """Made by `gitmem demo`; holds nothing private."""
    max_leaf_bytes: int = 1024 * 1024
    """The largest leaf that a write accepts, in bytes."""
    lock_seconds: int = 60
    """How long a command waits for another one that writes to the same persona."""


def parse(data: bytes, where: str) -> Settings:
    """Read settings.

    Raises:
        UsageError: an unknown key (with a suggestion) or a value of the wrong type.
    """
    raw = yamltext.load(data, where)
    known = {f.name: f.default for f in fields(Settings)}
    for key, value in raw.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(known)}."
            raise UsageError(f"{where}: unknown setting {key!r}.", hint=hint)
        if type(value) is not type(known[key]) or (type(value) is int and value < 1):
            kind = "true or false" if isinstance(known[key], bool) else "a whole number from 1"
            raise UsageError(f"{where}: {key} must be {kind}.")
    return Settings(**raw)


def dump(settings: Settings) -> bytes:
    """The file that a new home gets: the settings that differ from their defaults, or a comment."""
    changed = {
        f.name: getattr(settings, f.name) for f in fields(Settings) if getattr(settings, f.name) != f.default
    }
    head = b"# Settings of this gitmem home; docs/format.md lists every key.\n"
    return head + yamltext.dump(changed)
