"""One rank opens a model, and of several GPUs none ever has all of the weights that are trained.

Eight processes that each load 14 billion float32 parameters would need 470 GB of the host before the first step, and
59 GB of each GPU if it had them all before they are divided. So the first rank alone opens the model. The others are
sent its *skeleton*: all modules, names and shapes, adapters too, the few numbers that no checkpoint has (buffers, such
as the frequencies of positions), and none of the weights, half a megabyte in all. Every rank, the first as well,
divides the skeleton (`parallel.shard`), makes room for its share on its device, and is sent one weight after the other:

    first rank:  disk -> host, whole -> one weight on its device --+-> its share of that weight
    others:      skeleton              the same weight on theirs <-+-> theirs
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kerneldojo.policies.weights import make_room, replace_parameters
from kerneldojo.training.parallel import Ranks
from kerneldojo.training.settings import ConfigError

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

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
    """A copy of both without weights; what is shared (an output layer, the model itself) stays so."""
    return copy.deepcopy((model, wrapper), {id(one): _without_numbers(one) for one in model.parameters()})


def take_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights of `model` by name, shared ones once; without them it is a skeleton. Nothing of one that is."""
    weights = {name: one.detach() for name, one in model.named_parameters() if not one.is_meta}
    replace_parameters(model, _without_numbers)
    return weights


def fill(model: nn.Module, weights: dict[str, Tensor], ranks: Ranks) -> None:
    """Bring a skeleton that is divided (`parallel.shard`) to this rank's device, with the first rank's `weights`.

    Every rank must call this. Of one weight at a time all have the whole, and cut out what is theirs; the first rank's
    are used up by it, so that the host has its memory back.
    """
    from torch.distributed.tensor import distribute_tensor

    make_room(model, ranks.device)
    for name, parameter in model.named_parameters():
        share = cast("DTensor", parameter.detach())
        whole = torch.empty(share.shape, dtype=share.dtype, device=ranks.device)
        if ranks.is_first:
            whole.copy_(weights.pop(name))
        dist.broadcast(whole, src=0)
        # No rank is the source: each has the whole, and nothing more is sent.
        share.copy_(distribute_tensor(whole, share.device_mesh, share.placements, src_data_rank=None))


def _without_numbers(parameter: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
