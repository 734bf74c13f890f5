"""Sync with a forge over http and ssh: tokens, errors, and what a server does not tell."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from gitmem import Home, Memory
from gitmem.errors import UnavailableError, UsageError
from gitmem.receive import install
from gitmem.report import Reach
from gitmem.store import wire
from gitmem.store.repository import Repository
from gitmem.store.wire import Incoming, Wire, scrub, split_url
from gitmem.sync import add_remote, list_remotes, sync
from tests.conftest import PERSONA, Done, FakeClock, run_git
from tests.forge import Forge
from tests.forge_http import Server
from tests.kill import secret
from tests.traces import found_in, runs_of

TOKEN = "token-of-admin"
EPOCH = "D118"


@dataclass
class Host:
    forge: Forge
    server: Server
    folder: Path
    url: str


@pytest.fixture
def host(forge: Forge) -> Iterator[Host]:
    """A forge with our hooks and an empty repository, over http."""
    folder = forge.create()
    install.install(str(folder))
    (forge.root / "settings.yaml").write_text("operators: [admin]\n")
    with forge.http() as server:
        yield Host(forge, server, folder, server.url("YM001/ZY001"))


def test_two_homes_over_http(
    host: Host, tmp_path: Path, home: Home, memory: Memory, clock: FakeClock
) -> None:
    text = secret("over http 雨")
    path = memory.write(text, epoch=EPOCH, label="yu").trace_path
    add_remote(home, PERSONA, host.url, token=TOKEN)
    report = sync(home, PERSONA).remotes[0]
    assert report.complete, report.as_dict()
    with Home.init(tmp_path / "other", clock=clock) as other:
        add_remote(other, PERSONA, host.url, token=TOKEN)
        twin = other.persona(PERSONA)
        assert twin.trace(path).content == text
        twin.release(path)
        report = sync(other, PERSONA).remotes[0]
        assert report.complete, report.as_dict()
        assert [place.reach for place in report.places] == [Reach.PURGED]
        assert sync(home, PERSONA).remotes[0].branches[EPOCH].released == 1
        for folder in ("home", "other"):
            assert found_in(tmp_path / folder, runs_of(text)) == []
    assert found_in(host.forge.root, runs_of(text)) == []


def test_a_persona_account_may_write_and_not_change_the_manifest(
    host: Host, home: Home, memory: Memory
) -> None:
    add_remote(home, PERSONA, host.url, token=TOKEN)
    assert sync(home, PERSONA).exit_code == 0
    add_remote(home, PERSONA, host.url, token="token-of-zhuyuan")
    memory.write("x", epoch=EPOCH)
    memory.start_epoch("D119")
    assert sync(home, PERSONA).exit_code == 0
    with memory.repository.locked():
        memory._set_manifest(replace(memory.manifest, human="他"), "another human")
    memory.write("y", epoch=EPOCH)
    report = sync(home, PERSONA)
    assert report.exit_code == 3
    assert "remote refused the push" in report.remotes[0].branches["main"].stopped
    assert "operator" in report.remotes[0].branches["main"].stopped
    assert report.remotes[0].branches[EPOCH].sent == 1  # though a hook refuses a push as a whole


def test_the_token_is_nowhere_but_in_its_file(
    host: Host, tmp_path: Path, cli: Callable[..., Done], memory: Memory, home: Home
) -> None:
    """A git on PATH writes down how it was called, and with which configuration."""
    log = tmp_path / "calls"
    real = run_git(tmp_path, "--exec-path").decode().strip()
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> "{log}"\nexec {real}/git "$@"\n')
    fake.chmod(0o755)
    env = {"PATH": f"{fake.parent}:{os.environ['PATH']}"}
    told = []
    file = tmp_path / "token.txt"
    file.write_text(TOKEN + "\n")
    where = ("--home", home.path)
    told.append(cli("remote", "add", *where, PERSONA, host.url, "--token-file", file, env=env, check=0))
    told.append(cli("write", *where, PERSONA, data=b"x", env=env, check=0))
    told.append(cli("sync", *where, env=env, check=0))
    told.append(cli("remote", "list", *where, "--json", env=env, check=0))
    told.append(cli("status", *where, "--json", env=env, check=0))
    assert any(
        TOKEN in (request.headers.get("authorization") or "") or request.user
        for request in host.server.requests
    )
    host.server.mode = "unauthorized"
    told.append(cli("sync", *where, env=env, check=5))
    wrong = host.url.replace("://", f"://zhuyuan:{TOKEN}@")
    told.append(cli("remote", "add", *where, PERSONA, wrong, "--name", "b", env=env, check=0))
    told.append(cli("sync", *where, "--json", env=env, check=5))
    said = "".join(done.text + done.err for done in told)
    assert TOKEN not in said
    assert "token" in told[-3].text
    assert TOKEN not in log.read_text()
    for name in home.path.rglob("*"):
        if name.is_file() and name.name != "credentials":
            assert TOKEN.encode() not in name.read_bytes(), name
    assert (home.path / "credentials").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("mode", "words"), [("unauthorized", "token"), ("error", "500"), ("drop", ""), ("drop-body", "")]
)
def test_a_server_that_fails(host: Host, home: Home, memory: Memory, mode: str, words: str) -> None:
    memory.write("x", epoch=EPOCH)
    add_remote(home, PERSONA, host.url, token=TOKEN)
    host.server.mode = mode  # type: ignore[assignment]
    report = sync(home, PERSONA).remotes[0]
    assert not report.reached
    assert words in report.error
    assert report.hint
    assert report.waiting == 3
    host.server.mode = "normal"
    assert sync(home, PERSONA).exit_code == 0


def test_no_token_and_a_wrong_one(host: Host, home: Home, memory: Memory) -> None:
    add_remote(home, PERSONA, host.url)
    assert "token" in sync(home, PERSONA).remotes[0].hint or "token" in sync(home, PERSONA).remotes[0].error
    add_remote(home, PERSONA, host.url, token="wrong")
    assert not sync(home, PERSONA).remotes[0].reached
    assert sync(home, PERSONA, token=TOKEN).exit_code == 5  # the stored one is used
    add_remote(home, PERSONA, host.url, token=TOKEN)
    assert sync(home, PERSONA).exit_code == 0


def test_a_server_without_version_two_does_not_tell(host: Host, home: Home, memory: Memory) -> None:
    path = memory.write(secret("v0"), epoch=EPOCH).trace_path
    add_remote(home, PERSONA, host.url, token=TOKEN)
    assert sync(home, PERSONA).exit_code == 0
    memory.release(path)
    host.server.mode = "v0"
    report = sync(home, PERSONA).remotes[0]
    assert [place.detail.split(":")[0] for place in report.places] == ["unknown"]


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:9/other/info/refs")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        with pytest.raises(UnavailableError, match="redirects to another address"):
            Wire(f"http://127.0.0.1:{server.server_port}/a/b.git", "geheim").refs()
    finally:
        server.shutdown()
        server.server_close()


def test_a_server_that_never_answers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        wire = Wire(f"http://127.0.0.1:{silent.getsockname()[1]}/a.git", seconds=1)
        with pytest.raises(UnavailableError, match="no end after 1 seconds"):
            wire.refs()


def test_over_ssh(forge: Forge, home: Home, memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = forge.create()
    install.install(str(folder))
    (forge.root / "settings.yaml").write_text("operators: [admin]\n")
    memory.write("over ssh", epoch=EPOCH)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(forge.ssh("admin")))
    add_remote(home, PERSONA, "ssh://git@forge.invalid/YM001/ZY001.git")
    report = sync(home, PERSONA).remotes[0]
    assert report.complete, report.as_dict()
    assert run_git(folder, "rev-parse", EPOCH).decode().strip() == memory.repository.refs.head(EPOCH).hex()  # type: ignore[union-attr]


def test_urls_lose_their_login() -> None:
    assert split_url("https://a:b%40c@h:8/x") == ("https://h:8/x", "a", "b@c")
    assert split_url("https://u:p@ss@h/x") == ("https://h/x", "u", "p@ss")
    for alone in ("https://tok@h/x", "https://tok:@h/x", "https://tok:x-oauth-basic@h/x"):
        assert split_url(alone) == ("https://h/x", None, "tok")
    assert split_url("https://a@h/x", "tok") == ("https://h/x", "a", None)
    assert split_url("http://[::1]:8/@a/x") == ("http://[::1]:8/@a/x", None, None)
    assert split_url("ssh://git@h/x") == ("ssh://git@h/x", None, None)
    assert scrub("fatal: https://u:pw@h/x and tok", "tok") == "fatal: https://h/x and ***"
    assert scrub("ssh://git:pw@h/x") == "ssh://git@h/x"
    assert scrub("ftp://u:pw@h/x") == "ftp://h/x"
    assert scrub("http://u:p/w@h/x http:/u:pw@h") == "http://h/x http:/h"
    assert scrub("http://h:80/@a http://[::1]:8/x@y git@h:z") == "http://h:80/@a http://[::1]:8/x@y git@h:z"
    with pytest.raises(UsageError):
        Wire("https://h/x", "two\nlines")


def test_what_a_killed_sync_fetched_is_removed(memory: Memory) -> None:
    memory.write("x")
    folder = Path(memory.repository.folder)
    left = folder / "gitmem.incoming-999999999.1-abcd"
    left.mkdir()
    (left / "HEAD").write_text("x")
    with Incoming(memory.repository) as alive:
        memory.write("y")
        assert isinstance(alive, Repository)
        assert Path(alive.folder).is_dir()
        assert memory.repository.refs.head("D1") in alive
    assert not left.exists()
    assert not list(folder.glob("gitmem.incoming-*"))


def test_commands_of_a_persona_with_a_remote(
    tmp_path: Path, cli: Callable[..., Done], home: Home, memory: Memory
) -> None:
    remote = tmp_path / "r.git"
    run_git(tmp_path, "init", "-q", "--bare", str(remote))
    where = ("--home", home.path)
    assert "No persona has a remote" in cli("sync", *where, check=0).err
    cli("remote", "add", *where, PERSONA, "r.git", check=0)
    path = cli("write", *where, PERSONA, "--json", data="雨".encode(), check=0).json()["trace_path"]
    assert cli("status", *where, check=0).text.count("commits wait") == 1
    assert cli("doctor", *where, "--json", check=0).json()["waiting"][0]["waiting"] == 3
    dry = cli("sync", *where, "--dry-run", "--json", check=0).json()
    assert [(b["branch"], b["sent"]) for b in dry["results"][0]["branches"]] == [("D1", 2), ("main", 1)]
    assert "2 sent" in cli("sync", *where, check=0).text
    assert "in step" in cli("sync", *where, PERSONA, check=0).text
    released = cli("release", *where, path, "--yes", "--verify-remote", "--json", check=3).json()
    assert released["remotes"][0]["places"][0]["detail"].startswith("still served")
    cli("sync", *where, "--rewrite-remote", check=0)
    cli("remote", "remove", *where, PERSONA, check=0)
    assert cli("remote", "list", *where, "--json", check=0).json() == {"entries": [], "next": None}
    cli("sync", *where, PERSONA, check=1)
    path = cli("write", *where, PERSONA, "--json", data=b"next", check=0).json()["trace_path"]
    cli("release", *where, path, "--yes", "--verify-remote", check=2)
    assert cli("trace", *where, path, check=0)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://u:GEHEIM@h/z.git", "http://, https://, ssh://, file:// and paths"),
        ("git://h/z.git", "http://, https://, ssh://, file:// and paths"),
        ("ftps+x://GEHEIM@h/z.git", "http://, https://, ssh://, file:// and paths"),
        ("ssh://u:GEHEIM@h/z.git", "ssh uses keys"),
        ("u:GEHEIM@h:z.git", "ssh uses keys"),
        ("file://u:GEHEIM@h/z.git", "a path has none"),
        ("http://u:GEH/EIM@h/z.git", "%XX"),
        ("http:/u:GEHEIM@h/z.git", "two slashes"),
    ],
)
def test_a_url_that_is_refused_is_neither_stored_nor_said(
    cli: Callable[..., Done], home: Home, memory: Memory, url: str, words: str
) -> None:
    where = ("--home", home.path)
    for name in ("铸渊", "YM001/ZY009"):
        done = cli("remote", "add", *where, name, url, "--json", check=2)
        assert words in done.err
        assert "GEH" not in done.err + done.text
    for command in ("sync", "status", "check"):
        done = cli(command, "--json", url, env={"GITMEM_HOME": str(home.path)})
        assert done.code in (1, 2)
        assert "GEH" not in done.err + done.text
    assert list_remotes(home) == []
    for file in home.path.rglob("*"):
        assert not file.is_file() or b"GEH" not in file.read_bytes()


def test_a_token_alone_in_a_url_opens_the_remote(
    host: Host, cli: Callable[..., Done], home: Home, memory: Memory
) -> None:
    url = host.url.replace("://", f"://{TOKEN}@")
    where = ("--home", home.path)
    added = cli("remote", "add", *where, PERSONA, url, "--json", env={"GITMEM_TOKEN": None}, check=0)
    assert added.json()["token"] is True
    assert TOKEN not in added.text
    assert "sent" in cli("sync", *where, check=0).text
    both = host.url.replace("://", f"://admin:{TOKEN}@")
    env = {"GITMEM_TOKEN": "wrong"}
    cli("remote", "add", *where, PERSONA, both, "--name", "b", env=env, check=0)
    cli("sync", *where, "--remote", "b", check=0)


def test_a_login_that_a_hand_put_into_the_configuration_is_not_shown(home: Home, memory: Memory) -> None:
    run_git(memory.repository.folder, "config", "remote.old.url", "ftp://u:GEHEIM@h/z.git")
    assert [remote.url for _, remote in list_remotes(home)] == ["ftp://h/z.git"]
    add_remote(home, PERSONA, "/nowhere", remote="other")
    reports = sync(home).remotes
    assert [r.remote for r in reports] == ["old", "other"]
    assert "ftp:// are not spoken to" in reports[0].error
    path = memory.write("x", epoch=EPOCH).trace_path
    places = {place.name: place for place in memory.release(path).places}
    assert places["remote ftp://h/z.git"].command == f"gitmem sync {PERSONA}"


def test_a_folder_is_synced_wherever_one_stands_in_it(
    tmp_path: Path, cli: Callable[..., Done], home: Home, memory: Memory
) -> None:
    memory.write("x", epoch=EPOCH)
    env = {"GITMEM_HOME": str(home.path)}
    cli("clone", "铸渊", "wc", env=env, check=0)
    cli("clone", "铸渊", "铸渊", env=env, check=0)
    copy = tmp_path / "wc"
    for folder, name in (
        (copy, "."), (copy / EPOCH, "."), (copy / EPOCH / "raw", "."), (copy / EPOCH / "raw", "../.."),
        (tmp_path, "wc"), (tmp_path, "wc/"), (tmp_path, "./wc"), (tmp_path, str(copy)), (tmp_path, "./铸渊"),
    ):  # fmt: skip
        assert "up to date" in cli("sync", name, env=env, cwd=folder, check=0).text, (folder, name)
    assert "no remote" in cli("sync", "铸渊", env=env, check=1).err  # the persona goes first
    assert "no folder /nonexist" in cli("sync", "/nonexist", env=env, check=1).err
    (tmp_path / "plain").mkdir()
    assert "no working copy" in cli("sync", "./plain", env=env, check=2).err


def test_a_remote_that_is_not_there(cli: Callable[..., Done], home: Home, memory: Memory) -> None:
    where = ("--home", home.path)
    cli("remote", "add", *where, PERSONA, "/nowhere", check=0)
    assert "no persona has a remote zz" in cli("sync", *where, "--remote", "zz", check=1).err
    for done in (
        cli("sync", *where, "ym001/zy001", "--remote", "zz", check=1),
        cli("remote", "remove", *where, "ym001/zy001", "--name", "zz", check=1),
        cli("remote", "add", *where, "ym001/zy001", "/elsewhere", check=3),
    ):
        assert PERSONA in done.err


def test_remotes_are_listed_by_name(home: Home, memory: Memory) -> None:
    for persona in ("YM001/ZY001-a", "YM001/ZY0010"):
        home.add_persona(persona)
    for persona in ("YM001/ZY001-a", "YM001/ZY0010", PERSONA):
        for name in ("b", "a"):
            add_remote(home, persona, "/nowhere", remote=name)
    found = [(persona, remote.name) for persona, remote in list_remotes(home)]
    assert found == sorted(found)
    assert len(found) == 6


def test_a_server_that_stalls_is_given_up(
    host: Host, home: Home, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the connection, as a stopped process does, and says nothing."""
    assert wire._QUICK == "http.lowSpeedTime=20"
    monkeypatch.setattr(wire, "_QUICK", "http.lowSpeedTime=2")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        add_remote(home, PERSONA, f"http://127.0.0.1:{silent.getsockname()[1]}/a.git")
        report = sync(home, PERSONA).remotes[0]
    assert not report.reached
    assert "does not answer in time" in report.error
    assert report.waiting == 1


