"""Prompts as token ids: one function for supervised training, RL, benchmark and play.

Token in, token out. An answer that was sampled as ids stands in later prompts as exactly these ids: decoding and
encoding again need not give them back, and a trainer that learned from the second while the first was sampled would
learn from something that never happened. So the chat template is rendered once, around placeholders; the text between
answers is encoded, and the answers' own ids are put between. It follows that with context `everything` a prompt begins
with the prompt before it and the answer to it, which caches of prefixes like.

Text from outside (problems, feedback, answers without ids) cannot forge a template's control tokens: where it spells
one, a space breaks it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from kerneldojo.episodes.config import PlayConfig, config_of
from kerneldojo.episodes.context import Chat, chat
from kerneldojo.schema import Answer, Episode

MAX_CACHED_TEXTS = 4096


class Tokenizer(Protocol):
    """What is used of a Hugging Face tokenizer (`transformers.PreTrainedTokenizerBase`)."""

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        """A chat as text, by the template that came with the model."""
        ...

    def encode(self, text: Any, **options: Any) -> Any:
        """Text as token ids."""
        ...


def render(episode: Episode, turn: int, tokenizer: Tokenizer) -> list[int]:
    """Token ids of the prompt of turn number `turn`, ready for the first token of the answer.

    Pure: it depends on `episode.settings`, the problem and the turns before `turn`, and on the tokenizer.

    Args:
        episode: with at least `turn` turns.
        turn: counted from 0; the number of turns played gives the next prompt.
        tokenizer: a Hugging Face tokenizer with a chat template.

    Raises:
        PromptTooLong: not even the problem and one turn fit the budget.
        ValueError: the tokenizer has no chat template, or one that does not keep contents as they are.
    """
    config = config_of(episode)
    return chat_ids(
        chat(episode, turn, config, partial(num_tokens, config=config, tokenizer=tokenizer)), config, tokenizer
    )


def num_tokens(prompt: Chat, config: PlayConfig, tokenizer: Tokenizer) -> int:
    """Exact length of a prompt."""
    return len(chat_ids(prompt, config, tokenizer))


def chat_ids(prompt: Chat, config: PlayConfig, tokenizer: Tokenizer) -> list[int]:
    """A prompt as token ids, sampled answers as they were sampled."""
    codec = _codec(tokenizer)
    skeleton = codec.skeleton(len(prompt.exchanges), config.template)
    keep = (config.plan_open, config.plan_close)
    before, after = skeleton[0], skeleton[-1]
    ids = list(codec.encode(before + codec.defused(prompt.task) + after))
    for number, exchange in enumerate(prompt.exchanges):
        said = exchange.answer.answer_ids if exchange.answer is not None else None
        ids.extend(said if said is not None else codec.encode(codec.defused(exchange.text, keep)))
        between = codec.encode(skeleton[number + 1] + codec.defused(exchange.reply) + after)
        ids.extend(between if said is None else between[_closing(said, between) :])
    return ids


def answer_ids(answer: Answer, config: PlayConfig, tokenizer: Tokenizer) -> list[int]:
    """Token ids of an answer as training learns them: those sampled, else its text encoded with its end.

    An answer that was cut has no end to learn.
    """
    if answer.answer_ids is not None:
        return list(answer.answer_ids)
    codec = _codec(tokenizer)
    ids = list(codec.encode(codec.defused(answer.text, (config.plan_open, config.plan_close))))
    if answer.finish == "stop":
        ids.extend(codec.end(config.template))
    return ids


def end_id(tokenizer: Tokenizer) -> int | None:
    """The token with which the chat template ends an answer, and with which training teaches to end it.

    It need not be the tokenizer's own end token: base models have templates that end a message with `<|im_end|>` beside
    an end token `<|endoftext|>`. Whoever samples has to stop at both. None where there is neither.

    Raises:
        ValueError: the template cannot be used.
    """
    return next(iter(_codec(tokenizer).end({})[-1:]), None)


def opens_answer(config: PlayConfig, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Ids that a prompt ends with, after the last message: what the template says in the answer's place already."""
    codec = _codec(tokenizer)
    return codec.encode(codec.skeleton(0, config.template)[-1])


def _closing(said: Sequence[int], between: Sequence[int]) -> int:
    """How many of the ids after an answer the answer holds already: it ends with the token that closes a message."""
    for number, token in enumerate(between[:3]):
        if said and token == said[-1]:
            return number + 1
    return 0


class _Codec:
    """A tokenizer's template and encoder, with what was found out before kept."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._texts: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._skeletons: dict[tuple[int, str], list[str]] = {}
        added: dict[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
        special = {str(token) for token in added.values() if getattr(token, "special", False)}
        own: int | None = getattr(tokenizer, "eos_token_id", None)
        self._own_end = () if own is None else (own,)
        self._special_ids = {number for number, token in added.items() if str(token) in special} | set(self._own_end)
        self._control = sorted((t for t in special if len(t) > 2 and not t.isalnum()), key=len, reverse=True)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text, control tokens understood, nothing added; kept for the next time."""
        known = self._texts.get(text)
        if known is None:
            known = tuple(self._tokenizer.encode(text, add_special_tokens=False))
            self._texts[text] = known
            if len(self._texts) > MAX_CACHED_TEXTS:
                self._texts.popitem(last=False)
        return known

    def defused(self, text: str, keep: Sequence[str] = ()) -> str:
        """`text` with a space in every control token that it spells, but for those to `keep`."""
        for token in self._control:
            if token in text and token not in keep:
                text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    def skeleton(self, num_exchanges: int, options: dict[str, Any]) -> list[str]:
        """The template's text around contents: before the task, before each reply, and after the last message.

        The text after a user's message is always the last one's, with all that comes before the first token of an
        answer: it is what the policy saw when it answered.
        """
        key = (num_exchanges, json.dumps(options, sort_keys=True))
        if key not in self._skeletons:
            self._skeletons[key] = self._read_template(num_exchanges, options)
        return self._skeletons[key]

    def end(self, options: dict[str, Any]) -> tuple[int, ...]:
        """What ends an answer: all that the template writes behind it up to a token of control, which text cannot hold
        (a space may come first); the tokenizer's own where it writes none, for a line break is no end."""
        after = self.encode(self.skeleton(1, options)[1])
        size = next((place + 1 for place, token in enumerate(after) if token in self._special_ids), 0)
        return after[:size] or self._own_end

    def _read_template(self, num_exchanges: int, options: dict[str, Any]) -> list[str]:
        marks = [f"content-{number}-goes-here" for number in range(2 * num_exchanges + 1)]
        roles = ("user", "assistant")
        messages = [{"role": roles[number % 2], "content": mark} for number, mark in enumerate(marks)]
        try:
            text: str = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, **options
            )
        except Exception as error:  # templates are programs that come with models: they raise what they like
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(f"the tokenizer's chat template cannot be used: {reason}") from None
        parts: list[str] = []
        for mark in marks:
            part, found, text = text.partition(mark)
            if not found:
                raise ValueError("the tokenizer's chat template does not keep every message of an alternating chat")
            parts.append(part)
        return [*parts[::2], text]


_CODECS: WeakKeyDictionary[Any, _Codec] = WeakKeyDictionary()


def _codec(tokenizer: Any) -> _Codec:
    codec = _CODECS.get(tokenizer)
    if codec is None:
        codec = _CODECS[tokenizer] = _Codec(tokenizer)
    return codec
