"""Pushes and files: which names, modes and bytes a memory takes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.forge import EXECUTABLE, FILE, LINK, SUBMODULE, Entry
from tests.pushing import Site, layout_of, rules, said, taken

Files = Mapping[bytes | str, Entry | bytes | str]
TEXT = "雨\n"
OK = "raw/20260601-080000.txt"

# What is refused: files, the path and the rule that must be named. The path is as it is shown.
BAD: dict[str, tuple[Files, str, str]] = {
    "chinese": ({"raw/雨夜.txt": TEXT}, "raw/雨夜.txt", "file.path"),
    "emoji": ({"raw/20260601-080000-🐈.txt": TEXT}, "raw/20260601-080000-🐈.txt", "file.path"),
    "quotes": ({"raw/a\"b'c.txt": TEXT}, "raw/a\"b'c.txt", "file.path"),
    "newline": ({"raw/a\nb.txt": TEXT}, "raw/a\\nb.txt", "file.path"),
    "not utf-8": ({b"raw/\xff\xfe.txt": TEXT}, "raw/\\xff\\xfe.txt", "file.path"),
    "no folder": ({"notes.txt": TEXT}, "notes.txt", "file.path"),
    "deep folder": ({"raw/a/20260601-080000.txt": TEXT}, "raw/a/20260601-080000.txt", "file.path"),
    "no such day": ({"raw/20260231-080000.txt": TEXT}, "raw/20260231-080000.txt", "file.path"),
    "other ending": ({"raw/20260601-080000.md": TEXT}, "raw/20260601-080000.md", "file.path"),
    "upper case": ({"RAW/20260601-080000.txt": TEXT}, "RAW/20260601-080000.txt", "file.path"),
    "record's name": ({"hldp/x.json": "{}"}, "hldp/x.json", "file.path"),
    "manifest in an epoch": ({"gitmem.yaml": "x: 1\n"}, "gitmem.yaml", "file.path"),
    "attributes": ({".gitattributes": "* text\n"}, ".gitattributes", "file.path"),
    "workflow": ({".forgejo/workflows/a.yml": "on: push\n"}, ".forgejo/workflows/a.yml", "file.workflow"),
    "old workflow": ({".gitea/workflows/a.yml": "on: push\n"}, ".gitea/workflows/a.yml", "file.workflow"),
    "github workflow": (
        {".GitHub/workflows/a.yml": "on: push\n"},
        ".GitHub/workflows/a.yml",
        "file.workflow",
    ),
    "link": ({OK: (LINK, b"../../secret")}, OK, "file.mode"),
    "link to a folder": ({"raw": (LINK, b"hldp")}, "raw", "file.mode"),
    "submodule": ({OK: (SUBMODULE, bytes(range(20)))}, OK, "file.mode"),
    "executable": ({OK: (EXECUTABLE, TEXT.encode())}, OK, "file.mode"),
    "nul": ({OK: b"a\0b"}, OK, "file.nul"),
    "utf-16": ({OK: "雨".encode("utf-16")}, OK, "file.utf8"),
    "gbk": ({OK: "下雨了".encode("gbk")}, OK, "file.utf8"),
    "cut short": ({OK: "雨".encode()[:2]}, OK, "file.utf8"),
    "too large": ({OK: b"x" * (1 << 20) + b"x"}, OK, "file.size"),
    "empty": ({OK: b""}, OK, "file.empty"),
    "name twins": (
        {"raw/20260601-080000-é.txt": TEXT, "raw/20260601-080000-e\u0301.txt": TEXT},
        "raw/20260601-080000-é.txt",
        "file.twin",
    ),
    "case twins": (
        {"raw/20260601-080000.txt": TEXT, "raw/20260601-080000.TXT": TEXT},
        "raw/20260601-080000.TXT",
        "file.twin",
    ),
    "folder twins": ({OK: TEXT, "Raw/20260601-080000.txt": TEXT}, "Raw/20260601-080000.txt", "file.twin"),
    "conflict in a sidecar": (
        {
            OK: TEXT,
            "meta/raw/20260601-080000.yaml": "<<<<<<< HEAD\ntags: [a]\n=======\ntags: [b]\n>>>>>>> x\n",
        },
        "meta/raw/20260601-080000.yaml",
        "file.conflict",
    ),
    "sidecar is no mapping": (
        {OK: TEXT, "meta/raw/20260601-080000.yaml": "- a\n"},
        "meta/raw/20260601-080000.yaml",
        "sidecar.form",
    ),
    "sidecar with a tag of python": (
        {OK: TEXT, "meta/raw/20260601-080000.yaml": "tags: !!python/object/apply:os.system [id]\n"},
        "meta/raw/20260601-080000.yaml",
        "sidecar.form",
    ),
    "sidecar without a leaf": (
        {"meta/raw/20260601-080000.yaml": "tags: [a]\n"},
        "meta/raw/20260601-080000.yaml",
        "sidecar.fits",
    ),
    "record is no object": ({"hldp/mem_a1b2c3d4.json": "[1]"}, "hldp/mem_a1b2c3d4.json", "record.form"),
    "record's id": (
        {"hldp/mem_a1b2c3d4.json": '{"id": "mem_b1b2c3d4"}'},
        "hldp/mem_a1b2c3d4.json",
        "record.form",
    ),
}

# git itself refuses these where it checks what it receives (v16); else we do.
MALFORMED: dict[str, tuple[Files, str, str]] = {
    "dots": ({b"raw/../x": TEXT}, "raw/../x", "file.path"),
    "git folder": ({b".git/hooks/post-checkout": TEXT}, ".git/hooks/post-checkout", "file.path"),
    "git folder in capitals": ({b".GIT/config": TEXT}, ".GIT/config", "file.path"),
    "short name of windows": ({b"git~1/config": TEXT}, "git~1/config", "file.path"),
}


def test_every_violation_is_listed_with_path_rule_and_remedy(site: Site) -> None:
    """One push, a branch for each fault: nothing of it is taken, and each is named."""
    work = site.clone(epoch=None)
    branches = {f"B{number}": case for number, case in enumerate(BAD.values())}
    tips = {name: work.commit_tree(work.tree(files)) for name, (files, _, _) in branches.items()}
    with site.unchanged():
        refused = work.push(*(f"{tip}:refs/heads/{name}" for name, tip in tips.items()))
    lines = said(refused)
    for name, (_, path, rule) in branches.items():
        mine = [line for line in lines if line.startswith(f"{name}: ")]
        hits = [line for line in mine if line.startswith(f"{name}: {path}: {rule}: ")]
        assert hits, f"{name} {path} {rule}: {mine}"
        assert tips[name][:10] in hits[0]
        assert hits[0].endswith(".")


def test_malformed_names(site: Site) -> None:
    work = site.clone(epoch=None)
    branches = {f"B{number}": case for number, case in enumerate(MALFORMED.values())}
    for name, (files, path, rule) in branches.items():
        tip = work.commit_tree(work.tree(files))
        with site.unchanged():
            refused = work.push(f"{tip}:refs/heads/{name}")
            assert refused.code
        if layout_of(site) == "v15":
            assert any(line.startswith(f"{name}: {path}: {rule}: ") for line in said(refused)), refused.text


def test_three_faults_of_one_commit_are_listed_together(site: Site) -> None:
    work = site.clone(epoch=None)
    tip = work.commit_tree(work.tree({"raw/雨.txt": b"x", "x/y": (LINK, b"z"), OK: b"a\0"}))
    refused = work.push(f"{tip}:refs/heads/B1")
    assert rules(refused) == {"file.path", "file.mode", "file.nul"}
    count = len(said(refused))
    assert f"push refused: {count} violations." in refused.text


GOOD: dict[str, bytes] = {
    "bom": b"\xef\xbb\xbf" + "雨\n".encode(),
    "crlf": "雨\r\n猫\r\n".encode(),
    "lone cr": "雨\r猫".encode(),
    "no newline": "雨".encode(),
    "blank": b"\n\n \n",
    "nfd": "e\u0301".encode(),
    "nfc": "é".encode(),
    "emoji": "👩‍👩‍👧‍👦🏳️‍🌈".encode(),
    "rare han": "𠮷𪚥".encode(),
    "controls": "a\x07\x1b[31mb\u202e".encode(),
    "conflict in a text": b"<<<<<<< HEAD\na\n=======\nb\n>>>>>>> x\n",
    "largest": b"x" * (1 << 20),
}


def test_text_is_taken_and_kept_byte_for_byte(site: Site) -> None:
    work = site.clone(epoch=None)
    names = [f"raw/20260601-08{number:02}00.txt" for number in range(len(GOOD))]
    tip = work.commit_tree(work.tree(dict(zip(names, GOOD.values(), strict=True))))
    taken(work.push(f"{tip}:refs/heads/D2"))
    for name, data in zip(names, GOOD.values(), strict=True):
        assert site.git("cat-file", "blob", f"D2:{name}") == data


def test_names_that_are_taken(site: Site) -> None:
    work = site.clone(epoch=None)
    files: Files = {
        "raw/20260601-080000.txt": TEXT,
        "raw/20260601-080000-0002.txt": TEXT,
        "raw/20260601-080000-walk_in-rain-0003.txt": TEXT,
        "raw/20240229-235959.txt": TEXT,
        "hldp/mem_a1b2c3d4.json": '{"id": "mem_a1b2c3d4", "hldp": {"题": [1, null]}}\n',
        "meta/raw/20260601-080000.yaml": "tags: [雨, cat]\nfrom_elsewhere: {a: [1]}\n",
    }
    taken(work.push(f"{work.commit_tree(work.tree(files))}:refs/heads/D2"))


def test_a_symlink_in_an_earlier_commit_is_seen(site: Site) -> None:
    work = site.clone(epoch=None)
    first = work.commit_tree(work.tree({OK: (LINK, b"/etc/passwd")}))
    second = work.commit_tree(work.tree({OK: (FILE, TEXT.encode())}), first)
    with site.unchanged():
        assert "file.mode" in rules(work.push(f"{second}:refs/heads/D2"))


def test_main_holds_the_manifest_and_a_readme(site: Site) -> None:
    work = site.clone(epoch="main")
    work.commit({"README.md": "# ZY001\n", "notes.md": "x\n"})
    with site.unchanged():
        refused = work.push("HEAD:refs/heads/main")
        assert [line.split(": ")[:3] for line in said(refused)] == [["main", "notes.md", "file.path"]]
    work.git("reset", "-q", "--hard", "origin/main")
    work.commit({"README.md": "# ZY001\n"})
    taken(work.push("HEAD:refs/heads/main"))


def manifest_of(site: Site) -> str:
    return site.git("show", "main:gitmem.yaml").decode()


@pytest.mark.parametrize(
    ("user", "change", "rule"),
    [
        ("zhuyuan", ("timezone: Asia/Shanghai", "timezone: UTC"), "manifest.fixed"),
        ("admin", ("persona: ZY001", "persona: ZY002"), "manifest.fixed"),
        ("zhuyuan", ('human: "冰朔"', 'human: "别人"'), "manifest.role"),
        ("admin", ('human: "冰朔"', 'human: "别人"'), None),
        ("zhuyuan", ("root: YM001", "epoch: D1\nroot: YM001"), None),
        ("zhuyuan", ("format: 1", "format: ["), "manifest.form"),
    ],
)
def test_who_may_change_the_manifest(
    site: Site, user: str, change: tuple[str, str], rule: str | None
) -> None:
    if site.via == "file" and user == "admin":
        pytest.skip("a push to the path has no account of the forge")
    work = site.clone(user=user, epoch="main")
    work.commit({"gitmem.yaml": manifest_of(site).replace(*change)})
    done = work.push("HEAD:refs/heads/main")
    if rule is None:
        taken(done)
    else:
        assert rules(done) == {rule}


def test_the_manifest_stays(site: Site) -> None:
    work = site.clone(epoch="main")
    work.commit({"gitmem.yaml": None})
    with site.unchanged():
        assert rules(work.push("HEAD:refs/heads/main")) == {"manifest.form"}


def test_edit_in_the_browser_is_checked_like_a_push(site: Site) -> None:
    forge = site.forge
    done = forge.edit("zhuyuan", "D1", {OK: "新写的一行。\r\n".encode()})
    assert done.code == 0, done.text
    assert site.git("cat-file", "blob", f"D1:{OK}") == "新写的一行。\n".encode()
    with site.unchanged():
        refused = forge.edit("zhuyuan", "D1", {"raw/20260531-115447.txt": "改了".encode()})
        assert "leaf.changed" in rules(refused)
        refused = forge.edit("zhuyuan", "D1", {"raw/笔记.txt": b"x"}, new_branch="patch-1")
        assert rules(refused) == {"history.shared"}


def test_settings_of_the_home_count(site: Site) -> None:
    (site.forge.root / "settings.yaml").write_text("max_leaf_bytes: 10\nsecrets: refuse\n")
    work = site.clone(epoch=None)
    tip = work.commit_tree(work.tree({OK: "x" * 11}))
    assert rules(work.push(f"{tip}:refs/heads/D2")) == {"file.size"}
    tip = work.commit_tree(work.tree({OK: "x" * 10}))
    taken(work.push(f"{tip}:refs/heads/D2"))
    (site.forge.root / "settings.yaml").write_text("max_leaf_byte: 10\n")
    tip = work.commit_tree(work.tree({OK: "y"}))
    refused = work.push(f"{tip}:refs/heads/D3")
    assert "max_leaf_bytes" in refused.text
    assert refused.code


KEY = "AKIA" + "Q7" * 8


@pytest.mark.parametrize("setting", ["off", "warn", "refuse"])
def test_credentials(site: Site, setting: str) -> None:
    (site.forge.root / "settings.yaml").write_text(f"secrets: {setting}\n")
    work = site.clone(epoch=None)
    tip = work.commit_tree(work.tree({OK: f"一行\nkey {KEY}\n"}))
    done = work.push(f"{tip}:refs/heads/D2")
    assert ("file.secret" in done.text) == (setting != "off")
    assert KEY not in done.text
    assert (done.code != 0) == (setting == "refuse")
