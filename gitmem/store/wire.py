"""Talking to another repository by URL: what it has, fetch, push, and whether it still serves an object.

Git itself talks, whatever the transport (http, https, ssh, a path), so that `git receive-pack` and
its hooks always run on the other side. A token reaches git through the environment only: it is on
no command line, in no configuration, and is scrubbed from everything that is said.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn
from urllib.parse import unquote

from gitmem import host
from gitmem.errors import UnavailableError, UsageError
from gitmem.store.objects import Oid
from gitmem.store.repository import INCOMING, Repository

_WEB = ("http://", "https://")
_SPOKEN = ("http", "https", "ssh", "file")
_ALLOWED = "Allowed are http://, https://, ssh://, file:// and paths."
_URL = re.compile(r"([^:/]*)://([^/?#]*)(.*)", re.DOTALL)
_SSH_SHORT = re.compile(r"([^:/]+):(?!:)")
"""`USER@HOST:PATH`"""
_AUTHORITY = re.compile(r"(.*@)?(\[[0-9a-fA-F:.%]+\]|[^:@\[\]]*)(:\d*)?", re.DOTALL)
_NO_PASSWORD = ("", "x-oauth-basic")
"""What forges let stand where a token is given as the user."""
_LOGINS = re.compile(
    # the login of a URL: up to the last @ before the path, or anywhere where what follows : is no port
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?:(?:(?P<user>[^\s/@:]*)[^\s/@]*@)+|[^\s/@:\[]*:(?!\d*(?:[/\s'\")]|$))[^\s@]*@)"
    r"|(?P<broken>\b(?:https?|ssh|ftps?|file|git):/?)(?!/)[^\s@'\"]*@"
    r"|(?P<short>[^\s/@:'\"]+):[^\s/@]+@(?=[^\s/@:]+:)",
    re.IGNORECASE,
)
_SHORTEST = 4
"""Shorter pieces of a login stand anywhere."""
REMOTE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
"""What a remote may be called."""
_HELPER = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n" '
    '"$GITMEM_WIRE_USER" "$GITMEM_WIRE_TOKEN"; }; f'
)
_SETTINGS = (
    "core.askPass=",
    "credential.helper=",
    "credential.interactive=false",
    "fetch.unpackLimit=1",
    "gc.auto=0",
    "http.followRedirects=false",
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=60",
    "maintenance.auto=false",
    "protocol.version=2",
    "safe.directory=*",
)
_SSH = "ssh -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=15 -o ServerAliveCountMax=4"
_QUICK = "http.lowSpeedTime=20"
_QUICK_SECONDS = 60.0
"""Where refs stand is told at once by a server that works at all."""
_NOT_OURS = re.compile(rb"not our ref ([0-9a-f]{40})")
_REMOTE_LINE = re.compile(r"^remote: ?(.*?)\s*$", re.MULTILINE)

# What git says, what is wrong, and what to do. The first that fits is told.
_FAULTS: tuple[tuple[str, str, str], ...] = (
    (
        r"could not read (Username|Password)|Authentication failed|error: 401",
        "asks for a token, or does not take the one that is stored",
        "Store a valid one: gitmem remote add ROOT/PERSONA URL --token-file FILE.",
    ),
    (
        r"error: 403|HTTP 403",
        "refuses the token that is stored",
        "The token needs read and write permission on that repository.",
    ),
    (
        r"redirect|error: 30\d",
        "redirects to another address",
        "Give the address that it redirects to: gitmem remote add ROOT/PERSONA URL.",
    ),
    (r"error: 404|repository '.*' not found", "has no such repository", "Check the URL, and the token."),
    (
        r"Could not resolve host|Name or service not known",
        "cannot be found: its host name is unknown",
        "Check the URL and the network.",
    ),
    (
        r"Connection refused|Failed to connect|Couldn't connect|Network is unreachable|No route to host",
        "cannot be reached",
        "Check the URL, the network, and that the server runs.",
    ),
    (
        r"error: 5\d\d|Empty reply|disconnect|RPC failed|early EOF|hung up|expected flush",
        "broke off, or answered with a fault",
        "Try again; if it stays so, its log tells why.",
    ),
    (r"Operation too slow|timed out", "does not answer in time", "Try again later."),
    (
        r"Permission denied|Host key verification failed",
        "does not let this user in",
        "Check with ssh that the key and the host are known.",
    ),
    (
        r"does not appear to be a git repository|not a git repository|does not exist",
        "is no git repository",
        "Check the URL.",
    ),
    (
        r"dubious ownership",
        "belongs to another user of this machine",
        "Reach it over ssh or http, or let this user own it.",
    ),
)


class Pushed(NamedTuple):
    """What became of one ref of a push."""

    ref: str
    ok: bool
    reason: str = ""
    """Why it was not taken, as git and the server say it."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a push."""

    refs: tuple[Pushed, ...]
    said: tuple[str, ...] = ()
    """Lines that hooks of the other side printed."""

    @property
    def ok(self) -> bool:
        """Whether every ref was taken."""
        return all(ref.ok for ref in self.refs)


