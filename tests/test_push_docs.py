"""docs/push.md: every example is run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

from tests.test_clone import found_below
from tests.test_docs import examples, lonely_environment, read, run_in_shell

WHO = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (
        ("NAME", "冰朔"),
        ("EMAIL", "bing@example.invalid"),
        ("DATE", "2026-06-03T10:00:00+0800"),
    )
}


def test_examples_print_what_the_page_says(tmp_path: Path) -> None:
    environment = lonely_environment(tmp_path) | WHO
    folder = tmp_path
    shown = examples(read("docs/push.md"))
    assert len(shown) > 25
    for example in shown:
        if example.command.startswith("export "):
            name, _, value = example.command.removeprefix("export ").partition("=")
            environment[name] = str(tmp_path / value)
            continue
        moved = re.search(r"(?:^|&& )cd (\S+)$", example.command)
        output = run_in_shell(example.command, folder, environment)
        said = re.sub(r" +$", "", output, flags=re.MULTILINE)
        assert re.fullmatch(example.pattern, said.rstrip("\n") + "\n" if said else "", re.DOTALL), (
            f"$ {example.command}\n{said}\nthe page says:\n{example.output}"
        )
        if moved:
            folder = (folder / moved[1]).resolve()
    for text in ("蓝色的钥匙在第七块砖下面。", "新的一天。"):
        assert not found_below(tmp_path / "zy001", text)
        assert not found_below(tmp_path / "plain", text)
    assert found_below(tmp_path / "plain", "今天我用 git 写了一句。")
