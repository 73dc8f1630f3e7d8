"""What only the reference runner does: draw a problem's inputs, and run its `Model` in several precisions.

Expected outputs come in up to four variants: `float64` (the oracle: a copy of the module in double precision, under
float64 as default dtype), `nudged` (the same, with inputs and weights that are all one rounding larger, where that
matters), `native` (as written) and `tf32` (products with TF32 operands). The distances of the others from the first are
the error that the problem itself makes, from which the candidate's budget follows.

Each variant has a module of its own, copied before the first call (`variants`).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from kerneldojo.contestant import tree, weights
from kerneldojo.contestant.arena import Packer, overlaps
from kerneldojo.contestant.host_platform import HostPlatform, Record
from kerneldojo.contestant.platform import Platform
from kerneldojo.contestant.seeding import seed_everything
from kerneldojo.contestant.variants import IN_DOUBLE, SharedParameters, arguments_in, instance_in
from kerneldojo.problems.footprint import Footprint


def draw(module: Any, platform: Platform, packer: Packer, command: dict[str, Any]) -> dict[str, Any]:
    """Place what `get_inputs` or `get_init_inputs` returns under a seed, changed to a distribution if one is named."""
    from kerneldojo.problems import distributions

    seed_everything(command["seed"])
    with platform.constructing():
        values = getattr(module, command["what"])()
    if command.get("distribution", "own") != "own":
        values = distributions.transform(values, command["distribution"], command["seed"])
    return {"values": tree.encode(values, lambda tensor: platform.place(tensor.detach(), packer))}


def expect(
    instances: dict[str, nn.Module], platform: Platform, packer: Packer, command: dict[str, Any]
) -> dict[str, Any]:
    """Run the reference in the variants asked for and place every output, and the buffers that changed."""
    name = command["instance"]
    for variant in command["variants"]:
        key = f"{name}:{variant}"
        if key not in instances:
            instances[key] = instance_in(variant, instances[name])
    arguments = tree.decode(command["arguments"], platform.input_view)
    shared = SharedParameters(instances[name])
    answer: dict[str, Any] = {"variants": {}, "mutates_inputs": False}
    for variant in command["variants"]:
        instance = instances[f"{name}:{variant}"]
        answer["variants"][variant] = _ran(variant, instance, arguments, platform, packer, command, answer)
        shared.check()
    if command.get("footprint"):
        answer["used_bytes"] = platform.used_bytes
    return answer


def _ran(
    variant: str,
    instance: nn.Module,
    arguments: Any,
    platform: Platform,
    packer: Packer,
    command: dict[str, Any],
    answer: dict[str, Any],
) -> dict[str, Any]:
    """What one variant answers; to `answer` goes what is told of the native one.

    Once it returns nothing is left of the run but its results: the next variant may need the room.
    """
    own = arguments_in(variant, arguments)
    before = {key: value.clone() for key, value in _buffers(instance).items()}
    seed_everything(command["seed"])
    footprint = Footprint() if command.get("footprint") and variant == "native" else nullcontext()
    # The work that counts is that of the module as written; the others are not counted where that costs time, nor is
    # anything for an audit, which asks for the footprint instead.
    is_native = variant == command["variants"][0] and not command.get("footprint")
    counted = is_native or not isinstance(platform, HostPlatform)
    called = platform.called(instance, own, silenced=False) if counted else nullcontext(Record())
    with torch.no_grad(), _precision(platform, variant), called as record, footprint:
        outputs = record.outputs = instance(*own)
        platform.synchronize()
    for number, tensor in enumerate(tree.tensors(outputs)):
        if not platform.is_ours(tensor):
            raise ValueError(f"output {number} is on {tensor.device}, not on the device that is asked")
    if isinstance(footprint, Footprint):
        answer["peak_bytes"], answer["reduction_length"] = footprint.peak_bytes, footprint.reduction_length
    if variant == "native":
        answer["mutates_inputs"] = _differ(arguments, own)
    found = {
        "outputs": tree.encode(outputs, lambda tensor: platform.place(tensor.detach(), packer)),
        "buffers": [
            [key, packer.put(value).model_dump()]
            for key, value in _buffers(instance).items()
            if not torch.equal(before[key], value)
        ],
        "work": record.work,
        "returns_inputs": _in_memory_of(tree.tensors(own), tree.tensors(outputs)),
        "returns_state": _in_memory_of(_kept(instance), tree.tensors(outputs)),
        "overlaps": [at for at, one in enumerate(tree.tensors(outputs)) if overlaps(one.shape, one.stride())],
    }
    if answer["mutates_inputs"] and not command.get("footprint"):
        left = [platform.place(tensor, packer).model_dump() for tensor in tree.tensors(own)]
        found["inputs"] = [[str(place), slot] for place, slot in enumerate(left)]
    return found


def _kept(instance: nn.Module) -> list[torch.Tensor]:
    """What a module keeps from call to call: parameters, buffers, and tensors that are plain attributes."""
    attributes = [value for module in instance.modules() for value in vars(module).values()]
    plain = [value for value in attributes if isinstance(value, torch.Tensor)]
    return [*instance.parameters(), *instance.buffers(), *plain]


def _in_memory_of(kept: list[torch.Tensor], outputs: list[torch.Tensor]) -> list[int]:
    """Which outputs lie in the memory of other tensors."""
    theirs = {tensor.untyped_storage().data_ptr() for tensor in kept if tensor.numel()}
    found = enumerate(outputs)
    return [number for number, one in found if one.numel() and one.untyped_storage().data_ptr() in theirs]


def needed_bytes(instances: dict[str, nn.Module], platform: Platform, command: dict[str, Any]) -> dict[str, Any]:
    """Find out on how many bytes of each input tensor the outputs of an instance depend."""
    from kerneldojo.problems.influence import needed_bytes

    arguments = tree.decode(command["arguments"], platform.input_view)

    def call(values: list[torch.Tensor]) -> list[torch.Tensor]:
        # State that a call changes must not reach the next one.
        instance = instance_in("native", instances[command["instance"]])
        remaining = iter(values)
        seed_everything(command["seed"])
        return tree.tensors(instance(*tree.with_tensors(arguments, remaining)))

    return {"needed_bytes": needed_bytes(call, tree.tensors(arguments), command["seed"] % 2**31)}


@contextmanager
def _precision(platform: Platform, variant: str) -> Generator[None]:
    from kerneldojo.problems.precision import float64_oracle

    contexts = {**dict.fromkeys(IN_DOUBLE, float64_oracle), "tf32": platform.tf32}
    with contexts.get(variant, nullcontext)():
        yield


def _buffers(instance: nn.Module) -> dict[str, torch.Tensor]:
    names = {name for name, _ in instance.named_buffers()}
    return {name: tensor for name, tensor in weights.state(instance).items() if name in names}


def _differ(left: Any, right: Any) -> bool:
    pairs = zip(tree.tensors(left), tree.tensors(right), strict=True)
    return any(not torch.equal(a, b) for a, b in pairs)
