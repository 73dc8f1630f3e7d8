"""`dojo doctor`: what this machine offers for judging, what it lacks, and what follows from that.

A finding says what was found and, where something is missing or does not fit, its consequence in one sentence: a reader
should not have to know why a version matters. Everything is looked at for real (torch is imported, the driver is asked,
the sandbox probes the kernel); nothing is inferred from names.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kerneldojo.cli.arguments import AsJson
from kerneldojo.cli.streams import console_for, own_standard_output, print_json
from kerneldojo.cli.text import one_line
from kerneldojo.schema import Frozen

State = Literal["ok", "limited", "missing"]

MARKS: dict[State, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "limited": ("limited", "yellow"),
    "missing": ("missing", "red"),
}


DEVICE_KINDS = ("cuda", "model", "cpu")
"""Kinds of devices, best first."""


class Finding(Frozen):
    """One thing that judging needs or can use."""

    name: str
    state: State
    """`ok`; `limited` if judging works with a restriction; `missing` if something cannot be done at all."""
    found: str = ""
    """What is there: a version, a name, a path."""
    consequence: str = ""
    """What follows where it is not `ok`."""


class Machine(Frozen):
    """Everything that the doctor found."""

    devices: tuple[str, ...]
    """Kinds of devices that can judge here, best first: `cuda`, `model`, `cpu`."""
    findings: tuple[Finding, ...]
    sandbox: tuple[str, ...]
    """The sandbox's own lines: what holds a contestant on this machine, and what does not."""


def doctor_command(as_json: AsJson = False) -> None:
    """Say what this machine offers for judging. Exit code 1 if nothing can be judged here."""
    with own_standard_output() as output:
        machine = examine()
        if as_json:
            print_json(machine, output)
        else:
            console_for(output).print(report(machine))
    raise typer.Exit(0 if machine.devices else 1)


def examine() -> Machine:
    """Look at this machine; imports torch where it is installed, which takes seconds."""
    from kerneldojo.contestant.sandbox import probe

    # The probe tries things in forked children, so it comes before torch and its threads.
    sandbox = tuple(probe().lines())
    findings = [*_packages(), *_toolchain()]
    lacking = [name for name in ("torch", "triton", "numpy") if installed(name) is None]
    findings.extend(_devices_lacking(lacking) if lacking else _device_findings())
    usable = tuple(finding.name for finding in findings if finding.name in DEVICE_KINDS and finding.state == "ok")
    return Machine(devices=usable, findings=tuple(findings), sandbox=sandbox)


def installed(package: str) -> tuple[int, ...] | None:
    """Version of an installed package as numbers, for example `(2, 13, 0)` for `2.13.0+cpu`; None if it is absent."""
    try:
        text = version(package)
    except PackageNotFoundError:
        return None
    return tuple(int(part) for part in text.split("+")[0].split(".")[:3] if part.isdigit())


def _packages() -> Iterator[Finding]:
    python = sys.version_info >= (3, 11)
    yield Finding(
        name="python",
        state="ok" if python else "missing",
        found=platform.python_version(),
        consequence="" if python else "3.11 or newer is needed",
    )
    for name, least in (("torch", (2, 11)), ("triton", (3, 6))):
        have, wanted = installed(name), ".".join(map(str, least))
        if have is None:
            yield Finding(name=name, state="missing", consequence="nothing can be judged: install kerneldojo[judge]")
        elif have < least:
            yield Finding(name=name, state="limited", found=version(name), consequence=f"{wanted} or newer is needed")
        elif name == "triton" and have[:2] != least:
            unproven = f"the interpreter is patched for {wanted}: cpu and model: devices are unproven here"
            yield Finding(name=name, state="limited", found=version(name), consequence=unproven)
        else:
            yield Finding(name=name, state="ok", found=version(name))
    numpy = installed("numpy")
    if numpy is None:
        yield Finding(
            name="numpy", state="missing", consequence="Triton's interpreter needs it: no cpu or model: device"
        )
    else:
        yield Finding(name="numpy", state="ok", found=version("numpy"))


