"""The grammar of trace paths: one parser for the library, the hook, the command line and HTTP.

    YM001 / ZY001 / D118 / raw / 20260531-115447.txt
    root    persona epoch  kind  name

Nothing here touches a disk. A malformed path raises `UsageError` naming the part and the rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Literal

from gitmem.errors import UsageError

Kind = Literal["raw", "hldp"]
KINDS: tuple[Kind, ...] = ("raw", "hldp")

# Forgejo's rule for owners and repositories, and the names its router keeps for itself.
_OWNER = re.compile(r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*", re.ASCII)
_OWNER_MAX = 40
_RESERVED_OWNERS = frozenset(
    [
        ".",
        "..",
        ".well-known",
        "admin",
        "api",
        "api-internal",
        "assets",
        "attachments",
        "avatar",
        "avatars",
        "captcha",
        "commits",
        "debug",
        "devtest",
        "error",
        "explore",
        "favicon.ico",
        "ghost",
        "git",
        "issues",
        "login",
        "manifest.json",
        "metrics",
        "milestones",
        "new",
        "notifications",
        "org",
        "pulls",
        "raw",
        "repo",
        "repo-avatars",
        "robots.txt",
        "search",
        "serviceworker.js",
        "ssh_info",
        "stars",
        "swagger.v1.json",
        "user",
        "v2",
        "actions",
        "forgejo-actions",
        "gitea-actions",
        "forgejo",
    ]
)
_EPOCH = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,31}", re.ASCII)
_LABEL_MAX = 64
_LABEL = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)
_RAW_NAME = re.compile(r"(\d{8}-\d{6})(?:-([^./]+))?\.txt", re.ASCII)
_RECORD_NAME = re.compile(r"mem_[a-z0-9]{8,32}\.json", re.ASCII)
_COUNTER = re.compile(r"(?:^|-)(\d{4,9})$", re.ASCII)
_DIGITS = re.compile(r"(\d+)", re.ASCII)


def _shown(value: str) -> str:
    """`value` quoted for an error line: short, and with control characters visible."""
    return repr(value if len(value) <= 80 else value[:77] + "…")


def check_owner(value: str, part: str) -> str:
    """Return `value` if it may name a root or a persona; `part` says which, for the error."""
    rule = "1 to 40 letters, digits and single . _ - between them"
    if len(value) > _OWNER_MAX or not _OWNER.fullmatch(value):
        raise UsageError(f"{part} {_shown(value)} is not a valid name: {rule}.")
    if value.startswith(("TRACE.", "REMEMBER.")):
        raise UsageError(f"{part} {_shown(value)} begins like an HNL string; choose another.")
    if value.lower() in _RESERVED_OWNERS:
        raise UsageError(f"{part} {_shown(value)} is a reserved name; choose another.")
    if value.lower().endswith((".git", ".wiki", ".rss", ".atom", ".keys", ".gpg")):
        raise UsageError(f"{part} {_shown(value)} must not end in {value[value.rindex('.') :]}.")
    return value


def check_epoch(value: str) -> str:
    """Return `value` if it may name an epoch, which is also a git branch."""
    rule = "a letter, then up to 31 letters, digits, . _ -"
    if not _EPOCH.fullmatch(value):
        raise UsageError(f"epoch {_shown(value)} is not a valid name: {rule}.")
    if value.lower() in ("main", "head"):
        raise UsageError(f"epoch {_shown(value)} is kept for git's own use; choose another.")
    if ".." in value or value.endswith(".") or value.lower().endswith(".lock"):
        raise UsageError(
            f"epoch {_shown(value)} is not a valid branch name: no '..', '.' or '.lock' at the end."
        )
    return value


def is_epoch(value: str) -> bool:
    """Whether `value` may name an epoch: plain git makes other branches too."""
    try:
        check_epoch(value)
    except UsageError:
        return False
    return True


def check_label(value: str) -> str:
    """Return `value` if it may follow the second in a leaf's name."""
    if not _LABEL.fullmatch(value):
        rule = "a-z, 0-9, then also _ and -, at most 64 characters"
        raise UsageError(f"label {_shown(value)} is not valid: {rule}.")
    return value


