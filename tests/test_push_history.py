"""Pushes and the shape of history: epochs, merges, tags, other refs, deletions, forced pushes."""

from __future__ import annotations

from tests.forge import Clone
from tests.pushing import LEAF, RAIN, Site, rules, said, taken

NEW = "raw/20260601-080000.txt"


def pushed_tip(site: Site, branch: str) -> str:
    return site.git("rev-parse", f"refs/heads/{branch}").decode().strip()


def test_new_epoch(site: Site) -> None:
    work = site.clone()
    work.orphan("D2")
    tip = work.commit({NEW: "新的一天。"})
    taken(work.push("HEAD:refs/heads/D2"))
    assert pushed_tip(site, "D2") == tip
    with site.home() as home:
        found = home.persona("YM001/ZY001").trace(f"YM001/ZY001/D2/{NEW}")
        assert found.content == "新的一天。"


def test_leaf_on_an_old_epoch(site: Site) -> None:
    work = site.clone()
    work.commit({NEW: "新的一天。"})
    done = work.push()
    taken(done)
    assert not [line for line in done.remote if line.startswith("gitmem")]


def test_epoch_that_branches_off_another_is_refused_with_the_way_out(site: Site) -> None:
    work = site.clone()
    work.git("switch", "-q", "-c", "D2")
    work.commit({NEW: "新的一天。"})
    with site.unchanged():
        refused = work.push("HEAD:refs/heads/D2")
    assert rules(refused) == {"history.shared"}
    assert "git switch --orphan" in refused.text
    # The way out, as told.
    work.git("branch", "-m", "D2", "old")
    work.orphan("D2")
    work.git("checkout", "old", "--", NEW)
    work.git("commit", "-q", "-m", "a leaf")
    taken(work.push("HEAD:refs/heads/D2"))
    assert site.git("show", f"D2:{NEW}").decode() == "新的一天。"


def test_epoch_at_the_tip_of_another_is_refused(site: Site) -> None:
    work = site.clone()
    for ref in ("D1:refs/heads/D2", "D1~1:refs/heads/D2", "origin/main:refs/heads/D2"):
        with site.unchanged():
            refused = work.push(ref)
        assert rules(refused) == {"history.shared"}, ref


def test_epoch_that_merges_another_is_refused_with_the_way_out(site: Site) -> None:
    work = site.clone()
    work.orphan("D2")
    work.commit({NEW: "新的一天。"})
    work.git("merge", "-q", "--allow-unrelated-histories", "-m", "both", "D1")
    with site.unchanged():
        refused = work.push("HEAD:refs/heads/D2")
    assert "history.shared" in rules(refused)
    assert "git switch --orphan" in refused.text


def test_an_old_epoch_gets_no_second_root(site: Site) -> None:
    work = site.clone()
    work.orphan("aside")
    work.commit({NEW: "旁的历史。"})
    work.git("switch", "-q", "D1")
    work.git("merge", "-q", "--allow-unrelated-histories", "-m", "both", "aside")
    with site.unchanged():
        assert rules(work.push()) == {"history.root"}


def test_a_new_epoch_has_one_root(site: Site) -> None:
    work = site.clone()
    tree = work.tree({NEW: "一"})
    roots = [work.commit_tree(tree, message=f"root {i}") for i in range(2)]
    tip = work.commit_tree(tree, *roots)
    with site.unchanged():
        assert rules(work.push(f"{tip}:refs/heads/D2")) == {"history.root"}


def test_two_new_epochs_of_one_push_share_nothing(site: Site) -> None:
    work = site.clone()
    root = work.commit_tree(work.tree({}))
    tips = [work.commit_tree(work.tree({NEW: text}), root) for text in "一二"]
    with site.unchanged():
        refused = work.push(f"{tips[0]}:refs/heads/D2", f"{tips[1]}:refs/heads/D3")
    assert {line.split(": ")[0] for line in said(refused)} == {"D2", "D3"}
    assert rules(refused) == {"history.shared"}


def test_main_and_epochs_share_nothing(site: Site) -> None:
    work = site.clone()
    work.git("switch", "-q", "main")
    work.git("merge", "-q", "--allow-unrelated-histories", "-m", "both", "-s", "ours", "D1")
    with site.unchanged():
        assert rules(work.push("HEAD:refs/heads/main")) & {"history.shared", "history.root"}


