"""Verdicts as a table in Parquet, one row each, for whatever reads tables."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kerneldojo.evaluate.results import Record
from kerneldojo.rollout.parquet import VERDICT_COLUMNS, write_rows

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
    **VERDICT_COLUMNS,
    "precision_class": "string",
    "max_error": "double",
    "roofline_fraction": "double",
    "exploits": "list<string>",
    "notes": "list<string>",
    "message": "string",
    "judging_seconds": "double",
}
"""Columns and their types; what a verdict does not have is null."""


def can_write_table() -> bool:
    """Whether pyarrow is installed: a table is a convenience, and a run is whole without it."""
    return find_spec("pyarrow") is not None


def write_table(records: Iterable[Record], path: Path) -> int:
    """Write `records` to the Parquet file `path`, replacing it in one piece.

    Returns:
        The number of rows.

    Raises:
        RunError: pyarrow is not installed, or the file cannot be written.
    """
    return write_rows(map(row, records), COLUMNS, path)


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
        "code": record.candidate.source,
        "protocol": settings.protocol,
        "baseline": settings.baseline,
        "precision": settings.precision,
        **plain,
        "status": found.status.value,
        "device": found.device or settings.device,
        "timing_source": found.timing.source,
        "roofline_fraction": found.roofline.fraction if found.roofline else None,
        "exploits": [exploit.name for exploit in found.exploits],
        "judging_seconds": found.stage_seconds.get("total"),
    }
