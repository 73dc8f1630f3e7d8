"""Figures as people read them, the same in a verdict's message and in a panel."""

from __future__ import annotations


def plain(value: float) -> str:
    """Two significant digits, and no exponent for what people count: `0.062`, `7,000`."""
    return f"{float(f'{value:.2g}'):,.0f}" if 100 <= value < 1e9 else f"{value:.2g}"


def times(value: float) -> str:
    """How many times as fast, with two decimals, or two digits of what is slower than a tenth: `2.00`, `0.000038`.

    Never with an exponent: policies read it.
    """
    return f"{value:.2f}" if value >= 0.1 else f"{float(f'{value:.2g}'):.12f}".rstrip("0").rstrip(".")
