"""Packs: what must survive a machine that is given back, as few files of bounded size, and how a run goes on from them.

    pack(folder, out, ["results", "starts"])      # out/pack.000, out/pack.001, ..., out/pack.json
    unpack(out, folder)                           # on another machine

A pack is a compressed archive cut into parts. `pack.json` holds the hash of the whole, so that a part that is missing
or torn is noticed before anything is written.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path

PART_BYTES = 15 << 20
MOST_PARTS = 6
"""Parts of a pack; with what a run leaves beside it, eight files."""


class PackError(RuntimeError):
    """A pack that cannot be written or read; one line says why."""


def pack(folder: Path, out: Path, names: Iterable[str], *, part_bytes: int = PART_BYTES) -> list[Path]:
    """Write files and folders of `folder` (links are followed) as parts in `out`; returns what was written.

    Names that are not there are left out. Equal files give equal packs.

    Raises:
        PackError: more than `MOST_PARTS` parts would be needed.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", preset=2, dereference=True) as archive:
        for path in sorted({found for name in names for found in _files(folder / name)}):
            archive.add(path, arcname=str(path.relative_to(folder)), recursive=False, filter=_plain)
    data = buffer.getvalue()
    parts = [data[start : start + part_bytes] for start in range(0, len(data), part_bytes)]
    if len(parts) > MOST_PARTS:
        raise PackError(f"{len(data) >> 20} MiB do not fit into {MOST_PARTS} parts of {part_bytes >> 20} MiB")
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("pack.*"):
        old.unlink()
    written: list[Path] = []
    for number, part in enumerate(parts):
        path = out / f"pack.{number:03d}"
        path.write_bytes(part)
        written.append(path)
    note = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), "parts": [path.name for path in written]}
    (out / "pack.json").write_text(json.dumps(note) + "\n")
    return [*written, out / "pack.json"]


def unpack(source: Path, folder: Path) -> int:
    """Put the files of a pack into `folder`, over what is there; returns how many.

    Raises:
        PackError: there is no pack, a part is missing, or it is not what was written.
    """
    try:
        note = json.loads((source / "pack.json").read_text("utf-8"))
        data = b"".join((source / name).read_bytes() for name in note["parts"])
    except (OSError, ValueError, KeyError) as error:
        raise PackError(f"no pack in {source}: {error}") from error
    if hashlib.sha256(data).hexdigest() != note["sha256"]:
        raise PackError(f"the pack in {source} is not what was written")
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:xz") as archive:
        members = archive.getmembers()
        archive.extractall(folder, members, filter="data")
    return len(members)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return [Path(root) / name for root, _, names in os.walk(path, followlinks=True) for name in names]


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without times and owners, so that equal files are equal packs."""
    info.mtime, info.uid, info.gid, info.uname, info.gname, info.mode = 0, 0, 0, "", "", 0o644
    return info
