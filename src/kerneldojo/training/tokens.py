"""A tokenizer of our own: byte pairs over whole lines.

Kernels written by a small model are made of lines that recur word for word. Ordinary pre-tokenizers cut at every space
and every bracket, so that no token can be longer than a word, and a line costs twenty of them. Here the text is cut at
line ends only, so that byte-pair merging may grow a token to a whole line: an answer costs about 35 tokens instead of
240, which is the difference between minutes and hours for a model of a million parameters.

Its alphabet is the 256 bytes, so any text can be encoded and comes back exactly. Plans are delimited by tokens of their
own, as are turns and roles.
"""

from __future__ import annotations

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


def train_tokenizer(corpus: Iterable[str], vocabulary: int = 1024) -> PreTrainedTokenizerFast:
    """A byte-level BPE over whole lines, learned from `corpus`, with the chat template and the special tokens.

    `vocabulary`: number of tokens, special ones included; at least 512, so that something beyond bytes is learned. A
    small corpus may give fewer.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    if vocabulary < 512:
        raise ValueError("a vocabulary of bytes, marks and some merges has at least 512 tokens")
    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LINE), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    frame = [PAD, END, *ROLES]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[*frame, *VISIBLE],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for text in corpus), trainer)
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


def load_tokenizer(folder: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a checkpoint: a folder, or a name that the hub or its cache knows."""
    from transformers import AutoTokenizer

    return cast("PreTrainedTokenizerBase", AutoTokenizer.from_pretrained(folder))


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """The ids of `text` itself: nothing added in front or behind."""
    ids = cast("Any", tokenizer).encode(text, add_special_tokens=False)
    return [int(one) for one in ids]


def end_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """The id that ends an answer.

    Raises:
        ValueError: the tokenizer has none.
    """
    token = cast("int | None", tokenizer.eos_token_id)
    if token is None:
        raise ValueError("the tokenizer has no end-of-turn token (eos_token)")
    return token


def plan_ids(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int] | None:
    """The ids of the tokens that open and close a plan; None where these are not single tokens of this tokenizer."""
    opening, closing = encode(tokenizer, PLAN_OPEN), encode(tokenizer, PLAN_CLOSE)
    return (opening[0], closing[0]) if len(opening) == 1 == len(closing) else None
