"""Finding the answer in what a policy wrote."""

from __future__ import annotations

import gc
import json
import re
import textwrap
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kerneldojo.episodes import extract
from kerneldojo.episodes.one_shot import CUDA, TRITON

GOOD = "class ModelNew:\n    pass\n"
OTHER = "print('usage')\n"


def block(code: str, tag: str = "python", mark: str = "```") -> str:
    return f"{mark}{tag}\n{code}{mark}\n"


@pytest.mark.parametrize("code", [TRITON, CUDA, GOOD])
@pytest.mark.parametrize("tag", ["python", "", "py", "Python", "triton", "cuda", "python title=a.py", "{.python}"])
def test_one_block_in_prose_is_the_answer_whatever_its_tag(code, tag):
    assert extract(f"Here it is:\n\n{block(code, tag)}\nIt is fast.").code == code


def test_the_last_complete_block_that_defines_the_entry_point_wins():
    first, last = GOOD, "x = 1\nclass ModelNew:\n    x = 2\n"
    text = f"{block(first)}Better:\n{block(last)}Usage:\n{block(OTHER)}```python\nclass ModelNew:\n    cut"
    assert extract(text).code == last


def test_an_unclosed_fence_is_taken_where_nothing_better_is():
    assert extract(f"{block(OTHER)}```python\n{GOOD}").code == GOOD
    assert extract(f"```python\n{GOOD}").code == GOOD


def test_a_fence_that_was_forgotten_ends_where_the_next_opens():
    read = extract(f"```python\n{OTHER}\nAnd now:\n```python\n{GOOD}```\n")
    assert read.code == GOOD
    assert [item.closed for item in read.blocks] == [False, True]


def test_the_last_python_block_is_the_answer_where_none_defines_the_entry_point():
    assert extract(f"{block(OTHER)}{block('pip install x', 'bash')}").code == OTHER
    assert extract(block("pip install x\n", "bash")).code is None
    assert extract("I cannot do this.").code is None
    assert extract("").code is None


def test_thoughts_are_not_the_answer():
    assert extract(f"<think>{block(GOOD)}</think>\n{block(OTHER)}").code == OTHER
    assert extract(f"<think>\n{block(GOOD)}</think>\nno code").code is None
    assert extract(f"<think>never closed\n{block(GOOD)}").code is None
    assert extract(f"the prompt opened it\n{block(GOOD)}</think>\n{block(TRITON)}").code == TRITON
    assert extract(f"<Thinking>{block(OTHER)}</Thinking>{block(GOOD)}").code == GOOD


def test_tags_within_the_code_are_code():
    code = 'class ModelNew:\n    text = "<think> <plan>"\n'
    read = extract(block(code))
    assert read.code == code and not read.plan


def test_the_plan_is_set_apart_and_its_code_is_not_the_answer():
    text = f"<plan>\nfuse\n{block(OTHER)}</plan>\n{block(GOOD)}"
    read = extract(text)
    assert read.code == GOOD and read.plan.startswith("fuse") and "fuse" not in read.prose
    assert extract(f"<plan>fuse\n{block(GOOD)}").plan == "fuse"
    assert extract(f"<plan>fuse\n{block(GOOD)}").code == GOOD
    assert extract(f"<plan>fuse</plan>{block(GOOD)}").code == GOOD
    assert extract(f"[[tile]]{block(GOOD)}", plan_open="[[", plan_close="]]").plan == "tile"


def test_a_text_without_fences_is_the_answer_if_it_is_python_that_defines_the_entry_point():
    assert extract(f"<plan>fuse</plan>\n{GOOD}").code == GOOD
    assert extract(f"Well: {GOOD}").code is None


def test_line_ends_and_indentation_do_not_matter():
    assert extract(block(TRITON).replace("\n", "\r\n")).code == TRITON
    indented = "1. The answer:\n" + "".join(f"    {line}\n" for line in block(TRITON).splitlines())
    assert extract(indented).code == "\n".join(
        line.rstrip() if not line.strip() else line for line in TRITON.split("\n")
    )


