"""From the sources of an extension to its library: compilers run, nothing of the candidate's does.

The same here whether a process builds for itself or a workshop does for others (`contestant.workshop`). Sources are
compiled for one architecture and with uncompressed machine code (`toolchain`), and against other `headers` than torch's
own first, which are what an extension's build time goes to: on one machine 88 s of nvcc and 28 s of g++ become 11 and
7, and with what is `precompiled` 2 and 0.4 where little of torch is needed. What does not compile that way is compiled
against fuller headers, torch's own last, and only their verdict counts, or that nothing in them could help (`names`).
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from kerneldojo.devices.cuda import headers
from kerneldojo.devices.cuda.flags import Flags
from kerneldojo.devices.cuda.precompiled import Precompiled
from kerneldojo.devices.cuda.toolchain import Toolchain

MAX_LOG = 2000
"""Longest excerpt of a compiler's output that is passed on."""
TEXTS = ("main.cpp", "cuda.cu")
"""Files that an order may consist of."""

_NO_PLUGIN = ("-fno-lto", "-fno-use-linker-plugin")
_TOOLKIT_HEADER = re.compile(r"fatal error: (?:cu[a-z_0-9]*|nccl|cudnn\w*|c10/cuda/[\w/]+|ATen/cuda/[\w/]+)\.h(?:pp)?:")
_USEFUL = re.compile(r"error|undefined reference|multiple definition|ptxas fatal|cannot find -l", re.IGNORECASE)
_HERE_ONLY = re.compile(
    r"No such file|cannot find|No space left|Cannot allocate|out of memory|memory exhausted|Permission denied"
    r"|Resource temporarily|signal",
    re.IGNORECASE,
)


class ExtensionError(RuntimeError):
    """The candidate's extension does not compile or link; the message is the compilers' own, shortened."""

    is_here_only = False
    """Whether it may well compile elsewhere: a file was missing, or a compiler was killed."""


class UnsupportedOnDevice(RuntimeError):
    """The extension compiles, but this machine cannot load it (or cannot even compile it): no verdict on it here."""


@dataclass(frozen=True)
class Unit:
    """One source file of an extension."""

    path: Path
    is_cuda: bool

    def object_path(self, folder: Path) -> Path:
        """Where its object goes."""
        return folder / f"{self.path.name}.o"


@dataclass(frozen=True)
class Compiler:
    """The compilers of this machine at work."""

    toolchain: Toolchain
    precompiled: Precompiled | None = None
    """What the judge has compiled beforehand, or will have."""

    def build(self, name: str, units: list[Unit], flags: Flags, folder: Path) -> Path:
        """Compile and link; the library is in `folder`, where all that is made goes.

        Raises:
            ExtensionError: it does not compile or link.
            UnsupportedOnDevice: it cannot be built here, or it compiles but cannot be linked without a GPU.
        """
        has_cuda = any(unit.is_cuda for unit in units)
        if has_cuda and (self.toolchain.nvcc is None or self.toolchain.cuda_home is None):
            raise UnsupportedOnDevice("building a CUDA extension needs nvcc, which is not on this machine")
        if has_cuda and self.precompiled is not None:
            self.precompiled.wait(self.precompiled.bindings_object)
        more = self._compile(name, units, flags, folder)
        if has_cuda and not self.toolchain.can_link:
            raise UnsupportedOnDevice("the CUDA extension compiles; running it needs a CUDA device")
        if has_cuda:
            _run({"registry": self.toolchain.registry_command(folder / "registry.o")}, folder)
        try:
            return self._link(units, more, flags, folder)
        except ExtensionError:
            if not more:
                raise
        # Nothing that is declared should be missing; but then only what comes of torch's own headers is a verdict.
        return replace(self, precompiled=None).build(name, units, flags, folder)

    def _link(self, units: list[Unit], more: list[Path], flags: Flags, folder: Path) -> Path:
        has_cuda = any(unit.is_cuda for unit in units)
        objects = [*(unit.object_path(folder) for unit in units), *more, *([folder / "registry.o"] if has_cuda else [])]
        library = folder / "linked.so"
        # An object can carry options for link-time optimisation: where nobody asked for that, nobody reads them.
        extra = [*_NO_PLUGIN, *flags.link] if flags.are_plain else flags.link
        cuda = has_cuda or flags.with_cuda
        _run({"link": self.toolchain.link_command(objects, library, cuda=cuda, extra=extra)}, folder)
        return library

    def _compile(self, name: str, units: list[Unit], flags: Flags, folder: Path) -> list[Path]:
        """Compile all units at once; those that fail again, against the next headers. Returns objects to link too."""
        more: list[Path] = []
        left = {unit: self._headers_for(unit, flags, units) for unit in units}
        while left:
            commands = {unit.path.name: self._command(name, unit, left[unit][0], flags, folder) for unit in left}
            logs = _run_all(commands, folder)
            succeeded = [tried[0] for unit, tried in left.items() if unit.path.name not in logs]
            more += [extra for chosen in succeeded for extra in chosen.objects]
            failed = {unit: tried for unit, tried in left.items() if unit.path.name in logs}
            if final := [logs[one.path.name] for one, tried in failed.items() if self._is_final(one, tried, logs)]:
                raise _error("\n".join(final), folder)
            left = {unit: tried[1:] for unit, tried in failed.items()}
        return list(dict.fromkeys(more))  # Two may want the same.

    def _is_final(self, unit: Unit, tried: list[_Headers], logs: Mapping[str, str]) -> bool:
        """Whether no other headers are left to be tried, or none would help."""
        if not tried[1:]:
            return True
        if self.precompiled is not None:
            self.precompiled.wait(self.precompiled.names_file)
        names = self.precompiled.names() if self.precompiled else None
        kind = f"{tried[0].kind}{unit.path.suffix}"
        return names is not None and names.settle(kind, headers.read(unit.path), logs[unit.path.name])

    def _headers_for(self, unit: Unit, flags: Flags, units: list[Unit]) -> list[_Headers]:
        """What to compile it against, the cheapest first and torch's own last."""
        own = self.toolchain.include_flags(flags.includes)
        slim = [f"-I{headers.SLIM}", *own]
        made, text = self.precompiled, headers.read(unit.path)
        tried = [_Headers("slim", slim), _Headers("own", own)]
        if made is None or not made.has_brief:
            return tried
        if unit.is_cuda and headers.suits_brief(text):
            tried.insert(0, _Headers("brief", [f"-I{made.brief}", f"-I{headers.BRIEF}", *own], [made.brief_object]))
        bare = [*(f"-I{folder}" for folder in (made.bare, headers.BARE, headers.BRIEF)), *own]
        if unit.is_cuda and headers.suits_bare(text):
            tried.insert(0, _Headers("bare", bare, [made.brief_object]))
        # The bodies need CUDA's libraries, which an extension without CUDA is not linked to.
        if not unit.is_cuda and made.has_bindings and any(one.is_cuda for one in units) and headers.binds_bare(text):
            tried.insert(0, _Headers("bare", bare, [made.brief_object, made.bindings_object]))
        return tried

    def _command(self, name: str, unit: Unit, chosen: _Headers, flags: Flags, folder: Path) -> list[str]:
        command = self.toolchain.nvcc_command if unit.is_cuda else self.toolchain.cxx_command
        given = flags.cuda if unit.is_cuda else flags.cxx
        return command(name, unit.path, unit.object_path(folder), [*chosen.includes, *given])