def test_many_commits_in_one_push(site: Site) -> None:
    work = site.clone()
    chain(work, 150)
    taken(work.push("tip:refs/heads/D1"))
    assert int(site.git("rev-list", "--count", "D1")) == 152


def chain(work: Clone, count: int, broken: int | None = None) -> None:
    """A branch `tip` of so many commits on D1; one adds what no epoch holds, the next removes it."""
    stream = ["reset refs/heads/tip\nfrom refs/heads/D1\n\n"]
    for i in range(count):
        stream.append(
            f"commit refs/heads/tip\ncommitter T <t@example.invalid> {1780300000 + i} +0800\ndata 0\n"
            f"M 100644 inline raw/20260602-{i // 3600:02}{i // 60 % 60:02}{i % 60:02}.txt\ndata 3\n雨\n"
        )
        if broken is not None and i == broken:
            stream.append("M 100644 inline notes/private.txt\ndata 1\nx\n")
        if broken is not None and i == broken + 1:
            stream.append("D notes/private.txt\n")
    work.git("fast-import", "--quiet", "--force", data="".join(stream).encode())


def test_every_commit_is_checked_not_only_the_tip(site: Site) -> None:
    work = site.clone()
    chain(work, 40, broken=20)
    culprit = work.git("rev-list", "--reverse", "D1..tip").split()[20]
    with site.unchanged():
        refused = work.push("tip:refs/heads/D1")
    (line,) = said(refused)
    assert line.startswith("D1: notes/private.txt: file.path: ")
    assert culprit[:10] in line


def test_many_branches_in_one_push(site: Site) -> None:
    work = site.clone()
    tips = [work.commit_tree(work.tree({NEW: f"第{i}天"})) for i in range(40)]
    specs = [f"{tip}:refs/heads/E{i}" for i, tip in enumerate(tips)]
    bad = work.commit_tree(work.tree({"x": "y"}))
    with site.unchanged():
        refused = work.push(*specs, f"{bad}:refs/heads/Bad")
    assert [line.split(": ")[:3] for line in said(refused)] == [["Bad", "x", "file.path"]]
    taken(work.push(*specs))
    assert len(site.git("for-each-ref", "refs/heads/E*").splitlines()) == 40


def test_merge_inside_an_epoch(site: Site) -> None:
    one, two = site.clone("a"), site.clone("b")
    one.commit({"raw/20260601-080000.txt": "甲"})
    taken(one.push())
    two.commit({"raw/20260601-080001.txt": "乙"})
    assert "fetch first" in two.push().text
    two.git("pull", "-q", "--no-rebase", "--no-edit")
    assert len(two.git("rev-list", "--parents", "-1", "HEAD").split()) == 3
    taken(two.push())
    one.git("pull", "-q", "--ff-only")
    names = site.git("ls-tree", "-r", "--name-only", "D1").decode().split()
    assert {"raw/20260601-080000.txt", "raw/20260601-080001.txt"} <= set(names)


def test_merge_that_drops_the_other_side_is_refused(site: Site) -> None:
    one, two = site.clone("a"), site.clone("b")
    one.commit({"raw/20260601-080000.txt": "甲"})
    taken(one.push())
    two.commit({"raw/20260601-080001.txt": "乙"})
    two.git("fetch", "-q")
    two.git("merge", "-q", "-s", "ours", "-m", "ours", "origin/D1")
    with site.unchanged():
        refused = two.push()
    assert "raw/20260601-080000.txt: leaf.vanished" in refused.text


def test_merge_that_makes_up_a_text_is_refused(site: Site) -> None:
    work = site.clone()
    base = work.git("rev-parse", "HEAD")
    side = work.commit_tree(work.tree({LEAF: RAIN, "raw/20260531-120000.txt": "二", NEW: "侧"}), base)
    main = work.commit_tree(work.tree({LEAF: RAIN, "raw/20260531-120000.txt": "二"}), base, message="m")
    evil = work.commit_tree(work.tree({LEAF: "别的", "raw/20260531-120000.txt": "二", NEW: "侧"}), main, side)
    with site.unchanged():
        assert "leaf.changed" in rules(work.push(f"{evil}:refs/heads/D1"))


