"""What was precompiled once is there for the judges that come later.

It takes ten seconds and more, for which the first extension of each judge waited: longer than for its own compilers. So
the folder is kept on disk as one archive (`$XDG_CACHE_HOME/kerneldojo/headers`), named by all that it depends on: the
compilers and their flags, torch's headers, and the judge's own sources. The archive appears in one piece, knows the
checksums of its files, and one that is damaged is made anew. Nothing of a candidate's is in it, and none can write to
it.
"""

from __future__ import annotations

import logging
import os
import shutil
import zipfile
import zlib
from functools import cached_property
from pathlib import Path

import torch

from kerneldojo.devices.cuda import headers, toolchain
from kerneldojo.devices.cuda.toolchain import Toolchain
from kerneldojo.files import replacing
from kerneldojo.schema import content_hash

log = logging.getLogger(__name__)

MOST_KEPT = 4
"""Archives; of one machine's compilers and torch there is one, of a megabyte."""

_ASKED = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS")
"""Variables that compilers read."""


class Shelf:
    """Of one folder of archives, the one for some compilers.

    Args:
        folder: where archives are; made when there is something to keep.
        tools: the compilers.
    """

    def __init__(self, folder: Path, tools: Toolchain) -> None:
        self._folder, self.tools = folder, tools

    @cached_property
    def archive(self) -> Path:
        """Where it is, or would be; to know that takes a moment."""
        return self._folder / f"{key(self.tools)[:32]}.zip"

    def take(self, target: Path) -> bool:
        """Unpack what is kept to a folder that is not there yet.

        Returns:
            Whether there was anything; if not, the folder is not there.
        """
        try:
            with zipfile.ZipFile(self.archive) as archive:
                archive.extractall(target)
            os.utime(self.archive)
        except FileNotFoundError:
            pass
        except (OSError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            log.warning("what was precompiled earlier cannot be read and is made anew: %s", error)
        else:
            for path in (target, *target.rglob("*")):
                path.chmod(0o755 if path.is_dir() else 0o644)  # Candidates have other users' ids.
            return True
        shutil.rmtree(target, ignore_errors=True)
        return False

    def put(self, made: Path, paths: list[Path]) -> None:
        """Keep files of a folder, under their places in it; whoever cannot goes without."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with (
                replacing(self.archive, durable=False) as temporary,
                zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
            ):
                for path in paths:
                    archive.write(path, path.relative_to(made))
            latest = sorted(self._folder.glob("*.zip"), key=lambda path: path.stat().st_mtime, reverse=True)
            for old in latest[MOST_KEPT:]:
                old.unlink(missing_ok=True)
        except OSError as error:
            log.warning("what was precompiled cannot be kept for later: %s", error)


def key(tools: Toolchain) -> str:
    """A hash of everything that decides what the compilers make."""
    home, here = toolchain.torch_home(), Path(__file__).parent
    ours = [*here.glob("*.py"), *(path for path in headers.HEADERS.rglob("*") if path.is_file())]
    theirs = [Path(tools.cxx), *([Path(tools.nvcc)] if tools.nvcc else [])]
    theirs += [home / "version.py", home / "include/ATen/core/TensorBody.h", home / "include/pybind11/pybind11.h"]
    theirs += [tools.cuda_home / "include/cuda_runtime.h"] if tools.cuda_home else []
    commands = [*tools.brief_command(Path("brief.cpp"), Path("brief.o")), *tools.bindings_command(Path("bindings.o"))]
    return content_hash(
        str(tools),
        *commands,
        torch.__version__,
        *(_seen(path) for path in theirs),
        *(f"{path.relative_to(here)}\n{path.read_text()}" for path in sorted(ours)),
        *(f"{name}={os.environ.get(name, '')}" for name in _ASKED),
    )


def _seen(path: Path) -> str:
    """A file that others installed, as it is now."""
    found = path.resolve()
    if not found.exists():
        return f"{found}: none"
    told = found.stat()
    return f"{found}: {told.st_size}, {told.st_mtime_ns}"