@dataclass(frozen=True)
class _Headers:
    """What a source is compiled against."""

    kind: str
    includes: list[str]
    """Flags for the search path."""
    objects: list[Path] = field(default_factory=list[Path])
    """What is linked to whatever was compiled against them."""


@dataclass(frozen=True)
class Order:
    """An extension that consists of texts: everything that its library follows from on one machine."""

    name: str
    texts: Mapping[str, str]
    """Contents by file: some of `TEXTS`."""
    flags: Flags

    @property
    def digest(self) -> str:
        """The same for equal orders only."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()

    @property
    def is_plain(self) -> bool:
        """Whether to build it is to compile these texts and nothing else, wherever that is done."""
        return self.flags.are_plain and self.name.isascii()

    def build(self, compiler: Compiler, folder: Path) -> Path:
        """Its library, built in `folder`; raises what `Compiler.build` does."""
        units: list[Unit] = []
        for file, text in self.texts.items():
            (folder / file).write_text(text, encoding="utf-8", errors="surrogatepass")
            units.append(Unit(folder / file, is_cuda=file.endswith(".cu")))
        return compiler.build(self.name, units, self.flags, folder)

    def as_json(self) -> dict[str, Any]:
        """As JSON; see `read`."""
        return {"name": self.name, "texts": dict(self.texts), "flags": self.flags.as_json()}

    @classmethod
    def read(cls, message: Mapping[str, Any]) -> Order:
        """What `as_json` wrote, from somebody who is not trusted.

        Raises:
            ValueError: it is anything else.
        """
        name, texts = message.get("name"), message.get("texts")
        if not isinstance(name, str) or not is_name(name):
            raise ValueError("malformed name")
        if not isinstance(texts, dict) or not texts or not texts.keys() <= set(TEXTS):
            raise ValueError("malformed texts")
        if not all(isinstance(text, str) for text in texts.values()):
            raise ValueError("malformed texts")
        return cls(name, texts, Flags.read(message.get("flags")))


def is_name(name: str) -> bool:
    """Whether an extension may be called so."""
    return name.isidentifier() and len(name) <= 100


def _run(commands: dict[str, list[str]], folder: Path) -> None:
    logs = _run_all(commands, folder)
    if logs:
        raise _error("\n".join(logs.values()), folder)


def _run_all(commands: dict[str, list[str]], folder: Path) -> dict[str, str]:
    """Run commands at once; what the failed ones printed."""
    running: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}
    for key, command in commands.items():
        log = folder / f"{key}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                command, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=folder
            )
        running[key] = (process, log)
    codes = {key: process.wait() for key, (process, _) in running.items()}
    logs = {key: log.read_text("utf-8", "replace")[: 1 << 20] for key, (_, log) in running.items() if codes[key]}
    return {key: log if codes[key] > 0 else f"{log}\nerror: ended by signal {-codes[key]}" for key, log in logs.items()}


def _error(log: str, folder: Path) -> Exception:
    """What a failed build means: usually the candidate's mistake, but not where the toolkit itself has holes."""
    if _TOOLKIT_HEADER.search(log) and not torch.version.cuda:
        return UnsupportedOnDevice(
            "the CUDA extension needs toolkit headers that this machine lacks: use a CUDA device"
        )
    lines = [line for line in log.replace(f"{folder}/", "").splitlines() if line.strip()]
    useful = [line for line in lines if _USEFUL.search(line)] or lines
    error = ExtensionError(_shortened("\n".join(useful)))
    error.is_here_only = any(_HERE_ONLY.search(line) for line in useful)
    return error


def _shortened(text: str) -> str:
    """The first errors are what helps; paths of this machine are not the candidate's business."""
    text = re.sub(r"(?:/[\w.+-]+)+/(?=[\w.+-]+)", "", text)
    return text if len(text) <= MAX_LOG else text[:MAX_LOG] + "..."
