"""A git configuration that gets in everybody's way, and an environment that misleads git."""

from __future__ import annotations

from pathlib import Path

HOSTILE = """
[commit]
    gpgsign = true
[tag]
    gpgsign = true
[gpg]
    program = /no/such/gpg
[core]
    hooksPath = {user}/hooks
    autocrlf = true
    eol = crlf
    safecrlf = true
    quotePath = true
    fsmonitor = /no/such/monitor
    compression = 0
    attributesFile = {user}/attributes
    excludesFile = {user}/ignore
    pager = false
    editor = false
    sharedRepository = world
    logAllRefUpdates = always
    sshCommand = false
[init]
    defaultBranch = trunk
    templateDir = {user}/template
[safe]
    directory =
[user]
    useConfigOnly = true
[gc]
    auto = 1
    autoDetach = false
    pruneExpire = now
[maintenance]
    auto = true
[receive]
    denyAll = true
[transfer]
    hideRefs = refs/heads
[pack]
    packSizeLimit = 1m
    indexVersion = 1
[merge]
    conflictStyle = zdiff3
[color]
    ui = always
[log]
    showSignature = true
    date = relative
[i18n]
    commitEncoding = GBK
    logOutputEncoding = GBK
[diff]
    external = /no/such/diff
    renames = copies
[extensions]
    objectFormat = sha256
"""

MISLEADING = {
    "GIT_DIR": "/no/such/repository",
    "GIT_WORK_TREE": "/no/such/tree",
    "GIT_INDEX_FILE": "/no/such/index",
    "GIT_OBJECT_DIRECTORY": "/no/such/objects",
    "GIT_CONFIG_GLOBAL": None,
    "GIT_CONFIG_NOSYSTEM": None,
    "GIT_AUTHOR_NAME": None,
    "GIT_COMMITTER_NAME": None,
}
"""Variables to set, or to remove where None."""


def write(user: Path) -> None:
    """Make the configuration that of a user whose HOME is `user`."""
    (user / ".gitconfig").write_text(HOSTILE.format(user=user), "utf-8")
