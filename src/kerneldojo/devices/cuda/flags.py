"""What a candidate may say to the compilers of its extension, and which of it is plain.

Plain options choose how code is optimised, warned about and named, and nothing else. All others may make a compiler run
a program, load a library or read a file of the candidate's choice (`-fplugin`, `-wrapper`, `-B`, `-ccbin`, `-specs`,
`-Wl,...`, `@file`, and whatever the next version adds): they are used in the candidate's own process only. So this is a
list of what is known to be harmless, never one of what is known to be harmful.

Words are read as the compilers read them: a word of a list below stands for itself, or takes the one after it. None
holds anything that a shell would look at twice, for nvcc has its steps run by one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from kerneldojo.devices.cuda.toolchain import without_architectures

_SHARED = (
    r"-O(?:[0-3sgz]|fast)?",
    r"-g[0-3]?",
    r"-w",
    r"-std=(?:c|gnu)\+\+\w+",
    r"-D[A-Za-z_]\w*(?:=[\w.+-]*)?",
    r"-U[A-Za-z_]\w*",
)
_LIBRARY = (
    r"-l(?:cublas|cublasLt|cuda|cudart|cudnn|cufft|cufftw|curand|cusolver|cusparse|nvrtc|nvJitLink|nvidia-ml|nvToolsExt"
    r"|nccl|c10|c10_cuda|torch|torch_cpu|torch_cuda|torch_python|gomp|pthread|m|dl|rt|stdc\+\+|stdc\+\+fs)"
)
_CXX = (
    *_SHARED,
    _LIBRARY,  # Some say it here, too, where nothing is linked.
    r"-W(?:no-)?[a-z][a-z0-9+=-]*",
    r"-pedantic|-pipe|-pthread|-m(?:32|64)",
    r"-m(?:arch|tune)=[a-z0-9.-]+",
    r"-m(?:no-)?(?:avx|sse|ssse|fma|f16c|bmi|popcnt|lzcnt|aes|pclmul|amx)[a-z0-9.-]*",
    r"-mprefer-vector-width=\w+",
    r"-f(?:no-)?(?:fast-math|finite-math-only|unsafe-math-optimizations|associative-math|reciprocal-math|signed-zeros"
    r"|trapping-math|rounding-math|math-errno|unroll-loops|unroll-all-loops|tree-vectorize|tree-loop-vectorize"
    r"|tree-slp-vectorize|strict-aliasing|strict-overflow|wrapv|inline|inline-functions|omit-frame-pointer|openmp"
    r"|openmp-simd|exceptions|rtti|permissive|function-sections|data-sections|merge-all-constants|prefetch-loop-arrays"
    r"|threadsafe-statics|visibility-inlines-hidden|signed-char|unsigned-char|concepts|coroutines)",
    r"-f(?:PIC|pic|visibility=[a-z]+|fp-contract=[a-z]+|vect-cost-model=[a-z-]+|(?:template|constexpr)-[a-z-]+=\d+"
    r"|max-errors=\d+|abi-version=\d+|diagnostics-color=[a-z]+)",
)
_LINK = (
    r"-O[0-3]?|-s|-pthread|-fopenmp|-Wl,--(?:no-)?as-needed",
    _LIBRARY,
)
_PTXAS = (
    r"-v|--verbose|-O[0-4]|--opt-level=[0-4]|-d[ls]cm=[a-z]+|--(?:def|force)-(?:load|store)-cache=[a-z]+"
    r"|--?maxrregcount=\d+|--register-usage-level=\d+|--allow-expensive-optimizations=(?:true|false)"
    r"|--warn-on-(?:spills|local-memory-usage|double-precision-use)|--?warn-spills|--?warn-lmem-usage",
)
_CUDA = (
    *_SHARED,
    r"--std=(?:c|gnu)\+\+\w+",
    r"-W(?:no-)?[a-z][a-z0-9+-]*",
    r"--?(?:use_fast_math|expt-relaxed-constexpr|expt-extended-lambda|extended-lambda|restrict|resource-usage|res-usage"
    r"|lineinfo|generate-line-info|disable-warnings|extra-device-vectorization|keep-device-functions)",
    r"--?(?:ftz|prec-div|prec-sqrt|fmad)=(?:true|false)|-G",
    r"--?(?:maxrregcount|threads|split-compile|diag-suppress|diag_suppress)=\d+",
    r"--default-stream=(?:legacy|null|per-thread)",
)
_CUDA_PAIRS: Mapping[str, tuple[str, ...]] = {
    r"-Xptxas|--ptxas-options": _PTXAS,
    r"-Xcompiler|--compiler-options": _CXX,
    r"--?maxrregcount|--threads|-t|--?diag-suppress": (r"\d+",),
    r"--?std": (r"(?:c|gnu)\+\+\w+",),
}
"""Options whose value is the next word, or follows `=`; several values may be parted by commas."""


@dataclass(frozen=True)
class Flags:
    """The candidate's words, as `load_inline` and `load` name them."""

    cxx: tuple[str, ...] = ()
    """`extra_cflags`"""
    cuda: tuple[str, ...] = ()
    """`extra_cuda_cflags`"""
    link: tuple[str, ...] = ()
    """`extra_ldflags`"""
    includes: tuple[str, ...] = ()
    """`extra_include_paths`"""
    with_cuda: bool = False
    """Whether CUDA's libraries are linked although no source needs nvcc."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Flags:
        """Read the options of `load_inline`; each text is one or several words, as for torch, which has a shell."""
        return cls(
            cxx=words(options.get("extra_cflags")),
            cuda=words(options.get("extra_cuda_cflags")),
            link=words(options.get("extra_ldflags")),
            includes=tuple(path for text in texts(options.get("extra_include_paths")) if (path := text.strip())),
            with_cuda=bool(options.get("with_cuda")),
        )

    @classmethod
    def read(cls, value: Any) -> Flags:
        """What `as_json` wrote, from somebody who is not trusted.

        Raises:
            ValueError: it is anything else.
        """
        if not isinstance(value, dict) or value.keys() != {field.name for field in fields(cls)}:
            raise ValueError("malformed flags")
        lists = {name: value[name] for name in ("cxx", "cuda", "link", "includes")}
        for one in lists.values():
            if not isinstance(one, list) or not all(isinstance(word, str) for word in one):
                raise ValueError("malformed flags")
        return cls(**{name: tuple(one) for name, one in lists.items()}, with_cuda=value["with_cuda"] is True)

    def as_json(self) -> dict[str, Any]:
        """As JSON; see `read`."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @property
    def are_plain(self) -> bool:
        """Whether compilers that get them do nothing but compile what they are given."""
        return (
            not self.includes
            and all(_matches(_CXX, word) for word in self.cxx)
            and all(_matches(_LINK, word) for word in without_architectures(self.link))
            and _are_plain_for_nvcc(without_architectures(self.cuda))
        )