def test_fences_within_docstrings_are_text():
    code = 'class ModelNew:\n    """Use:\n\n    ```python\n    ModelNew()\n    ```\n    """\n    x = 1\n'
    assert extract(f"{block(code)}More:\n{block(OTHER)}").code == code
    broken = 'class ModelNew:\n    """never closed\n'
    assert extract(f"{block(broken)}Better:\n{block(GOOD)}").code == GOOD


def test_longer_fences_and_tildes():
    assert extract(block(GOOD, mark="~~~")).code == GOOD
    code = "class ModelNew:\n    a = 1  #\n```\n    b = 2\n"
    assert extract(block(code, mark="````")).code == code


@pytest.mark.parametrize(
    "before",
    ["Here it is: ", "**Answer:** ", "- ", "2. Use `x`: ", "<answer>", "</think>", "I would write this: \u200b", "So "],
)
@pytest.mark.parametrize("tag", ["python", "py", ""])
def test_a_fence_at_the_end_of_a_line_of_prose_opens_a_block(before, tag):
    text = f"{before}{block(GOOD, tag)}It is fast."
    is_fence = bool(tag) or before.rstrip(" \u200b")[-1] in ":*->"
    assert (extract(text).code == GOOD) == is_fence


def test_a_fence_behind_the_last_line_of_code_closes_the_block():
    for end in ("```", "```\nThat is all.\n", "\n```</answer>", "\n```<|im_end|>", "```\nOutput:\n```\nok\n```\n"):
        read = extract(f"{block(OTHER)}```python\n{GOOD.rstrip()}{end}")
        assert read.code == GOOD and read.blocks[1].closed


def test_backticks_in_comments_and_strings_are_code():
    for line in ("# see ```", "# as in ```python", 's = "```python"', "s = '```'", 's = "```<a>"', '"""a\nb: ```\n"""'):
        code = f"{GOOD}{line}\n"
        assert extract(f"{block(code)}More:\n{block(OTHER)}").code == code


def test_a_line_that_quotes_code_has_no_fence():
    assert extract(f"Write ```python``` or ```x = 1```: ```\n\n{block(GOOD)}").code == GOOD
    assert extract("Write ```python class ModelNew: pass```").code is None


def test_an_answer_in_tags_needs_no_fence_if_it_is_python():
    for text in (
        f"<answer>\n{GOOD}</answer>",
        f"So:\n<Answer>{GOOD}</Answer>\nDone.",
        "<answer>\n" + textwrap.indent(GOOD, "  "),
    ):
        assert extract(text).code == GOOD
    assert extract(f"<answer>class ModelNew: old</answer>Better: <answer>\n{GOOD}</answer>").code == GOOD
    assert extract(f"<answer>{block(GOOD)}</answer>").code == GOOD
    assert extract("<answer>class ModelNew is what I write.</answer>").code is None


def test_tags_that_are_talked_of_are_no_tags():
    code = f'{GOOD}text = "</think>"\n'
    assert extract(f"I need no `<think>` here.\n{block(code)}").code == code
    assert extract(f'<think>It ends with "</think>".\n{block(OTHER)}</think>{block(GOOD)}').code == GOOD


def test_characters_without_width_do_not_matter():
    assert extract(f"\ufeff{block(GOOD)}").code == GOOD
    assert extract(f"\u200b{block(GOOD)}\u200b{block(OTHER)}").code == GOOD
    assert extract(f"```python\u200b\n\ufeff{GOOD}\u2060```\u200b\n").code == GOOD


def test_what_is_wrapped_otherwise_is_not_taken_apart():
    """What it would be as JSON, as HTML, as a quotation or in a tag of its own is not guessed."""
    quoted = "".join(f"> {line}\n" for line in block(GOOD).splitlines())
    for text in (
        json.dumps({"code": GOOD}),
        json.dumps({"code": block(GOOD)}),
        f"<code>{GOOD}</code>",
        f"Well:\n{GOOD}",
    ):
        assert extract(text).code is None
    assert extract(block(json.dumps({"code": GOOD}) + "\n", "json")).code is None
    assert "ModelNew:\n    pass" not in (extract(quoted).code or "")
    escaped = "class ModelNew:\n    a = 1 &lt; 2\n"
    assert extract(block(escaped)).code == escaped


