"""Where a waiting task stands: how many of its client's are to go before it.

Of each client and rank (`queue.Entry.rank`) the numbers of acceptance in order. A list is as good as a tree here: to
put one into fifty thousand, or to take it out, moves less memory than a job has.
"""

from __future__ import annotations

from bisect import bisect_left, insort


class Standing:
    """Numbers of waiting tasks, by client and rank. For one thread."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[int, list[int]]] = {}

    def add(self, client: str, rank: int, sequence: int) -> None:
        """A task waits."""
        insort(self._numbers.setdefault(client, {}).setdefault(rank, []), sequence)

    def remove(self, client: str, rank: int, sequence: int) -> None:
        """One that was added waits no more."""
        ranks = self._numbers[client]
        numbers = ranks[rank]
        del numbers[bisect_left(numbers, sequence)]
        if not numbers:
            del ranks[rank]
        if not ranks:
            del self._numbers[client]

    def num_before(self, client: str, rank: int, sequence: int) -> int:
        """How many of the client's tasks go before this one: of lower ranks, and of its own those accepted earlier."""
        ranks = self._numbers.get(client, {})
        lower = sum(len(numbers) for other, numbers in ranks.items() if other < rank)
        return lower + bisect_left(ranks.get(rank, []), sequence)
