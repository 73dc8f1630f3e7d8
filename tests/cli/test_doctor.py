from __future__ import annotations

import json
import re

from dojo import dojo

from kerneldojo.cli.doctor import Finding, Machine, report


def test_the_doctor_reports_this_machine_as_json() -> None:
    done = dojo("doctor", "--json")
    assert done.returncode == 0, done.stderr
    machine = Machine.model_validate_json(done.stdout)
    findings = {finding.name: finding for finding in machine.findings}
    assert {"python", "torch", "triton", "numpy", "C compiler", "nvcc", "cuda", "model", "cpu"} <= findings.keys()
    assert {"model", "cpu"} <= set(machine.devices)
    assert "h100" in findings["model"].found
    assert all(finding.consequence for finding in machine.findings if finding.state != "ok")
    assert any("seccomp" in line for line in machine.sandbox)
    assert json.loads(done.stdout)["devices"] == list(machine.devices)


def test_the_doctor_reads_well_without_colour() -> None:
    done = dojo("doctor", NO_COLOR="1", TERM="dumb", COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert re.search(r"^torch +ok +\d", done.stdout, re.MULTILINE)
    assert "--device auto takes" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_machine_without_torch_is_told_what_follows() -> None:
    from rich.console import Console

    machine = Machine(
        devices=(),
        findings=(Finding(name="torch", state="missing", consequence="nothing can be judged"),),
        sandbox=("pidfd: missing: the end is noticed late",),
    )
    console = Console(width=80, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(report(machine))
    text = console.export_text()
    assert "Nothing can be judged here." in text
    assert "the end is noticed late" in text
