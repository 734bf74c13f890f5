"""Keeping homes in step through any git host."""

from gitmem.sync.personas import Waiting, add_remote, list_remotes, remove_remote, status, sync
from gitmem.sync.remotes import Remote
from gitmem.sync.report import BranchReport, RemoteReport, SyncReport, verified

__all__ = [
    "BranchReport",
    "Remote",
    "RemoteReport",
    "SyncReport",
    "Waiting",
    "add_remote",
    "list_remotes",
    "remove_remote",
    "status",
    "sync",
    "verified",
]
