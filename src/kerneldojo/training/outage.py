"""When no verdict comes at all: a run whose judge is gone for good must end, and say why."""

from __future__ import annotations

from collections.abc import Sequence

from kerneldojo.schema import Episode


class Outage:
    """Steps in a row in which not one verdict came; those that needed none do not count."""

    def __init__(self) -> None:
        """All is well."""
        self.num_steps = 0
        self.reason = ""
        """Why the last of them got none (`fault_of`); empty if one came."""

    def note(self, episodes: Sequence[Episode]) -> None:
        """Count a step."""
        fault = fault_of(episodes)
        if fault is not None:
            self.reason, self.num_steps = fault, self.num_steps + 1 if fault else 0

    def ends_run(self, max_steps: int) -> str:
        """Why a run that bears `max_steps` such steps in a row ends; empty if it goes on."""
        if not self.reason or self.num_steps < max_steps:
            return ""
        return f"not one verdict came in {self.num_steps} steps in a row: {self.reason}"


def fault_of(episodes: Sequence[Episode]) -> str | None:
    """Why not one answer got the verdict that it should have had; empty where one did, None where none was to have one.

    An answer without code is scored by its form alone, which says nothing of the judge: neither that it is gone nor
    that it is back.
    """
    turns = [turn for episode in episodes for turn in episode.turns]
    if not turns:
        return "no problem's prompt fits play.max_prompt_tokens"
    due = [turn for turn in turns if turn.evaluation is not None or turn.answer.finish == "failed"]
    if not due:
        return None
    if any(turn.reward is not None for turn in due):
        return ""
    evaluation = due[-1].evaluation
    told = due[-1].answer.error if evaluation is None else evaluation.message
    return " ".join(told.split()) or "its verdict gives no reason"
