"""A taskset for verifiers (v1): its agents write kernels, the environment plays the user who brings the feedback.

    vf-eval kerneldojo-verifiers --env.taskset.suites '["katas:1"]' --env.taskset.url http://127.0.0.1:8000 -m MODEL

A reply is read as everywhere here: the code in it is judged, and the next user turn is the verdict in words. The trace
gets the reward `kernel` and, as metrics, `correct`, `exploit`, `turns` and, where they were measured, `speedup` and
`coverage`. verifiers finds tasksets by the name of a top-level package, which is why there is `kerneldojo_verifiers`.
"""

# Their package is no dependency of ours, so nothing is known here of its types.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import model_validator

from kerneldojo.client import ClientExecutor
from kerneldojo.devices import problem_size
from kerneldojo.episodes import PlayConfig, episode_name, first_episode, job_for, next_messages, with_turn
from kerneldojo.integrations.credit import Credit, best_turn_figures, episode_reward
from kerneldojo.pool import open_pool
from kerneldojo.pool.executor import Executor
from kerneldojo.problems.suite import load_suite
from kerneldojo.schema import Answer, Episode, Problem, Turn

try:
    import verifiers.v1 as vf
    from verifiers.v1.harnesses.null import NullHarnessConfig
    from verifiers.v1.runtimes import SubprocessConfig
except ImportError as error:
    raise ImportError(f"this taskset needs verifiers 0.4 or newer (pip install verifiers): {error}") from None

__all__ = ["KernelEnv", "KernelTaskset"]


class KernelConfig(vf.TasksetConfig):
    """What is played, and who judges."""

    suites: tuple[str, ...] = ("katas",)
    """Problems, as `dojo bench --suite` names them."""
    size: Literal["small", "full"] | None = None
    """Size of katas and graphs; None for small ones on `cpu` and `model:` devices and full ones on a GPU."""
    play: PlayConfig = PlayConfig()
    """How episodes are played. Agents here keep the whole conversation, so `context` is `everything`."""
    credit: Credit = "best"
    """Which of the turns' rewards is the trace's."""
    url: str | None = None
    """A service (`dojo serve`) that judges; None for the devices of this machine."""
    token_variable: str = "KERNELDOJO_TOKEN"
    """Environment variable with the service's token, where it wants one."""

    @model_validator(mode="after")
    def _context_is_everything(self) -> KernelConfig:
        if self.play.context.type != "everything":
            raise ValueError("play.context: agents of verifiers keep the whole conversation, so it must be everything")
        return self


class KernelData(vf.TaskData):
    """One problem."""

    problem: Problem


class KernelTask(vf.Task[KernelData]):
    """One problem with its first prompt; all scoring is the environment's."""


class KernelTaskset(vf.Taskset[KernelTask, KernelConfig]):
    """The problems of the suites."""

    def load(self) -> Iterator[KernelTask]:
        """One task a problem.

        Raises:
            ProblemError: there is no such suite.
        """
        config = self.config
        size = config.size or problem_size(config.play.device, is_here=config.url is None)
        for problem in load_suite(config.suites, size):
            prompt = next_messages(first_episode(problem, config.play))[0].content
            name = episode_name(problem)
            yield KernelTask(KernelData(id=name, name=name, prompt=prompt, problem=problem), config.task)


class KernelEnvConfig(vf.EnvConfig):
    """One player, who only talks: it needs neither tools nor a sandbox."""

    player: vf.AgentConfig = vf.AgentConfig(harness=NullHarnessConfig(id="null"), runtime=SubprocessConfig())


class KernelEnv(vf.Env[KernelEnvConfig]):
    """Plays the user: judges each reply and answers with the feedback."""

    _executor: Executor | None = None

    async def start(self) -> None:
        """Connect to the service, or open the devices."""
        config: KernelConfig = self.taskset.config
        if config.url is None:
            self._executor = await asyncio.to_thread(open_pool, "local", [config.play.device])
        else:
            token = os.environ.get(config.token_variable) or None
            self._executor = await asyncio.to_thread(ClientExecutor, config.url, token=token)

    async def stop(self) -> None:
        """Leave nothing behind."""
        if self._executor is not None:
            await asyncio.to_thread(self._executor.close, drain=False)
            self._executor = None

    async def run(self, task: KernelTask, agents: Any) -> None:
        """One episode.

        Raises:
            RuntimeError: a fault of ours, so that the episode is tried again rather than scored.
        """
        config: KernelConfig = self.taskset.config
        episode = first_episode(task.data.problem, config.play)
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                episode = await self._played(episode, segment.last_reply, _was_cut(interaction.trace))
                if episode.finish:
                    break
                segment = await interaction.turn(next_messages(episode)[-1].content)
        trace = interaction.trace
        if trace.has_error:
            return
        earned = episode_reward(episode, config.credit)
        if earned is None:
            fault = episode.turns[-1].evaluation
            raise RuntimeError(f"not scored: {fault.message or fault.status if fault else 'no verdict'}")
        trace.record_reward("kernel", earned)
        trace.record_metrics({**best_turn_figures(episode), "turns": len(episode.turns)})
        trace.info["kerneldojo"] = {"finish": episode.finish, "turns": [_figures(turn) for turn in episode.turns]}

    async def _played(self, episode: Episode, reply: str, is_cut: bool) -> Episode:
        answer = Answer(text=reply, finish="length" if is_cut else "stop")
        job = job_for(episode, answer)
        if job is None:
            return with_turn(episode, answer, None)
        assert self._executor is not None
        return with_turn(episode, answer, await asyncio.wrap_future(self._executor.submit(job)))


def _was_cut(trace: Any) -> bool:
    """Whether the last reply ended at the limit of tokens."""
    last = next((call for call in reversed(trace.calls) if call.error is None), None)
    return last is not None and last.finish_reason == "length"


def _figures(turn: Turn) -> dict[str, Any]:
    verdict = turn.evaluation
    if verdict is None:
        return {"status": "not_parsed", "reward": turn.reward}
    figures = {"status": str(verdict.status), "reward": turn.reward}
    return figures | {"speedup": verdict.speedup, "coverage": verdict.coverage}
