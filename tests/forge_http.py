"""git's smart HTTP on loopback, as a forge serves it: `git http-backend` behind a small server.

Bodies are streamed both ways, whether they come whole, in chunks or gzipped, so that a push of any
size passes. A server can be told to be of another kind: without protocol version 2, refusing every
password, or breaking the connection.
"""

from __future__ import annotations

import base64
import contextlib
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO, Literal
from urllib.parse import unquote

Mode = Literal["normal", "v0", "unauthorized", "drop", "drop-body", "error"]
LONGEST = 120
"""Seconds after which a request is given up."""
_PLACE = re.compile(r"/([^/]+)/([^/]+?)(?:\.git)?/(info/refs|HEAD|git-[a-z]+-pack|objects/.*)\Z")
_PIECE = 65536

Environment = Callable[[str, str, str, str], Mapping[str, str]]
"""From user, owner and repository as typed, and Git-Protocol to the environment of git."""


class Request:
    """What one request was; tests look at these."""

    def __init__(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        self.method = method
        self.path = path
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.user: str | None = None
        self.status = 0


class Server:
    """A running server. `mode` may be changed at any time; `requests` lists what came."""

    def __init__(self, root: Path, tokens: Mapping[str, str], environment: Environment) -> None:
        self.root = root
        self.tokens = tokens
        self.environment = environment
        self.mode: Mode = "normal"
        self.requests: list[Request] = []
        self._http = _Threads(("127.0.0.1", 0), _Handler)
        self._http.forge = self
        self.port: int = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    def url(self, place: str, user: str = "", password: str = "") -> str:
        """The address of a repository, with a name and password where they are given."""
        who = f"{user}:{password}@" if user else ""
        return f"http://{who}127.0.0.1:{self.port}/{place}.git"

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        self._thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self._http.server_close()
            self._thread.join(10)

    def user_of(self, header: str) -> str | None:
        """Who a Basic header is: the token may stand in place of the password or of the name."""
        kind, _, value = header.partition(" ")
        if kind.lower() != "basic":
            return None
        try:
            name, _, password = base64.b64decode(value, validate=True).decode("utf-8").partition(":")
        except ValueError:
            return None
        if password in self.tokens:
            return self.tokens[password]
        return self.tokens.get(name) if password in ("", "x-oauth-basic") else None


class _Threads(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    forge: Server

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: _Threads
    protocol_version = "HTTP/1.1"
    timeout = LONGEST

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's own name
        """Say nothing; `requests` has it."""

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        forge = self.server.forge
        seen = Request(self.command, self.path, dict(self.headers.items()))
        forge.requests.append(seen)
        path, _, query = self.path.partition("?")
        place = _PLACE.match(unquote(path))
        if forge.mode == "drop" or (forge.mode == "drop-body" and self.command == "POST"):
            self._drop()
            return
        if forge.mode == "error":
            self._answer(seen, 500, "broken")
            return
        user = forge.user_of(self.headers.get("Authorization", ""))
        if user is None or forge.mode == "unauthorized":
            self._answer(seen, 401, "Unauthorized", {"WWW-Authenticate": 'Basic realm="Forge"'})
            return
        seen.user = user
        folder = None if place is None else f"{place[1].lower()}/{place[2].lower()}.git"
        if place is None or folder is None or not (forge.root / folder).is_dir():
            self._answer(seen, 404, "Not found")
            return
        protocol = "" if forge.mode == "v0" else self.headers.get("Git-Protocol", "")
        environment = dict(forge.environment(user, place[1], place[2], protocol))
        environment |= {
            "GIT_PROJECT_ROOT": str(forge.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": f"/{folder}/{place[3]}",
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
        }
        for header, name in (
            ("Content-Encoding", "HTTP_CONTENT_ENCODING"),
            ("Content-Length", "CONTENT_LENGTH"),
        ):
            if value := self.headers.get(header):
                environment[name] = value
        self._run(seen, environment)

    def _drop(self) -> None:
        """Break the connection, in the middle of the body where there is one."""
        self.close_connection = True
        if self.command == "POST":
            self.rfile.read1(64)
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _answer(
        self, seen: Request, status: int, text: str, headers: Mapping[str, str] | None = None
    ) -> None:
        for _ in self._body():
            pass
        seen.status = status
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def _body(self) -> Iterator[bytes]:
        """The request's body, piece by piece."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield from self._pieces(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            yield from self._pieces(int(self.headers.get("Content-Length", 0)))

    def _pieces(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self.rfile.read(min(size, _PIECE))
            if not piece:
                raise ConnectionError("the body ended early")
            size -= len(piece)
            yield piece

    def _run(self, seen: Request, environment: Mapping[str, str]) -> None:
        git = shutil.which("git")
        assert git is not None
        command = [git, "http-backend"]
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as backend:
            alarm = threading.Timer(LONGEST, backend.kill)
            alarm.start()
            try:
                assert backend.stdin is not None
                assert backend.stdout is not None
                feeder = threading.Thread(target=self._feed, args=(backend.stdin,), daemon=True)
                feeder.start()
                self._reply(seen, backend.stdout)
                feeder.join(LONGEST)
            finally:
                alarm.cancel()
                if backend.poll() is None and self.close_connection:
                    backend.kill()

    def _feed(self, stdin: BinaryIO) -> None:
        """Hand the body on; where git hears no more, read it to its end all the same."""
        hears = True
        try:
            for piece in self._body():
                if hears:
                    try:
                        stdin.write(piece)
                    except BrokenPipeError:
                        hears = False
        except (OSError, ValueError):
            self.close_connection = True
        finally:
            with contextlib.suppress(OSError):
                stdin.close()

    def _reply(self, seen: Request, stdout: BinaryIO) -> None:
        status, headers = 200, []
        while line := stdout.readline().strip():
            name, _, value = line.decode("latin-1").partition(": ")
            if name.lower() == "status":
                status = int(value.split()[0])
            else:
                headers.append((name, value))
        seen.status = status
        self.send_response(status)
        sized = any(name.lower() == "content-length" for name, _ in headers)
        for name, value in headers:
            self.send_header(name, value)
        if not sized:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while piece := stdout.read1(_PIECE):  # type: ignore[attr-defined]
            self.wfile.write(piece if sized else b"%x\r\n%s\r\n" % (len(piece), piece))
        if not sized:
            self.wfile.write(b"0\r\n\r\n")
