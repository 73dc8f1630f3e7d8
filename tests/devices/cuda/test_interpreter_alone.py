"""No other thread takes the interpreter while one watches a clock, and all of them may afterwards."""

from __future__ import annotations

import sys
import threading

import pytest

from kerneldojo.devices.cuda.interpreter import LONGEST_SECONDS, alone_with_the_interpreter


def test_others_wait_longer_while_one_is_inside_and_as_usual_afterwards() -> None:
    usual = sys.getswitchinterval()
    for _ in range(100):  # It is as long as ever after many windows.
        with alone_with_the_interpreter():
            pass
    with pytest.raises(KeyError), alone_with_the_interpreter():
        assert sys.getswitchinterval() == pytest.approx(LONGEST_SECONDS)
        raise KeyError
    assert sys.getswitchinterval() == pytest.approx(usual)


def test_the_last_of_several_gives_it_back() -> None:
    usual, inside, leave = sys.getswitchinterval(), threading.Event(), threading.Event()

    def other() -> None:
        with alone_with_the_interpreter():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with alone_with_the_interpreter():
        thread.start()
        inside.wait(60)
    assert sys.getswitchinterval() == pytest.approx(LONGEST_SECONDS)
    leave.set()
    thread.join()
    assert sys.getswitchinterval() == pytest.approx(usual)
