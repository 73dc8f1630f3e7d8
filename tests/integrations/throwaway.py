"""Throwaway environments that hold others' packages, each made once and kept in a cache folder.

They see the packages of the environment that runs the tests, through a path file, and hold only what is missing there.
The folder is `DOJO_PACKAGES_CACHE`, else `~/.cache/kerneldojo/packages`; deleting it costs nothing but time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent

needs_packages = [
    pytest.mark.packages,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.environ.get("DOJO_PACKAGES") != "1", reason="installs packages: set DOJO_PACKAGES=1"),
]


def environment(*requirements: str, without: Sequence[str] = ()) -> Path:
    """A Python that can import what is required; made on the first call, in a few minutes.

    Args:
        requirements: as pip takes them.
        without: what is removed again of what they bring: a build for GPUs beside a torch that has none, say.
    """
    identity = "\n".join([*requirements, *without, sys.version, sysconfig.get_path("purelib")])
    home = os.environ.get("DOJO_PACKAGES_CACHE") or Path.home() / ".cache" / "kerneldojo" / "packages"
    folder = Path(home) / f"{requirements[0].split('=')[0]}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _make(folder, requirements, without)
            (folder / "complete").touch()
    return folder / "bin" / "python"


def _make(folder: Path, requirements: Sequence[str], without: Sequence[str]) -> None:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())
    (site / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT / 'src'}\n")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True)
    if without:
        subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", *without], check=True)


def run_there(python: Path, script: str, *arguments: str, seconds: float = 900, **env: str) -> str:
    """What a script of this folder prints when it is run by such a Python; its errors are the test's."""
    path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        [python, HERE / script, *arguments],
        env={**os.environ, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1", **env},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, f"{script} ended with {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done.stdout
