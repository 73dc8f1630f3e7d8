"""Names of a run's tasks at a service, so that the next run finds again what one that was killed has submitted there.

A name is made of the folder's own id, of the entry, of its job, and of the number of faults on record for it: so an
entry keeps its task however often the command is started, and gets another one where it is to be tried again.
"""

from __future__ import annotations

import re
import secrets

from kerneldojo.evaluate.items import Item
from kerneldojo.evaluate.results import Results
from kerneldojo.files import write_whole
from kerneldojo.rollout.lock import RunError
from kerneldojo.schema import Job
from kerneldojo.schema.base import content_hash

RUN_ID = "run_id"
DIGITS = 16
"""Of each hash in a name; the id of the run sets it apart from all others."""


class Names:
    """Names of tasks for one results folder."""

    def __init__(self, results: Results, *, fresh: bool) -> None:
        """Read the folder's id, or make one: where it has none, and where nothing is to be found again (`fresh`).

        Raises:
            RunError: it cannot be read or written.
        """
        path = results.folder / RUN_ID
        try:
            known = path.read_text("ascii", "replace").strip() if path.exists() and not fresh else ""
            if not re.fullmatch("[0-9a-f]{32}", known):
                # Not to be guessed: whoever submits something else under a name first keeps others from it.
                known = secrets.token_hex(16)
                write_whole(path, f"{known}\n".encode())
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}") from None
        self._run_id = known
        self._results = results

    def name(self, item: Item, job: Job) -> str:
        """The name of the task that judges `item` by `job`. Equal jobs of two items are two tasks."""
        item_hash = content_hash("item", item.id)[:DIGITS]
        return f"{self._run_id}-{item_hash}-{job.hash[:DIGITS]}-{self._results.num_faults(item)}"
