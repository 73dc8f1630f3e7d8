"""The service's events, as the nouns that they tell of."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from kerneldojo.client.attempts import Send, answer
from kerneldojo.service.records import Missed, Overview, TaskSummary

Event = TaskSummary | Overview | Missed
"""A task as it is after a change, the state of the service (each second), or that something went by untold."""

KINDS: dict[bytes, type[BaseModel]] = {b"task": TaskSummary, b"overview": Overview, b"missed": Missed}


class Events:
    """A feed of server-sent events; it never ends by itself."""

    is_done = False

    def __init__(self) -> None:
        self._rest = b""
        self._is_heard = False
        self._is_again = False

    def request(self) -> Send:
        """See `Feed.request`."""
        self._rest = b""
        self._is_again = self._is_heard
        return Send("GET", "/v1/events")

    def take(self, data: bytes) -> Iterator[Event]:
        """The events that are complete now; first, after a lost connection, that some were missed."""
        self._is_heard = True
        if self._is_again:
            self._is_again = False
            yield Missed(events=None)
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        for block in blocks:
            fields = dict(
                line.split(b": ", 1) for line in block.split(b"\n") if line.startswith((b"event: ", b"data: "))
            )
            kind = KINDS.get(fields.get(b"event", b""))
            # A comment says that the stream lives; of another kind a newer service tells.
            if kind is not None:
                event = answer(kind, fields.get(b"data", b""))
                assert isinstance(event, TaskSummary | Overview | Missed)
                yield event
