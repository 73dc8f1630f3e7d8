"""What a worker has at hand for the next candidate of a problem, as far as its pool can tell.

On the host it is what an audit found out, which serves any number of verdicts at once. On a GPU it is a reference
runner that waits (`judging.runners`), and a runner serves one verdict at a time: a second candidate of a problem that
is under way there needs a second runner, a context of its own, as if nobody had met the problem before.
"""

from __future__ import annotations

from collections import Counter, OrderedDict


class Warmth:
    """Not thread-safe: its owner holds a lock.

    Args:
        most: what is kept at most; what was used last stays longest.
        is_shared: whether what is there for a problem serves several verdicts at once.
    """

    def __init__(self, most: int, *, is_shared: bool) -> None:
        self._most, self._is_shared = most, is_shared
        self._kept = OrderedDict[str, int]()
        """Of each problem, the one used last at the end: how many there are that wait."""
        self._under_way = Counter[str]()

    def begin(self, problem_hash: str) -> None:
        """A candidate of this problem goes to the worker."""
        self._under_way[problem_hash] += 1
        if not self._is_shared and problem_hash in self._kept:
            self._take(problem_hash)

    def end(self, problem_hash: str) -> None:
        """Its verdict is there."""
        self._under_way[problem_hash] -= 1
        if not self._under_way[problem_hash]:
            del self._under_way[problem_hash]
        self._kept[problem_hash] = 1 if self._is_shared else self._kept.get(problem_hash, 0) + 1
        self._kept.move_to_end(problem_hash)
        while sum(self._kept.values()) > self._most:
            self._take(next(iter(self._kept)))

    def _take(self, problem_hash: str) -> None:
        self._kept[problem_hash] -= 1
        if not self._kept[problem_hash]:
            del self._kept[problem_hash]

    def lose(self) -> None:
        """The worker is gone, and all that it had."""
        self._kept.clear()

    def is_free(self, problem_hash: str) -> bool:
        """Whether there is something at hand that nobody uses."""
        return problem_hash in self._kept

    def num_met(self, problem_hash: str) -> int:
        """How much there is, or will be when verdicts are there that are under way."""
        return self._kept.get(problem_hash, 0) + self._under_way[problem_hash]
