"""The tokenizer of our own: any text comes back, a known line is a token, an ordinary checkpoint."""

from __future__ import annotations

import pytest
import toy_world
from hypothesis import given
from hypothesis import strategies as st

from kerneldojo.episodes import end_id
from kerneldojo.training.tokens import (
    END,
    PLAN_CLOSE,
    PLAN_OPEN,
    encode,
    load_tokenizer,
    mark_id,
    train_tokenizer,
)

TOKENIZER = toy_world.tokenizer()


@given(st.text(st.characters(blacklist_categories=("Cs",))))
def test_any_text_comes_back(text: str) -> None:
    assert TOKENIZER.decode(encode(TOKENIZER, text)) == text


@pytest.mark.parametrize(
    "text", ["\n\n\n", "a\r\nb", " \t x", "<plan>\n</plan>", END, "é漢字🙂", "\x00\x1b[31m", "x" * 5000]
)
def test_awkward_text_comes_back(text: str) -> None:
    assert TOKENIZER.decode(encode(TOKENIZER, text)) == text


def test_known_lines_are_single_tokens_and_no_token_spans_two() -> None:
    text = toy_world.answer_text(1)
    assert len(encode(TOKENIZER, text)) <= 2 * text.count("\n")
    pieces = [TOKENIZER.decode([token]) for token in range(len(TOKENIZER))]
    assert any(piece == "class ModelNew:\n" for piece in pieces)
    assert not [piece for piece in pieces if "\n" in piece[:-1]]


def test_plans_are_delimited_by_single_tokens_that_survive_decoding() -> None:
    marks = mark_id(TOKENIZER, PLAN_OPEN), mark_id(TOKENIZER, PLAN_CLOSE)
    assert None not in marks and mark_id(TOKENIZER, "<think>") is None
    ids = encode(TOKENIZER, f"{PLAN_OPEN}\nfast\n{PLAN_CLOSE}\n")
    assert ids[0] == marks[0] and marks[1] in ids
    assert TOKENIZER.decode([*ids, end_id(TOKENIZER)], skip_special_tokens=True) == "<plan>\nfast\n</plan>\n"


def test_it_is_an_ordinary_checkpoint(tmp_path) -> None:
    TOKENIZER.save_pretrained(tmp_path)
    again = load_tokenizer(str(tmp_path))
    text = toy_world.answer_text(3)
    assert encode(again, text) == encode(TOKENIZER, text)
    assert end_id(again) == end_id(TOKENIZER) and mark_id(again, PLAN_OPEN) == mark_id(TOKENIZER, PLAN_OPEN)
    messages = [{"role": "user", "content": "task"}, {"role": "assistant", "content": "answer"}]
    rendered = again.apply_chat_template(messages, tokenize=False)
    assert rendered == "<|user|>task<|end|><|assistant|>answer<|end|>"


def test_the_vocabulary_is_as_large_as_asked() -> None:
    corpus = [f"line number {n} of a corpus with {n * n} things\n" for n in range(500)]
    assert len(train_tokenizer(corpus, 1024)) == 1024
    with pytest.raises(ValueError, match="512"):
        train_tokenizer(corpus, 300)
