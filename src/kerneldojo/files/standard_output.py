"""Who may write to standard output: the program itself, and nobody else.

Judging starts processes and imports large libraries. Their prints (and a candidate's, should any ever get that far)
must not end in the middle of a JSON object that another program reads. So descriptor 1 is turned to where descriptor 2
points, and the only way to the real standard output is a stream that no child inherits.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def own_standard_output() -> Generator[TextIO]:
    """Yield the real standard output; inside, everything else that is written to descriptor 1 goes to standard error.

    The duplicate is not inheritable, so no process started meanwhile holds it.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    # A terminal that cannot show a character gets a question mark, never a traceback.
    stream = open(kept, "w", encoding=sys.stdout.encoding, errors="replace", closefd=False)  # noqa: SIM115
    try:
        yield stream
    finally:
        sys.stdout.flush()
        stream.flush()
        os.dup2(kept, 1)
        os.close(kept)