def test_tags(site: Site) -> None:
    work = site.clone()
    work.git("tag", "plain")
    work.git("tag", "-a", "-m", "a note", "noted")
    taken(work.push("plain", "noted"))
    work.commit({NEW: "新"})
    work.git("tag", "early")
    with site.unchanged():
        assert rules(work.push("early")) == {"ref.tag"}
        blob = work.blob(b"loose text")
        work.git("tag", "blob", blob)
        assert rules(work.push("blob")) == {"ref.tag"}
        work.git("tag", "-a", "-m", "of a blob", "noted-blob", blob)
        assert rules(work.push("noted-blob")) == {"ref.tag"}
    taken(work.push())
    taken(work.push("early"))
    taken(work.push(":refs/tags/early"))


def test_other_refs_are_refused(site: Site) -> None:
    work = site.clone()
    work.commit({NEW: "新"})
    refs = ["refs/for/D1/topic", "refs/for/main", "refs/notes/commits", "refs/memory/x", "refs/replace/x"]
    with site.unchanged():
        refused = work.push(*(f"HEAD:{ref}" for ref in refs))
    assert rules(refused) == {"ref.name"}
    assert sorted(line.split(": ")[0] for line in said(refused)) == sorted(refs)


def test_names_of_epochs(site: Site) -> None:
    work = site.clone()
    names = ["1day", "fork/x", "x" * 33, "雨", "a/b", "MAIN", "head", "x+y"]
    tips = {name: work.commit_tree(work.tree({NEW: name})) for name in names}
    with site.unchanged():
        refused = work.push(*(f"{tip}:refs/heads/{name}" for name, tip in tips.items()))
    lines = said(refused)
    assert all(any(line.startswith(f"{name}: ref.name: ") for line in lines) for name in names), lines
    tip = work.commit_tree(work.tree({NEW: "x"}))
    taken(work.push(f"{tip}:refs/heads/D1.lock2", f"{tips['1day']}:refs/heads/{'x' * 32}"))


def test_epochs_that_differ_in_case(site: Site) -> None:
    work = site.clone()
    tip = work.commit_tree(work.tree({NEW: "新"}))
    other = work.commit_tree(work.tree({NEW: "旧"}))
    with site.unchanged():
        assert rules(work.push(f"{tip}:refs/heads/d1")) == {"ref.twin"}
        assert rules(work.push(f"{tip}:refs/heads/Ab", f"{other}:refs/heads/aB")) == {"ref.twin"}


def test_deletion_is_refused(site: Site) -> None:
    work = site.clone()
    with site.unchanged():
        assert rules(work.push("--delete", "D1")) == {"ref.delete"}
        refused = work.push(":D1", ":main")
        assert {line.split(": ")[0] for line in said(refused)} == {"D1", "main"}


def test_forced_push_is_refused(site: Site) -> None:
    work = site.clone()
    work.git("commit", "-q", "--amend", "--allow-empty", "-m", "another past")
    with site.unchanged():
        refused = work.push("--force")
        assert rules(refused) == {"history.forward"}
        assert "git pull --rebase" in refused.text
        assert rules(work.push("--force", "D1~1:refs/heads/D1")) == {"history.forward"}
        other = work.commit_tree(work.tree({NEW: "全新"}))
        assert rules(work.push("--force", f"{other}:refs/heads/D1")) == {"history.forward"}


def test_empty_pushes(site: Site) -> None:
    work = site.clone()
    with site.unchanged():
        done = work.push()
        taken(done)
        assert "Everything up-to-date" in done.text
    work.git("commit", "-q", "--allow-empty", "-m", "nothing")
    taken(work.push())
    taken(work.push("--all"))


def test_a_push_beside_another_one(site: Site) -> None:
    """A commit that was checked is refused where the branch has moved meanwhile."""
    one, two = site.clone("a"), site.clone("b")
    one.commit({NEW: "甲"})
    two.commit({NEW: "乙"})
    taken(one.push())
    with site.unchanged():
        refused = two.push()
        assert refused.code
        assert "fetch first" in refused.text


def test_an_atomic_push_is_all_or_nothing(site: Site) -> None:
    work = site.clone()
    good = work.commit_tree(work.tree({NEW: "好"}))
    bad = work.commit_tree(work.tree({"x": "坏"}))
    with site.unchanged():
        refused = work.push("--atomic", f"{good}:refs/heads/D2", f"{bad}:refs/heads/D3")
        assert "file.path" in refused.text


def test_shallow_clone_can_push(site: Site) -> None:
    work = site.clone()
    work.git("fetch", "-q", "--depth", "1", "origin", "D1", env={"GIT_TRACE": ""})
    work.commit({NEW: "浅"})
    taken(work.push())
