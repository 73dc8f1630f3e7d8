"""Everything that only a GPU can prove, in one command that may be stopped and started again.

    python benchmarks/h200.py --out found                         # all sections, the most important first
    python benchmarks/h200.py --out found --seconds 560           # begin nothing that does not fit into so long
    python benchmarks/h200.py --out found --only honest latency   # these, whatever is there already
    python benchmarks/h200.py --device model:h100 --tiny          # a rehearsal on a machine without a GPU

Each section runs in a process of its own under a time limit of its own, and leaves `OUT/SECTION.json`: whether it
passed, what was found, what was wrong, how long it took. `OUT/summary.txt` says the same in a line for each, and
`OUT/SECTION.log` has what was printed. A section that is done is not done again; one that was cut short goes on where
it was, as far as it consists of verdicts (`OUT/SECTION.jsonl` keeps each).

| section | question |
|---|---|
| `gpu_tests` | do the tests marked `gpu` pass, the suite of exploits apart |
| `honest` | does every honest kernel pass, three times |
| `attacks`, `faults` | does every attack and fault get a verdict that the suite calls right, as it is written |
| `mutated` | does every attack that can be mutated, in one of its other forms (of nine, in turns) |
| `native` | does every sixth of them, inside a C++ extension |
| `forms` | does every attack, in every other form but the native; hours, so only if it is asked for |
| `latency` | is a verdict on a 64 MB elementwise kernel there within 2.5 s |
| `spread` | how far do ten verdicts lie apart (2 %), and a used runner's reference from a fresh one's (3 %) |
| `compile_baseline` | is `torch.compile`'s version what the reference is timed as |
| `disturbance` | do contexts that come and go move a figure; how many can be made a minute |
| `throughput`, `load_inline` | verdicts a minute, with several at once |
| `under_load` | is a kernel's time the same within 3 % when the judge is busy with others |
| `audit` | is every kata admitted at full size |
| `soak` | is anything lost or left behind while workers are killed |
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from h200_run import Found, Run, Unfinished  # noqa: E402
from h200_sections import (  # noqa: E402
    audit,
    compile_baseline,
    disturbance,
    gpu_tests,
    latency,
    load_inline,
    soak,
    spread,
    throughput,
    under_load,
)
from h200_suite import suite  # noqa: E402

from kerneldojo.contestant.sandbox import linux  # noqa: E402

SECTIONS: dict[str, tuple[Callable[[Run], Found], float]] = {
    "gpu_tests": (gpu_tests, 420.0),
    "honest": (partial(suite, section="honest", kind="honest", repeats=3), 400.0),
    "attacks": (partial(suite, section="attacks", kind="attack"), 500.0),
    "mutated": (partial(suite, section="mutated", kind="attack", forms="rotating"), 500.0),
    "faults": (partial(suite, section="faults", kind="fault"), 240.0),
    "latency": (latency, 120.0),
    "spread": (spread, 180.0),
    "compile_baseline": (compile_baseline, 150.0),
    "disturbance": (disturbance, 180.0),
    "throughput": (throughput, 540.0),
    "load_inline": (load_inline, 300.0),
    "under_load": (under_load, 300.0),
    "audit": (audit, 540.0),
    "soak": (soak, 420.0),
    "native": (partial(suite, section="native", kind="attack", forms="native"), 500.0),
    "forms": (partial(suite, section="forms", kind="attack", forms="every"), 3600.0),
}
"""By importance, each with the most seconds that it may take."""


# The runner.


def child(name: str, run: Run) -> None:
    """One section, in a process of its own; its result goes to a file."""
    started = time.monotonic()
    status = "passed"
    try:
        found, wrong = SECTIONS[name][0](run)
    except Unfinished as unfinished:
        found, wrong, status = unfinished.found, unfinished.wrong, "unfinished"
    if wrong and status == "passed":
        status = "failed"
    write(run.out, name, status, time.monotonic() - started, found, wrong)


def write(out: Path, name: str, status: str, seconds: float, found: dict[str, Any], wrong: list[str]) -> None:
    row = {"section": name, "status": status, "seconds": round(seconds, 1), "wrong": wrong, "found": found}
    part = out / f"{name}.part"
    part.write_text(json.dumps(row, indent=1) + "\n")
    part.replace(out / f"{name}.json")


def attend(name: str, run: Run) -> None:
    """Run one section in a process group of its own, and end all of it when its time is up."""
    path = run.out / f"{name}.json"
    path.unlink(missing_ok=True)
    command = [sys.executable, str(Path(__file__)), "--child", name, "--device", run.device, "--out", str(run.out)]
    command += ["--seconds", str(run.seconds), "--at-once", str(run.at_once), *(["--tiny"] if run.tiny else [])]
    command += ["--match", run.match]
    started = time.monotonic()
    with (run.out / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(run.seconds + 15)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with_group(process.pid, signal.SIGTERM)
            with_group(process.pid, signal.SIGKILL)
            process.wait()
    if not path.exists():
        what = "it was cut short" if code is None else f"it ended with exit code {code}: see its log"
        status = "unfinished" if code is None else "failed"
        write(run.out, name, status, time.monotonic() - started, {}, [what])


def with_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return
    time.sleep(0.5)


def result(out: Path, name: str) -> dict[str, Any] | None:
    path = out / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def summary(out: Path) -> str:
    """A line for each section, and what was wrong in it."""
    lines: list[str] = []
    for name in SECTIONS:
        row = result(out, name)
        lines.append(
            f"{name:17} {'not run' if row is None else row['status']:11} {row['seconds'] if row else 0:7.1f} s"
        )
        lines += [f"    {text[:200]}" for text in (row or {}).get("wrong", [])[:8]]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("h200"))
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="these sections, also if they are done")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for all of it")
    parser.add_argument("--tiny", action="store_true", help="as few of everything as shows that it runs")
    parser.add_argument("--at-once", type=int, default=4, help="verdicts at once in honest, attacks and faults")
    parser.add_argument("--match", default="", help="of the suite only what has this regular expression in its name")
    parser.add_argument("--child", choices=SECTIONS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that what is under way is ended, not left.
    if options.child:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        child(options.child, Run(options.device, out, options.tiny, options.seconds, options.at_once, options.match))
        return
    until = time.monotonic() + options.seconds
    for name in options.only or [name for name in SECTIONS if name != "forms"]:
        before = result(out, name)
        if before is not None and before["status"] != "unfinished" and not options.only:
            continue
        seconds = min(SECTIONS[name][1], until - time.monotonic() - 20)
        if seconds < 30:
            break
        print(f"{name} ...", flush=True)
        attend(name, Run(options.device, out, options.tiny, seconds, options.at_once, options.match))
        row = result(out, name) or {}
        print(f"{name}: {row.get('status')} after {row.get('seconds')} s", flush=True)
        (out / "summary.txt").write_text(summary(out))
    text = summary(out)
    (out / "summary.txt").write_text(text)
    print(text)
    rows = [result(out, name) for name in SECTIONS]
    sys.exit(any(row is not None and row["status"] == "failed" for row in rows))


if __name__ == "__main__":
    main()
