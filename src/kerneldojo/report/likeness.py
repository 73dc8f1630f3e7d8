"""In what two runs differ besides their answers.

Some settings decide what a figure is of: the device, the protocol, the baseline. Figures under different ones are
different things, and their difference says nothing of the policies; such runs are compared only for who asks for it.
Others are what one may want to compare: turns, samples, what a prompt remembers. They are told and never refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kerneldojo.episodes import PlayConfig
from kerneldojo.report.outcomes import attempts_of
from kerneldojo.schema import Episode, Evaluation, Frozen


class Unlike(Frozen):
    """One setting in which two runs differ."""

    setting: str
    a: str
    b: str
    is_of_verdicts: bool
    """Whether it makes verdicts, and so figures, of another kind."""

    @property
    def words(self) -> str:
        """`device (model:h100 against model:a100)`."""
        return f"{self.setting} ({self.a} against {self.b})"


def unlike(
    a: Sequence[Episode], b: Sequence[Episode], asked: tuple[Mapping[str, object], Mapping[str, object]] = ({}, {})
) -> list[Unlike]:
    """The settings in which two runs differ, those of verdicts first; what only one of them knows is not told.

    `asked` is what was asked of the two policies beside the prompts, by name: temperature and the like.
    """
    rules = [_rules(run) for run in (a, b)]
    found: list[Unlike | None] = []
    for name, get in OF_VERDICTS.items():
        told = [_verdicts(run, get) or rule.get(name, set()) for run, rule in zip((a, b), rules, strict=True)]
        found.append(_difference(name, told, is_of_verdicts=True))
    for name in dict.fromkeys([*rules[0], *rules[1]]):
        if name not in OF_VERDICTS:
            found.append(_difference(name, [rule.get(name, set()) for rule in rules], is_of_verdicts=False))
    for name in asked[0]:
        told = [{_words(one[name])} if name in one else set[str]() for one in asked]
        found.append(_difference(name, told, is_of_verdicts=False))
    samples = [{str(attempts_of(run).num_samples)} for run in (a, b)]
    found.append(_difference("samples", samples, is_of_verdicts=False))
    return [one for one in found if one is not None]


def _device(verdict: Evaluation) -> str | None:
    """The kind of device that judged; GPUs of one kind are alike, and one that was not needed has no name."""
    if not verdict.device.startswith("cuda"):
        return verdict.device
    named = re.fullmatch(r"cuda:\d+ \((.*)\)", verdict.device)
    return named[1] if named else None


OF_VERDICTS: dict[str, Callable[[Evaluation], str | None]] = {
    "device": _device,
    "timing source": lambda verdict: verdict.timing.source,
    "baseline": lambda verdict: verdict.protocol.baseline if verdict.correct else None,
    "protocol": lambda verdict: verdict.protocol.name if verdict.correct else None,
    "protocol version": lambda verdict: verdict.protocol.version if verdict.correct else None,
    "precision": lambda verdict: verdict.protocol.precision if verdict.correct else None,
}
"""What makes figures be of one kind, as verdicts tell it; where none does, what was asked for is taken."""


def _verdicts(run: Iterable[Episode], get: Callable[[Evaluation], str | None]) -> set[str]:
    found = {get(turn.evaluation) for episode in run for turn in episode.turns if turn.evaluation is not None}
    return {one for one in found if one}


def _rules(run: Iterable[Episode]) -> dict[str, set[str]]:
    """How a run was played, each setting with the values that its episodes have."""
    distinct = {json.dumps(episode.settings, sort_keys=True): episode.settings for episode in run if episode.settings}
    found: dict[str, set[str]] = {}
    for settings in distinct.values():
        for name, value in PlayConfig.model_validate(settings).model_dump(mode="json").items():
            if name != "device" or not value.startswith(("auto", "cuda")):  # these do not say which GPU it was
                found.setdefault(name, set()).add(_words(value))
    return found


def _words(value: Any) -> str:
    """A value in a few words: of a table its type, then its fields."""
    if isinstance(value, dict):
        fields: dict[str, Any] = value
        rest = [f"{_spoken(name)} {_words(one)}" for name, one in fields.items() if name != "type"]
        return ", ".join([str(fields["type"]), *rest] if "type" in fields else rest) or "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return value if isinstance(value, str) else json.dumps(value)


def _spoken(name: str) -> str:
    """`num_turns` as `turns`, `max_prompt_tokens` as `max prompt tokens`."""
    return name.removeprefix("num_").replace("_", " ")


def _difference(name: str, values: Sequence[set[str]], *, is_of_verdicts: bool) -> Unlike | None:
    a, b = values
    if not a or not b or a == b:
        return None
    words = [" and ".join(sorted(one)) for one in values]
    return Unlike(setting=_spoken(name), a=words[0], b=words[1], is_of_verdicts=is_of_verdicts)