def _toolchain() -> Iterator[Finding]:
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    yield Finding(
        name="C compiler",
        state="ok" if compiler else "missing",
        found=compiler or "",
        consequence="" if compiler else "Triton cannot build its launchers",
    )
    nvcc = find_nvcc()
    release = nvcc_release(nvcc) if nvcc else ""
    yield Finding(
        name="nvcc",
        state="ok" if release else "limited",
        found=f"{release} ({nvcc})" if release else str(nvcc or ""),
        consequence="" if release else "CUDA C++ candidates cannot be compiled; Triton ones can",
    )


def find_nvcc() -> Path | None:
    """The CUDA compiler that PyTorch would build a CUDA C++ candidate with, or None; needs no torch."""
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    beside_toolkit = [Path(root, "bin", "nvcc") for root in roots if root]
    on_path = shutil.which("nvcc")
    candidates = [*beside_toolkit[:-1], *([Path(on_path)] if on_path else []), beside_toolkit[-1]]
    return next((path for path in candidates if path.is_file()), None)


def nvcc_release(nvcc: Path) -> str:
    """The release that `nvcc` says it is, for example `13.0`; empty if it does not run."""
    try:
        done = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r"release (\d+\.\d+)", done.stdout)
    return found[1] if found else ""


def _devices_lacking(packages: list[str]) -> Iterator[Finding]:
    for kind in DEVICE_KINDS:
        yield Finding(name=kind, state="missing", consequence=f"needs {', '.join(packages)}")


def _device_findings() -> Iterator[Finding]:
    from kerneldojo.devices import num_cuda_devices
    from kerneldojo.devices.specs import GPUS

    count = num_cuda_devices()
    if count:
        import torch

        names = ", ".join(f"cuda:{index} ({torch.cuda.get_device_name(index)})" for index in range(count))
        yield Finding(name="cuda", state="ok", found=names)
        cupti = installed("cupti-python")
        yield Finding(
            name="cupti-python",
            state="ok" if cupti else "limited",
            found=".".join(map(str, cupti or ())),
            consequence="" if cupti else "no record of where device time went: coverage stays unknown",
        )
    else:
        yield Finding(name="cuda", state="missing", consequence="no measured times here; model: devices price kernels")
    yield Finding(name="model", state="ok", found=", ".join(sorted(GPUS)))
    yield Finding(name="cpu", state="ok", found="Triton's interpreter: correctness only, no times")


def report(machine: Machine) -> RenderableType:
    """What a terminal shows for `machine`."""
    findings = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        findings.add_column(no_wrap=True)
    findings.add_column(overflow="fold")
    for finding in machine.findings:
        mark, colour = MARKS[finding.state]
        words = "; ".join(part for part in (finding.found, finding.consequence) if part)
        findings.add_row(Text(finding.name), Text(mark, colour), Text(one_line(words)))
    parts: list[RenderableType] = [Text("This machine", "bold"), findings, Text()]
    parts += [Text("What locks a candidate in", "bold"), _sandbox_table(machine.sandbox), Text()]
    if machine.devices:
        parts.append(Text(f"--device auto takes {DEFAULTS[machine.devices[0]]}.", "bold"))
    else:
        parts.append(Text("Nothing can be judged here.", "bold red"))
    return Group(*parts)


DEFAULTS = {"cuda": "cuda:0", "model": "model:h100", "cpu": "cpu"}
"""What `auto` becomes when this kind of device is the best one."""


def _sandbox_table(lines: tuple[str, ...]) -> Table:
    """The sandbox's lines (`what: available`, `what: missing: what follows`) in the columns of the findings."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", max_width=34)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for line in lines:
        what, _, rest = line.partition(": ")
        state, _, consequence = rest.partition(": ")
        mark = Text("ok", "green") if state == "available" else Text("missing", "yellow")
        table.add_row(Text(one_line(what)), mark, Text(one_line(consequence)))
    return table
