"""The rules by name: what each forbids, and what to do about it. docs/policy.md explains them one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from gitmem.store.objects import Oid
from gitmem.tracepath import LeafName


class Rule(NamedTuple):
    """One rule of the policy."""

    text: str
    remedy: str


_REBASE = "Run gitmem sync, or git pull --rebase, then push again."
_SIDECAR = "See docs/format.md for the fields of a sidecar; gitmem writes them for you."

RULES: dict[str, Rule] = {
    # -- who
    "actor.role": Rule("A human's account reaches the pages, not the memory.", "Push to the wiki instead."),
    "release.role": Rule(
        "Only those whom release_by names may release a leaf or forget its original.",
        "Ask an operator to release it.",
    ),
    "manifest.role": Rule(
        "Only an operator changes the manifest, except its epoch.", "Ask an operator to change gitmem.yaml."
    ),
    # -- refs
    "ref.name": Rule(
        "Only branches named as an epoch, main, and tags are pushed.",
        "Push to refs/heads/EPOCH: a letter, then up to 31 letters, digits, . _ -",
    ),
    "ref.delete": Rule("A branch is never deleted.", "Release the leaves that must go; the epoch stays."),
    "ref.twin": Rule("No two epochs differ only in case.", "Use the epoch that is there."),
    "ref.tag": Rule(
        "A tag names a commit that an epoch here already has.", "Push the branch first, then the tag."
    ),
    # -- history
    "history.stale": Rule("The branch moved while the push was under way.", _REBASE),
    "history.forward": Rule("A branch only moves forward.", _REBASE),
    "history.root": Rule(
        "An epoch has exactly one root commit.",
        "Begin an epoch with: git switch --orphan EPOCH; take others' work over with git pull --rebase.",
    ),
    "history.shared": Rule(
        "An epoch shares no commit with another branch.",
        "Begin an epoch of its own with: git switch --orphan EPOCH; copy files, do not merge branches.",
    ),
    "history.purged": Rule("Commits that were purged here never return.", _REBASE),
    "history.damaged": Rule("Every commit and tree is well formed.", "Run git fsck in the clone."),
    # -- files
    "file.path": Rule(
        "An epoch holds raw/, hldp/ and their sidecars in meta/, named by the grammar; main holds "
        "gitmem.yaml and README.md.",
        "Rename the file, or leave it out.",
    ),
    "file.workflow": Rule(
        "Nothing a forge would run is part of a memory.", "Leave .forgejo, .gitea and .github out."
    ),
    "file.twin": Rule(
        "No two names are equal after case folding and Unicode normalisation (NFC).", "Rename one of them."
    ),
    "file.mode": Rule(
        "Only plain files: no link, no submodule, no executable bit.",
        "Add the file itself; git update-index --chmod=-x takes the bit away.",
    ),
    "file.utf8": Rule("Text is UTF-8.", "Convert it, for instance with iconv -t UTF-8."),
    "file.nul": Rule("Text holds no NUL character.", "Take the character out."),
    "file.empty": Rule("A leaf is not empty.", "Write the text, or leave the file out."),
    "file.size": Rule("A file is no longer than max_leaf_bytes.", "Split it, or ask for a larger limit."),
    "file.conflict": Rule(
        "No conflict markers of a merge in sidecars, manifests and pages.", "Finish the merge, then commit."
    ),
    "file.secret": Rule(
        "No credentials of well-known shapes, where the settings refuse them.",
        "Take the credential out, and revoke it.",
    ),
    # -- leaves
    "leaf.changed": Rule(
        "The bytes of a leaf never change, except by wither.", "Restore the file; write a new leaf instead."
    ),
    "leaf.vanished": Rule(
        "A leaf disappears only with a sidecar that says archived or released.",
        "Use gitmem archive or release, or put the sidecar in the same commit (docs/push.md).",
    ),
    "leaf.move": Rule("A leaf moves between states only as the table allows.", "See docs/policy.md."),
    "leaf.blob": Rule(
        "The sidecar of an archived or withered leaf names the blob of its full text.",
        "Set blob to what git rev-parse OLD:KIND/NAME prints.",
    ),
    "leaf.blur": Rule(
        "A withered text is part of the original: nothing is made up.", "Use gitmem wither to make the blur."
    ),
    "leaf.forgotten": Rule("A forgotten original never comes back.", "Leave the sidecar as it was."),
    "leaf.released": Rule("A released name never returns, in any epoch.", "Use another name."),
    "leaf.turn": Rule(
        "A turn and role stand once in an epoch, tombstones included.",
        "Use another turn_id, or drop the leaf.",
    ),
    "sidecar.form": Rule("A sidecar is a YAML mapping with fields of the right kinds.", _SIDECAR),
    "sidecar.fits": Rule("A sidecar says what the branch bears out.", _SIDECAR),
    "tombstone.form": Rule(
        "A tombstone has its canonical bytes, and keeps the turn_id and role of the leaf.",
        "Use gitmem release, or write exactly the bytes shown in docs/push.md.",
    ),
    "record.form": Rule(
        "A record is a JSON object whose id is the file's name.", "Correct the JSON; gitmem record writes it."
    ),
    # -- manifest
    "manifest.form": Rule("gitmem.yaml stays, and can be read.", "See docs/format.md for its fields."),
    "manifest.fixed": Rule(
        "root, persona, timezone, format and purge are fixed when the persona is made.",
        "Leave them as they were.",
    ),
}
"""Every rule, by its id."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a push breaks."""

    rule: str
    path: str
    """The file, as text; empty where the branch itself is at fault."""
    what: str
    ref: str = ""
    commit: str = ""
    """The commit that breaks it, 40 digits; empty where there is none."""
    warning: bool = False
    """Said, but no reason to refuse."""

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return RULES[self.rule].remedy

    def of(self, ref: str) -> Violation:
        """The same violation, with the ref it was met on."""
        return replace(self, ref=ref)

    def by(self, commit: Oid) -> Violation:
        """The same violation, with the commit that breaks the rule."""
        return replace(self, commit=commit.hex())

    def as_dict(self) -> dict[str, str | bool]:
        out: dict[str, str | bool] = {
            "ref": self.ref, "path": self.path, "rule": self.rule, "what": self.what, "remedy": self.remedy,
        }  # fmt: skip
        return out | ({"commit": self.commit} if self.commit else {}) | {"warning": self.warning}


def shown(path: bytes) -> str:
    """A path as one line of text: what is not printable is escaped."""
    text = path.decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the settings of a home say about pushes."""

    max_bytes: int = 1024 * 1024
    secrets: str = "warn"
    """`off`, `warn` or `refuse`."""
    may_release: bool = True
    """Whether this actor may release."""


Released = Callable[[LeafName], str | None]
"""The epoch in which a tombstone of that name stands, if any."""
