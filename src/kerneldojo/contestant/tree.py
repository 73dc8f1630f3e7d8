"""Arguments and results as JSON: nested lists, tuples, dictionaries and scalars, with tensors as leaves.

Every node is a one-key object, so that a tuple stays a tuple and nothing that came from a contestant can pose as
something else: `{"list": [...]}`, `{"tuple": [...]}`, `{"dict": [[key, node], ...]}`, `{"value": scalar}`,
`{"dtype": name}` and `{"tensor": slot}`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from kerneldojo.contestant.arena import DTYPES, Slot, parse_slot

MAX_DEPTH = 16
MAX_LEAVES = 4_096

Node = dict[str, Any]


class BadTree(ValueError):
    """A value cannot be described, or a description is malformed."""


def encode(value: Any, place: Callable[[torch.Tensor], Slot]) -> Node:
    """Describe `value`; each tensor is handed to `place`, which says where it lies.

    Raises:
        BadTree: for a value that is none of the supported kinds, too deep or too large.
    """
    return _encoded(value, place, [MAX_LEAVES], 0)


def _encoded(value: Any, place: Callable[[torch.Tensor], Slot], budget: list[int], depth: int) -> Node:
    # No function within a function: one that calls itself is garbage of which only a collector is rid, and so is all
    # that it knows, tensors of many gigabytes among it.
    budget[0] -= 1
    if depth > MAX_DEPTH or budget[0] < 0:
        raise BadTree(f"nested deeper than {MAX_DEPTH}, or more than {MAX_LEAVES} values")
    if isinstance(value, torch.Tensor):
        return {"tensor": place(value).model_dump()}
    if isinstance(value, tuple):
        return {"tuple": [_encoded(item, place, budget, depth + 1) for item in value]}
    if isinstance(value, list):
        return {"list": [_encoded(item, place, budget, depth + 1) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[_key(key), _encoded(item, place, budget, depth + 1)] for key, item in value.items()]}
    return _scalar(value)


def _scalar(value: Any) -> Node:
    if value is None or isinstance(value, bool | int | str):
        return {"value": value}
    if isinstance(value, float):
        return {"value": value} if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    raise BadTree("it holds something that is neither a tensor nor a number, text, list, tuple or dictionary")


def decode(node: Any, view: Callable[[Slot], torch.Tensor]) -> Any:
    """Rebuild what `encode` described; each slot is handed to `view`.

    Raises:
        BadTree: for a malformed description (`BadSlot`, from `view`, for a tensor out of bounds).
    """
    return _decoded(node, view, [MAX_LEAVES], 0)


def _decoded(node: Any, view: Callable[[Slot], torch.Tensor], budget: list[int], depth: int) -> Any:
    budget[0] -= 1
    if depth > MAX_DEPTH or budget[0] < 0 or not isinstance(node, dict) or len(node) != 1:
        raise BadTree("a description of values is malformed")
    ((kind, body),) = node.items()
    if kind == "tensor":
        return view(parse_slot(body))
    if kind == "value" and (body is None or isinstance(body, bool | int | float | str)):
        return body
    if kind == "float" and body in ("nan", "inf", "-inf"):
        return float(body)
    if kind == "dtype" and isinstance(body, str) and body in DTYPES:
        return DTYPES[body]
    if kind in ("list", "tuple") and isinstance(body, list):
        items = [_decoded(item, view, budget, depth + 1) for item in body]
        return items if kind == "list" else tuple(items)
    if kind == "dict" and isinstance(body, list):
        return {_pair(pair)[0]: _decoded(_pair(pair)[1], view, budget, depth + 1) for pair in body}
    raise BadTree("a description of values is malformed")


def _key(key: Any) -> str | int:
    if isinstance(key, str | int):
        return key
    raise BadTree(f"a key of type {type(key).__name__} cannot be passed on")


def _pair(pair: Any) -> tuple[Any, Any]:
    if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str | int):
        return pair[0], pair[1]
    raise BadTree("a description of values is malformed")


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors in `value`, depth first."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [found for item in value.values() for found in tensors(item)]
    if isinstance(value, list | tuple):
        return [found for item in value for found in tensors(item)]
    return []


def keys(value: Any) -> list[tuple[str | int, ...]]:
    """For each of `tensors`, the keys of the dictionaries that it lies in, the outermost first."""
    if isinstance(value, torch.Tensor):
        return [()]
    if isinstance(value, dict):
        return [(key, *inner) for key, item in value.items() for inner in keys(item)]
    if isinstance(value, list | tuple):
        return [found for item in value for found in keys(item)]
    return []


def holds_number(value: Any) -> bool:
    """Whether there is a number or a truth value in it that is no tensor."""
    if isinstance(value, dict):
        return any(map(holds_number, value.values()))
    if isinstance(value, list | tuple):
        return any(map(holds_number, value))
    return isinstance(value, int | float)


def with_tensors(value: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """The same structure with the next of `tensors` in place of each tensor, depth first."""
    if isinstance(value, torch.Tensor):
        return next(tensors)
    if isinstance(value, dict):
        return {key: with_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(with_tensors(item, tensors) for item in value)
    return value
