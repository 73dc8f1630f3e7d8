"""Compiles candidates' kernels for an architecture, and counts different binaries: a probe of `throughput.py`.

Reads a JSON list of `source`, `signature` and `block`; the argument is the architecture, for example `90`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


def binary(path: Path, row: dict[str, Any], architecture: int) -> bytes:
    """The machine code of the first kernel that a source defines."""
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    kernel = next(value for value in vars(module).values() if isinstance(value, triton.JITFunction))
    source = ASTSource(kernel, row["signature"], {"BLOCK": row["block"]})
    return triton.compile(source, target=GPUTarget("cuda", architecture, 32)).asm["cubin"]


def main() -> None:
    architecture = int(sys.argv[1])
    hashes: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, row in enumerate(json.load(sys.stdin)):
            path = Path(folder) / f"candidate_{number}.py"
            path.write_text(row["source"])
            hashes.append(hashlib.sha256(binary(path, row, architecture)).hexdigest())
    print(json.dumps({"compiled": len(hashes), "distinct": len(set(hashes)), "target": f"sm_{architecture}"}))


if __name__ == "__main__":
    main()
