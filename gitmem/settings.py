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
    release_by: str = "persona"
    """Who may push a release: `persona` (and operators), or `operator` alone."""
    operators: tuple[str, ...] = ()
    """Accounts of the git host that count as operators when they push."""
    secrets: str = "warn"
    """What becomes of a text that seems to hold a credential: `off`, `warn` or `refuse`."""


_CHOICES = {"release_by": ("persona", "operator"), "secrets": ("off", "warn", "refuse")}


def parse(data: bytes, where: str) -> Settings:
    """Read settings.

    Raises:
        UsageError: an unknown key (with a suggestion) or a value of the wrong type.
    """
    raw = yamltext.load(data, where)
    known = {f.name: f.default for f in fields(Settings)}
    for key, value in list(raw.items()):
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(known)}."
            raise UsageError(f"{where}: unknown setting {key!r}.", hint=hint)
        raw[key] = _checked(key, value, known[key], where)
    return Settings(**raw)


def _checked(key: str, value: object, default: object, where: str) -> object:
    if key in _CHOICES:
        if value in _CHOICES[key] or (value is False and "off" in _CHOICES[key]):  # YAML reads off as false
            return value or "off"
        raise UsageError(f"{where}: {key} must be one of: {', '.join(_CHOICES[key])}.")
    if isinstance(default, tuple):
        if isinstance(value, list) and all(isinstance(item, str) and item for item in value):
            return tuple(value)
        raise UsageError(f"{where}: {key} must be a list of names.")
    if type(value) is not type(default) or (
        isinstance(value, int) and not isinstance(value, bool) and value < 1
    ):
        kind = "true or false" if isinstance(default, bool) else "a whole number from 1"
        raise UsageError(f"{where}: {key} must be {kind}.")
    return value


def dump(settings: Settings) -> bytes:
    """The file that a new home gets: the settings that differ from their defaults, or a comment."""
    changed = {
        f.name: getattr(settings, f.name) for f in fields(Settings) if getattr(settings, f.name) != f.default
    }
    head = b"# Settings of this gitmem home; docs/format.md lists every key.\n"
    return head + yamltext.dump(changed)