def _are_plain_for_nvcc(flags: list[str]) -> bool:
    rest = iter(flags)
    return all(_matches(_CUDA, word) or _is_plain_pair(word, rest) for word in rest)


def _is_plain_pair(word: str, rest: Iterator[str]) -> bool:
    """Whether an option that takes a value, and its value, are plain; the value is taken from `rest` if it is there."""
    option, is_joined, value = word.partition("=")
    allowed = next((values for names, values in _CUDA_PAIRS.items() if _matches((names,), option)), None)
    if allowed is None:
        return False
    values = value if is_joined else next(rest, "")
    return all(_matches(allowed, part) for part in values.split(","))


def _matches(patterns: tuple[str, ...], word: str) -> bool:
    return any(re.fullmatch(pattern, word, re.ASCII) for pattern in patterns)


def words(value: Any) -> tuple[str, ...]:
    """The words of one text or several, as a shell parts them; what it could not part stays as it is."""

    def parted(part: Callable[[str], list[str]], text: str) -> list[str]:
        try:
            return part(text)
        except ValueError:  # An open quote.
            return [text]

    return tuple(word for text in texts(value) for word in parted(shlex.split, text))


def texts(value: Any) -> list[str]:
    """One text or several, or none."""
    if value is None:
        return []
    return [str(value)] if isinstance(value, str | Path) else [str(item) for item in value]
