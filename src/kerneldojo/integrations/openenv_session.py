"""Sessions of OpenEnv's wire: one episode each, judged through the service's queue like any other work.

Reading answers and writing prompts is done in threads: half a second of it, which a hostile answer can cost, must not
be half a second in which the service answers nobody.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Sequence

from pydantic import ValidationError

from kerneldojo.episodes import episode_name, first_episode, job_for, seed_of, with_turn
from kerneldojo.integrations.openenv_wire import (
    EpisodeState,
    OpenEnvConfig,
    Refusal,
    Reply,
    ResetRequest,
    reply_to,
)
from kerneldojo.problems.source import ProblemError, check_source
from kerneldojo.problems.suite import load_suite
from kerneldojo.schema import Answer, Episode, Evaluation, Job, Problem
from kerneldojo.service.core import Service
from kerneldojo.service.records import Submission, TaskState


class Session:
    """One client's episode, which `reset` begins anew. One request at a time."""

    def __init__(self, service: Service, config: OpenEnvConfig, problems: ProblemShelf, client: str) -> None:
        self.id = secrets.token_hex(16)
        self.client = client
        self.used_at = time.monotonic()
        self.lock = asyncio.Lock()
        self.last: tuple[str, Reply] | None = None
        """Name of the last step that had one, and its reply."""
        self._service, self._config, self._problems = service, config, problems
        self._episode: Episode | None = None
        self._seed = 0

    async def reset(self, asked: ResetRequest) -> Reply:
        """Begin an episode.

        Raises:
            Refusal: there is no such problem, or the settings are not possible.
        """
        return await asyncio.to_thread(self._begin, asked)

    def _begin(self, asked: ResetRequest) -> Reply:
        config = self._config
        if asked.num_turns is not None and asked.num_turns > config.max_turns:
            raise Refusal("VALIDATION_ERROR", f"num_turns: at most {config.max_turns} are allowed here")
        changes = asked.model_dump(include={"language", "device", "num_turns"}, exclude_none=True)
        seed = secrets.randbits(31) if asked.seed is None else asked.seed
        problem = self._problems.find(asked, seed)
        try:
            play = config.play.model_validate(config.play.model_dump() | changes)
        except ValidationError as error:
            raise Refusal("VALIDATION_ERROR", str(error.errors()[0]["msg"])) from None
        self._episode = first_episode(problem, play, seed=seed, policy="openenv", id=asked.episode_id or self.id)
        self._seed, self.last = seed, None
        return reply_to(self._episode)

    async def step(self, text: str, timeout: float = math.inf) -> Reply:
        """Play one turn; what a policy wrote is `text`.

        Raises:
            Refusal: there is no episode, it has ended, or there is no verdict (yet); the turn is not played.
            Busy: the queue is full.
            Draining: the service is about to stop.
            StoreError: the disk refused.
        """
        if self._episode is None:
            raise Refusal("EXECUTION_ERROR", "there is no episode yet: reset first")
        if self._episode.finish:
            raise Refusal("EXECUTION_ERROR", f"the episode has ended ({self._episode.finish}): reset first")
        answer = Answer(text=text)
        job = await asyncio.to_thread(job_for, self._episode, answer)
        evaluation = None if job is None else await self._verdict(job, timeout)
        self._episode = await asyncio.to_thread(with_turn, self._episode, answer, evaluation)
        return await asyncio.to_thread(reply_to, self._episode)

    async def _verdict(self, job: Job, timeout: float) -> Evaluation:
        assert self._episode is not None
        # Named by what is asked: the same action once more is the same task, whatever happened to the first request.
        task_id = f"openenv-{self.id}-{len(self._episode.turns)}-{self._episode.seed}-{job.hash[:16]}"
        await self._service.submit([Submission(job=job, id=task_id)], self.client)
        try:
            await self._service.waiters.wait([task_id], timeout)
        except asyncio.CancelledError:
            # The client has left, and its episode with it: nobody will ever ask for this verdict.
            if not self._service.is_draining:
                await self._service.cancel(task_id)
            raise
        row = self._service.reader.summary(task_id)
        if row is None or row["state"] == TaskState.CANCELLED:
            raise Refusal("EXECUTION_ERROR", "the task was cancelled; the turn was not played")
        text = self._service.reader.evaluation(row["sequence"]) if row["state"] == TaskState.DONE else None
        if text is None:
            raise Refusal("EXECUTION_ERROR", "there is no verdict yet; the same action again waits for the same one")
        return Evaluation.model_validate_json(text)

    def state(self) -> EpisodeState:
        """Where the episode is; empty before the first `reset`."""
        episode = self._episode
        if episode is None:
            return EpisodeState()
        return EpisodeState(
            episode_id=episode.id,
            step_count=len(episode.turns),
            problem=episode_name(episode.problem),
            language=episode.language,
            device=episode.device,
            num_turns=int(episode.settings["num_turns"]),
            seed=self._seed,
            rewards=tuple(turn.reward for turn in episode.turns),
            finish=episode.finish,
        )


