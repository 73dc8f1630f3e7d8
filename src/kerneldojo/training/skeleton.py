"""One rank opens a model and all have it: the host has room for it once, however many GPUs it is divided among.

Eight processes that each load 14 billion float32 parameters would need 470 GB before the first step. So the first one
alone opens the model. The others are sent its *skeleton*: all modules, names and shapes, adapters too, and nothing of
the numbers, half a megabyte in all. They make room for the numbers on their own devices, never on the host, and are
sent them there, one tensor after the other:

    first rank:  disk -> host -> its device --+
    others:      skeleton -> room on theirs <-+    then every rank keeps its share (`parallel.shard`)
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

import torch.distributed as dist
from torch import Tensor, nn

from kerneldojo.training.parallel import Ranks
from kerneldojo.training.settings import ConfigError

Model = TypeVar("Model", bound=nn.Module)
Wrapper = TypeVar("Wrapper")


def open_once(ranks: Ranks, open_it: Callable[[], tuple[Model, Wrapper]]) -> tuple[Model, Wrapper]:
    """What `open_it` gives (a model and peft's wrapper around it, or None) on the first rank; its skeleton on others.

    Raises:
        ConfigError: on every rank, what it raised on the first.
    """
    if ranks.count == 1:
        return open_it()
    opened: tuple[Model, Wrapper] | None = None
    mistake = ""
    if ranks.is_first:
        try:
            opened = open_it()
        except ConfigError as error:
            mistake = str(error)
    mistake, skeleton = ranks.from_first((mistake, None if opened is None else skeleton_of(*opened)))
    if mistake:
        raise ConfigError(mistake)
    chosen = opened or skeleton
    assert chosen is not None
    return chosen


def skeleton_of(model: Model, wrapper: Wrapper) -> tuple[Model, Wrapper]:
    """A copy of both in which every number is missing; what is shared (an output layer, the model itself) stays so."""
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy((model, wrapper), {id(tensor): _like(tensor, tensor.to("meta")) for tensor in tensors})


def place(module: nn.Module, ranks: Ranks) -> None:
    """Bring `module` to this rank's device; skeletons get the first rank's numbers. Every rank must call this."""
    made: dict[int, tuple[Tensor, Tensor]] = {}
    """New by the old one's id; old ones are kept, or another tensor might get the id of one that is gone."""
    for part in module.modules():
        for name, tensor in [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]:
            if tensor.is_meta:
                room = tensor.new_empty(tensor.shape, device=ranks.device)
                setattr(part, name, made.setdefault(id(tensor), (tensor, _like(tensor, room)))[1])
    module.to(ranks.device)
    for tensor in [*module.parameters(), *module.buffers()]:
        dist.broadcast(tensor.detach(), src=0)


def _like(tensor: Tensor, values: Tensor) -> Tensor:
    """`values` as a parameter, if `tensor` is one."""
    if not isinstance(tensor, nn.Parameter):
        return values
    return nn.Parameter(values.detach(), requires_grad=tensor.requires_grad)
