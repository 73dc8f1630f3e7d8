"""What the judge needs to know of a language."""

from __future__ import annotations

from dataclasses import dataclass

from kerneldojo.schema import SourceLanguage


@dataclass(frozen=True)
class Language:
    """A language that candidates are written in."""

    name: SourceLanguage
    marks: tuple[str, ...]
    """Texts that a source in this language contains."""
    needs_gpu: bool
    """Whether it runs on real devices only; without one it is still built, so that `compile_error` is real."""
    build_seconds: float
    """How long importing a source may take, compilers included."""
