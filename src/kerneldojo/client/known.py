"""Tasks that were submitted before, each to be told of as it ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from kerneldojo.client.attempts import Send, answer
from kerneldojo.client.lines import Lines
from kerneldojo.service.records import MAX_IDS, Collection, TaskRecord


class Known:
    """A feed of the records of known tasks: of the first `MAX_IDS` that have not ended, then of the next."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._left = dict.fromkeys(ids)
        self._lines = Lines()

    @property
    def is_done(self) -> bool:
        """See `Feed.is_done`."""
        return not self._left

    def request(self) -> Send:
        """See `Feed.request`."""
        self._lines = Lines()
        body = Collection(ids=tuple(islice(self._left, MAX_IDS))).model_dump_json()
        return Send("POST", "/v1/results", body=body)

    def take(self, data: bytes) -> Iterator[TaskRecord]:
        """The records that are complete now; none twice."""
        for line in self._lines.feed(data):
            record = answer(TaskRecord, line)
            if record.id in self._left:
                del self._left[record.id]
                yield record
