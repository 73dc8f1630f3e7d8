"""Finding the answer in what a policy wrote.

A policy thinks aloud, quotes, drafts, corrects itself and forgets to close what it opened. The text is read once from
top to bottom, as a reader would: a `<think>` passage is skipped whole, with the code in it; a plan is set apart; a
fence opens a block. Of the blocks, the first of these that exists is the answer:

1. the last closed block that defines the entry point,
2. the last unclosed block that defines it,
3. without any fence, the last `<answer>` or else the whole text, if it is Python that defines it,
4. the last block that may be Python at all (the judge then says what is missing in it).

A fence may stand at the end of a line that says something. After prose it opens a block, if one word follows it or a
colon, bold type or the dash of a list comes before it (`Here it is: ```python`). After code it closes the block, for
outside of comments and strings Python has no backticks. Nothing else is taken apart (a quotation with `>`, JSON, HTML
entities): what policies are taught to write is one fenced block, and a guess may be wrong.
"""

from __future__ import annotations

import ast
import itertools
import re
import textwrap
from dataclasses import dataclass
from functools import lru_cache

from kerneldojo.schema import MAX_SOURCE_BYTES
from kerneldojo.schema.parsing import parse_python

FENCE = re.compile(
    r"^(?P<before>[ \t]*+(?=~~~)|[^\n]*?(?<!`)(?=```))(?P<mark>`{3,}+|~{3,}+)[ \t]*+(?P<info>[^`\n]*)$", re.MULTILINE
)


def _tag(tag: str) -> str:
    """A tag, unless it stands in quotation marks: then it is only talked of."""
    return rf"(?:(?<![\"'`]){tag}|{tag}(?![\"']|`(?!``)))"


CLOSING = "</(?:think|thinking|reasoning)>"
THINKING = re.compile(_tag("<(?:think|thinking|reasoning)>"), re.IGNORECASE)
THOUGHT = re.compile(_tag(CLOSING), re.IGNORECASE)
QUOTED_THOUGHT = re.compile(rf".*{CLOSING}", re.IGNORECASE | re.DOTALL)
"""Up to the last closing tag, in quotation marks or not."""
ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.IGNORECASE | re.DOTALL)
INVISIBLE = dict.fromkeys(map(ord, "\ufeff\u200b\u2060"))
"""Characters without width, which some models put around fences and which are an error in code."""
QUOTES = re.compile(r"#[^\n]*|\"\"\"|'''|\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])*'?", re.DOTALL)
MAX_QUOTED_FENCES = 16
"""Fences within the strings of one block that are recognised as such."""
PRELUDES = ":*-"
"""What may come before a fence at the end of a line of prose: a colon, bold type, the dash of a list."""
LANGUAGE = re.compile(r"\w[\w+#.:/-]*")
PYTHON_TAGS = frozenset({"", "python", "py", "python3", "triton", "cuda"})
"""Languages that a block may be tagged with to be taken for the answer where none defines the entry point."""


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    code: str
    """Its text, indentation common to all lines removed, ending in a newline."""
    tag: str
    """First word after the opening fence, in lower case."""
    closed: bool
    """Whether its closing fence is there."""


@dataclass(frozen=True)
class Extraction:
    """What an answer consists of."""

    code: str | None
    """The source of the answer; None where there is none."""
    plan: str
    """Text between the plan's delimiters, without them; empty where there is none."""
    prose: str
    """What stands outside of blocks, plan and thinking."""
    blocks: tuple[Block, ...]
    """All blocks outside of thinking and plan, in order."""

    def summary(self, max_chars: int) -> str:
        """The reasoning in brief: the plan, else the prose, on one line, cut at a word. Never the chain of thought."""
        return textwrap.shorten(self.plan or self.prose, max_chars, placeholder=" ...") if max_chars > 4 else ""


