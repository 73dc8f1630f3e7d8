"""A policy that repeats what another one wrote: a recorded run, judged again or under other settings.

An answer is looked up by problem (its content, else its name), sample and turn. Prompts are not compared: with another
reward, device or protocol the feedback differs, and the recorded answer is given all the same.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from kerneldojo.policies.policy import Request
from kerneldojo.schema import Answer, Episode, Usage

EPISODES = "episodes.jsonl"
"""Name of the file that is looked for where a folder is given."""


class ReplayPolicy:
    """Answers from episodes in a JSONL file, one `schema.Episode` a line."""

    def __init__(self, path: Path | str) -> None:
        """Read the file, or `episodes.jsonl` of a folder. Of several records of an episode the longest counts.

        Raises:
            ValueError: There is no such file, or a line is no episode; one line says which.
        """
        self.path = Path(path)
        if self.path.is_dir():
            self.path = self.path / EPISODES
        self._answers: dict[tuple[str, int], tuple[Answer, ...]] = {}
        for episode in _episodes(self.path):
            answers = tuple(turn.answer for turn in episode.turns)
            for key in ((episode.problem.hash, episode.sample), (f"name:{episode.problem.name}", episode.sample)):
                if len(answers) >= len(self._answers.get(key, ())):
                    self._answers[key] = answers
        recorded = [answer for answers in self._answers.values() for answer in answers]
        self.gives_ids = bool(recorded) and all(answer.is_trainable for answer in recorded)

    @property
    def name(self) -> str:
        """`replay:` and the file's name, with its folder's."""
        return f"replay:{self.path.parent.name}/{self.path.name}"

    async def answer(self, request: Request) -> Answer:
        """The recorded answer, at no cost; failed where there is none."""
        episode = request.episode
        turn = len(episode.turns)
        for key in (episode.problem.hash, f"name:{episode.problem.name}"):
            answers = self._answers.get((key, episode.sample), ())
            if turn < len(answers):
                found = answers[turn]
                usage = Usage(prompt_tokens=found.usage.prompt_tokens, answer_tokens=found.usage.answer_tokens)
                return found.model_copy(update={"usage": usage})
        error = f"{self.name} has no answer for {episode.problem.name}, sample {episode.sample}, turn {turn}"
        return Answer(text="", finish="failed", error=error)

    async def close(self) -> None:
        """Nothing to let go of."""


def _episodes(path: Path) -> list[Episode]:
    """All episodes of a file. A last line without its end, as a killed run leaves it, is left out."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    *lines, torn = data.split(b"\n")
    episodes: list[Episode] = []
    for number, line in enumerate([*lines, torn], start=1):
        if not line.strip():
            continue
        try:
            episodes.append(Episode.model_validate_json(line))
        except ValidationError as error:
            if number > len(lines):
                continue
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            reason = f"{place}: {first['msg']}" if place else first["msg"]
            raise ValueError(f"{path}, line {number} is no episode: {reason}") from error
    return episodes
