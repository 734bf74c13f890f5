"""Everything gitmem raises, as one tree.

    GitmemError
    ├── UsageError         a value breaks a rule of its grammar            exit 2   (ValueError)
    ├── NotFoundError      a well-formed name that nothing answers to      exit 1   (LookupError)
    ├── ConflictError      it exists already, or someone was faster        exit 3
    ├── RefusedError       a rule forbids it                               exit 4   (PermissionError)
    └── UnavailableError   cannot be read or written right now             exit 5   (OSError)
        └── CorruptError   what is stored is damaged or missing            exit 5

A leaf that is not found is not an error: `trace` answers it as a value. Every error carries one
sentence that says what is wrong and where, and a `hint` that says what to do next.
"""

from __future__ import annotations


class GitmemError(Exception):
    """Base of every error of gitmem."""

    code = "error"
    """Short stable name, the same in JSON output and over HTTP."""
    exit_code = 5
    """Exit code of the command line."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class UsageError(GitmemError, ValueError):
    """A path, time, name or option is malformed; nothing was changed."""

    code = "usage"
    exit_code = 2


class NotFoundError(GitmemError, LookupError):
    """No persona, epoch or home of that name is here."""

    code = "not_found"
    exit_code = 1


class ConflictError(GitmemError):
    """The thing exists already with other content, or another writer was faster."""

    code = "conflict"
    exit_code = 3


class RefusedError(GitmemError, PermissionError):
    """A rule forbids the change; nothing was changed."""

    code = "refused"
    exit_code = 4


class UnavailableError(GitmemError, OSError):
    """A file, lock or repository cannot be used right now; nothing is taken for deleted."""

    code = "unavailable"
    exit_code = 5


class CorruptError(UnavailableError):
    """Stored data is damaged or missing."""

    code = "corrupt"
