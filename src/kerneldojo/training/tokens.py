"""A tokenizer of our own: whole lines first, byte pairs for the rest.

Kernels written by a small model are made of lines that recur word for word. Ordinary pre-tokenizers cut at every space
and every bracket, so that no token can be longer than a word, and a line costs twenty of them. Here the text is cut at
line ends only, and the lines that recur most are tokens as they stand: an answer costs about 35 tokens instead of 240,
which is the difference between minutes and hours for a model of a million parameters.

Byte pairs alone would not get there: a merge joins two pieces, so that a line of its own takes a dozen merges that
serve nothing else, and a vocabulary of 1024 is spent on a few dozen lines. A line that is a token needs none of them
(the byte-pair model looks up the whole pre-token first, `ignore_merges`); merges are left for what does not recur.

The alphabet is the 256 bytes, so any text can be encoded and comes back exactly. Plans are delimited by tokens of their
own, as are turns and roles.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

PLAN_OPEN, PLAN_CLOSE = "<plan>", "</plan>"
END, PAD = "<|end|>", "<|pad|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
VISIBLE = (PLAN_OPEN, PLAN_CLOSE)
"""Tokens of their own that are part of an answer's text; the others mark its frame and vanish from it."""

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
LINE = r"[^\n]*\n|[^\n]+"
"""What a pre-token is: a line with its end, or the last line without one."""


MOST_LINES = 0.75
"""Share of the vocabulary beyond bytes and marks that whole lines may take; merges get the rest."""
LEAST_COUNT = 3
"""How often a line must occur to be a token: what is seen once or twice cannot be learned as a unit."""


def train_tokenizer(corpus: Iterable[str], vocabulary: int = 1024) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer over whole lines, learned from `corpus`, with the chat template and the special tokens.

    `vocabulary`: number of tokens, special ones included; at least 512, so that something beyond bytes is learned. A
    small corpus may give fewer.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    if vocabulary < 512:
        raise ValueError("a vocabulary of bytes, marks and some merges has at least 512 tokens")
    cut = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LINE), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    frame = [PAD, END, *ROLES, *VISIBLE]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    room = vocabulary - len(frame) - len(alphabet)
    counts = _lines(corpus, cut)
    lines = [line for line, count in counts.most_common() if count >= LEAST_COUNT and len(line) > 1]
    lines = lines[: int(MOST_LINES * room)]
    # Merges are learned from the lines that are no tokens, each as often as it occurs (capped: they are rare).
    learned: Any = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    decode = decoders.ByteLevel().decode
    known = set(lines)
    rest = [decode([line]) for line, count in counts.items() if line not in known for _ in range(min(count, 8))]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(lines), special_tokens=frame, initial_alphabet=alphabet, show_progress=False
    )
    learned.train_from_iterator(rest or [""], trainer)
    model: dict[str, Any] = json.loads(learned.to_str())["model"]
    vocab: dict[str, int] = model["vocab"]
    for line in lines:
        vocab.setdefault(line, len(vocab))
    merges = [tuple(pair) for pair in model["merges"]]
    tokenizer: Any = Tokenizer(models.BPE(vocab, merges, ignore_merges=True))
    tokenizer.pre_tokenizer = cut
    tokenizer.decoder = decoders.ByteLevel()
    # Plan marks are single tokens, but not "special": text without its special tokens still shows the plan.
    tokenizer.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in VISIBLE])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=list(ROLES),
        clean_up_tokenization_spaces=False,
        model_max_length=1 << 20,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def _lines(corpus: Iterable[str], cut: Any) -> Counter[str]:
    """How often each pre-token occurs, as the model will see it: plan marks are tokens of their own already."""
    marks = re.compile("|".join(re.escape(mark) for mark in VISIBLE))
    texts: Counter[str] = Counter(part for text in corpus for part in marks.split(text) if part)
    counts: Counter[str] = Counter()
    for text, times in texts.items():
        for line, _ in cut.pre_tokenize_str(text):
            counts[line] += times
    return counts


def load_tokenizer(folder: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a checkpoint: a folder, or a name that the hub or its cache knows."""
    from transformers import AutoTokenizer

    return cast("PreTrainedTokenizerBase", AutoTokenizer.from_pretrained(folder))


def add_tokens(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> list[int]:
    """Let each text be one token of `tokenizer`; returns the ids of those that are new."""
    from tokenizers import AddedToken

    known = cast("Any", tokenizer)
    before = len(known)
    # Not "special": text that is read without special tokens still shows them.
    known.add_tokens([AddedToken(text, normalized=False, special=False) for text in texts])
    return list(range(before, len(known)))


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """The ids of `text` itself: nothing added in front or behind."""
    ids = cast("Any", tokenizer).encode(text, add_special_tokens=False)
    return [int(one) for one in ids]


def mark_id(tokenizer: PreTrainedTokenizerBase, mark: str) -> int | None:
    """The id of the token that is `mark`; None if it is not a single token of this tokenizer."""
    ids = encode(tokenizer, mark)
    return ids[0] if len(ids) == 1 else None
