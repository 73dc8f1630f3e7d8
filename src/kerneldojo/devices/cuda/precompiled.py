"""torch's headers, compiled once by the judge, for the C++ half of candidates' extensions.

`load_inline` writes a C++ file beside the CUDA one, which binds functions to Python; nearly all of its time is g++
reading the same headers again. Of these g++ can keep what it has read, for each level of optimisation apart. nvcc
cannot, so that this is for C++ alone. Nothing of a candidate's enters it, candidates can read it and no more, and who
compiles with other options, or before it is there, reads the headers as ever: g++ sees by itself whether it fits.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

from kerneldojo.devices.cuda.toolchain import SLIM_HEADERS, Toolchain

log = logging.getLogger(__name__)

HEADER = Path("torch", "extension.h")
LEVELS = ("", "-O2", "-O3")
"""Options with which extensions are usually compiled: torch's own, which are none, and what candidates ask for."""
NICENESS = 10
"""Verdicts come first."""


class PrecompiledHeaders:
    """A folder for the front of the search path, that fills up in the background.

    Args:
        toolchain: whose compiler.
        parent: where the folder is made; some 240 MB for each level.
    """

    def __init__(self, toolchain: Toolchain, parent: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headers-", dir=parent))
        self.folder.chmod(0o755)  # Candidates have other users' ids.
        self._toolchain = toolchain
        self._is_closed = False
        self._running: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        header = self.folder / HEADER
        header.parent.mkdir()
        shutil.copyfile(SLIM_HEADERS / HEADER, header)  # For whom nothing fits.
        self._target = header.with_name(f"{header.name}.gch")  # Of several in it g++ takes the one that fits.
        self._target.mkdir()
        self._thread = threading.Thread(target=self._fill, name="precompiling", daemon=True)
        self._thread.start()

    @property
    def num_ready(self) -> int:
        """Levels that are there."""
        return len(list(self._target.glob("level*")))

    def wait(self) -> None:
        """Until all levels are there, or cannot be had."""
        self._thread.join()

    def close(self) -> None:
        """Stop, and remove the folder."""
        with self._lock:
            self._is_closed = True
            if self._running is not None:
                self._running.kill()
        self._thread.join()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _fill(self) -> None:
        for number, level in enumerate(LEVELS):
            part = self.folder / "part"
            includes = [f"-I{SLIM_HEADERS}", *self._toolchain.include_flags()]
            command = self._toolchain.header_command(SLIM_HEADERS / HEADER, part, [*includes, *level.split()])
            with self._lock:
                if self._is_closed:
                    return
                self._running = subprocess.Popen(
                    ["nice", "-n", str(NICENESS), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                )
            _, told = self._running.communicate()
            if self._running.returncode:
                if not self._is_closed:  # Nobody needs it: whoever compiles reads the headers themselves.
                    log.warning("headers cannot be precompiled: %s", told.decode("utf-8", "replace")[:500])
                return
            part.chmod(0o644)
            os.replace(part, self._target / f"level{number}")  # noqa: PTH105 - at once, or a half is read