class Address(NamedTuple):
    """A URL, and the login that it held."""

    url: str
    user: str | None = None
    token: str | None = None


def split_url(url: str, token: str | None = None) -> Address:
    """Take the login out of a web URL. What stands there alone is a token, unless `token` is given apart.

    Raises:
        UsageError: it cannot be a URL or a path, is of a kind that is not spoken, or holds a password
            that could not be used.
    """
    shown = f"{scrub(url)[:200]!r}"
    if not url or url.startswith("-") or not url.isprintable() or re.match(r"\w+::", url):
        raise UsageError(f"{shown} is not the URL of a repository.", hint=_ALLOWED)
    found = _URL.match(url)
    if not found:
        _check_short(url, shown)
        return Address(url)
    scheme, authority, path = found[1], found[2], found[3]
    if scheme.lower() not in _SPOKEN:
        raise UsageError(f"{shown}: remotes of the kind {scheme[:20]}:// are not spoken to.", hint=_ALLOWED)
    parts = _AUTHORITY.fullmatch(authority)
    if not parts:
        message = f"{shown} is not the URL of a repository: its host or port is malformed."
        raise UsageError(message, hint="Write special characters of a login as %XX, or use --token-file.")
    user, colon, password = (parts[1] or "")[:-1].partition(":")
    if not scheme.lower().startswith("http"):
        _check_no_password(scheme.lower(), shown, given=bool(colon), user=user)
        return Address(url)
    user, password = unquote(user), unquote(password)
    bare = f"{scheme}://{authority[parts.start(2) :]}{path}"
    if password not in _NO_PASSWORD:
        return Address(bare, user or None, password)
    return Address(bare, user or None) if token else Address(bare, None, user or None)


def _check_no_password(scheme: str, shown: str, *, given: bool, user: str) -> None:
    if scheme == "ssh" and given:
        raise UsageError(
            f"{shown} was given with a password, which ssh does not take from a URL; nothing was stored.",
            hint="ssh uses keys: leave the password out, and give the key to your agent.",
        )
    if scheme == "file" and (given or user):
        raise UsageError(f"{shown} was given with a login, and a path has none.", hint="Leave it out.")


def _check_short(url: str, shown: str) -> None:
    """Check a path, or the short form of an ssh URL."""
    found = _SSH_SHORT.match(url)
    if not found:
        return
    if found[1].lower() in (*_SPOKEN, "ftp", "ftps", "git"):
        raise UsageError(f"{shown} is not the URL of a repository.", hint=f"{found[1]}: needs two slashes.")
    _check_no_password("ssh", shown, given=bool(re.match(r"[^/@:]+:[^/@]+@[^/@:]+:", url)), user="")


def scrub(text: str, token: str | None = None) -> str:
    """The text without the token, and without logins in URLs of any kind; the user of ssh stays."""
    if token:
        text = text.replace(token, "***")
    return _LOGINS.sub(_without_login, text)


def _without_login(found: re.Match[str]) -> str:
    if found["short"] or found["broken"]:
        return found["broken"] or found["short"] + "@"
    kept = f"{found['user']}@" if found["scheme"].lower() == "ssh" and found["user"] else ""
    return f"{found['scheme']}://{kept}"


