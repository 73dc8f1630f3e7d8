"""Multi-turn episodes: prompts, feedback, what is remembered, and the step from one turn to the next.

An episode is played by pure functions (`first_episode`, `next_messages`, `job_for`, `with_turn`); `Environment`
strings them together for one episode in process, `kerneldojo.rollout` for hundreds at once. `render` writes any turn's
prompt as token ids, for training and play alike.
"""

from kerneldojo.episodes.config import Best, ContextConfig, Everything, PlayConfig, Summaries, config_of, parse_context
from kerneldojo.episodes.context import PromptTooLong
from kerneldojo.episodes.environment import Environment, Observation
from kerneldojo.episodes.extraction import Extraction, extract
from kerneldojo.episodes.feedback import feedback
from kerneldojo.episodes.render import Tokenizer, answer_ids, end_id, opens_answer, render
from kerneldojo.episodes.steps import (
    answer_seed,
    by_episode_name,
    episode_name,
    first_episode,
    job_for,
    messages_at,
    next_messages,
    prompt,
    seed_of,
    with_turn,
)

__all__ = [
    "Best",
    "ContextConfig",
    "Environment",
    "Everything",
    "Extraction",
    "Observation",
    "PlayConfig",
    "PromptTooLong",
    "Summaries",
    "Tokenizer",
    "answer_ids",
    "answer_seed",
    "by_episode_name",
    "config_of",
    "end_id",
    "episode_name",
    "extract",
    "feedback",
    "first_episode",
    "job_for",
    "messages_at",
    "next_messages",
    "opens_answer",
    "parse_context",
    "prompt",
    "render",
    "seed_of",
    "with_turn",
]
