"""The imitated forge itself, with plain git and no hooks of ours."""

from __future__ import annotations

import gzip
import http.client
import os
import random
import subprocess
from base64 import b64encode
from collections.abc import Callable

import pytest

from tests.forge import TOKENS, Clone, Forge, Transport, write_script

LEAF = "raw/20260531-115447.txt"
VIAS = ("http", "ssh", "file")


def log_of(forge: Forge) -> str:
    return forge.log.read_text("utf-8")


@pytest.mark.parametrize("via", VIAS)
def test_push_clone_and_environment(forge: Forge, via: Transport) -> None:
    folder = forge.create()
    with forge.http() as server:
        work = forge.clone("a", via=via, server=server)
        work.orphan("D1")
        tip = work.commit({LEAF: "雨下了一整夜。"})
        done = work.push("-o", "mem.x=1", "HEAD:refs/heads/D1")
        assert done.code == 0, done.text
        again = forge.clone("b", via=via, user="bingshuo", server=server)
        assert again.git("rev-parse", "origin/D1") == tip
    said = log_of(forge)
    assert f"hook pre-receive in {folder}" in said
    assert f"hook update in {folder}" in said
    assert f"{'0' * 40} {tip} refs/heads/D1\n." in said
    assert f"HOME={forge.home}\n" in said
    if via == "file":
        assert "GITEA_" not in said
        return
    assert "GITEA_PUSHER_NAME=zhuyuan" in said
    assert "GITEA_REPO_USER_NAME=YM001" in said
    assert "GIT_PUSH_OPTION_0=mem.x=1" in said
    assert f"SSH_ORIGINAL_COMMAND={'receive-pack' if via == 'http' else 'git-receive-pack'}" in said
    assert ("LC_ALL=C\n" in said) == (via == "http")


def test_hooks_of_the_repository_run_in_the_order_of_the_layout(forge: Forge) -> None:
    folder = forge.create()
    for name in ("10-early", "zz-late"):
        write_script(
            folder / f"hooks/pre-receive.d/{name}", f'#!/bin/sh\necho "this is {name}"; cat\nexit 0\n'
        )
    (folder / "hooks/pre-receive.d/not-executable").write_text("exit 1\n")
    with forge.http() as server:
        work = forge.clone("a", server=server)
        work.commit({LEAF: "一"})
        forge.refuse()
        refused = work.push("HEAD:refs/heads/D1")
        assert refused.code
        assert "pre-receive hook declined" in refused.text
        order = [line for line in refused.remote if line.startswith(("this", "Forge"))]
        early, late, own = "this is 10-early", "this is zz-late", "Forge: pre-receive says no"
        assert order == ([early, own, late] if forge.layout == "v15" else [own, early, late])
        assert forge.git(folder, "for-each-ref") == b""
        forge.refuse(yes=False)
        assert work.push("HEAD:refs/heads/D1").code == 0


def test_first_failure_is_the_answer_and_all_hooks_run(forge: Forge) -> None:
    folder = forge.create()
    write_script(folder / "hooks/pre-receive.d/10-a", "#!/bin/sh\necho first\nexit 7\n")
    write_script(folder / "hooks/pre-receive.d/20-b", "#!/bin/sh\necho second\nexit 0\n")
    work = forge.clone("a", via="ssh")
    work.commit({LEAF: "一"})
    done = work.push("HEAD:refs/heads/D1")
    assert done.code
    assert [line for line in done.remote if line in ("first", "second")] == ["first", "second"]


def test_stale_hooks_of_an_upgraded_repository_do_not_run(make_forge: Callable[..., Forge]) -> None:
    forge = make_forge("v16")
    folder = forge.create()
    assert (folder / "hooks/pre-receive").exists()
    work = forge.clone("a", via="ssh")
    work.commit({LEAF: "一"})
    assert work.push("HEAD:refs/heads/D1").code == 0
    fresh = forge.create("YM001", "ZY002", stale=False)
    assert not (fresh / "hooks").exists()


