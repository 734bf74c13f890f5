"""What the hooks add to a push, and how long the check of many commits takes."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from benchmarks.corpus import Shape, Texts
from benchmarks.homes import REPOSITORY, Workshop, say
from benchmarks.plumbing import environment
from benchmarks.table import Row, Table, span, times
from benchmarks.timing import Task, Times, interleave, once
from gitmem.receive.check import check
from gitmem.receive.install import uninstall

NAME = "push"
_START = 1_800_000_000
_LIMITS = {1: 0.25, 1000: 1.0}


def run(shop: Workshop) -> Table:
    """Answer the question."""
    table = Table(
        "push: what the hooks add",
        [
            "`git push` over a path into a home's repository, with both hooks and without, turn by turn, "
            "each time into a new copy. The number to reach is for each hook; here both together are held "
            "against it, since post-receive has nothing to do unless something was released. The check of "
            "10,000 commits is what pre-receive does with them, beside `git log --raw` of the same.",
        ],
    )
    for shape in (shop.sizes.wide, shop.sizes.daily):
        for commits, leaves in ((1, 1), (1, 1000), (1000, 1)):
            say(f"push: {commits} commits of {leaves} leaves, {shape.title}")
            table.rows.append(_push(shop, shape, commits, leaves))
    for epochs in (10, 1):
        say(f"push: 10,000 commits in {epochs} epochs")
        table.rows.append(_checked(shop, epochs))
    return table


def _push(shop: Workshop, shape: Shape, commits: int, leaves: int) -> Row:
    home = shop.built(shape)
    epoch = shape.epoch(shape.epochs - 1)
    with shop.scratch() as folder:
        folder.mkdir()
        clone = folder / "clone.git"
        _git(
            folder,
            "clone",
            "-q",
            "--bare",
            "--single-branch",
            "-b",
            epoch,
            str(home / REPOSITORY),
            str(clone),
        )
        _git(clone, "fast-import", "--quiet", "--force", data=_stream(epoch, commits, leaves, begun=True))
        found = interleave(
            5,
            {
                "with": _pusher(home, folder, epoch, hooks=True),
                "without": _pusher(home, folder, epoch, hooks=False),
            },
        )
    ours, bare = found["with"], found["without"]
    added = Times([max(0.0, a - b) for a, b in zip(ours.values, bare.values, strict=True)]).p50
    limit = _LIMITS[commits * leaves]
    what = f"{commits * leaves:,} leaves in {commits:,} commits, {shape.epochs:,} epochs"
    reach = f"hooks add ≤ {span(limit)}: {span(added)}"
    return Row(what, span(ours.p50), span(bare.p50), times(ours.p50, bare.p50), reach, added <= limit)


def _pusher(home: Path, folder: Path, epoch: str, *, hooks: bool) -> Task:
    """Pushes to copies that are made beforehand, since copying takes longer than pushing."""
    copies = [folder / f"{'with' if hooks else 'without'}-{n}" / "ym001" / "zy001.git" for n in range(5)]
    for copy in copies:
        copy.parent.mkdir(parents=True)
        shutil.copytree(home / REPOSITORY, copy)
        if not hooks:
            uninstall(str(copy))

    def push(number: int) -> None:
        _git(folder / "clone.git", "push", "-q", str(copies[number]), epoch)

    return push


def _checked(shop: Workshop, epochs: int) -> Row:
    with shop.scratch() as folder:
        _git(folder.parent, "init", "-q", "--bare", str(folder))
        for number in range(epochs):
            _git(
                folder, "fast-import", "--quiet", data=_stream(f"D{number}", 10_000 // epochs, 1, begun=False)
            )
        log = ("log", "--raw", "-r", "--root", "--no-renames", "--format=%H", "--branches")
        seconds = Times([once(lambda: check(str(folder), None)) for _ in range(3)]).p50
        git = Times([once(lambda: _git(folder, *log)) for _ in range(3)]).p50
    what = f"10,000 commits checked, {epochs} epochs"
    return Row(what, span(seconds), span(git), times(seconds, git), "≤ 5 s", seconds <= 5)


def _stream(epoch: str, commits: int, leaves: int, *, begun: bool) -> bytes:
    """New leaves for `git fast-import`, on top of the epoch where it is begun already."""
    texts, out, number, name = Texts(11), [], 0, epoch.encode()
    for commit in range(commits):
        when = _START + commit * leaves
        out.append(
            b"commit refs/heads/%s\ncommitter A <a@localhost.invalid> %d +0800\ndata %d\n%s\n"
            % (name, when, len(name), name)
        )
        if commit == 0 and begun:
            out.append(b"from refs/heads/%s^0\n" % name)
        for _ in range(leaves):
            second = time.strftime("%Y%m%d-%H%M%S", time.gmtime(_START + number))
            text = texts.next()
            out.append(b"M 100644 inline raw/%s.txt\ndata %d\n%s\n" % (second.encode(), len(text), text))
            number += 1
    return b"".join(out)


def _git(folder: Path, *arguments: str, data: bytes = b"") -> bytes:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, input=data, env=environment(), capture_output=True, check=True).stdout
