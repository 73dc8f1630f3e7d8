"""Which versions a result was reached with."""

from __future__ import annotations

import platform
from importlib import metadata


def versions(*packages: str) -> dict[str, str]:
    """Of Python and of `packages`; those that are not installed are left out."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