def test_update_hook_can_refuse_one_branch(forge: Forge) -> None:
    forge.create()
    work = forge.clone("a", via="ssh")
    work.commit({LEAF: "一"})
    forge.refuse("update")
    assert "hook declined" in work.push("HEAD:refs/heads/D1").text


def test_pull_request_by_push(forge: Forge) -> None:
    folder = forge.create()
    with forge.http() as server:
        work = forge.clone("a", server=server)
        tip = work.commit({LEAF: "一"})
        assert work.push("HEAD:refs/heads/main").code == 0
        tip = work.commit({LEAF: "二"})
        done = work.push("HEAD:refs/for/main/topic")
        assert done.code == 0, done.text
        refused = work.push("HEAD:refs/pull/2/head")
        assert "hidden ref" in refused.text
    assert forge.git(folder, "rev-parse", "refs/pull/1/head").decode().strip() == tip


@pytest.mark.parametrize("api", [False, True])
def test_edit_in_the_browser(forge: Forge, api: bool) -> None:
    folder = forge.create()
    work = forge.clone("a", via="ssh")
    work.orphan("D1")
    work.commit({LEAF: "一", "raw/20260531-115448.txt": "二"})
    assert work.push("HEAD:refs/heads/D1").code == 0
    done = forge.edit("bingshuo", "D1", {"raw/雨.txt": b"\xef\xbb\xbfa\r\nb\r\n", LEAF: None}, api=api)
    assert done.code == 0, done.text
    kept = forge.git(folder, "show", "D1:raw/雨.txt")
    assert kept == (b"\xef\xbb\xbfa\r\nb\r\n" if api else b"\xef\xbb\xbfa\nb\n")
    names = forge.git(folder, "ls-tree", "-r", "-z", "--name-only", "D1").decode()
    assert LEAF not in names
    said = log_of(forge)
    assert "SSH_ORIGINAL_COMMAND=gitea-internal" in said
    assert "GITEA_PUSHER_NAME=bingshuo" in said
    forge.refuse()
    refused = forge.edit("bingshuo", "D1", {"raw/雨.txt": b"c"}, new_branch="patch-1")
    assert refused.code
    assert "Forge: pre-receive says no" in refused.remote


def test_hooks_are_written_anew_and_others_are_kept(make_forge: Callable[..., Forge]) -> None:
    forge = make_forge("v15")
    folder = forge.create()
    mine = write_script(folder / "hooks/pre-receive.d/10-mine", "#!/bin/sh\n")
    write_script(folder / "hooks/pre-receive", "#!/bin/sh\nexit 1\n")
    forge.regenerate_hooks(folder)
    assert mine.exists()
    assert (folder / "hooks/pre-receive").read_text() != "#!/bin/sh\nexit 1\n"


def test_malformed_objects_are_refused_from_v16_on(forge: Forge) -> None:
    forge.create()
    work = forge.clone("a", via="ssh")
    commit = work.commit_tree(work.tree({b"../x": b"y", b".git/config": b"z"}))
    assert (work.push(f"{commit}:refs/heads/D1").code != 0) == (forge.layout == "v16")


def test_a_plain_repository_is_what_git_makes(make_forge: Callable[..., Forge]) -> None:
    forge = make_forge("plain")
    folder = forge.create()
    assert not (forge.home / ".gitconfig").exists()
    work = forge.clone("a", via="file")
    tip = work.commit({LEAF: "一"})
    assert work.push("HEAD:refs/heads/D1").code == 0
    assert forge.git(folder, "rev-parse", "D1").decode().strip() == tip


# -- HTTP -------------------------------------------------------------------------------------


@pytest.fixture
def work(make_forge: Callable[..., Forge]) -> tuple[Forge, Clone]:
    forge = make_forge("v16")
    forge.create()
    return forge, forge.clone("a", via="ssh")