class ProblemShelf:
    """The problems that a service offers, by suite and by name."""

    def __init__(self, suites: Sequence[str], *, small: bool) -> None:
        """Load them.

        Raises:
            ProblemError: there is no such suite.
        """
        self._suites = {suite: load_suite(suite, "small" if small else "full") for suite in suites}

    def find(self, asked: ResetRequest, seed: int) -> Problem:
        """The problem that is asked for; one drawn by `seed` where none is.

        Raises:
            Refusal: there is none of that name, or several, or the client's own source is no problem.
        """
        if asked.source is not None:
            name = asked.problem or "request"
            try:
                check_source(asked.source, name)
            except ProblemError as error:
                raise Refusal("VALIDATION_ERROR", str(error)) from None
            return Problem(name=name, source=asked.source)
        if asked.suite is not None and asked.suite not in self._suites:
            raise Refusal("VALIDATION_ERROR", f"suite: this service offers {', '.join(self._suites) or 'none'}")
        offered = [p for suite in self._suites if asked.suite in (None, suite) for p in self._suites[suite]]
        if asked.problem is not None:
            offered = [p for p in offered if asked.problem in (p.name, episode_name(p))]
        if not offered:
            raise Refusal("VALIDATION_ERROR", "problem: this service offers none of that name")
        if asked.problem is not None and len(offered) > 1:
            names = ", ".join(episode_name(p) for p in offered[:3])
            raise Refusal("VALIDATION_ERROR", f"problem: several have that name, give one of {names}")
        return offered[seed_of("problem", seed, "") % len(offered)]


class Sessions:
    """All sessions of a service; those that nobody used for a while make room for new ones."""

    def __init__(self, service: Service, config: OpenEnvConfig) -> None:
        """Load the problems.

        Raises:
            ProblemError: there is no such suite.
        """
        self.config = config
        has_gpu = any(device.kind == "cuda" for device in service.executor.devices())
        small = config.size == "small" or (config.size is None and not has_gpu)
        self._shelf = ProblemShelf(config.suites, small=small)
        self._service = service
        self._open: dict[str, Session] = {}

    def open(self, client: str) -> Session:
        """A new session.

        Raises:
            Refusal: there are too many.
        """
        oldest = time.monotonic() - self.config.idle_seconds
        for session in [one for one in self._open.values() if one.used_at < oldest and not one.lock.locked()]:
            self.close(session)
        if len(self._open) >= self.config.max_sessions:
            raise Refusal("CAPACITY_REACHED", f"{self.config.max_sessions} sessions are open, and no more are allowed")
        session = Session(self._service, self.config, self._shelf, client)
        self._open[session.id] = session
        return session

    def find(self, session_id: str | None, client: str) -> Session | None:
        """The session of that name, if this client has one."""
        session = self._open.get(session_id or "")
        return session if session is not None and session.client == client else None

    def close(self, session: Session) -> None:
        """Forget a session; its tasks stay with the service."""
        self._open.pop(session.id, None)