def scrub_given(text: str, given: Iterable[str]) -> str:
    """The text without logins, also where it repeats only a piece of a URL that was `given`."""
    for found in (found for word in given for found in _LOGINS.finditer(word)):
        if _without_login(found) == found[0]:
            continue
        login = re.sub(r"^[^:]*:/+", "", found[0])
        text = text.replace(login, "")
        for piece in re.split("[:@]", login):
            text = text.replace(piece, "***") if len(piece) >= _SHORTEST else text
    return scrub(text)


class Wire:
    """The way to one other repository."""

    def __init__(
        self, url: str, token: str | None = None, user: str | None = None, *, seconds: float = 3600
    ) -> None:
        """`url`: http(s), ssh, file, or an absolute path. `seconds`: the longest that one exchange may take.

        Raises:
            UsageError: a malformed URL, or a token of more than one line.
        """
        address = split_url(url, token)
        self.url = address.url
        """Without a login."""
        self._token = token or address.token
        self._user = user or address.user or "gitmem"
        self._seconds = seconds
        self._shown = scrub(self.url, self._token)
        if any(not word.isprintable() for word in (self._token or "", self._user)):
            raise UsageError("a token is one line of printable characters.", hint="Check the token's file.")

    # -- what git does -----------------------------------------------------------------------

    def refs(self) -> dict[str, Oid]:
        """Every ref of the other repository and what it points at; empty for an empty repository.

        Raises:
            UnavailableError: it cannot be reached, or does not let us in.
        """
        quick = min(self._seconds, _QUICK_SECONDS)
        listing = ("ls-remote", "--quiet", "--refs", "--", self.url)
        out = self._run("/", "-c", _QUICK, *listing, seconds=quick).out
        pairs = (line.split(b"\t", 1) for line in out.splitlines())
        return {name.decode("utf-8", "surrogateescape"): bytes.fromhex(oid.decode()) for oid, name in pairs}

    def fetch(self, folder: str, refspecs: Iterable[str]) -> None:
        """Fetch into the repository `folder`, as one pack. Nothing but what `refspecs` name is written.

        Raises:
            UnavailableError: see `refs`; or a ref is not there.
        """
        self._run(folder, *_fetch(), "--", self.url, data=_lines(refspecs))

    def push(self, folder: str, updates: Mapping[str, Oid], lease: Mapping[str, Oid] | None = None) -> Reply:
        """Move refs of the other repository to commits of `folder`; each is taken or not by itself.

        Only forward, but for refs of `lease`, which are moved from exactly that commit.

        Raises:
            UnavailableError: see `refs`.
        """
        forced = [f"--force-with-lease={ref}:{oid.hex()}" for ref, oid in (lease or {}).items()]
        specs = [f"{oid.hex()}:{ref}" for ref, oid in updates.items()]
        arguments = ("push", "--porcelain", "--no-progress", "--no-verify", "--no-follow-tags", *forced)
        ran = self._run(folder, *arguments, "--", self.url, *specs, fails=True)
        said = tuple(_REMOTE_LINE.findall(self._text(ran.err)))
        found = tuple(self._pushed(ran.out))
        if ran.code and not any(not ref.ok for ref in found):
            self._fail(ran)
        return Reply(found, said)

    def _pushed(self, out: bytes) -> Iterator[Pushed]:
        for line in self._text(out).splitlines():
            flag, _, rest = line.partition("\t")
            pair, _, summary = rest.partition("\t")
            if len(flag) == 1 and summary:
                ok = flag != "!"
                yield Pushed(pair.partition(":")[2], ok, "" if ok else summary)

    def holds(self, folder: str, oids: Iterable[Oid]) -> dict[Oid, bool | None]:
        """Whether the other side serves each object to whoever knows its id; None where it does not tell.

        `folder` is an empty repository to be thrown away. One request for each object that is gone.

        Raises:
            UnavailableError: see `refs`.
        """
        answers: dict[Oid, bool | None] = {}
        asked = list(dict.fromkeys(oids))
        while asked:
            trace = f"{folder}/trace"
            ran = self._run(
                folder, *_fetch(), "--depth=1", "--filter=tree:0", "--", self.url,
                data=_lines(oid.hex() for oid in asked), more={"GIT_TRACE_PACKET": trace}, fails=True,
            )  # fmt: skip
            if ran.code == 0:
                return answers | dict.fromkeys(asked, True)
            found = _NOT_OURS.search(ran.err)
            if not found:
                self._fail(ran)
            gone = bytes.fromhex(found[1].decode())
            # Only version 2 of the protocol serves objects by id whatever the server's settings.
            sure = b"< version 2" in (host.read_bytes(trace) or b"")
            host.remove(trace)
            answers[gone] = False if sure else None
            asked.remove(gone)
        return answers

    # -- running -----------------------------------------------------------------------------

    def _run(
        self,
        folder: str,
        *arguments: str,
        data: bytes = b"",
        more: Mapping[str, str] | None = None,
        fails: bool = False,
        seconds: float | None = None,
    ) -> host.Ran:
        place = () if folder == "/" else ("--git-dir", folder)
        settings = [word for setting in self._settings() for word in ("-c", setting)]
        try:
            ran = host.talk_git(
                folder,
                [*settings, *place, *arguments],
                self._environment() | dict(more or {}),
                data,
                seconds or self._seconds,
            )
        except TimeoutError as fault:
            raise UnavailableError(
                f"{self._shown} does not answer in time: {fault}.", hint="Try again later."
            ) from None
        if ran.code and not fails:
            self._fail(ran)
        return ran

    def _settings(self) -> Sequence[str]:
        if not self._token or not self.url.lower().startswith(_WEB):
            return _SETTINGS
        server = "/".join(self.url.split("/")[:3])  # never for a proxy, or any other host
        return (*_SETTINGS, f"credential.{server}.helper={_HELPER}")

    def _environment(self) -> dict[str, str]:
        more = {
            "GIT_ASKPASS": "",
            "GIT_ALLOW_PROTOCOL": "file:http:https:ssh",
            "GIT_SSH_COMMAND": host.ssh_command(_SSH),
        }
        if self._token and self.url.lower().startswith(_WEB):
            more |= {"GITMEM_WIRE_USER": self._user, "GITMEM_WIRE_TOKEN": self._token}
        return more

    def _text(self, data: bytes) -> str:
        return scrub(data.decode("utf-8", "replace"), self._token)

    def _fail(self, ran: host.Ran) -> NoReturn:
        said = self._text(ran.err)
        words = " ".join(said.split())[-400:]
        for pattern, what, hint in _FAULTS:
            if re.search(pattern, said):
                raise UnavailableError(f"{self._shown} {what} ({words}).", hint=hint)
        raise UnavailableError(f"git cannot work with {self._shown}: {words}", hint="Check the URL.")


