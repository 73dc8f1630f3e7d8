"""A stream of the service as its reader sees it: what to ask for, and what the bytes that come are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from kerneldojo.client.attempts import Send

T_co = TypeVar("T_co", covariant=True)


class Feed(Protocol[T_co]):
    """Says the same to both clients; one that breaks is asked for again, for what has not come yet."""

    @property
    def is_done(self) -> bool:
        """Whether nothing more is to come."""
        ...

    def request(self) -> Send:
        """What to ask for now; its answer begins anew."""
        ...

    def take(self, data: bytes) -> Iterable[T_co]:
        """What is complete with these bytes.

        Raises:
            ServerFault: it is nothing that this service says.
        """
        ...
