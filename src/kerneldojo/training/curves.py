"""The curves of a run: an event file that TensorBoard shows.

TensorBoard's own writer hands every number to a thread of its own, and where that thread cannot write (a full disk) it
dies with a traceback on the user's screen. A step has a few hundred numbers, which take a millisecond to write; so they
are written here, where what goes wrong is an exception like any other, and are on disk when the step is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

EVENTS, SUMMARIES = cast("Any", event_pb2), cast("Any", summary_pb2)
"""Modules whose classes are made as they are imported."""


class Curves:
    """One event file; a run that goes on begins another beside it."""

    def __init__(self, folder: Path, first_step: int) -> None:
        """Begin a file in `folder`; what older ones have of `first_step` and later steps is shown no more.

        Raises:
            OSError: it cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        # Files are read in the order of their names, so that the time comes first.
        name = f"events.out.tfevents.{time.time_ns():019d}.{os.uname().nodename}.{os.getpid()}"
        self._file = (folder / name).open("xb")
        self._records = RecordWriter(self._file)
        self._write(EVENTS.Event(file_version="brain.Event:2"))
        self._write(EVENTS.Event(step=first_step, session_log=EVENTS.SessionLog(status=EVENTS.SessionLog.START)))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """One point of each curve; with the system when this returns.

        Raises:
            OSError: it cannot be written.
        """
        told = [SUMMARIES.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(EVENTS.Event(step=step, summary=SUMMARIES.Summary(value=told)))

    def _write(self, event: Any) -> None:
        event.wall_time = time.time()
        self._records.write(event.SerializeToString())
        self._records.flush()

    def close(self) -> None:
        """Let go of the file.

        Raises:
            OSError: what `add` could not write cannot be written now either.
        """
        self._file.close()
