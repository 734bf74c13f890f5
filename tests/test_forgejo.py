"""docs/forgejo.md: every console example is run, against the imitated forge in both layouts.

What stands for something else on the page: `https://forge.example` is the server of the test, `$` a
folder with the persona's token in the file `token`, and `git@forge$` the server's folder of
repositories, with the server's environment.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.forge import TOKENS, Forge
from tests.forge_http import LONGEST, Server
from tests.pushing import holds
from tests.test_docs import Example, blocks, lonely_environment, read

PAGE = "docs/forgejo.md"
_PROMPT = re.compile(r"^(git@forge)?\$ ", re.MULTILINE)
WHO = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (
        ("NAME", "铸渊"),
        ("EMAIL", "zhuyuan@example.invalid"),
        ("DATE", "2026-06-03T10:00:00+0800"),
    )
}


def shown() -> list[tuple[bool, Example]]:
    """Every command, and whether it is the server's."""
    found = []
    for block in blocks(read(PAGE), "console"):
        prompts = list(_PROMPT.finditer(block))
        ends = [prompt.start() for prompt in prompts[1:]] + [len(block)]
        for prompt, end in zip(prompts, ends, strict=True):
            command, _, output = block[prompt.end() : end].partition("\n")
            found.append((prompt[1] is not None, Example(command, output)))
    return found


class Shell:
    """A shell that remembers its folder and what was exported or set."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment

    def run(self, command: str) -> str:
        """What a command prints, both streams together."""
        state = self.folder / ".shell-state"
        script = (
            'gitmem() { "$PYTHON" -m gitmem "$@"; }\n'
            f"set -a\n{command}\nset +a\n"
            f'pwd > "$STATE"; env -0 >> "$STATE"\n'
        )
        done = subprocess.run(
            ["sh", "-c", script],
            cwd=self.folder,
            env=self.environment | {"STATE": str(state)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LONGEST,
            check=False,
        )
        folder, _, values = state.read_text("utf-8").partition("\n")
        state.unlink()
        self.folder = Path(folder)
        self.environment = dict(value.split("=", 1) for value in values.split("\0") if "=" in value)
        return re.sub(r" +$", "", done.stdout.decode("utf-8"), flags=re.MULTILINE)


def server_shell(forge: Forge) -> Shell:
    more = {"PYTHON": sys.executable, "PYTHONPATH": os.getcwd()}
    return Shell(forge.root, forge.environment() | {"LC_ALL": "C.UTF-8"} | more)


def own_shell(folder: Path, server: Server) -> Shell:
    folder.mkdir()
    (folder / "token").write_text(next(token for token, user in TOKENS.items() if user == "zhuyuan") + "\n")
    environment = lonely_environment(folder) | WHO
    del environment["GIT_CONFIG_GLOBAL"]  # the page sets a credential helper, in a HOME of its own
    return Shell(folder, environment)


def test_every_command_prints_what_the_page_says(forge: Forge, tmp_path: Path) -> None:
    forge.create(stale=False)
    forge.root.chmod(0o700)
    commands = shown()
    assert len(commands) > 30
    with forge.http() as server:
        own, other = own_shell(tmp_path / "machine", server), server_shell(forge)
        address = f"127.0.0.1:{server.port}"
        for on_server, example in commands:
            command = re.sub(
                r"https://(\S*@)?forge\.example",
                lambda m: f"http://{m[1] or ''}{address}",
                example.command,
            )
            said = (other if on_server else own).run(command)
            said = said.replace(f"http://{address}", "https://forge.example")
            assert re.fullmatch(example.pattern, said.rstrip("\n") + "\n" if said else "", re.DOTALL), (
                f"$ {example.command}\n{said}\nthe page says:\n{example.output}"
            )
    assert holds(forge.folder(), "雨下了一整夜".encode()) == []
    assert (forge.top / "backup.tar").stat().st_size > 1000


def test_purge_by_hand_where_there_are_no_hooks(forge: Forge, tmp_path: Path) -> None:
    """The page's three commands are what a repository without our hooks needs, and all it needs."""
    folder = forge.create()
    with forge.http() as server:
        work = forge.clone("a", server=server)
        work.orphan("D118")
        work.commit({"raw/20260531-115447.txt": "雨下了一整夜。\n"})
        assert work.push("HEAD:refs/heads/D118").code == 0
        blob = work.git("rev-parse", "HEAD:raw/20260531-115447.txt")
        forge.git(folder, "update-ref", "refs/pull/1/head", "D118")
        work.git("commit", "-q", "--amend", "-m", "rewritten")
        clean = work.commit_tree(work.tree({}))
        assert work.push("--force", f"{clean}:refs/heads/D118").code == 0
        forge.git(folder, "gc", "--quiet", "--prune=now")
        assert forge.git(folder, "cat-file", "-t", blob).strip() == b"blob"
        part = read(PAGE).split("### Purge checklist")[1]
        (block,) = blocks(part.split("\n## ")[0], "console")
        shell = server_shell(forge)
        for line in block.splitlines():
            assert shell.run(line.removeprefix("git@forge$ ")) == ""
        assert forge.git(folder, "cat-file", "-t", blob, check=False) == b""
        fresh = forge.clone("b", server=server)
        assert fresh.ask("fetch", "origin", blob).code


def test_the_page_has_no_console_command_that_is_not_run() -> None:
    """Commands that cannot run here stand in blocks of another kind, and the page says so."""
    text = read(PAGE)
    assert set(re.findall(r"^```(\w+)$", text, re.MULTILINE)) == {"console", "sh", "dockerfile"}
    assert "not tried" in text.split("```sh")[0].splitlines()[-2]
