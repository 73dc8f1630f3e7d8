"""Triton: kernels as decorated Python functions, compiled at their first launch."""

from __future__ import annotations

from kerneldojo.languages.language import Language

LANGUAGE = Language(name="triton", marks=("triton",), needs_gpu=False, build_seconds=60.0)
