"""`dojo evaluate` in a process of its own: killed, stopped, started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kerneldojo.evaluate import read_records
from kerneldojo.rollout import RunError

SUITE = Path(__file__).parents[1] / "exploits"
NUM = 12
SLOW = "import time\ntime.sleep(0.4)\nclass ModelNew: pass\n"


def command(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kerneldojo.cli", "evaluate", *map(str, arguments)],
        env=os.environ | {"COLUMNS": "100", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*arguments: str | Path) -> tuple[int, str, str]:
    process = command(*arguments)
    output, errors = process.communicate(timeout=240)
    return process.returncode, output, errors


def write_input(path: Path) -> None:
    problem = (SUITE / "problems" / "swish.py").read_text()
    honest = (SUITE / "honest" / "swish.py").read_text()
    rows = [
        {"id": f"c{number}", "problem": problem, "candidate": f"{SLOW if number else honest}# {number}\n"}
        for number in range(NUM)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def num_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for_lines(process: subprocess.Popen[str], path: Path, number: int) -> None:
    until = time.monotonic() + 180
    while num_lines(path) < number:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.slow
def test_killed_stopped_and_started_again_every_candidate_has_one_verdict(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    results = out / "results.jsonl"
    write_input(source)
    arguments = (source, "--out", out, "--device", "model:h100", "--slots", "1", "--protocol", "quick")

    killed = command(*arguments)
    wait_for_lines(killed, results, 2)
    killed.kill()
    killed.communicate()
    with results.open("ab") as file:  # As if it had been killed in the middle of a line.
        file.write(b'{"id":"c')

    stopped = command(*arguments)
    before = num_lines(results)
    wait_for_lines(stopped, results, before + 2)
    stopped.send_signal(signal.SIGINT)
    _, errors = stopped.communicate(timeout=120)
    assert stopped.returncode == 130
    assert "start the same command again" in errors
    at_stop = num_lines(results)
    assert before + 2 <= at_stop < NUM
    kept = results.read_bytes()

    code, output, _ = run(*arguments, "--json")
    summary = json.loads(output)
    assert code == 0
    assert summary["num_finished"] == NUM
    assert summary["num_judged_now"] == NUM - at_stop
    assert results.read_bytes().startswith(kept)
    records = list(read_records(results))
    assert sorted(record.id for record in records) == sorted(f"c{number}" for number in range(NUM))
    by_id = {record.id: record.evaluation for record in records}
    assert by_id["c0"].correct
    assert not any(by_id[f"c{number}"].correct for number in range(1, NUM))

    from pyarrow import parquet

    table = parquet.read_table(out / "results.parquet").to_pylist()
    assert [row["id"] for row in table] == [record.id for record in records]
    assert all(row["judging_seconds"] > 0 for row in table)

    source.write_text(source.read_text().replace("# 3", "# three"))
    code, output, errors = run(*arguments)
    assert code == 2
    assert "'c3' was judged in" in errors
    assert "another candidate" in errors
    code, _, errors = run(*arguments[:-1], "standard")
    assert code == 2
    assert num_lines(results) == NUM


def test_bad_lines_are_told_before_anything_is_judged(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"problem": "x"}\nnothing\n\n{"problem": "softmax_rows", "candidate": "x"}\n')
    code, output, errors = run(source, "--out", tmp_path / "out", "--device", "cpu")
    assert code == 2
    assert output == ""
    told = errors.splitlines()
    assert [line.split(":")[1].strip() for line in told[:3]] == ["line 1", "line 2", "line 4"]
    assert len(told) == 4
    assert told[3] == "dojo: 3 of 3 entries cannot be judged"
    assert not (tmp_path / "out").exists()


def test_a_file_whose_name_is_no_text_is_told_in_one_line_or_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in (b"softmax_rows.py", b"softmax_rows__\xff.py"):
        (folder / os.fsdecode(name)).write_text("")
    asked = (folder, "--suite", "katas:1", "--out", tmp_path / "out", "--device", "cpu")
    code, _, errors = run(*asked)
    assert code == 2
    told = errors.splitlines()
    assert "not UTF-8" in told[0] and told[1:] == [
        "dojo: 1 of 2 entries cannot be judged; --skip-bad judges the others"
    ]
    code, _, errors = run(*asked, "--skip-bad")
    assert code == 0, errors
    assert num_lines(tmp_path / "out" / "results.jsonl") == 1


def test_without_pyarrow_the_verdicts_are_told_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra of its own, and its want was said when all had been judged, instead of what came out."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyarrow'] = None\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))))
    row = {"problem": (SUITE / "problems" / "swish.py").read_text(), "candidate": "x ="}
    (tmp_path / "in.jsonl").write_text(json.dumps(row) + "\n")
    code, output, errors = run(tmp_path / "in.jsonl", "--out", tmp_path / "out", "--device", "cpu", "--json")
    assert code == 0, errors
    assert json.loads(output)["statuses"] == {"compile_error": 1}
    assert "results.parquet was not written: it needs the extra" in errors
    assert not (tmp_path / "out" / "results.parquet").exists()


def test_a_mistake_that_all_entries_share_does_not_flood_the_terminal(tmp_path: Path) -> None:
    """Unless they are skipped: what was left out is told nowhere else."""
    source = tmp_path / "in.jsonl"
    source.write_text('{"problem": "x"}\n' * 30)
    told = run(source, "--out", tmp_path / "out", "--device", "cpu")[2].splitlines()
    assert told[19].startswith("dojo: line 20: ")
    assert told[20:] == ["dojo: and 10 more", "dojo: 30 of 30 entries cannot be judged"]
    write_input(source)
    with source.open("a") as file:
        file.write('{"problem": "x"}\n')
    told = run(source, "--out", tmp_path / "out", "--device", "cpu")[2].splitlines()
    assert told[-1] == f"dojo: 1 of {NUM + 1} entries cannot be judged; --skip-bad judges the others"


@pytest.mark.parametrize(
    "arguments",
    [
        ("missing.jsonl",),
        ("in.jsonl", "--suite", "no_such_suite"),
        ("in.jsonl", "--device", "tpu"),
        ("in.jsonl", "--device", "cuda:99"),
        ("in.jsonl", "--token-file", "bad.jsonl"),
        ("bad.jsonl", "--skip-bad"),
        ("in.jsonl", "--url", "http://127.0.0.1:9"),
    ],
    ids=str,
)
def test_bad_usage_is_one_line(
    tmp_path: Path, arguments: tuple[str | Path, ...], dojo_here: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    write_input(tmp_path / "in.jsonl")
    (tmp_path / "bad.jsonl").write_text("nothing")
    named = [tmp_path / one if str(one).endswith(".jsonl") else one for one in arguments]
    done = dojo_here("evaluate", *named, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert done.stdout == ""
    assert not (tmp_path / "out").exists()
    assert done.stderr.splitlines()[-1].startswith("dojo: ")
    assert "Traceback" not in done.stderr


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text('{"id": "x"}\n')
    with pytest.raises(RunError, match="line 1: no result of ours"):
        list(read_records(tmp_path / "results.jsonl"))
