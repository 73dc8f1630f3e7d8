"""What a prompt holds of the turns before it.

A prompt is a `Chat`: the task, then exchanges of an earlier answer and the reply to it. Which turns are in it, and in
what form, is the configuration's context; a budget takes turns away from the end of the ranking until the chat fits.
The problem itself never leaves, and neither does the one turn that ranks first: a prompt without any would be a first
turn again, not a next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kerneldojo.episodes import prompts
from kerneldojo.episodes.config import Best, ContextConfig, PlayConfig, Summaries
from kerneldojo.episodes.extraction import extract
from kerneldojo.schema import Answer, Episode, Message, Turn


class PromptTooLong(ValueError):
    """Not even the problem and one turn fit the budget: the episode ends here."""


@dataclass(frozen=True)
class Exchange:
    """An earlier answer as the prompt shows it, and the reply to it."""

    text: str
    answer: Answer | None
    """The answer where it is shown whole, so that its sampled ids can be used; None where `text` was made from it."""
    reply: str


@dataclass(frozen=True)
class Chat:
    """A prompt before it becomes messages or token ids."""

    task: str
    exchanges: tuple[Exchange, ...]

    def messages(self) -> tuple[Message, ...]:
        """As messages: a user's first, roles alternating, a user's last."""
        found = [Message(role="user", content=self.task)]
        for exchange in self.exchanges:
            found.append(Message(role="assistant", content=exchange.text))
            found.append(Message(role="user", content=exchange.reply))
        return tuple(found)


def chat(
    episode: Episode,
    turn: int,
    config: PlayConfig,
    count: Callable[[Chat], int] | None = None,
    *,
    must_fit: bool = True,
) -> Chat:
    """The prompt of turn number `turn`, from the turns before it.

    Args:
        episode: with at least `turn` turns; later ones are not looked at.
        turn: counted from 0.
        config: how the episode is played.
        count: length of a chat in tokens; None for an estimate. Used only where there is a limit.
        must_fit: whether the shortest prompt is refused, rather than returned, if it is too long.

    Raises:
        PromptTooLong: it does not fit `config.max_prompt_tokens`.
        ValueError: the episode has fewer than `turn` turns.
    """
    if not 0 <= turn <= len(episode.turns):
        raise ValueError(f"{episode.id}: turn {turn} has no prompt yet, there are {len(episode.turns)} turns")
    earlier = episode.turns[:turn]
    example = turn == 0 or not isinstance(config.context, Summaries)
    task = prompts.task(episode.problem, config, example=example).strip()
    order = ranking(earlier, config.context)
    limit = config.max_prompt_tokens
    num_kept = len(order)
    while True:
        shown = [_exchange(earlier[index], config) for index in sorted(order[:num_kept])]
        candidate = Chat(task=task, exchanges=tuple(shown))
        length = 0 if limit is None else (count or estimated_tokens)(candidate)
        if limit is None or length <= limit or (num_kept <= 1 and not must_fit):
            return candidate
        if num_kept <= min(1, len(earlier)):
            name = f"{episode.id}: the shortest prompt of turn {turn}"
            raise PromptTooLong(f"{name} has {length} tokens, {limit} are allowed")
        num_kept -= 1


def ranking(turns: Sequence[Turn], context: ContextConfig) -> list[int]:
    """Indices of the turns that may be shown; the last of the list leaves first when the budget is short."""
    latest_first = list(range(len(turns)))[::-1]
    if not isinstance(context, Best):
        return latest_first
    by_reward = sorted(latest_first, key=lambda index: -_worth(turns[index]))  # stable: of equals the later first
    if context.keep_last and turns:
        by_reward.remove(len(turns) - 1)
        by_reward.insert(0, len(turns) - 1)
    return by_reward[: context.window]


def estimated_tokens(candidate: Chat) -> int:
    """A cautious guess without a tokenizer: three bytes a token (code takes three to four), and eight a message."""
    texts = [candidate.task, *(text for item in candidate.exchanges for text in (item.text, item.reply))]
    return sum(len(text.encode()) // 3 + 9 for text in texts)


def _worth(turn: Turn) -> float:
    return turn.reward if turn.reward is not None else float("-inf")


def _exchange(turn: Turn, config: PlayConfig) -> Exchange:
    reply = reply_to(turn, config)
    if not isinstance(config.context, Summaries):
        return Exchange(text=turn.answer.text, answer=turn.answer, reply=reply)
    read = extract(turn.answer.text, plan_open=config.plan_open, plan_close=config.plan_close)
    parts = [read.summary(config.context.max_summary_chars)]
    if turn.candidate is not None:
        parts.append(prompts.fenced(turn.candidate.source))
    return Exchange(text="\n\n".join(part for part in parts if part) or "(no answer)", answer=None, reply=reply)


def reply_to(turn: Turn, config: PlayConfig) -> str:
    """The message that follows an answer: its feedback, and what is asked for next."""
    if config.style == "compact":
        return turn.feedback.strip()
    return f"Attempt {turn.index + 1}: {turn.feedback}\n\n{prompts.request(config)}".strip()
