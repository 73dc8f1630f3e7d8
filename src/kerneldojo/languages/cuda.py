"""C++/CUDA through `torch.utils.cpp_extension.load_inline`, built by the machine's nvcc when a source is imported."""

from __future__ import annotations

from kerneldojo.languages.language import Language

LANGUAGE = Language(
    name="cuda", marks=("load_inline", "cpp_extension", "__global__"), needs_gpu=True, build_seconds=300.0
)
