"""avg@k and best@k of n samples, without bias.

Taking the best of the first k of n samples is a correct but wasteful estimate of what k samples give. The average over
*all* subsets of size k has the same mean and the least variance, and has a closed form, so no subset is ever drawn.
"""

from __future__ import annotations

from collections.abc import Sequence


def average_at_k(values: Sequence[float], k: int) -> float:
    """Expected mean of k of the n `values` drawn without repeats: their mean, whatever k is.

    Raises:
        ValueError: if not 1 <= k <= n.
    """
    _check(len(values), k)
    return sum(values) / len(values)


def success_at_k(n: int, c: int, k: int) -> float:
    """Probability that k of n samples hold one of the c good ones: 1 - C(n-c, k) / C(n, k).

    Chen et al., "Evaluating Large Language Models Trained on Code" (arXiv 2107.03374), Eq. 1, as their numerically
    stable product.

    Raises:
        ValueError: if not 1 <= k <= n or not 0 <= c <= n.
    """
    _check(n, k)
    if not 0 <= c <= n:
        raise ValueError(f"{c} good ones of {n} samples")
    missed = 1.0
    for i in range(k):
        missed *= max(n - c - i, 0) / (n - i)
    return 1.0 - missed


def best_at_k(values: Sequence[float], k: int) -> float:
    """Expected maximum of k of the n `values` drawn without repeats.

    With x_(1) <= ... <= x_(n), x_(i) is the largest of a subset in C(i-1, k-1) of the C(n, k) cases, so the expectation
    is sum_i x_(i) C(i-1, k-1) / C(n, k). For zeros and ones it is `success_at_k`. The weights are built from the top:
    w_n = k/n and w_{i-1} = w_i (i-k) / (i-1).

    Raises:
        ValueError: if not 1 <= k <= n.
    """
    n = len(values)
    _check(n, k)
    weight, expected = k / n, 0.0
    for i, value in zip(range(n, k - 1, -1), sorted(values, reverse=True), strict=False):
        expected += weight * value
        if i > 1:
            weight *= (i - k) / (i - 1)
    return expected


def _check(n: int, k: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"the best or the average of {k} needs at least as many samples, and there are {n}")
