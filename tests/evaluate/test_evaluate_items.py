"""What is read from lines and folders, and how what cannot be judged is told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerneldojo.evaluate import BadEntry, Settings, read_items, settle_device, summarise
from kerneldojo.evaluate.results import Record
from kerneldojo.pool import DeviceState
from kerneldojo.problems import load_suite
from kerneldojo.schema import Candidate, Evaluation, Problem, Status

SOURCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x
def get_inputs():
    return [torch.randn(4)]
def get_init_inputs():
    return []
"""
KATAS = load_suite("katas:1", "small")
BENCH = [
    Problem(name="23_Softmax", source=SOURCE, suite="kernelbench", level=1),
    Problem(name="23_Other", source=SOURCE + "# another\n", suite="kernelbench", level=2),
]


def lines(tmp_path: Path, *rows: object) -> Path:
    path = tmp_path / "input.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_a_line_brings_its_problem_or_names_it(tmp_path: Path) -> None:
    name = KATAS[0].name
    path = lines(
        tmp_path,
        {"problem": SOURCE, "candidate": "one"},
        "",
        {"problem": name, "candidate": "two", "id": "mine", "language": "cuda"},
        {"problem": f"1/{name}", "candidate": "not even Python (", "entry_point": "Fast"},
    )
    items, bad = read_items(path, KATAS, "triton")
    assert bad == []
    assert [item.id for item in items] == ["line-1", "mine", "line-4"]
    assert [item.candidate.language for item in items] == ["triton", "cuda", "triton"]
    assert items[0].problem.source == SOURCE
    assert items[1].problem == items[2].problem == KATAS[0]
    assert items[2].candidate.entry_point == "Fast"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{", "JSON"),
        ("[]", "object"),
        ("[" * 100_000, "JSON"),
        ({"candidate": "x"}, "problem: Field required"),
        ({"problem": SOURCE, "candidate": 3}, "candidate"),
        ({"problem": SOURCE, "candidate": "x", "langauge": "cuda"}, "langauge"),
        ({"problem": SOURCE, "candidate": "x", "language": "fortran"}, "language"),
        ({"problem": SOURCE, "candidate": "x", "id": ""}, "id"),
        ({"problem": "no_such_kata", "candidate": "x"}, "no problem 'no_such_kata'"),
        ({"problem": "def\nx", "candidate": "x"}, "not Python"),
        ({"problem": SOURCE.replace("get_inputs", "inputs"), "candidate": "x"}, "get_inputs"),
        ({"problem": SOURCE, "candidate": "x", "id": "first"}, "also that of line 1"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_line_is_one_line_with_its_number(tmp_path: Path, row: object, words: str) -> None:
    path = lines(tmp_path, {"problem": SOURCE, "candidate": "x", "id": "first"}, row)
    items, bad = read_items(path, KATAS)
    assert [item.id for item in items] == ["first"]
    (entry,) = bad
    assert str(entry).startswith("line 2: ")
    assert words in str(entry)
    assert "\n" not in str(entry)


def test_half_a_character_in_a_candidate_is_no_bad_line(tmp_path: Path) -> None:
    """A model may well end amid an emoji, and `json.dumps` writes what it wrote; its verdict is data like any other."""
    rows = ({"problem": SOURCE, "candidate": f"x = '{half}'", "id": half or None} for half in ("\ud83d", ""))
    items, bad = read_items(lines(tmp_path, *rows))
    assert bad == []
    assert [(item.id, item.candidate.source) for item in items] == [("\ufffd", "x = '\ufffd'"), ("line-2", "x = ''")]
    items, bad = read_items(
        lines(tmp_path, {"problem": SOURCE, "candidate": "x", "\ud83d": 1}, '["\\ud83d"]', "[\\ud83d]")
    )
    assert items == [] and len(bad) == 3


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(SOURCE)
    (tmp_path / "good.py").write_text("x")
    os.mkfifo(tmp_path / "pipe.py")
    items, bad = read_items(tmp_path)
    assert [item.id for item in items] == ["good"]
    assert bad == [BadEntry("pipe.py", "is a pipe, not a file")]


def test_a_line_without_end_is_skipped_and_the_next_is_read(tmp_path: Path) -> None:
    path = lines(tmp_path, "x" * (9 << 20), {"problem": SOURCE, "candidate": "x"})
    items, bad = read_items(path)
    assert [item.place for item in items] == ["line 2"]
    assert bad == [BadEntry("line 1", "longer than 8 MiB")]


def test_a_name_needs_a_suite_and_one_meaning(tmp_path: Path) -> None:
    path = lines(tmp_path, {"problem": "23", "candidate": "x"}, {"problem": "2/23", "candidate": "x"})
    items, bad = read_items(path, BENCH)
    assert [item.problem.name for item in items] == ["23_Other"]
    assert "levels 1, 2" in bad[0].reason
    _, bad = read_items(path)
    assert all("no --suite" in entry.reason for entry in bad)


def test_folders_of_pairs_and_generations_named_after_problems(tmp_path: Path) -> None:
    kata = KATAS[0].name
    sources = {
        "pair/reference.py": SOURCE,
        "pair/a.py": "a",
        "pair/b.py": "b",
        "bad/reference.py": "def",
        "bad/a.py": "a",
        "level_1_problem_23_sample_0_kernel.py": "g",
        "level_2_problem_23_sample_7_kernel.py": "g",
        "level_3_problem_1_sample_0_kernel.py": "g",
        f"{kata}.py": "k",
        f"{kata}__second-try.py": "k",
        f"{kata}/anything.py": "k",
        "__pycache__/x.py": "",
        ".hidden/x.py": "",
        "nameless.py": "n",
        "notes.txt": "",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    items, bad = read_items(tmp_path, [*KATAS, *BENCH])
    assert {item.id: item.problem.name for item in items} == {
        "pair/a": "pair",
        "pair/b": "pair",
        "level_1_problem_23_sample_0_kernel": "23_Softmax",
        "level_2_problem_23_sample_7_kernel": "23_Other",
        kata: kata,
        f"{kata}__second-try": kata,
        f"{kata}/anything": kata,
    }
    places = {entry.place for entry in bad}
    assert places == {"bad/reference.py", "nameless.py", "level_3_problem_1_sample_0_kernel.py"}


def test_a_file_whose_name_is_no_text_is_a_bad_entry(tmp_path: Path) -> None:
    for name in (b"pair/reference.py", b"pair/a.py", b"pair/b\xff.py", b"b\xff/reference.py", b"b\xff/a.py"):
        path = tmp_path / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(SOURCE)
    items, bad = read_items(tmp_path)
    assert [item.id for item in items] == ["pair/a"]
    assert sorted(entry.place for entry in bad) == ["b\\xff/a.py", "pair/b\\xff.py"]
    assert all("not UTF-8" in entry.reason for entry in bad)

    # The folder that all of them are in is no part of a name, but of that of a problem beside the candidates.
    items, bad = read_items(tmp_path / os.fsdecode(b"b\xff"))
    assert not bad and items[0].id == "a"
    assert items[0].model_dump_json()


def test_a_folder_in_the_shape_of_kernelbench_tells_the_level(tmp_path: Path) -> None:
    """Two levels have a 23rd problem, and one name is that of two."""
    twin = BENCH[0].model_copy(update={"level": 2, "source": SOURCE + "# a third\n"})
    for name in (
        "level1/23_Softmax",
        "model/level_2/23_Softmax__a",
        "level2/23_Other",
        "level2/23_Softmax/x",
        "23_Other",
    ):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("k")
    items, bad = read_items(tmp_path, [*BENCH, twin])
    assert bad == []
    assert {item.id: (item.problem.level, item.problem.name) for item in items} == {
        "level1/23_Softmax": (1, "23_Softmax"),
        "model/level_2/23_Softmax__a": (2, "23_Softmax"),
        "level2/23_Other": (2, "23_Other"),
        "level2/23_Softmax/x": (2, "23_Softmax"),
        "23_Other": (2, "23_Other"),
    }


def test_a_mark_of_byte_order_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    path = lines(tmp_path, {"problem": SOURCE, "candidate": "one"})
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    items, bad = read_items(path)
    assert [item.id for item in items] == ["line-1"] and bad == []


@given(st.binary(max_size=300))
def test_no_bytes_make_reading_fail(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "input.jsonl"
        path.write_bytes(data)
        items, bad = read_items(path)
    num_lines = sum(bool(line.strip()) for line in data.split(b"\n"))
    assert len(items) + len(bad) == num_lines


def test_a_run_has_one_definite_kind_of_device() -> None:
    gpus = [DeviceState(name=f"node-0/cuda:{index}", kind="cuda") for index in range(2)]
    hosts = [DeviceState(name="cpu", kind="cpu"), DeviceState(name="model:h100", kind="model")]
    assert settle_device(["auto"], [*hosts, *gpus]) == "cuda"
    assert settle_device(["auto"], hosts) == "model:h100"
    assert settle_device(["cuda:1"], gpus) == "cuda:1"
    assert settle_device(["cuda"], gpus) == settle_device(["cuda:0", "cuda:1"], gpus) == "cuda"
    for wanted in (["cpu", "model:h100"], ["cuda"], ["model:a100"]):
        with pytest.raises(ValueError, match=r"not comparable|there is no device"):
            settle_device(wanted, hosts)


def test_problems_of_one_name_are_not_summed_up_together() -> None:
    found = [Evaluation(status=Status.PASSED, correct=True, speedup=4.0), Evaluation(status=Status.INCORRECT)]
    records = [
        Record(
            id=str(number),
            job="",
            problem="softmax",
            suite="request",
            problem_hash=content * 64,
            settings=Settings(),
            candidate=Candidate(source=""),
            evaluation=found[content == "b"],
        )
        for number, content in enumerate("abb")
    ]
    summary = summarise(records, "012")
    told = [(one.name, one.num_judged, one.num_passed, one.best_speedup) for one in summary.problems]
    assert told == [("softmax (aaaaaaaa)", 1, 1, 4.0), ("softmax (bbbbbbbb)", 2, 0, None)]
    assert [one.name for one in summarise(records[:1], "0").problems] == ["softmax"]


def test_problems_are_told_with_their_level_in_the_order_of_their_suite() -> None:
    shared = {"job": "", "suite": "kernelbench", "settings": Settings(), "candidate": Candidate(source="")}
    places = [(2, "2_Sigmoid"), (1, "10_Tanh"), (1, "2_Sigmoid"), (2, "1_Relu")]
    records = [
        Record(
            id=str(number),
            problem=name,
            level=level,
            problem_hash=str(number) * 64,
            evaluation=Evaluation(status=Status.INCORRECT),
            **shared,
        )
        for number, (level, name) in enumerate(places)
    ]
    told = [one.name for one in summarise(records, "0123").problems]
    assert told == ["1/2_Sigmoid", "1/10_Tanh", "2/1_Relu", "2/2_Sigmoid"]