def check_record_id(value: str) -> str:
    """Return `value` if it may name a record: `mem_` and 8 to 32 of a-z and 0-9."""
    if not _RECORD_NAME.fullmatch(value + ".json"):
        raise UsageError(f"record id {_shown(value)} is not valid: mem_ and 8 to 32 of a-z and 0-9.")
    return value


def check_name(kind: str, name: str) -> str:
    """Return `name` if it may name a leaf of that kind."""
    if kind == "hldp":
        if not _RECORD_NAME.fullmatch(name):
            raise UsageError(
                f"record name {_shown(name)} is not valid: mem_ and 8 to 32 of a-z and 0-9, then .json."
            )
        return name
    match = _RAW_NAME.fullmatch(name)
    if not match:
        raise UsageError(f"leaf name {_shown(name)} is not valid: YYYYMMDD-HHMMSS[-label].txt.")
    try:
        datetime.strptime(match[1], "%Y%m%d-%H%M%S")
    except ValueError:
        raise UsageError(f"leaf name {_shown(name)} holds no real date and time.") from None
    if match[2] is not None:
        check_label(match[2])
    return name


def is_name(kind: str, name: str) -> bool:
    """Whether a file of that name is a leaf: plain git lets others in."""
    try:
        check_name(kind, name)
    except UsageError:
        return False
    return True


def check_kind(value: str) -> Kind:
    """Return `value` if it is a kind of leaf: `raw` or `hldp`."""
    if value == "raw":
        return "raw"
    if value == "hldp":
        return "hldp"
    raise UsageError(f"kind {_shown(value)} is not one of: raw, hldp.")


class PersonaName(str):
    """`ROOT/PERSONA`; equal to that string. Compare with `key`, which ignores case."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: str) -> PersonaName:
        parts = value.split("/")
        if len(parts) != 2:
            raise UsageError(f"persona {_shown(value)} is not of the form ROOT/PERSONA.")
        return cls(f"{check_owner(parts[0], 'root')}/{check_owner(parts[1], 'persona')}")

    @property
    def root(self) -> str:
        return self.split("/")[0]

    @property
    def persona(self) -> str:
        return self.split("/")[1]

    @property
    def key(self) -> str:
        """The name as it stands on disk: lower case."""
        return self.lower()


class TracePath(str):
    """`ROOT/PERSONA/EPOCH/KIND/NAME`; equal to that string, with its parts as properties."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: str) -> TracePath:
        """Read a trace path.

        Raises:
            UsageError: a part breaks its rule; the message names the part.
        """
        return _parse(value)

    @classmethod
    def of(cls, persona: str, epoch: str, kind: str, name: str) -> TracePath:
        """Join parts that are known to be valid."""
        return cls(f"{persona}/{epoch}/{kind}/{name}")

    @property
    def persona_name(self) -> PersonaName:
        return PersonaName("/".join(self.split("/")[:2]))

    @property
    def epoch(self) -> str:
        return self.split("/")[2]

    @property
    def kind(self) -> Kind:
        return "raw" if self.split("/")[3] == "raw" else "hldp"

    @property
    def name(self) -> str:
        return self.split("/")[4]

    @property
    def leaf(self) -> LeafName:
        """The place inside the epoch's tree."""
        return LeafName(self.kind, self.name)


