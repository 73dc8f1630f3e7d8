"""A session with tensors: values go in, values come out, one time budget covers all of it.

The judge lays arguments from the beginning of the arena on; what lies behind them when it asks is the hosted side's,
for results. Those that lie in its heap may stay there (`Arena.in_place`). What comes out is copied before anything else
is done with it, and before more arguments are laid.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from kerneldojo.contestant import tree
from kerneldojo.contestant.arena import Arena, BadSlot, Packer, Slot
from kerneldojo.devices.cuda.memory import is_out_of_memory
from kerneldojo.judging.ends import Tampered, frameless
from kerneldojo.judging.processes import Session
from kerneldojo.judging.ruling import Ruling
from kerneldojo.schema import Status

MAX_NAME = 1000
"""Characters of the name of a parameter or buffer."""


class Hosted:
    """What reference runner and contestant have in common, seen from the judge.

    Args:
        session: the process.
        budget: seconds that all its commands together may take. It spends them only while it is asked something: what
            the other side needs meanwhile, or the problem's audit, is not its doing.
    """

    def __init__(self, session: Session, budget: float) -> None:
        self.session = session
        self.arena = session.arena
        self._packer = Packer(self.arena)
        self._left = budget
        self._asked_at: float | None = None
        """When the command under way was sent; None if there is none."""

    @property
    def remaining(self) -> float:
        """Seconds left of the budget."""
        return self._left - (0.0 if self._asked_at is None else time.monotonic() - self._asked_at)

    def extend(self, seconds: float) -> None:
        """Grant it more."""
        self._left += seconds

    def give_back(self, seconds: float) -> None:
        """What has just passed was not its own time, if it was asked something: it was frozen, or waited its turn."""
        if self._asked_at is not None:
            self._left += seconds

    def _settle(self) -> None:
        self._left, self._asked_at = self.remaining, None

    def clear(self) -> None:
        """Start a new round: the arguments of the last one are no longer needed."""
        self._packer = Packer(self.arena)

    def give(self, values: Any) -> tree.Node:
        """Copy values into shared memory and describe them.

        Raises:
            Ruling: they do not fit; what is given is the problem's, which then needs more memory than there is.
        """
        with _fitting():
            return tree.encode(values, self._packer.put)

    def give_tensors(self, values: list[torch.Tensor]) -> list[dict[str, Any]]:
        """Copy a list of tensors into shared memory; raises as `give`."""
        with _fitting():
            return [self._packer.put(value).model_dump() for value in values]

    def rewrite(self, node: tree.Node, values: Any) -> tree.Node:
        """Put new tensors of the same shapes where `node` says the old ones lie; return what describes them now."""
        slots: list[Slot] = []

        def view(slot: Slot) -> torch.Tensor:
            slots.append(slot)
            return self.arena.view(slot)

        places = tree.tensors(tree.decode(node, view))
        for place, value in zip(places, tree.tensors(values), strict=True):
            place.copy_(value)
        remaining = iter(slots)
        return tree.encode(values, lambda _: next(remaining))

    def peek(self, node: tree.Node) -> list[torch.Tensor]:
        """Views of the tensors that `node` describes; of the judge's own node only."""
        return tree.tensors(tree.decode(node, self.arena.view))

    def take(self, node: Any) -> Any:
        """Copy described values out.

        Raises:
            Tampered: the description is malformed or out of bounds.
        """
        with _described():
            return tree.decode(node, Copier(self.arena))

    def take_tensors(self, node: Any, *, unless: list[torch.Tensor]) -> list[torch.Tensor]:
        """Copy described tensors out; of one that equals its counterpart in `unless` there is no second copy.

        Only for what a reference runner said: whoever is not trusted could change it after it was compared.

        Raises:
            Tampered: the description is malformed or out of bounds.
        """
        remaining, copy = iter(unless), Copier(self.arena)

        def take(slot: Slot) -> torch.Tensor:
            view, known = self.arena.view(slot), next(remaining, None)
            is_known = known is not None and known.dtype == view.dtype and torch.equal(known, view)
            return known if is_known and known is not None else copy(slot)

        with _described():
            return tree.tensors(tree.decode(node, take))

    def take_named(self, pairs: Any) -> dict[str, torch.Tensor]:
        """Copy out a list of `[name, slot]`; see `take_named` below."""
        return take_named(self.arena, pairs)

    def ask(self, operation: str, *, timeout: float | None = None, **fields: Any) -> dict[str, Any]:
        """Send a command within what is left of the budget."""
        self.post(operation, **fields)
        return self.collect(timeout)

    def collect(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the answer to the last command within what is left of the budget."""
        try:
            return self.session.collect(self.remaining if timeout is None else min(timeout, self.remaining))
        finally:
            self._settle()

    def post_furnish(self, operation: str = "furnish", **fields: Any) -> None:
        """Send it the descriptors of its memory, which it is given once, before anything of the hosted code's."""
        self.tell(operation, self.arena.fds, **fields)

    def tell(self, operation: str, descriptors: Sequence[int] = (), **fields: Any) -> None:
        """Send a command that has nothing to do with tensors; from now on its time is spent."""
        self._settle()
        self._asked_at = time.monotonic()
        self.session.post(operation, descriptors, **fields)

    def post(self, operation: str, **fields: Any) -> None:
        """Send a command once everything written for it has arrived."""
        if self.arena.device.type == "cuda":
            torch.cuda.synchronize(self.arena.device)
        if self.arena.in_place:
            fields["in_place"] = True
        self.tell(operation, start=self._packer.offset, stop=self.arena.num_bytes, **fields)


def _name(claim: Any) -> str:
    """A tensor's name as a hosted process tells it: it goes back there in a command, whose length is capped."""
    if not isinstance(claim, str) or len(claim) > MAX_NAME:
        raise BadSlot("a tensor has no name, or one that is too long")
    return claim


class Copier:
    """Copies what slots name out of an arena: no more than was written there, however often a place is named.

    Args:
        arena: where it lies.
    """

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._left = arena.most_told

    def __call__(self, slot: Slot) -> torch.Tensor:
        """A copy; raises `BadSlot`."""
        view = self._arena.view(slot)
        self._left -= view.numel() * view.element_size()
        if self._left < 0:
            raise BadSlot("more is described than was written")
        return view.clone()


@contextmanager
def _fitting() -> Generator[None]:
    try:
        yield
    except MemoryError as error:
        reason = f"the problem is too large: {frameless(error)}"
        raise Ruling(Status.INVALID_PROBLEM, reason, lacks="memory") from None


@contextmanager
def _described() -> Generator[None]:
    """What is wrong with a description of results is its author's doing; what is wrong with our device is not."""
    try:
        yield
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:  # `BadTree` and `BadSlot` are ValueErrors.
        if is_out_of_memory(error) or isinstance(error, torch.AcceleratorError):
            raise
        raise Tampered(f"a malformed result: {frameless(error)}") from None


def take_named(arena: Arena, pairs: Any) -> dict[str, torch.Tensor]:
    """Copy out of an arena what a list of `[name, slot]` describes.

    Raises:
        Tampered: it is no such list.
    """
    copier = Copier(arena)
    with _described():
        return {_name(name): copier(Slot.model_validate(slot)) for name, slot in pairs}
