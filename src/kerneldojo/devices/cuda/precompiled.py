"""What the judge compiles once, so that candidates' extensions need not.

Nearly all of an extension's time is nvcc and g++ reading torch's headers again. Neither can keep what it has read in a
way that would help; but there are headers that say less, and what they leave out is in objects that are compiled here,
once, and linked to each extension: what a tensor is (`brief`, `bare`), and what binds functions of tensors and numbers
to Python, which is all that most C++ files do (`include/bindings.cpp`). And the names in all of the headers are listed,
so that what is wrong for good need not be compiled again (`names`).

Nothing of a candidate's enters any of it, and candidates can read it and no more. It takes ten seconds and spares every
extension most of its time, so extensions wait for it, and it is kept for the judges that come later (`shelf`).
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kerneldojo.devices.cuda import brief
from kerneldojo.devices.cuda.names import Names
from kerneldojo.devices.cuda.shelf import Shelf
from kerneldojo.devices.cuda.toolchain import Toolchain, torch_home

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 60.0
"""How long an extension waits for it at most: it takes longer than ten seconds where all cores are taken."""


@dataclass(frozen=True)
class Precompiled:
    """Where it is. Asked anew for each build: it comes one after the other."""

    folder: Path

    @property
    def brief(self) -> Path:
        """For the front of the search path, with `headers.BRIEF`."""
        return self.folder / "brief"

    @property
    def bare(self) -> Path:
        """The same, with `headers.BARE` before that."""
        return self.brief / brief.BARE_PART

    @property
    def brief_object(self) -> Path:
        """What the brief headers only declare."""
        return self.brief / "brief.o"

    @property
    def bindings_object(self) -> Path:
        """What the bare headers only declare of pybind11."""
        return self.brief / "bindings.o"

    @property
    def has_bindings(self) -> bool:
        """Whether that is there."""
        return self.bindings_object.exists()

    @property
    def names_file(self) -> Path:
        """What `names.Names` writes."""
        return self.folder / "names.json"

    def names(self) -> Names | None:
        """Names of torch's headers; None while they are not there."""
        return Names.read(self.names_file) if self.names_file.exists() else None

    @property
    def has_brief(self) -> bool:
        """Whether that is there."""
        return self.brief_object.exists()

    @property
    def is_whole(self) -> bool:
        """Whether all is there that can be."""
        return self.has_brief and self.has_bindings and self.names_file.exists()

    @property
    def pending(self) -> Path:
        """A file that is there as long as the judge is at it."""
        return self.folder / "pending"

    def wait(self, part: Path) -> None:
        """Until a part of it is there, or will not come."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not part.exists() and self.pending.exists() and time.monotonic() < until:
            time.sleep(0.05)


class Precompiler:
    """Fills a folder in the background.

    Args:
        toolchain: whose compilers.
        parent: where the folder is made; some MB.
        shelf: what earlier judges have made, and where it is kept; None for neither.
    """

    def __init__(self, toolchain: Toolchain, parent: Path, shelf: Shelf | None = None) -> None:
        self.made = Precompiled(Path(tempfile.mkdtemp(prefix="headers-", dir=parent)))
        self.made.folder.chmod(0o755)  # Candidates have other users' ids.
        self._toolchain, self._shelf = toolchain, shelf
        self._is_closed = False
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self.made.pending.touch()
        self._thread = threading.Thread(target=self._fill, name="precompiling", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until all is there that can be had."""
        self._thread.join()

    def close(self) -> None:
        """Stop, and remove the folder."""
        with self._lock:
            self._is_closed = True
            for running in self._running:
                running.kill()
        self._thread.join()
        shutil.rmtree(self.made.folder, ignore_errors=True)

    def _fill(self) -> None:
        try:
            self._make()
        finally:
            self.made.pending.unlink()

    def _make(self) -> None:
        if self._toolchain.nvcc is None:
            return  # No CUDA file is compiled here.
        if self._shelf is not None and self._shelf.take(self.made.folder / "taken"):
            self._unpack(self.made.folder / "taken")
            return
        self.made.brief.mkdir()
        try:
            source = brief.write(torch_home() / "include", self.made.brief)
        except (LookupError, OSError) as error:  # Whoever compiles takes the slim headers.
            log.warning("there are no brief headers for this torch: %s", error)
            return
        part, other = self.made.folder / "part.o", self.made.folder / "other.o"
        with ThreadPoolExecutor(1) as beside:
            bound = beside.submit(
                self._compiles, self._toolchain.bindings_command(other), other, self.made.bindings_object
            )
            is_there = self._compiles(self._toolchain.brief_command(source, part), part, self.made.brief_object)
            bound.result()
        if is_there:
            self._list_names()
        if self._shelf is not None and self.made.is_whole:
            made = [path for path in self.made.brief.rglob("*") if path.is_file()]
            self._shelf.put(self.made.folder, [*made, self.made.names_file])

    def _unpack(self, taken: Path) -> None:
        """Put everything in its place; both objects come with their headers."""
        as_taken = Precompiled(taken)
        as_taken.brief.replace(self.made.brief)
        as_taken.names_file.replace(self.made.names_file)
        taken.rmdir()

    def _list_names(self) -> None:
        try:
            names = Names.collect(self._toolchain, self.made.brief, self.made.brief)
        except (OSError, subprocess.CalledProcessError) as error:  # Then all is asked of torch's own headers.
            log.warning("names in torch's headers cannot be listed: %s", error)
            return
        part = self.made.folder / "part.json"
        names.write(part)
        _place(part, self.made.names_file)

    def _compiles(self, command: list[str], part: Path, target: Path) -> bool:
        """Compile something, and put it in its place once it is whole."""
        with self._lock:
            if self._is_closed:
                return False
            running = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            self._running.add(running)
        _, told = running.communicate()
        with self._lock:
            self._running.remove(running)
        if running.returncode:
            if not self._is_closed:  # Nobody needs it: whoever compiles reads the headers themselves.
                log.warning("headers cannot be precompiled: %s", told.decode("utf-8", "replace")[:500])
            return False
        _place(part, target)
        return True


def _place(part: Path, target: Path) -> None:
    """At once, or somebody reads a half."""
    part.chmod(0o644)
    part.replace(target)
