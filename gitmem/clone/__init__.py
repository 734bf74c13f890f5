"""A working copy for people: an ordinary git clone, with a folder for each epoch."""

from gitmem.clone.folder import is_copy
from gitmem.clone.make import clone
from gitmem.clone.report import BranchReport, CopyReport
from gitmem.clone.update import sync

__all__ = ["BranchReport", "CopyReport", "clone", "is_copy", "sync"]