@lru_cache(maxsize=1024)  # the job and the turn both need it
def extract(
    text: str, *, entry_point: str = "ModelNew", plan_open: str = "<plan>", plan_close: str = "</plan>"
) -> Extraction:
    """Read an answer. Never raises, whatever the text; the time it takes is linear in its length.

    Args:
        text: what the policy wrote.
        entry_point: the class that a complete answer defines.
        plan_open: what opens a plan.
        plan_close: what closes it. A plan that is not closed ends at the first block.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.isascii():
        text = text.translate(INVISIBLE)
    # A fence behind a tag is one too: models often leave the line break out.
    if "<" in text or plan_close in text:
        text = _closing(plan_close).sub(r"\1\n", text)
    reader = _Reader(_after_thoughts(text), plan_open, plan_close)
    reader.read()
    prose = "".join(reader.prose).strip()
    code = _choose(reader.blocks, entry_point) or _unfenced(reader.blocks, prose, entry_point)
    return Extraction(code=code, plan="\n".join(reader.plans).strip(), prose=prose, blocks=tuple(reader.blocks))


@lru_cache(maxsize=16)
def _closing(plan_close: str) -> re.Pattern[str]:
    return re.compile(rf"({THOUGHT.pattern}|<answer>|{re.escape(plan_close)})[ \t]*(?=```|~~~)", re.IGNORECASE)


@lru_cache(maxsize=16)
def _passages(plan_open: str) -> re.Pattern[str]:
    return re.compile(f"{THINKING.pattern}|(?P<plan>{re.escape(plan_open)})", re.IGNORECASE)


@lru_cache(maxsize=16)
def _definition(entry_point: str) -> re.Pattern[str]:
    return re.compile(rf"^(?:class\s+{re.escape(entry_point)}\b|{re.escape(entry_point)}\s*=)", re.MULTILINE)


def _after_thoughts(text: str) -> str:
    """Without the thoughts whose opening tag was in the prompt: such a text holds a closing tag alone."""
    closing = THOUGHT.search(text)
    if closing is None or THINKING.search(text, 0, closing.start()):
        return text
    return text[closing.end() :]


class _Reader:
    """Reads a text from top to bottom; what is found is in the lists."""

    def __init__(self, text: str, plan_open: str, plan_close: str) -> None:
        self.text, self.plan_open, self.plan_close = text, plan_open, plan_close
        self.blocks: list[Block] = []
        self.plans: list[str] = []
        self.prose: list[str] = []
        # Of several on one line none is a fence: such a line quotes code.
        self.marks = [mark for mark in FENCE.finditer(text) if "```" not in mark["before"]]
        self.next_mark = 0

    def read(self) -> None:
        passages = _passages(self.plan_open)
        passage = passages.search(self.text)
        at = 0
        while at < len(self.text):
            if passage is not None and passage.start() < at:
                passage = passages.search(self.text, at)
            fence = self._fence(at)
            if passage is not None and (fence is None or passage.start() < _place(fence)):
                self.prose.append(self.text[at : passage.start()])
                at = self._plan(passage.end()) if passage["plan"] else self._thought(passage.end())
            elif fence is not None:
                self.prose.append(self.text[at : _place(fence)])
                at = self._block()
            else:
                self.prose.append(self.text[at:])
                return

    def _thought(self, start: int) -> int:
        """Where it ends; one that nothing else closes ends at what would be a tag that is only talked of."""
        closing = THOUGHT.search(self.text, start) or QUOTED_THOUGHT.match(self.text, start)
        return closing.end() if closing else len(self.text)

    def _fence(self, at: int) -> re.Match[str] | None:
        """The next fence that opens a block."""
        while self.next_mark < len(self.marks):
            mark = self.marks[self.next_mark]
            if _place(mark) >= at and _opens(mark):
                return mark
            self.next_mark += 1
        return None

    def _plan(self, start: int) -> int:
        end = self.text.find(self.plan_close, start)
        if end >= 0:
            self.plans.append(self.text[start:end])
            return end + len(self.plan_close)
        fence = self._fence(start)
        end = _place(fence) if fence else len(self.text)
        self.plans.append(self.text[start:end])
        return end

    def _block(self) -> int:
        """Read the block that the next fence opens; returns where the text goes on."""
        opening = self.marks[self.next_mark]
        start = min(opening.end() + 1, len(self.text))
        later = (self.marks[number] for number in range(self.next_mark + 1, len(self.marks)))
        ends = list(itertools.islice((mark for mark in later if _ends(mark, opening)), MAX_QUOTED_FENCES))
        end = ends[0] if ends else None
        if end is not None and _may_quote(self.text, start, _place(end)):
            # A fence inside a docstring is text, unless the string never ends: then the quotes are what is wrong.
            quoted = _Quotes(self.text, start)
            end = next((mark for mark in ends if not quoted.at(_place(mark))), end)
        stop = _place(end) if end else len(self.text)
        closed = end is not None and _is_bare(end)
        code = self.text[start:stop].strip("\n")
        if code[:1].isspace():
            code = textwrap.dedent(code).strip("\n")
        tag = (opening["info"].split() or [""])[0].lower().strip("{}.")
        self.blocks.append(Block(code=code + "\n" if code else "", tag=tag, closed=closed))
        if end is None:
            return len(self.text)
        return min(end.end() + 1, len(self.text)) if closed else stop


def _may_quote(text: str, start: int, end: int) -> bool:
    return text.find('"""', start, end) >= 0 or text.find("'''", start, end) >= 0


