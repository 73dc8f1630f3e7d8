"""Whether torch's own headers could still help a source that does not compile against slimmer ones.

Most sources that do not compile are simply wrong, and to hear that from torch's own headers takes ten times as long as
from slim ones. Other headers can help in three ways: with a name that is missing, with a macro, or with one more
overload, conversion or operator. So the judge lists torch's names and macros once, and a source is wrong for good if

- it mentions no macro that only torch's own headers have, for without one anything may be misread;
- the compiler's first complaint, of which the others may be consequences, is of a name that torch does not have, of a
  member of a type that is not torch's, of the syntax, of what may not be written to, of an atomic function that CUDA
  does not have, or the assembler's for the device: no header cures these;
- it misses no name that torch does have, and no operator or function for torch's own types, or its author would be told
  of mistakes that are none.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kerneldojo.devices.cuda.brief import BARE_PART
from kerneldojo.devices.cuda.headers import BARE, BRIEF, SLIM
from kerneldojo.devices.cuda.toolchain import Toolchain

UMBRELLA = "#include <torch/extension.h>\n#include <c10/cuda/CUDAGuard.h>\n#include <c10/cuda/CUDAStream.h>\n"
"""What candidates include, or is included for them."""

_NAME = re.compile(r"[A-Za-z_]\w*")
_MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)
_MARKER = re.compile(r"^# \d+ .*$", re.MULTILINE)
_ERROR = re.compile(r"^.*?(\bptxas )?\b(?:fatal )?(?:error|fatal)\s*: *(.*)$", re.MULTILINE)
_UNKNOWN = re.compile(
    r"""identifier "(\w+)" is undefined|has no member "(\w+)\"|has no member named '(\w+)'"""
    r"""|^'(?:\w+::)*(\w+)' (?:was not declared|does not name a type|is not a member of|has not been declared)"""
)
_SYNTAX = re.compile(
    r"expected (?:an? |'|unqualified-id|primary-expression|initializer|declaration)|missing closing quote"
    r"""|"\w+" has already been declared in the current scope"""
    r"|expression must be a modifiable lvalue"
)
_ARITHMETIC = (
    r"(?:(?:const|volatile|unsigned|signed|long|short|int|char|float|double|bool|void)[ *&]*)+(?:__restrict__)?"
)
_MEMBER_OF_ANOTHER = re.compile(
    r"""(?:class|struct|union) "(?!(?:at|c10|torch|caffe2)::)[\w:]+" has no member "|"""
    r"""'(?:const )?(?:class|struct|union) (?!(?:at|c10|torch|caffe2)::)[\w:]+' has no member named"""
    rf"""|expression must have (?:pointer-to-)?class type but it has type "{_ARITHMETIC}\""""
    rf"""|request for member '\w+' in '.*', which is of (?:pointer to )?non-class type '{_ARITHMETIC}'"""
)
"""A type that is not torch's, for example of a thread's index, has no more members by other headers."""
_ATOMIC = re.compile(r'no instance of overloaded function "atomic\w+" matches')
"""torch has more of these only in a header that has to be named, and for types of its own."""
_LACKS_FOR_TORCHS = re.compile(
    r"error\s*: no (?:operator|instance|match|matching|suitable)\b.*"
    r"(?:\n(?!.*error|[ \t]*(?:\n|$)).*){0,3}?\b(?:at|c10|torch)::"
)
"""A complaint of an operator or a function, where this line or one of the next says that types are torch's."""


@dataclass(frozen=True)
class Names:
    """What torch's headers call things."""

    known: frozenset[str]
    """All names in torch's own headers, and in those that they include."""
    macros: Mapping[str, frozenset[str]]
    """Macros of torch's own headers that slimmer ones do not have; by those, and a source's suffix: `slim.cu`."""

    @classmethod
    def collect(cls, toolchain: Toolchain, brief: Path, folder: Path) -> Names:
        """Ask the preprocessors; some seconds.

        Args:
            toolchain: whose headers.
            brief: the folder of what the brief headers include.
            folder: for sources, which stay there.

        Raises:
            subprocess.CalledProcessError: torch's headers are not all there.
        """
        kinds: dict[str, list[Path]] = {
            "own": [],
            "slim": [SLIM],
            "brief": [brief, BRIEF],
            "bare": [brief / BARE_PART, BARE, BRIEF],
        }
        known, macros = set[str](), dict[str, frozenset[str]]()
        for suffix in (".cpp", ".cu"):
            source = folder / f"names{suffix}"
            source.write_text(UMBRELLA)
            with ThreadPoolExecutor(len(kinds)) as threads:
                read = [threads.submit(_preprocessed, toolchain, source, *folders) for folders in kinds.values()]
                texts = {kind: one.result() for kind, one in zip(kinds, read, strict=True)}
            own = texts.pop("own")
            known.update(_NAME.findall(own))
            for kind, slimmer in texts.items():
                macros[kind + suffix] = frozenset(_MACRO.findall(own)) - {*_MACRO.findall(slimmer)}
        return cls(frozenset(known), macros)

    def settle(self, kind: str, source: str, log: str) -> bool:
        """Whether a source is wrong for good.

        Args:
            kind: the headers against which it does not compile, and its suffix: `slim.cu`.
            source: its text.
            log: what the compiler said.
        """
        errors = [(is_assembler, _plain(told)) for is_assembler, told in _ERROR.findall(log)]
        if not errors or not self.macros[kind].isdisjoint(_NAME.findall(source)) or _LACKS_FOR_TORCHS.search(log):
            return False
        missing = [_missing(told) for _, told in errors if not _MEMBER_OF_ANOTHER.match(told)]
        if self.known & {*missing}:
            return False
        is_assembler, told = errors[0]
        for_good = (_MEMBER_OF_ANOTHER, _SYNTAX, _ATOMIC)
        return bool(is_assembler or _missing(told) or any(kind.match(told) for kind in for_good))

    def write(self, path: Path) -> None:
        """To a file for `read`."""
        macros = {kind: sorted(names) for kind, names in self.macros.items()}
        path.write_text(json.dumps({"known": sorted(self.known), "macros": macros}))

    @classmethod
    def read(cls, path: Path) -> Names:
        """What `write` wrote."""
        found = json.loads(path.read_text())
        return cls(frozenset(found["known"]), {kind: frozenset(names) for kind, names in found["macros"].items()})


def _preprocessed(toolchain: Toolchain, source: Path, *folders: Path) -> str:
    """What a compiler reads for a source that finds headers in these folders first."""
    flags = [*(f"-I{folder}" for folder in folders), *toolchain.include_flags()]
    command = toolchain.preprocess_command(source, flags)
    done = subprocess.run(command, check=True, capture_output=True, text=True, errors="replace")
    return _MARKER.sub("", done.stdout)


def _plain(told: str) -> str:
    """With the quotation marks that g++ uses where it cannot print its own."""
    return told.replace("\u2018", "'").replace("\u2019", "'")


def _missing(told: str) -> str:
    """The name that a complaint says is not there; empty if it is another complaint."""
    found = _UNKNOWN.search(told)
    return next(filter(None, found.groups()), "") if found else ""
