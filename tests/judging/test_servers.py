"""Fork servers that are born together: one execution, then lives of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing

import pytest

from kerneldojo import Candidate
from kerneldojo.contestant.sandbox import processes
from kerneldojo.judging import Judge
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.grandchild import Grandchild
from kerneldojo.judging.host import COMPILE_ARENA_BYTES
from kerneldojo.judging.processes import ForkServer, Session, host_arena
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.servers import Begun, gpu_server
from kerneldojo.judging.submission import Submission
from kerneldojo.judging.surroundings import request

SOURCE = "import torch\nclass ModelNew(torch.nn.Module): pass\n"
Pair = tuple[ForkServer, ForkServer]


@pytest.fixture
def pair() -> Generator[Pair]:
    first, second = ForkServer("interpret"), ForkServer("compile")
    ForkServer.start_together(first, second)
    yield first, second
    second.close()
    first.close()


def serves(server: ForkServer) -> bool:
    """Whether a contestant comes of it, loads a source and ends."""
    session = Session(server, host_arena(COMPILE_ARENA_BYTES), request(Protocol(), "h100"))
    with closing(session):
        Contestant(session, Submission(Candidate(source=SOURCE)), 60.0).load(60.0)
        return processes.descendants(pid_of(server)) != []


def pid_of(server: ForkServer) -> int:
    server.wait_ready()
    assert server._process is not None
    return server._process.pid


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    assert becomes_true(lambda: not processes.is_alive(pid))


def becomes_true(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def test_the_first_forks_the_second_and_whoever_dies_is_replaced_alone(pair: Pair) -> None:
    first, second = map(pid_of, pair)
    assert second in processes.children(first)
    assert os.getsid(second) == second, "what is sent to the first one's group does not reach it"
    assert all(map(serves, pair))
    kill(first)
    assert all(map(serves, pair))
    assert pid_of(pair[0]) != first
    assert pid_of(pair[1]) == second


def test_a_second_that_dies_is_reaped_by_the_first_and_executed_by_itself(pair: Pair) -> None:
    first, second = map(pid_of, pair)
    kill(second)
    assert becomes_true(lambda: second not in processes.children(first))
    assert serves(pair[1])
    assert pid_of(pair[1]) not in processes.children(first)
    assert pid_of(pair[0]) == first


def test_a_server_knows_how_often_it_died_and_not_how_often_it_was_closed(pair: Pair) -> None:
    """Whether anybody has noticed or not; one that dies before it is warm has hosted nobody who could have done it."""
    first, second = pair
    first.wait_ready()
    kill(pid_of(second))
    assert (first.num_deaths, second.num_deaths) == (0, 1)
    assert serves(second) and second.num_deaths == 1
    second.close()
    assert serves(second) and second.num_deaths == 1
    second.close()
    second.start()
    assert second._process is not None
    kill(second._process.pid)
    assert second.num_deaths == 1
    assert serves(second) and second.num_deaths == 1


def test_one_that_is_about_to_be_dead_counts_as_such(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its channels close first. Who asks then would take it for alive, and nobody would be suspected."""
    first, _ = pair
    first.wait_ready()
    monkeypatch.setattr(first._process, "poll", lambda: None)
    assert first.num_deaths == 0
    kill(pid_of(first))
    assert becomes_true(lambda: first.num_deaths == 1)
    monkeypatch.undo()
    assert serves(first) and first.num_deaths == 1


def test_a_first_that_is_closed_before_it_has_forked_takes_nobody_along(pair: Pair) -> None:
    pair[0].close()
    assert serves(pair[1])


def test_nothing_is_left_of_servers_that_are_closed_while_they_are_born() -> None:
    before = set(processes.descendants(os.getpid()))
    for seconds in (0.0, 0.7, 1.4):  # While it imports, or forks, or warms up: whatever it is, on whatever machine.
        first, second = ForkServer("interpret"), ForkServer("compile")
        ForkServer.start_together(first, second)
        time.sleep(seconds)
        born = set(processes.descendants(os.getpid())) - before
        assert born
        second.close()
        first.close()
        assert becomes_true(lambda born=born: not any(map(processes.is_alive, born)))


def test_a_grandchild_is_held_as_a_child_would_be() -> None:
    parent = subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    held = Grandchild(int(parent.stdout.readline()))
    assert held.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        held.wait(timeout=0.01)
    held.kill()
    assert becomes_true(lambda: held.poll() == 0)
    held.kill()  # Of one that has ended nothing is asked.
    held.wait()
    parent.communicate()


def test_servers_begin_before_torch_is_imported() -> None:
    """It takes a second or more, in which they can be warming up."""
    code = (
        "import sys; from kerneldojo.judging.servers import Begun; begun = Begun.ahead('model:h100');"
        "servers = begun.hosts;"
        "assert not {'torch', 'numpy', 'triton'} & set(sys.modules), sys.modules;"
        "from kerneldojo.judging import Judge; judge = Judge(begun=begun);"
        "pid = servers.interpreting._process.pid; judge.start('model:h100');"
        "servers.compiling.wait_ready(); assert servers.interpreting._process.pid == pid;"
        "judge.close(); assert servers.interpreting._process is None is servers.compiling._process"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_nothing_is_begun_for_what_is_no_device() -> None:
    with pytest.raises(ValueError, match="unknown device 'abacus'"):
        Begun.ahead("abacus")


@pytest.mark.gpu
def test_a_gpus_server_begins_before_torch_is_imported_and_is_the_one_that_serves() -> None:
    code = (
        "import sys; from kerneldojo.judging.servers import Begun; begun = Begun.ahead('cuda:0');"
        "assert not {'torch', 'numpy', 'triton'} & set(sys.modules), sys.modules;"
        "pid = begun.gpu._process.pid; from kerneldojo.judging import Judge; judge = Judge(begun=begun);"
        "judge.start('cuda:0'); server = judge._gpu(0).server; assert server is begun.gpu;"
        "server.wait_ready(); assert server._process.pid == pid; judge.close(); assert server._process is None"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_gpus_server_that_nobody_asks_for_is_closed_with_the_judge() -> None:
    """Here there is no such GPU: it is born, and would never become warm."""
    server = gpu_server("GPU-none")
    begun = Begun(gpu=server)
    begun.start()
    pid = server._process.pid if server._process is not None else 0
    assert processes.is_alive(pid)
    with Judge(begun=begun):
        pass
    assert not processes.is_alive(pid)
