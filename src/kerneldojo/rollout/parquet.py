"""Rows as a table in Parquet, for whatever reads tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, cast

from kerneldojo.files import replacing
from kerneldojo.rollout.lock import RunError

ROWS_AT_ONCE = 2048
VERDICT_COLUMNS = {
    "status": "string",
    "correct": "bool",
    "speedup": "double",
    "coverage": "double",
    "kernel_ms": "double",
    "reference_ms": "double",
    "timing_source": "string",
}
"""What every table says of a verdict."""


def write_rows(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], path: Path) -> int:
    """Write `rows` to the Parquet file `path`, replacing it in one piece.

    Args:
        rows: read as needed; what a row does not have of `columns` is null. A lone surrogate, which no table can hold,
            becomes a question mark.
        columns: names and types: `string`, `bool`, `double`, `int32`, `int64`, or `list<...>` of one of them.
        path: the file.

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
    schema = arrow.schema([(name, _type(arrow, kind)) for name, kind in columns.items()])
    waiting = ({name: _writable(value) for name, value in row.items()} for row in rows)
    num_rows = 0
    try:
        with replacing(path) as temporary, parquet.ParquetWriter(temporary, schema, compression="zstd") as writer:
            while some := list(islice(waiting, ROWS_AT_ONCE)):
                writer.write_table(arrow.Table.from_pylist(some, schema=schema))
                num_rows += len(some)
    except OSError as error:
        raise RunError(f"{path}: {error.strerror or error}") from None
    return num_rows


def _type(arrow: Any, kind: str) -> Any:
    if kind.startswith("list<"):
        return arrow.list_(_type(arrow, kind[5:-1]))
    return getattr(arrow, {"double": "float64", "bool": "bool_"}.get(kind, kind))()


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list | tuple):
        values = cast("list[Any]", value)
        return [_writable(one) for one in values] if values and isinstance(values[0], str) else values
    return value
