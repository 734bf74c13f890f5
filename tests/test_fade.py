"""The blur: deterministic, monotone, never all, never none, never made up."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gitmem.errors import RefusedError
from gitmem.fade import ELISION, blur, extract

SENTENCES = st.lists(
    st.sampled_from(
        [
            "今天下雨了。",
            "我们去了西湖，荷花开了！",
            "He said: wait.",
            "好吗？\n",
            "“真的。”",
            "晚上吃面；",
            "𠮷野家的👨‍👩‍👧见。",
        ]
    ),
    min_size=1,
    max_size=9,
).map("".join)
TEXTS = SENTENCES | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="…"), min_size=2, max_size=60
)
SHARES = st.floats(0, 1)


def is_subsequence(part: str, whole: str) -> bool:
    rest = iter(whole)
    return all(char in rest for char in part)


def blurred(text: str, keep: float) -> str:
    try:
        return blur(text, keep)
    except RefusedError:
        assume(False)
        raise AssertionError from None


@given(TEXTS, SHARES)
def test_blur_keeps_something_and_not_everything(text: str, keep: float) -> None:
    result = blurred(text, keep)
    left = result.replace(ELISION, "")
    assert result != text
    assert ELISION in result
    assert 0 < len(left) < len(text)
    assert is_subsequence(left, text)
    assert blur(text, keep) == result


@given(SENTENCES, SHARES, SHARES)
def test_keeping_less_keeps_a_subset(text: str, one: float, other: float) -> None:
    less, more = (blurred(text, share).replace(ELISION, "") for share in sorted((one, other)))
    assert is_subsequence(less, more)


def test_whole_sentences_stay() -> None:
    text = "今天下雨了。我们去了西湖。你说荷花开了。晚上吃了面。明天再去。"
    kept = [piece for piece in blur(text, 0.4).split(ELISION) if piece]
    assert all(piece in text and piece.endswith("。") for piece in kept)


@pytest.mark.parametrize("text", ["啊", "a", "…", "\U00020bb7"])
def test_too_short_a_text_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="too short"):
        blur(text, 0.4)


@pytest.mark.parametrize(
    "text",
    ["好的", "ab", "嗯。……", "a……", "……", "👨‍👩‍👧", "e\u0301", "一句话，两个分句", "no stops here at all"],
)
def test_short_texts_lose_a_part(text: str) -> None:
    result = blur(text, 0.4)
    assert result != text
    assert is_subsequence(result.replace(ELISION, ""), text)


@given(TEXTS)
def test_extract_is_a_verbatim_piece(text: str) -> None:
    found = extract(text)
    assert found in text
    assert len(found) <= 120
