"""What can be done to the layers of a transformers model so that they run faster, and to nothing else of it.

The *residual stream* is what layers hand on to one another. Under autocast embeddings and norms keep the dtype of the
weights, float32, and with them the stream, all additions to it and whatever a norm gives to a linear layer, which casts
it again. `narrow_residual` lets these modules give what the linear layers compute in: the arithmetic of models whose
weights are bf16 (and of FSDP, which gathers them as such), with half the traffic and none of the casts.

`compile_layers` compiles a layer once for all layers of a kind: some 60 small kernels a layer become ten.
Rounding to bf16 stays where it was, also between operations that are fused (`emulate_precision_casts`), so that a
compiled model and one that is not agree up to the order of sums.

Names of weights, and so checkpoints, are what they were after either.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch
from torch import nn

VARIANTS = 64
"""Ways to be called that a layer is compiled for at most: with gradients or without, masked or not, one row or more."""
EXACTLY: dict[str, Any] = {"emulate_precision_casts": True}
"""Options of torch's compiler."""


def layers_of(model: Any) -> list[nn.Module]:
    """The decoder layers of a transformers model, in order: those modules that it says not to split."""
    names: set[str] = set(getattr(model, "_no_split_modules", None) or ())
    return [module for module in model.modules() if type(module).__name__ in names]


def narrow_residual(model: nn.Module) -> None:
    """Let what has weights of its own and is no linear layer give autocast's dtype under autocast, as those do."""
    for module in model.modules():
        if not isinstance(module, nn.Linear) and any(True for _ in module.parameters(recurse=False)):
            module.register_forward_hook(_narrowed)


def is_narrow(module: nn.Module) -> bool:
    """Whether `module` gives autocast's dtype by `narrow_residual`."""
    hooks: dict[int, Any] = module._forward_hooks  # pyright: ignore[reportPrivateUsage]
    return _narrowed in hooks.values()


def _narrowed(module: nn.Module, inputs: Any, output: Any) -> Any:
    if not isinstance(output, torch.Tensor) or output.dtype != torch.float32:
        return output
    kind = output.device.type
    return output.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else output


def compile_layers(model: Any, backend: str = "inductor") -> None:
    """Compile the layers of `model` in place, for rows of any number and length. To be done before it is sharded.

    Compiling begins with the first call, and again with the first one of another kind (`VARIANTS`), and takes some
    seconds each. A copy of the model (`copy.deepcopy`) is not compiled.
    """
    for layer in layers_of(model):
        layer.compile(dynamic=True, **compiler(backend))


def compile_decoding(model: Any, backend: str = "inductor") -> None:
    """Compile the layers of `model` for the sampler's decoding steps; whatever else it is called for runs as before.

    The model has to be nobody else's (`SamplingCopy`): its layers get another `forward` each.
    """
    compiled: dict[type, Any] = {}
    for index, layer in enumerate(layers_of(model)):
        kind = type(layer)
        if kind not in compiled:
            compiled[kind] = torch.compile(kind.forward, dynamic=True, **compiler(backend))
        cast("Any", layer).forward = partial(_decode, index, layer, layer.forward, compiled[kind])


def _decode(index: int, layer: nn.Module, plain: Any, compiled: Any, *args: Any, **kwargs: Any) -> Any:
    # A `slots.SlotCache`, whatever the layer calls it.
    name = next((name for name, value in kwargs.items() if getattr(value, "is_decoding", False)), None)
    if name is None:
        return plain(*args, **kwargs)
    return compiled(layer, *args, **{**kwargs, name: kwargs[name].views[index]})


def compiler(backend: str) -> dict[str, Any]:
    """Arguments of `torch.compile`; prepares it for layers that are called in several ways."""
    from torch._dynamo import config
    from torch.fx.experimental import _config as shapes

    told: Any = config
    told.recompile_limit = max(told.recompile_limit, VARIANTS)
    # Rows that run and slots that there are, say: two sizes that are equal by chance are no reason to compile again.
    cast("Any", shapes).use_duck_shape = False
    return {"backend": backend, "options": EXACTLY} if backend == "inductor" else {"backend": backend}