def _place(mark: re.Match[str]) -> int:
    """Where a fence begins: with its line, unless that line says something before it."""
    return mark.start("mark") if mark["before"].strip() else mark.start()


def _is_bare(mark: re.Match[str]) -> bool:
    """Whether it names no language; a tag behind it (`</answer>`, `<|im_end|>`) is none."""
    info = mark["info"].strip()
    return not info or (info[0] == "<" and not mark["before"].strip())


def _opens(mark: re.Match[str]) -> bool:
    """Whether it opens a block where none is open: at the end of a line of prose not every fence does."""
    before = mark["before"].rstrip()
    return not before or before[-1] in PRELUDES or LANGUAGE.fullmatch(mark["info"].strip()) is not None


def _ends(mark: re.Match[str], opening: re.Match[str]) -> bool:
    """A bare fence closes its kind; a tagged one opens the next block, so that the open one was left unclosed."""
    if mark["mark"][0] != opening["mark"][0] or "#" in mark["before"]:
        return False
    return len(mark["mark"]) >= len(opening["mark"]) if _is_bare(mark) else _opens(mark)


class _Quotes:
    """Whether a place in Python text lies inside a triple-quoted string; asked at ascending places."""

    def __init__(self, text: str, start: int) -> None:
        self.text, self.position, self.opened = text, start, ""

    def at(self, place: int) -> bool:
        while self.position < place:
            if self.opened:
                end = self.text.find(self.opened, self.position, place)
                if end < 0:
                    return True
                self.position, self.opened = end + 3, ""
                continue
            token = QUOTES.search(self.text, self.position, place)
            if token is None:
                return False
            self.position = token.end()
            self.opened = token[0] if token[0] in ('"""', "'''") else ""
        return bool(self.opened)


def _choose(blocks: list[Block], entry_point: str) -> str | None:
    definition = _definition(entry_point)
    defining = [block for block in blocks if definition.search(block.code)]
    for closed in (True, False):
        for block in reversed(defining):
            if block.closed is closed:
                return block.code
    return None


def _unfenced(blocks: list[Block], prose: str, entry_point: str) -> str | None:
    if not blocks:
        marked = [textwrap.dedent(found[1]).strip() for found in ANSWER.finditer(prose)]
        return next((text + "\n" for text in reversed([prose, *marked]) if _is_python(text, entry_point)), None)
    usable = [block.code for block in blocks if block.tag in PYTHON_TAGS and block.code.strip()]
    return usable[-1] if usable else None


def _is_python(text: str, entry_point: str) -> bool:
    if entry_point not in text or len(text) > MAX_SOURCE_BYTES:
        return False
    try:
        tree = parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.ClassDef) and node.name == entry_point for node in tree.body)
