"""What each client has had ended: as many clients as a program that reads metrics can take, and the others together.

Where there are no tokens a client is whatever name a request has, so there may be any number of them, and a name that
was told once has to be told for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

MOST_CLIENTS = 100
"""Clients that are told one by one: the first that were met."""

OTHERS = "(others)"
"""All others together; no client can be called that."""


class Clients:
    """Ended tasks by client, since the start."""

    def __init__(self) -> None:
        self.ended: Counter[str] = Counter()
        """By label."""
        self._names: set[str] = set()

    def label(self, client: str) -> str:
        """What a client is told as: always the same."""
        if client not in self._names:
            if len(self._names) >= MOST_CLIENTS:
                return OTHERS
            self._names.add(client)
        return client

    def count(self, client: str) -> None:
        """One of its tasks has ended."""
        self.ended[self.label(client)] += 1

    def labelled(self, numbers: Mapping[str, int]) -> dict[str, int]:
        """Numbers of clients by label; a client that was met once is there with 0, so that its figure falls to it."""
        found: Counter[str] = Counter()
        for client, number in numbers.items():
            found[self.label(client)] += number
        return {name: found[name] for name in (*sorted(self._names), *([OTHERS] if OTHERS in found else []))}
