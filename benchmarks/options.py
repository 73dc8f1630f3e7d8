"""The command line of what looks into a judge. Imports nothing heavy, for one of them starts itself anew."""

from __future__ import annotations

import argparse


def options(description: str | None, *, at_once: int, num: int) -> argparse.ArgumentParser:
    """A command line with what all of them have; with so many verdicts, so many at once, unless others are named."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--at-once", type=int, nargs="+", default=[at_once])
    parser.add_argument("--num", type=int, default=num)
    parser.add_argument("--size", choices=["full", "small"], default="full")
    return parser
