"""Verdicts as a table in Parquet, one row each, for whatever reads tables."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from kerneldojo.evaluate.results import Record
from kerneldojo.rollout.journal import RunError, sync_folder

ROWS_AT_ONCE = 2048

COLUMNS = {
    "id": "string",
    "problem": "string",
    "suite": "string",
    "level": "int32",
    "problem_hash": "string",
    "candidate_hash": "string",
    "language": "string",
    "code": "string",
    "device": "string",
    "protocol": "string",
    "baseline": "string",
    "precision": "string",
    "status": "string",
    "correct": "bool",
    "speedup": "double",
    "coverage": "double",
    "kernel_ms": "double",
    "reference_ms": "double",
    "timing_source": "string",
    "precision_class": "string",
    "max_error": "double",
    "roofline_fraction": "double",
    "exploits": "list",
    "notes": "list",
    "message": "string",
    "judging_seconds": "double",
}
"""Columns and their types; what a verdict does not have is null."""


def write_table(records: Iterable[Record], path: Path) -> int:
    """Write `records` to the Parquet file `path`, replacing it in one piece.

    Returns:
        The number of rows.

    Raises:
        RunError: pyarrow is not installed, or the file cannot be written.
    """
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise RunError("writing Parquet needs the extra: pip install 'kerneldojo[data]'") from None
    types = {
        "string": arrow.string(),
        "int32": arrow.int32(),
        "double": arrow.float64(),
        "bool": arrow.bool_(),
        "list": arrow.list_(arrow.string()),
    }
    schema = arrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    rows = (row(record) for record in records)
    num_rows = 0
    try:
        with parquet.ParquetWriter(temporary, schema, compression="zstd") as writer:
            while some := list(islice(rows, ROWS_AT_ONCE)):
                writer.write_table(arrow.Table.from_pylist(some, schema=schema))
                num_rows += len(some)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RunError(f"{path}: {error.strerror or error}") from None
    return num_rows


def row(record: Record) -> dict[str, Any]:
    """One record as a row of `COLUMNS`."""
    found, settings = record.evaluation, record.settings
    plain = found.model_dump(
        include={"status", "correct", "speedup", "coverage", "kernel_ms", "reference_ms", "precision_class"}
        | {"max_error", "message", "notes", "device"}
    )
    return {
        "id": record.id,
        "problem": record.problem,
        "suite": record.suite,
        "level": record.level,
        "problem_hash": record.problem_hash,
        "candidate_hash": record.candidate.hash,
        "language": found.language,
        "code": _text(record.candidate.source),
        "protocol": settings.protocol,
        "baseline": settings.baseline,
        "precision": settings.precision,
        **plain,
        "status": found.status.value,
        "notes": [_text(note) for note in found.notes],
        "message": _text(found.message),
        "device": found.device or settings.device,
        "timing_source": found.timing.source,
        "roofline_fraction": found.roofline.fraction if found.roofline else None,
        "exploits": [exploit.name for exploit in found.exploits],
        "judging_seconds": found.stage_seconds.get("total"),
    }


def _text(text: str) -> str:
    """Without lone surrogates, which no table can hold."""
    return text.encode("utf-8", "replace").decode()