def test_the_summary_is_short_and_holds_no_thoughts():
    text = f"<think>secret</think>I fused both.\n\n{block(GOOD)}It is   faster."
    assert extract(text).summary(100) == "I fused both. It is faster."
    assert extract(f"<plan>tile by 64</plan>{text}").summary(100) == "tile by 64"
    assert len(extract("word " * 1000).summary(80)) <= 80
    assert extract(text).summary(0) == ""


FENCES = ["```", "```python\n", "```\n", "~~~\n", "````py\n"]
TAGS = ["<think>", "</think>", "<plan>", "</plan>"]
QUOTES = ['"""', "'''", "'", '"', "\\"]
PIECES = st.sampled_from(
    [*FENCES, *TAGS, *QUOTES, "\n", "\r\n", "    ", "class ModelNew:\n", "# a ` b\n", "prose ", "\x00", "é"]
)


@given(st.lists(PIECES | st.text(max_size=8), max_size=40).map("".join))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_and_nothing_is_made_up(text):
    read = extract(text)
    text = re.sub("[\ufeff\u200b\u2060]", "", text)
    characters = set(text.replace("\r\n", "\n").replace("\r", "\n")) | {"\n"}
    assert set(read.code or "") | set(read.plan) | set(read.prose) <= characters
    assert (read.code or "").replace("\n", "").replace(" ", "").replace("\t", "") in "".join(
        text.replace("\r", "\n").replace("\n", "").replace(" ", "").replace("\t", "")
    ) or any(c.isspace() and c not in " \n\t\r" for c in text)


WORDS = st.text(st.characters(blacklist_characters="`~<>\r\x00", blacklist_categories=["Cs"]), max_size=60)


@pytest.mark.parametrize("quote", ['"', "'", "`"])
def test_a_tag_in_quotation_marks_closes_a_thought_that_nothing_else_closes(quote):
    quoted = f"{quote}</think>{quote}"
    assert extract(f"<think>I write {quoted}.\n{block(OTHER)}</think>\n{block(GOOD)}").code == GOOD
    assert extract(f"<think>I write {quoted}.\n{block(OTHER)}{quoted}\n{block(GOOD)}").code == GOOD
    assert extract(f"<think>I would write\n{block(OTHER)}").code is None


@given(before=WORDS, thoughts=WORDS, after=WORDS, code=st.sampled_from([TRITON, CUDA, GOOD]))
@example(before='"', thoughts='"', after="", code=GOOD)
@settings(max_examples=100, deadline=None)
def test_an_answer_survives_any_prose_around_it(before, thoughts, after, code):
    text = f"<think>{thoughts}\n{block(OTHER)}</think>{before}\n{block(code)}\n{after}"
    assert extract(text).code == code
    assert extract(text.replace("\n", "\r\n")).code == code
    assert extract(f"<think>{thoughts}</think>{before}: {block(code)}{after}").code == code


@pytest.mark.parametrize(
    "piece",
    [
        "```\n",
        "```python\n",
        "<think>",
        "<plan>",
        '```python\n"""\n',
        "~~~\n```py\n",
        "'",
        "a: ```\n",
        "<answer>",
        "``` ' ",
    ],
)
def test_reading_takes_linear_time(piece):
    def once(text: str) -> float:
        started = time.process_time()
        extract.__wrapped__(text)
        return time.process_time() - started

    def seconds(count: int) -> float:
        return min(once(piece * count) for _ in range(3))

    # A collection walks over all that the tests before this one left in memory, whatever is read here.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        seconds(100)
        small, large = seconds(2_000), seconds(16_000)
    finally:
        if was_enabled:
            gc.enable()
    assert large < 40 * max(small, 0.002), f"{small:.4f} s, then {large:.4f} s for eight times the text"
