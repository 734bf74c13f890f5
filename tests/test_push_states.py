"""Pushes and the states of leaves, each change made with plain git."""

from __future__ import annotations

import pytest

from tests.forge import Clone
from tests.pushing import LEAF, RAIN, SIDECAR, TOMBSTONE, Site, rules, said, taken

OTHER = "raw/20260531-120000.txt"
OTHER_SIDECAR = "meta/raw/20260531-120000.yaml"
BLUR = "雨下了一整夜。……\n"


def blob_of(work: Clone, path: str = LEAF) -> str:
    return work.git("rev-parse", f"HEAD:{path}")


def archived(blob: str, more: str = "") -> str:
    return f"state: archived\nblob: {blob}\narchived_at: 2026-06-02T04:00:00+08:00\n{more}"


def withered(blob: str, more: str = "") -> str:
    return f"state: withered\n{more}blob: {blob}\nwithered_at: 2026-06-02T04:00:00+08:00\n"


def trace(site: Site, path: str = LEAF) -> tuple[str, str | None]:
    """Status and text of a leaf, as the library has them on the host."""
    with site.home() as home:
        found = home.persona("YM001/ZY001").trace(f"YM001/ZY001/D1/{path}")
        return found.status, found.content


def refused(site: Site, work: Clone, files: dict[str, bytes | str | None]) -> set[str]:
    """The rules a commit of these files breaks; the working copy goes back to what the host has."""
    work.commit(files)
    with site.unchanged():
        found = rules(work.push())
    work.git("reset", "-q", "--hard", "origin/D1")
    return found


def test_a_text_never_changes(site: Site) -> None:
    work = site.clone()
    assert refused(site, work, {LEAF: RAIN + "一个字\n"}) == {"leaf.changed"}
    assert refused(site, work, {LEAF: RAIN.replace("\n", "\r\n")}) == {"leaf.changed"}
    assert refused(site, work, {LEAF: RAIN + "一个字\n", SIDECAR: "tags: [雨]\n"}) == {"leaf.changed"}


def test_a_text_does_not_vanish(site: Site) -> None:
    work = site.clone()
    assert refused(site, work, {LEAF: None}) == {"leaf.vanished"}
    assert refused(site, work, {LEAF: None, SIDECAR: "tags: [雨]\n"}) == {"leaf.vanished"}
    assert refused(site, work, {LEAF: None, "raw/20260531-115448.txt": RAIN}) == {"leaf.vanished"}


def test_what_becomes_known_later(site: Site) -> None:
    work = site.clone()
    for text in ("tags: [雨]\n", "tags: [雨, 猫]\nsummary: 下雨。\n", "summary: 下雨。\nmine: {a: 1}\n"):
        work.commit({SIDECAR: text})
        taken(work.push())
    work.commit({SIDECAR: None})
    taken(work.push())
    assert trace(site) == ("active", RAIN)


def test_archive_and_back(site: Site) -> None:
    work = site.clone()
    blob = blob_of(work)
    wrong = blob_of(work, OTHER)
    assert refused(site, work, {LEAF: None, SIDECAR: archived(wrong)}) == {"leaf.blob"}
    assert refused(site, work, {LEAF: None, SIDECAR: archived("f" * 40)}) == {"leaf.blob"}
    assert refused(site, work, {LEAF: None, SIDECAR: "state: archived\n"}) == {"leaf.blob"}
    assert refused(site, work, {SIDECAR: archived(blob)}) == {"sidecar.fits"}
    work.commit({LEAF: None, SIDECAR: archived(blob)})
    taken(work.push())
    assert trace(site) == ("archived", RAIN)
    assert refused(site, work, {SIDECAR: None}) >= {"leaf.vanished"}
    assert refused(site, work, {SIDECAR: archived(wrong)}) == {"leaf.blob"}
    assert refused(site, work, {SIDECAR: None, LEAF: "别的"}) == {"leaf.changed"}
    assert refused(site, work, {SIDECAR: withered(blob), LEAF: BLUR}) == {"leaf.move"}
    work.commit({SIDECAR: None, LEAF: RAIN})
    taken(work.push())
    assert trace(site) == ("active", RAIN)


def test_wither_and_back(site: Site) -> None:
    work = site.clone()
    blob = blob_of(work)
    assert refused(site, work, {LEAF: "编造的。……\n", SIDECAR: withered(blob)}) == {"leaf.blur"}
    assert refused(site, work, {LEAF: BLUR, SIDECAR: withered(blob_of(work, OTHER))}) == {"leaf.blob"}
    assert refused(site, work, {LEAF: BLUR}) == {"leaf.changed"}
    work.commit({LEAF: BLUR, SIDECAR: withered(blob)})
    taken(work.push())
    assert trace(site) == ("wither", BLUR)
    assert refused(site, work, {LEAF: "雨……\n"}) == {"leaf.changed"}
    work.commit({LEAF: RAIN, SIDECAR: None})
    taken(work.push())
    assert trace(site) == ("active", RAIN)


def test_a_withered_text_is_not_all_of_it(site: Site) -> None:
    work = site.clone()
    assert refused(site, work, {SIDECAR: withered(blob_of(work))}) == {"leaf.blur"}