@dataclass(frozen=True, slots=True, order=True)
class LeafName:
    """A leaf inside one epoch: `KIND/NAME`, and where its sidecar stands."""

    kind: Kind
    name: str

    @property
    def path(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def stem(self) -> str:
        return self.name.rsplit(".", 1)[0]

    @property
    def sidecar(self) -> str:
        return f"meta/{self.kind}/{self.stem}.yaml"

    @classmethod
    def of_sidecar(cls, kind: Kind, file_name: str) -> LeafName:
        """The leaf that the sidecar file `meta/KIND/file_name` speaks about."""
        ending = ".txt" if kind == "raw" else ".json"
        return cls(kind, file_name.removesuffix(".yaml") + ending)


@lru_cache(maxsize=65536)
def _parse(value: str) -> TracePath:
    parts = value.split("/")
    if len(parts) != 5:
        shape = "ROOT/PERSONA/EPOCH/KIND/NAME, five parts"
        raise UsageError(f"trace path {_shown(value)} has {len(parts)} part(s); it must be {shape}.")
    check_owner(parts[0], "root")
    check_owner(parts[1], "persona")
    check_epoch(parts[2])
    check_name(check_kind(parts[3]), parts[4])
    return TracePath(value)


@dataclass(frozen=True, slots=True)
class Hnl:
    """A sentence of the tree language: what to do, and to which leaf."""

    verb: Literal["trace", "remember"]
    paths: tuple[TracePath, ...]
    """Every reading of the leaf. More than one only where persona and epoch both hold dots."""


def parse_hnl(value: str) -> Hnl | None:
    """Read `TRACE.ROOT/PERSONA.EPOCH/KIND/NAME.LEAF_TO_ROOT` or `REMEMBER.TRACE_PATH`.

    Returns None for a string that begins with neither verb (a trace path, for instance).
    The leaf may also follow the persona after a slash.

    Raises:
        UsageError: it begins with a verb, and the rest is malformed.
    """
    if value.startswith("REMEMBER."):
        return Hnl("remember", _readings(value.removeprefix("REMEMBER.")))
    if not value.startswith("TRACE."):
        return None
    if not value.endswith(".LEAF_TO_ROOT"):
        raise UsageError(f"HNL string {_shown(value)} must end in .LEAF_TO_ROOT.")
    return Hnl("trace", _readings(value.removeprefix("TRACE.").removesuffix(".LEAF_TO_ROOT")))


def _readings(value: str) -> tuple[TracePath, ...]:
    parts = value.split("/")
    if len(parts) == 5:
        return (TracePath.parse(value),)
    if len(parts) != 4 or "." not in parts[1]:
        TracePath.parse(value)  # raises with the right words
    dots = [i for i, char in enumerate(parts[1]) if char == "."]
    found: list[TracePath] = []
    error: UsageError | None = None
    for dot in dots:
        persona, epoch = parts[1][:dot], parts[1][dot + 1 :]
        try:
            found.append(TracePath.parse("/".join((parts[0], persona, epoch, *parts[2:]))))
        except UsageError as fault:
            error = error or fault
    if not found and error:
        raise error
    return tuple(found)


def leaf_time(name: str) -> str:
    """The `YYYYMMDD-HHMMSS` of a raw leaf's name."""
    return name[:15]


def leaf_order(name: str) -> tuple[str, int, str]:
    """Sort key of raw leaves: the second, then the count within it, then the label."""
    suffix = name[16:].removesuffix(".txt")
    match = _COUNTER.search(suffix)
    return leaf_time(name), int(match[1]) if match else 1, suffix


def last_count(names: Iterable[str]) -> int:
    """The highest count among raw leaves of one second; 0 where there is none."""
    return max((leaf_order(name)[1] for name in names), default=0)


def make_name(second: str, label: str | None, count: int, home: str | None = None) -> str:
    """The name gitmem gives to the `count`th leaf of a second.

    The first is the second and the label; a further one is counted, -0002, -0003 …, whatever its
    label, so that names sort in the order in which the leaves came. `home` is the label of a home
    that syncs: with it two homes never give one name. A long label is cut short where the others
    need the room.
    """
    ending = [part for part in (home, f"{count:04d}" if count > 1 else "") if part]
    room = _LABEL_MAX - sum(len(part) + 1 for part in ending)
    suffix = "-".join(part for part in ((label or "")[:room], *ending) if part)
    return check_name("raw", f"{second}-{suffix}.txt" if suffix else f"{second}.txt")


def natural_order(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sort key of epochs: digits count as numbers, so D99 comes before D118."""
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in _DIGITS.split(name) if part)
