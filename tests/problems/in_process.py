"""A `Reference` that runs a problem in the test's own process: for our own katas and for sources written in tests."""

from __future__ import annotations

import types
from contextlib import ExitStack, nullcontext
from typing import Any

import torch

from kerneldojo.contestant import tree, weights
from kerneldojo.contestant.variants import IN_DOUBLE, arguments_in, instance_in
from kerneldojo.problems import distributions
from kerneldojo.problems.footprint import Footprint
from kerneldojo.problems.influence import needed_bytes
from kerneldojo.problems.precision import float64_oracle, tf32_emulation
from kerneldojo.problems.reference import Outcome, ReferenceFailed


class InProcess:
    def __init__(self, source: str) -> None:
        self.module = types.ModuleType("problem")
        exec(compile(source, "problem.py", "exec"), self.module.__dict__)
        self._called: dict[str, torch.nn.Module] = {}

    def _prepare(self, input_seed, init_seed, distribution, training):
        torch.manual_seed(input_seed)
        inputs = distributions.transform(self.module.get_inputs(), distribution, input_seed)
        torch.manual_seed(init_seed)
        arguments = self.module.get_init_inputs()
        with weights.drawn_constants(negative=distributions.has_negative_weights(distribution)):
            if len(arguments) == 2 and isinstance(arguments[0], list) and isinstance(arguments[1], dict):
                model = self.module.Model(*arguments[0], **arguments[1])
            else:
                model = self.module.Model(*arguments)
        return inputs, model.train(training)

    def run(
        self, *, input_seed, init_seed, call_seed=0, distribution="own", variants=("native",), training=True, anew=True
    ) -> Outcome:
        try:
            inputs, model = self._prepare(input_seed, init_seed, distribution, training)
            if anew:
                self._called.clear()
            outputs: dict[str, list[torch.Tensor]] = {}
            facts: dict[str, Any] = {}
            for variant in variants:
                if variant not in self._called:
                    self._called[variant] = instance_in(variant, model)
                own, clone = arguments_in(variant, inputs), self._called[variant]
                footprint = Footprint()
                with ExitStack() as stack:
                    stack.enter_context(torch.no_grad())
                    stack.enter_context(
                        float64_oracle()
                        if variant in IN_DOUBLE
                        else {"native": footprint, "tf32": tf32_emulation()}[variant]
                    )
                    torch.manual_seed(call_seed)
                    outputs[variant] = tree.tensors(clone(*own))
                if variant == "native":
                    before, after = dict(model.named_buffers()), dict(clone.named_buffers())
                    facts = {
                        "buffers": {k: v for k, v in after.items() if not torch.equal(v, before[k])},
                        "mutates_inputs": not all(map(torch.equal, tree.tensors(inputs), tree.tensors(own))),
                        "peak_bytes": footprint.peak_bytes,
                        "reduction_length": footprint.reduction_length,
                    }
        except Exception as error:
            raise ReferenceFailed(f"{type(error).__name__}: {error}") from error
        state = sum(t.numel() * t.element_size() for t in model.state_dict().values())
        return Outcome(tree.tensors(inputs), outputs, state_bytes=state, **facts)

    def needed_bytes(self, *, input_seed, init_seed, training):
        inputs, model = self._prepare(input_seed, init_seed, "own", training)

        def call(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
            left = iter(tensors)
            own = _replace(inputs, left)
            with nullcontext():
                return tree.tensors(model(*own))

        return needed_bytes(call, tree.tensors(inputs), seed=input_seed)


def _replace(value: Any, tensors: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return next(tensors)
    if isinstance(value, list | tuple):
        return type(value)(_replace(item, tensors) for item in value)
    return value
