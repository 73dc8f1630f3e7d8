"""Languages that a candidate can be written in. Each is one module here that defines `LANGUAGE`; adding one is a file.

A language says how its sources are told from others, where they can run, and how long building one may take. How a
source becomes a callable is the same for all: it is imported inside a contestant, and its entry class constructed.
Text can be disguised, so nothing that is read off a source is ever a verdict; it chooses a toolchain and makes notes.
"""

from __future__ import annotations

import importlib
import io
import pkgutil
import tokenize

from kerneldojo.languages.language import Language
from kerneldojo.schema import Candidate

__all__ = ["Language", "known", "language_of"]


def known() -> dict[str, Language]:
    """All languages by name, the most specific first."""
    modules = (
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
        if module.name != "language"
    )
    found: list[Language] = [module.LANGUAGE for module in modules]
    return {language.name: language for language in sorted(found, key=lambda language: -len(language.marks))}


def language_of(candidate: Candidate) -> Language:
    """The language that a candidate names, or the one whose marks its source bears; Triton if it bears none."""
    languages = known()
    if candidate.language != "auto":
        return languages[candidate.language]
    source = _without_comments(candidate.source)
    for language in languages.values():
        if any(mark in source for mark in language.marks):
            return language
    return languages["triton"]


def _without_comments(source: str) -> str:
    """Code and strings, for a comment that speaks of CUDA makes no CUDA; all of it where it cannot be told apart."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return source
    return "\n".join(token.string for token in tokens if token.type != tokenize.COMMENT)
