"""Where a waiting task stands: how many of its client's are to go before it.

Of each client and priority the numbers of acceptance in order. A list is as good as a tree here: to put one into fifty
thousand, or to take it out, moves less memory than a job has.
"""

from __future__ import annotations

from bisect import bisect_left, insort


class Standing:
    """Numbers of waiting tasks, by client and priority. For one thread."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[int, list[int]]] = {}

    def add(self, client: str, priority: int, sequence: int) -> None:
        """A task waits."""
        insort(self._numbers.setdefault(client, {}).setdefault(priority, []), sequence)

    def remove(self, client: str, priority: int, sequence: int) -> None:
        """One that was added waits no more."""
        priorities = self._numbers[client]
        numbers = priorities[priority]
        del numbers[bisect_left(numbers, sequence)]
        if not numbers:
            del priorities[priority]
        if not priorities:
            del self._numbers[client]

    def num_before(self, client: str, priority: int, sequence: int) -> int:
        """How many of the client's tasks go before this one: those of a higher priority, and those accepted earlier."""
        priorities = self._numbers.get(client, {})
        higher = sum(len(numbers) for other, numbers in priorities.items() if other > priority)
        return higher + bisect_left(priorities.get(priority, []), sequence)
