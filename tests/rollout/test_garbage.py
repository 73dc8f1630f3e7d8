"""The collector while episodes are played: old objects are set aside, and everything is as it was afterwards."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Generator

import pytest

from kerneldojo.rollout.garbage import NUM_YOUNG, undisturbed


@pytest.fixture(autouse=True)
def _as_found() -> Generator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()
    gc.enable()


class Knot:
    """Refers to itself, so that only the collector can free it."""

    def __init__(self) -> None:
        self.me = self


def test_old_objects_are_passed_over_and_new_ones_are_not() -> None:
    gc.set_threshold(700, 10, 10)
    gc.collect()  # So that none is due before the old one is set aside.
    old = weakref.ref(Knot())
    with undisturbed():
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == (NUM_YOUNG, 10, 10)
        new = weakref.ref(Knot())
        gc.collect()
        assert (old() is None, new() is None) == (False, True)
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == (700, 10, 10)
    gc.collect()
    assert old() is None


def test_of_several_the_last_ends_it_in_whatever_order() -> None:
    gc.set_threshold(900, 10, 10)
    one, two = undisturbed(), undisturbed()
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    assert gc.get_freeze_count() > 0
    assert gc.get_threshold()[0] == NUM_YOUNG
    two.__exit__(None, None, None)
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold()[0] == 900


def test_a_program_that_looks_after_it_itself_is_left_alone() -> None:
    gc.set_threshold(700, 10, 10)
    gc.freeze()
    with undisturbed():
        assert gc.get_threshold()[0] == 700
    assert gc.get_freeze_count() > 0, "what it had set aside still is, but for what has been freed since"
    gc.unfreeze()
    gc.set_threshold(0, 10, 10)
    with undisturbed():
        assert gc.get_freeze_count() == 0
    gc.set_threshold(50_000, 10, 10)
    with undisturbed():
        assert gc.get_threshold()[0] == 50_000
    gc.disable()
    with undisturbed():
        assert gc.get_freeze_count() == 0