def test_large_push_in_chunks(work: tuple[Forge, Clone]) -> None:
    forge, clone = work
    with forge.http() as server:
        clone.git("remote", "set-url", "origin", server.url("ym001/ZY001", "x", "token-of-admin"))
        noise = random.Random(0)
        clone.commit({f"raw/{i}": noise.randbytes(1 << 20) for i in range(12)})
        assert clone.push("HEAD:refs/heads/D1").code == 0
        posts = [request for request in server.requests if request.method == "POST"]
        assert any(request.headers.get("transfer-encoding") == "chunked" for request in posts)
        forge.refuse()
        clone.commit({"raw/12": noise.randbytes(4 << 20)})
        assert "Forge: pre-receive says no" in clone.push("HEAD:refs/heads/D1").remote


def test_zipped_body(work: tuple[Forge, Clone]) -> None:
    forge, clone = work
    clone.commit({LEAF: "一"})
    assert clone.push("HEAD:refs/heads/D1").code == 0
    tip = clone.git("rev-parse", "HEAD")
    want = f"want {tip}\n".encode()
    body = gzip.compress(b"%04x%s" % (len(want) + 4, want) + b"0000" + b"0009done\n")
    with forge.http() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        headers = {
            "Content-Encoding": "gzip",
            "Content-Type": "application/x-git-upload-pack-request",
            "Authorization": "Basic " + b64encode(b"token-of-admin:").decode(),
        }
        connection.request("POST", "/YM001/ZY001.git/git-upload-pack", body, headers)
        answer = connection.getresponse()
        assert answer.status == 200
        assert b"PACK" in answer.read()
        connection.close()


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("unauthorized", "Authentication failed"),
        ("drop", "(52|Empty reply|unable to access|reset)"),
        ("drop-body", "(hung up|52|RPC failed|Empty reply)"),
        ("error", "500"),
    ],
)
def test_servers_that_fail(work: tuple[Forge, Clone], mode: str, said: str) -> None:
    forge, clone = work
    with forge.http() as server:
        clone.git("remote", "set-url", "origin", server.url("YM001/ZY001", "x", "token-of-zhuyuan"))
        clone.commit({LEAF: "一"})
        server.mode = mode  # type: ignore[assignment]
        failed = clone.push("HEAD:refs/heads/D1")
        assert failed.code
        assert any(word in failed.text for word in said.strip("()").split("|")), failed.text
        server.mode = "v0"
        assert clone.push("HEAD:refs/heads/D1").code == 0
        assert {request.user for request in server.requests if request.user} == {"zhuyuan"}


def test_who_has_no_token_is_asked_for_one(work: tuple[Forge, Clone]) -> None:
    forge, clone = work
    with forge.http() as server:
        for user, password in (("", ""), ("zhuyuan", "wrong"), ("token-of-zhuyuan", "wrong")):
            done = clone.ask("ls-remote", server.url("YM001/ZY001", user, password))
            assert done.code
            assert {request.status for request in server.requests} == {401}
        for user, password in (("zhuyuan", "token-of-zhuyuan"), ("token-of-zhuyuan", "x-oauth-basic")):
            assert clone.ask("ls-remote", server.url("ym001/zy001", user, password)).code == 0
        assert clone.ask("ls-remote", server.url("YM001/ZY009", "x", "token-of-admin")).code


def test_tokens_are_of_different_people() -> None:
    assert len(set(TOKENS.values())) == 3


def test_nothing_of_the_user_reaches_the_server(
    work: tuple[Forge, Clone], monkeypatch: pytest.MonkeyPatch
) -> None:
    forge, clone = work
    monkeypatch.setenv("GITMEM_SECRET_OF_THE_USER", "1")
    write_script(forge.folder() / "hooks/pre-receive.d/10-env", "#!/bin/sh\nenv\n")
    clone.commit({LEAF: "一"})
    done = subprocess.run(
        ["git", "push", "origin", "HEAD:refs/heads/D1"],
        cwd=clone.folder,
        env={**os.environ, **clone.world},
        capture_output=True,
        check=True,
    )
    assert b"GITEA_PUSHER_NAME" in done.stderr
    assert b"OF_THE_USER" not in done.stderr
