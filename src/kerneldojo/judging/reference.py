"""The reference runner as the judge sees it: inputs, weights and expected outputs of a problem."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from kerneldojo.contestant import tree
from kerneldojo.judging.ends import Died, HostedEnd, Infrastructure, frameless
from kerneldojo.judging.hosted import Hosted
from kerneldojo.judging.processes import Session
from kerneldojo.judging.ruling import Ruling, of_reference
from kerneldojo.schema import Problem

BUDGET_SECONDS = 600.0
"""For all that a verdict asks of a reference runner, the audit of a new problem included."""
COMMAND_SECONDS = 60.0
"""For one of its commands, if the candidate does not have longer for everything. One that takes as long hangs, or is of
a problem that nobody could be judged on in the time that there is."""


def patience(timeout: float) -> float:
    """Seconds that one command may take, where a candidate has `timeout` seconds for all that it does."""
    return max(COMMAND_SECONDS, timeout)


@dataclass(frozen=True)
class Expected:
    """What the reference answers to one set of inputs."""

    values: Any
    """Outputs as the module is written, in their own structure."""
    outputs: dict[str, list[torch.Tensor]]
    """Output tensors by variant: `native`, and `float64` and `tf32` where asked for."""
    buffers: dict[str, torch.Tensor]
    """Buffers that the call changed, with their new values (native)."""
    mutates_inputs: bool
    """Whether the reference itself writes into its inputs."""
    work: list[dict[str, Any]]
    """Counted work of the native call."""
    peak_bytes: int = 0
    """Most bytes the native call held at one time; only where a footprint was asked for."""
    used_bytes: int = 0
    """Most bytes of device memory that the process has had at one time; only where a footprint was asked for."""
    reduction_length: int = 1
    """Longest sum of the native call; only where a footprint was asked for."""
    other_buffers: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict[str, dict[str, torch.Tensor]])
    """As `buffers`, of the other variants by name."""
    inputs_after: dict[str, list[torch.Tensor]] = field(default_factory=dict[str, list[torch.Tensor]])
    """Input tensors as the call leaves them, by variant, where it writes into them (and no footprint was asked for)."""
    returns_inputs: frozenset[int] = frozenset()
    """Which outputs of the native call lie in the memory of an input."""
    returns_state: frozenset[int] = frozenset()
    """And which in that of a parameter, a buffer or another tensor that the module keeps."""
    overlaps: frozenset[int] = frozenset()
    """And of which several elements share memory, as those of an expanded tensor do."""

    def runs(self, index: int) -> dict[str, torch.Tensor]:
        """One output tensor, by variant."""
        return {variant: outputs[index] for variant, outputs in self.outputs.items()}

    def runs_of_buffer(self, name: str) -> dict[str, torch.Tensor]:
        """One buffer that the native call changed, by variant; without those that did not change it."""
        others = {variant: changed[name] for variant, changed in self.other_buffers.items() if name in changed}
        return {"native": self.buffers[name], **others}


class Reference:
    """Drives the process in which the problem's own code runs.

    Everything that this code does wrong is a ruling of `invalid_problem`: the problem may come from a stranger.

    Args:
        session: the process.
        problem: what runs in it.
        patience: seconds that one command may take.
    """

    def __init__(self, session: Session, problem: Problem, patience: float = COMMAND_SECONDS) -> None:
        self.hosted = Hosted(session, BUDGET_SECONDS)
        self._patience = patience
        self._problem = problem
        self.num_uses = 1
        """Verdicts that it has served, the present one included."""
        self.is_doubtful = False
        """Whether it ever did what it should not: then it serves no other verdict."""
        self.begun = ""
        """The instance that was made last: all others are forgotten."""
        self._is_loaded = False

    def renew(self, patience: float) -> None:
        """Begin another verdict, with a time budget of its own."""
        self.hosted = Hosted(self.hosted.session, BUDGET_SECONDS)
        self._patience = patience
        self.num_uses += 1

    def post_open(self) -> None:
        """On a GPU, give it its memory, and begin to make its context, unless it has served before."""
        with self._opening():
            if self._is_loaded:
                self.hosted.post_furnish()
            else:
                self.hosted.post_furnish("open", lean=True)

    def prepare(self) -> None:
        """After `post_open`: have the problem's source imported, unless it has served before."""
        with self._opening():
            self.hosted.collect()
        if not self._is_loaded:
            self.load()

    @contextmanager
    def _opening(self) -> Generator[None]:
        """Nothing of the problem's has run yet, or it has served before: what goes wrong is our fault."""
        try:
            yield
        except HostedEnd as end:
            self.is_doubtful = True
            raise Infrastructure(f"a reference runner could not open its device: {frameless(end)}") from None

    def load(self) -> None:
        """Import the problem's source."""
        self._ask("load", "import", source=self._problem.source, entry_point="Model")
        self._is_loaded = True

    def draw(self, what: str, seed: int, distribution: str = "own") -> Any:
        """Return what `get_inputs` or `get_init_inputs` gives under `seed`."""
        self.hosted.clear()
        return self._take_drawn(self._ask("draw", what, what=what, seed=seed, distribution=distribution), what)

    def _take_drawn(self, answer: dict[str, Any], what: str) -> Any:
        try:
            return self.hosted.take(answer["values"])
        except HostedEnd as end:
            self.is_doubtful = True
            raise of_reference(end, what) from None

    def begin(
        self, instance: str, draw_seed: int, seed: int, *, training: bool, negative: bool = False
    ) -> tuple[Any, dict[str, torch.Tensor]]:
        """Forget all instances, draw `get_init_inputs` and make an instance with them; both, and its state.

        With `negative` weights are as `distributions.has_negative_weights` asks for them.
        """
        self.hosted.clear()
        self.begun = instance
        answer = self._ask(
            "begin",
            "get_init_inputs or constructor",
            instance=instance,
            entry_point="Model",
            draw_seed=draw_seed,
            seed=seed,
            training=training,
            negative=negative,
            redraw=True,
        )
        return self._take_drawn(answer, "get_init_inputs"), self.hosted.take_named(answer["state"])

    def answer(
        self,
        instance: str,
        draw_seed: int,
        seed: int,
        variants: tuple[str, ...],
        distribution: str = "own",
        **more: bool,
    ) -> tuple[Any, Expected]:
        """What `draw` of inputs and `expect` for them give, in one command where memory allows."""
        if self.hosted.arena.in_place:  # There what was drawn would have to lie beside all that is made of it.
            inputs = self.draw("get_inputs", draw_seed, distribution)
            return inputs, self.expect(instance, inputs, variants, seed, **more)
        self.hosted.clear()
        answer = self._ask(
            "ask",
            "get_inputs or forward",
            instance=instance,
            draw_seed=draw_seed,
            distribution=distribution,
            seed=seed,
            variants=list(variants),
            **more,
        )
        return self._take_drawn(answer, "get_inputs"), self._take_expected(answer, variants)

    def expect(
        self, instance: str, inputs: Any, variants: tuple[str, ...], seed: int, *, footprint: bool = False
    ) -> Expected:
        """Run an instance in several precisions; the first variant settles structure and buffers."""
        self.post_expect(instance, inputs, variants, seed, footprint=footprint)
        return self.collect_expect(variants)

    def post_expect(
        self, instance: str, inputs: Any, variants: tuple[str, ...], seed: int, *, footprint: bool = False
    ) -> None:
        """Begin what `expect` does; its answer must be fetched with `collect_expect` before anything else is asked."""
        self.hosted.clear()
        arguments = self.hosted.give(inputs)
        with self._watched("forward"):
            self.hosted.post(
                "expect",
                instance=instance,
                variants=list(variants),
                seed=seed,
                footprint=footprint,
                arguments=arguments,
            )

    def collect_expect(self, variants: tuple[str, ...]) -> Expected:
        """Wait for what `post_expect` began."""
        with self._watched("forward"):
            answer = self.hosted.collect(self._patience)
        return self._take_expected(answer, variants)

    def _take_expected(self, answer: dict[str, Any], variants: tuple[str, ...]) -> Expected:
        nodes = {name: answer["variants"][name]["outputs"] for name in variants}
        values = self.hosted.take(nodes[variants[0]])
        outputs = {variants[0]: tree.tensors(values)}
        for name in variants[1:]:
            outputs[name] = self.hosted.take_tensors(nodes[name], unless=outputs[variants[0]])
        native = answer["variants"][variants[0]]
        return Expected(
            values=values,
            outputs=outputs,
            buffers=self.hosted.take_named(native["buffers"]),
            mutates_inputs=bool(answer["mutates_inputs"]),
            work=native["work"],
            peak_bytes=int(answer.get("peak_bytes", 0)),
            used_bytes=int(answer.get("used_bytes", 0)),
            reduction_length=max(1, int(answer.get("reduction_length", 1))),
            inputs_after={
                name: list(self.hosted.take_named(answer["variants"][name].get("inputs", ())).values())
                for name in variants
                if answer["mutates_inputs"]
            },
            other_buffers={name: self.hosted.take_named(answer["variants"][name]["buffers"]) for name in variants[1:]},
            returns_inputs=frozenset(map(int, native["returns_inputs"])),
            returns_state=frozenset(map(int, native["returns_state"])),
            overlaps=frozenset(map(int, native["overlaps"])),
        )

    def needed_bytes(self, instance: str, inputs: Any, seed: int) -> list[int]:
        """Bytes of each input tensor on which the outputs depend; see `problems.influence`."""
        self.hosted.clear()
        arguments = self.hosted.give(inputs)
        with self._watched("forward"):  # Dozens of calls, of a forward that has been seen to end.
            answer = self.hosted.ask("needed_bytes", instance=instance, seed=seed, arguments=arguments)
        return [int(count) for count in answer["needed_bytes"]]

    def release(self) -> None:
        """Forget all instances."""
        self._ask("release", "release")

    def extend(self, descriptors: list[int], sizes: list[int]) -> bool:
        """Give it the memory that it is timed in: see `CudaArena.extend`; whether it says it needed more before."""
        answer = self._ask("platform", "being prepared", what="extend", descriptors=descriptors, sizes=sizes)
        return answer.get("has_overflowed") is True

    def post_ready(self, sets: list[tree.Node], strides: list[tuple[int, ...]]) -> None:
        """Have it read the argument trees of timed calls, and be ready for windows; `collect_ready` waits for that."""
        with self._watched("being prepared"):
            self.hosted.post("platform", what="ready", sets=sets, strides=strides)

    def collect_ready(self) -> None:
        """Wait for what `post_ready` began."""
        with self._watched("being prepared"):
            self.hosted.collect(self._patience)

    def settle(self) -> bool:
        """Forget all instances, and be as a fresh process would be, as far as one that has run can, without memory.

        Returns:
            Whether it says that it has let go of its memory: one that still uses some serves nobody else.
        """
        return self._ask("settle", "release").get("has_left") is True

    def _ask(self, operation: str, stage: str, **fields: Any) -> dict[str, Any]:
        with self._watched(stage):
            return self.hosted.ask(operation, timeout=self._patience, **fields)

    @contextmanager
    def _watched(self, stage: str) -> Generator[None]:
        """What the hosted code does wrong is a ruling, and makes this runner doubtful."""
        try:
            yield
        except HostedEnd as end:
            raise self.fault(frameless(end), stage) from None
        except BaseException:
            self.is_doubtful = True
            raise

    def fault(self, end: HostedEnd, stage: str) -> Ruling | Infrastructure:
        """What it means that it ended at `stage`; from now on it is doubtful."""
        self.is_doubtful = True
        if isinstance(end, Died) and self.num_uses > 1:  # It has served before: not the problem's fault, as it seems.
            return Infrastructure(f"a reference runner that had served before ended ({stage}): {end}")
        return of_reference(end, stage)
