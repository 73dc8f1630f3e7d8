"""A judge's view of one contestant on a GPU, without the sandbox: the real runner, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from kerneldojo.contestant import tree
from kerneldojo.contestant.arena import Packer, Slot
from kerneldojo.contestant.wire import channel_pair
from kerneldojo.devices.cuda.arena import CudaArena
from kerneldojo.devices.cuda.inputs import InputSets, Layout
from kerneldojo.devices.cuda.window import Side

SERVER = """
import os, socket, sys
sys.path[:] = {path!r}
from kerneldojo.devices.cuda import warm
warm.prepare()
from kerneldojo.contestant import serving
from pathlib import Path
control = socket.socket(fileno={fd})
control.send(b"ready")
while True:
    message, fds, _, _ = socket.recv_fds(control, 4096, 8)
    if not message:
        break
    if os.fork() == 0:
        control.close()
        try:
            serving.main("cuda", fds[0], fds[1:], Path(message.decode()), "cuda:0")
        finally:
            os._exit(0)
    for fd in fds:
        os.close(fd)
"""


class Server:
    """The process that contestants are forked from."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = [str(Path("src").resolve()), *(entry for entry in sys.path if entry)]
        code = SERVER.format(path=path, fd=theirs.fileno())
        self._folder = tempfile.TemporaryDirectory(prefix="dojo-test-")  # for what it compiles for itself
        environment = {**os.environ, "TMPDIR": self._folder.name}
        self._process = subprocess.Popen([sys.executable, "-c", code], pass_fds=[theirs.fileno()], env=environment)
        theirs.close()
        assert self._control.recv(16) == b"ready"

    def fork(self, fds: list[int], scratch: Path) -> None:
        socket.send_fds(self._control, [str(scratch).encode()], fds)

    def close(self) -> None:
        self._control.close()
        self._process.wait(20)
        self._folder.cleanup()


class Hosted:
    """A contestant."""

    def __init__(self, server: Server, arena: CudaArena, scratch: Path, *, is_furnished: bool = True) -> None:
        self.arena = arena
        self._door, theirs = channel_pair()
        self._number = 0
        server.fork([theirs.fileno(), *(arena.fds if is_furnished else ())], scratch)
        theirs.close()
        self._packer = Packer(arena, 0, arena.num_bytes // 2)

    def post(self, operation: str, **fields: Any) -> None:
        self._number += 1
        self._door.send({"op": operation, "number": self._number, **fields})

    def collect(self, timeout: float = 120.0) -> dict[str, Any]:
        answer = self._door.receive(timeout)
        assert answer["number"] == self._number
        return answer

    def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        self.post(operation, start=self.arena.num_bytes // 2, stop=self.arena.num_bytes, **fields)
        return self.collect()

    def furnish(self) -> dict[str, Any]:
        """Give it its memory late, or once more, as the judge does with one that has settled."""
        self._number += 1
        self._door.send({"op": "furnish", "number": self._number}, self.arena.fds)
        return self.collect()

    def start(self, source: str, seed: int = 1) -> dict[str, Any]:
        loaded = self.ask("load", source=source, entry_point="ModelNew")
        if "failure" in loaded:
            return loaded
        return self.ask(
            "construct", instance="m", entry_point="ModelNew", seed=seed, training=True, arguments={"list": []}
        )

    def call(self, *inputs: torch.Tensor, **options: Any) -> Any:
        self._packer = Packer(self.arena, 0, self.arena.num_bytes // 2)
        node = tree.encode(list(inputs), self._packer.put)
        torch.cuda.synchronize()
        answer = self.ask("call", instance="m", seed=1, arguments=node, **options)
        if "failure" in answer:
            return answer
        return tree.decode(answer["outputs"], lambda slot: self.arena.view(slot).clone())

    def sets(self, inputs: InputSets, count: int) -> list[tree.Node]:
        """Argument trees of the sets in the inputs region."""
        assert self.arena.inputs is not None
        base = self.arena.base(self.arena.inputs)

        def slot(index: int, tensor: int, layout: Layout) -> dict[str, Any]:
            offset = base + inputs.offset(index, tensor)
            name = str(layout.dtype).removeprefix("torch.")
            fields = {"offset": offset, "shape": list(layout.shape), "stride": list(layout.stride), "dtype": name}
            return {"tensor": Slot.model_validate(fields).model_dump()}

        return [
            {"list": [slot(index, tensor, layout) for tensor, layout in enumerate(inputs.layouts)]}
            for index in range(count)
        ]

    def serve(self, inputs: InputSets, strides: list[list[int]] | None = None) -> None:
        """Have it answer windows; `strides`: in which order its outputs are read, plain ones if that is not said."""
        self.ask("platform", what="ready", sets=self.sets(inputs, inputs.count), strides=strides or [])
        self.post("platform", what="windows", instance="m")

    def side(self, name: str, output: torch.Tensor) -> Side:
        return Side(name, self.arena, (Layout.of(output),), lambda: None)

    def close(self) -> None:
        self._door.close()
        self.arena.close()


@contextlib.contextmanager
def hosted(server: Server, *, is_furnished: bool = True, **options: Any) -> Iterator[Hosted]:
    """A contestant with an arena of its own, which it has from the beginning or gets by `furnish`."""
    with tempfile.TemporaryDirectory() as scratch:
        sizes = {"exchange_bytes": 1 << 30, "heap_bytes": 12 << 30, **options}
        Path(scratch, "tmp").mkdir()  # The sandbox would.
        contestant = Hosted(server, CudaArena.create(**sizes), Path(scratch), is_furnished=is_furnished)
        try:
            yield contestant
        finally:
            contestant.close()
