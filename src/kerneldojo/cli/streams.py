"""What a command writes: its result to standard output, which it has to itself, and words to standard error."""

from __future__ import annotations

import json
import sys
from typing import TextIO

from pydantic import BaseModel
from rich.console import Console

from kerneldojo.files import own_standard_output
from kerneldojo.schema.finite import finite

__all__ = ["console_for", "own_standard_output", "print_json", "say"]


def print_json(value: BaseModel, stream: TextIO) -> None:
    """Write one JSON object and a newline.

    ASCII only, so that text from a candidate (lone surrogates too) can neither reach a terminal raw nor fail to encode;
    infinities and NaN become null, as everywhere in the schema.
    """
    stream.write(json.dumps(finite(value.model_dump(mode="json")), allow_nan=False) + "\n")


def console_for(stream: TextIO) -> Console:
    """A console that draws on `stream`; it parses no markup and highlights nothing by itself."""
    return Console(file=stream, markup=False, highlight=False, emoji=False)


def say(message: str) -> None:
    """One line on standard error, headed by the command's name."""
    print(f"dojo: {message}", file=sys.stderr)