def _fetch() -> tuple[str, ...]:
    return (
        "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance",
        "--no-recurse-submodules", "--no-show-forced-updates", "--stdin",
    )  # fmt: skip


def _lines(words: Iterable[str]) -> bytes:
    return "".join(f"{word}\n" for word in words).encode("utf-8", "surrogateescape")


class Incoming:
    """A repository to be thrown away, inside another one, for what must not enter that one.

    Everything fetched is in here alone until it was purged, and vanishes with it. Use it as a
    context manager; what a killed process leaves is removed by the next writer.
    """

    def __init__(self, repository: Repository, *, borrow: bool = True) -> None:
        """`borrow`: it sees the objects of `repository` as its own."""
        mine = host.process_mark(os.getpid(), ".")
        self._name = f"{repository.folder}/{INCOMING}{mine}-{os.urandom(4).hex()}"
        self._borrow = borrow

    @property
    def folder(self) -> str:
        """Where it is, while it is open."""
        return self._name

    def __enter__(self) -> Repository:
        try:
            for name in ("refs/heads", "objects/pack", "objects/info"):
                os.makedirs(f"{self._name}/{name}", mode=0o700)
            files = {
                "HEAD": b"ref: refs/heads/none\n",
                "config": b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
            }
            if self._borrow:
                files["objects/info/alternates"] = b"../../objects\n"
            for name, data in files.items():
                host.write_new(f"{self._name}/{name}", data)
        except OSError as fault:
            self._remove()
            raise UnavailableError(f"{self._name} cannot be made: {fault.strerror}.") from None
        self._repository = Repository(self._name)
        return self._repository

    def __exit__(self, *_: object) -> None:
        self._repository.close()
        self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            host.remove_tree(Path(self._name))
