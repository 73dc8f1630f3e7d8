"""Several GPUs of one machine: every process (a *rank*) holds a share of the weights and does a share of the work.

Started by `torchrun --nproc-per-node N -m kerneldojo.cli train ...`; without it there is one process and nothing here
costs anything. With FSDP2 (`fully_shard`) weights, gradients and optimiser states are divided among the ranks, and
gathered layer by layer as they are used.

Gradients: FSDP *averages* over ranks what each computed of its share. A loss that is a sum over all samples, each
weighted once over the whole step, therefore has to be multiplied by the number of ranks.

Tensors travel by NCCL, whose kernels spin on the GPU until everybody is there. Objects (which problems, which verdicts,
whether to stop) travel by gloo, which waits asleep on the CPU: the first rank may be long in judging what others wait
for, and judge on their GPUs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kerneldojo.policies.layers import layers_of

T = TypeVar("T")

LONGEST_SILENCE = timedelta(hours=2)
"""How long ranks wait for one another. The first one waits for verdicts, perhaps of a service that is away, while the
others wait for it: NCCL's own ten minutes would end the run then. A rank that dies is torchrun's business."""


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this is, and the device that it trains on."""

    rank: int
    count: int
    device: torch.device
    talk: dist.ProcessGroup | None = None
    """What objects are exchanged by; None for the only process."""

    @property
    def is_first(self) -> bool:
        """Whether this process writes, shows and judges for all."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """This rank's part: every `count`-th item."""
        return list(items[self.rank :: self.count])

    def even_share(self, items: Sequence[T]) -> list[tuple[T, bool]]:
        """This rank's part of `items`, as many for every rank: what is missing is made up of repeats marked False.

        Ranks must go through the model equally often, for each pass is a conversation among them.
        """
        if not items:
            return []
        length = -(-len(items) // self.count) * self.count
        padded = [(item, True) for item in items] + [(items[0], False)] * (length - len(items))
        return padded[self.rank :: self.count]

    def gather(self, value: T) -> list[T]:
        """Everybody's `value`, in order of rank, on every rank."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value, group=self.talk)
        return values

    def from_first(self, value: T) -> T:
        """The first rank's `value`, on every rank."""
        if self.count == 1:
            return value
        values: list[Any] = [value]
        dist.broadcast_object_list(values, src=0, group=self.talk)
        return values[0]

    def total(self, value: Tensor) -> Tensor:
        """The sum over ranks."""
        if self.count == 1:
            return value
        summed = value.to(self.device)
        dist.all_reduce(summed)
        return summed.to(value.device)


def start_ranks(device: str = "auto") -> Ranks:
    """Join the other processes that torchrun started, if it did.

    `device`: `auto` (a GPU for each rank where there is one), `cpu`, `cuda` or `cuda:N`.

    Raises:
        ValueError: in one line, there is no such device.
    """
    kind, _, number = device.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (number and not (kind == "cuda" and number.isdecimal())):
        raise ValueError(f"device: {device!r} is none of auto, cpu, cuda, cuda:N")
    count, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if number and count > 1:
        raise ValueError(f"device: {device} is one GPU for {count} processes: say cuda, and each has its own")
    use_cuda = kind == "cuda" or (kind == "auto" and torch.cuda.is_available())
    if not use_cuda:
        chosen = torch.device("cpu")
    else:
        chosen = torch.device("cuda", int(number or os.environ.get("LOCAL_RANK", "0")))
        if chosen.index >= torch.cuda.device_count():
            raise ValueError(f"device: there is no {chosen}: this machine has {torch.cuda.device_count()} GPUs")
        torch.cuda.set_device(chosen)
    if count > 1 and not dist.is_initialized():
        backend = "nccl" if use_cuda else "gloo"
        dist.init_process_group(backend, timeout=LONGEST_SILENCE, device_id=chosen if use_cuda else None)
    if count == 1:
        return Ranks(rank, count, chosen)
    talk = cast("dist.ProcessGroup", dist.new_group(backend="gloo", timeout=LONGEST_SILENCE))
    return Ranks(rank, count, chosen, talk)


def end_ranks(ranks: Ranks) -> None:
    """Leave the others, and every group of them."""
    if ranks.count > 1 and dist.is_initialized():
        dist.destroy_process_group()


def shard(scorer: nn.Module, ranks: Ranks, dtype: torch.dtype) -> None:
    """Divide the weights of `scorer` among the ranks, layer by layer; nothing with a single one.

    Weights stay float32 in their shards; they are gathered, and layers compute, in `dtype`; gradients are summed in
    float32.
    """
    if ranks.count == 1:
        return
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(ranks.device.type, (ranks.count,))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for layer in layers_of(getattr(scorer, "model", scorer)):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(scorer, mesh=mesh, mp_policy=policy)


def full_tensor(tensor: Tensor) -> Tensor:
    """A tensor whole: gathered if it is a shard. Every rank must ask for it."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def whole_model(model: nn.Module, ranks: Ranks) -> dict[str, Tensor]:
    """All weights, gathered, by name, on the CPU: for the first rank to write. Every rank must ask for it.

    Others gather as well, and keep nothing: the host has room for the whole once, not once a rank.
    """
    weights: dict[str, Tensor] = {}
    names: dict[int, str] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        known = names.setdefault(id(value), name)
        if known != name:  # shared: gathered once, and one tensor still, so that it is written once
            weights |= {name: weights[known]} if ranks.is_first else {}
            continue
        whole = full_tensor(value.detach())
        if ranks.is_first:
            weights[name] = whole.cpu()
    return weights


def optimizer_state(scorer: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Any]:
    """The optimisers' states by the names of the weights, gathered, on the CPU: independent of the number of ranks.

    The first rank has it; others, which must ask as well, get nothing.
    """
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return dict(get_optimizer_state_dict(scorer, tuple(optimizers), options=options))


def restore_optimizer_state(
    scorer: nn.Module, optimizers: Sequence[torch.optim.Optimizer], state: dict[str, Any]
) -> None:
    """Take up a state that `optimizer_state` gave, on any number of ranks."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

    options = StateDictOptions(full_state_dict=True)
    set_optimizer_state_dict(scorer, tuple(optimizers), optim_state_dict=state, options=options)