def test_an_original_is_forgotten_and_purged(site: Site) -> None:
    work = site.clone()
    blob = blob_of(work)
    blur = work.blob(BLUR.encode())
    said_so = f"state: withered\nforgotten: true\nblur: {blur}\nwithered_at: 2026-06-02T04:00:00+08:00\n"
    work.commit({LEAF: BLUR, SIDECAR: said_so})
    done = work.push()
    taken(done)
    assert site.git("cat-file", "-e", blob, check=False) == b""
    assert blob not in site.git("cat-file", "--batch-check", "--batch-all-objects").decode()
    assert trace(site) == ("wither", BLUR)
    work.git("fetch", "-q")
    work.git("reset", "-q", "--hard", "origin/D1")
    assert refused(site, work, {LEAF: RAIN, SIDECAR: None}) & {"leaf.forgotten", "leaf.changed"}


def test_no_leaf_begins_archived_or_withered(site: Site) -> None:
    work = site.clone()
    new, sidecar = "raw/20260601-080000.txt", "meta/raw/20260601-080000.yaml"
    assert refused(site, work, {sidecar: archived(blob_of(work))}) == {"leaf.move"}
    assert refused(site, work, {new: BLUR, sidecar: withered(blob_of(work))}) == {"leaf.move"}


def test_records_do_not_wither(site: Site) -> None:
    work = site.clone()
    path, sidecar = "hldp/mem_a1b2c3d4.json", "meta/hldp/mem_a1b2c3d4.yaml"
    record = '{"id": "mem_a1b2c3d4", "hldp": "雨下了一整夜。屋檐在滴水。"}\n'
    work.commit({path: record})
    taken(work.push())
    assert "leaf.move" in refused(
        site, work, {path: record.replace("屋檐在滴水。", "……"), sidecar: withered(blob_of(work, path))}
    )
    work.commit({sidecar: "human_visible: true\n"})
    taken(work.push())


def test_tombstones_have_one_form(site: Site) -> None:
    work = site.clone()
    turn = "turn_id: t-1\nrole: user\n"
    work.commit({OTHER_SIDECAR: turn})
    taken(work.push())
    odd = {
        "state: released\n",
        TOMBSTONE + "tags: [雨]\n",
        TOMBSTONE + "summary: 雨\n",
        "state:   released\n",
    }
    for text in sorted(odd):
        assert refused(site, work, {LEAF: None, SIDECAR: text}) == {"tombstone.form"}, text
    assert refused(site, work, {LEAF: None, SIDECAR: TOMBSTONE + turn}) == {"tombstone.form", "leaf.turn"}
    assert refused(site, work, {OTHER: None, OTHER_SIDECAR: TOMBSTONE}) == {"tombstone.form"}
    assert refused(site, work, {SIDECAR: TOMBSTONE}) == {"sidecar.fits"}
    work.commit({OTHER: None, OTHER_SIDECAR: TOMBSTONE + turn})
    taken(work.push())
    assert trace(site, OTHER) == ("released", None)


def test_a_turn_stands_once(site: Site) -> None:
    work = site.clone()
    turn = "turn_id: t-1\nrole: user\n"
    assert refused(site, work, {SIDECAR: turn, OTHER_SIDECAR: turn}) == {"leaf.turn"}
    work.commit({SIDECAR: turn})
    taken(work.push())
    assert refused(site, work, {OTHER_SIDECAR: turn}) == {"leaf.turn"}
    work.commit({OTHER_SIDECAR: "turn_id: t-1\nrole: companion\n"})
    taken(work.push())
    work.commit({LEAF: None, SIDECAR: TOMBSTONE + turn})
    taken(work.push())
    work.git("pull", "-q", "--rebase")
    new = {"raw/20260601-080000.txt": "又说", "meta/raw/20260601-080000.yaml": turn}
    assert refused(site, work, new) == {"leaf.turn"}


@pytest.mark.parametrize("user", ["zhuyuan", "admin"])
def test_release_by_an_operator_only(site: Site, user: str) -> None:
    (site.forge.root / "settings.yaml").write_text("operators: [Admin]\nrelease_by: operator\n")
    if site.via == "file" and user == "admin":
        pytest.skip("a push to the path has no account of the forge")
    work = site.clone(user=user)
    work.commit({LEAF: None, SIDECAR: TOMBSTONE})
    done = work.push()
    if user == "admin":
        taken(done)
    else:
        assert rules(done) == {"release.role"}


def test_a_human_does_not_push_to_the_memory(site: Site) -> None:
    if site.via != "file":
        pytest.skip("a forge's account has no role of its own")
    work = site.clone()
    work.commit({"raw/20260601-080000.txt": "人写的"})
    work.world["GITMEM_PUSHER_ROLE"] = "human"
    with site.unchanged():
        assert rules(work.push()) == {"actor.role"}
    work.world["GITMEM_PUSHER_ROLE"] = "king"
    with site.unchanged():
        assert "GITMEM_PUSHER_ROLE" in work.push().text
    work.world["GITMEM_PUSHER_ROLE"] = "operator"
    taken(work.push())


def test_a_change_and_its_undoing_are_both_checked(site: Site) -> None:
    work = site.clone()
    work.commit({LEAF: "改"})
    first = work.git("rev-parse", "HEAD")
    work.commit({LEAF: RAIN})
    with site.unchanged():
        lines = said(work.push())
    assert any("leaf.changed" in line and first[:10] in line for line in lines)