def test_release_says_what_its_remotes_were_found_to_hold(
    tmp_path: Path, host: Host, cli: Callable[..., Done], home: Home, memory: Memory
) -> None:
    where = ("--home", home.path)
    options = ("--yes", "--verify-remote", "--json")
    paths = [memory.write(secret(f"verified {i}"), epoch=EPOCH).trace_path for i in range(5)]
    plain = cli("release", *where, paths[0], "--yes", "--json", check=0).json()["report"]
    assert plain["complete"]
    add_remote(home, PERSONA, host.url, token=TOKEN)
    cli("sync", *where, check=0)

    def places(path: str, code: int) -> tuple[bool, dict[str, tuple[str, str]]]:
        report = cli("release", *where, path, *options, check=code).json()["report"]
        found = {p["place"]: (p["status"], p.get("detail", "")) for p in report["places"]}
        return report["complete"], {name: found[name] for name in found if name.startswith("remote ")}

    complete, found = places(paths[1], 0)
    assert complete
    assert list(found) == [f"remote {host.url} {EPOCH}"]
    assert found[f"remote {host.url} {EPOCH}"][1].startswith("gone")
    # Again: nothing is asked for any more, and the branch there is known.
    assert places(paths[1], 0) == (
        True, {f"remote {host.url} {EPOCH}": ("not present", "its branch does not hold it")},
    )  # fmt: skip
    plain = cli("release", *where, paths[2], "--yes", "--json", check=0).json()["report"]
    assert not plain["complete"]
    (place,) = [p for p in plain["places"] if p["place"] == f"remote {host.url}"]
    assert place["command"] == f"gitmem sync {PERSONA}"
    host.server.mode = "error"
    complete, found = places(paths[3], 5)
    assert not complete
    assert found[f"remote {host.url}"][0] == "could not reach"
    assert "500" in found[f"remote {host.url}"][1]
    host.server.mode = "v0"
    complete, found = places(paths[4], 3)
    assert not complete
    assert found[f"remote {host.url} {EPOCH}"][1].startswith("unknown")
