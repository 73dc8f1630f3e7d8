from __future__ import annotations

import pytest

from kerneldojo.problems import ProblemError, Refused, check_source, load_suite, problem_from_file, problem_id
from kerneldojo.problems.source import at_size

SOURCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1
def get_inputs():
    return [torch.randn(4)]
get_init_inputs = lambda: []
"""


@pytest.fixture
def folder(tmp_path):
    for level, names in ((1, ("2_Second", "10_Tenth", "1_First")), (2, ("1_Other",))):
        (tmp_path / f"level{level}").mkdir()
        for name in names:
            (tmp_path / f"level{level}" / f"{name}.py").write_text(f"# {name}\n{SOURCE}")
    return tmp_path


def test_katas_by_level_and_name() -> None:
    assert {problem.level for problem in load_suite("katas:2")} == {2}
    (problem,) = load_suite("katas:1/softmax_rows", "small")
    assert (problem.name, problem.size, problem.suite) == ("softmax_rows", "small", "katas")
    assert problem_id(problem) == "1/softmax_rows"
    assert load_suite("katas:1/matmul_square")[0].irreducible
    assert len(load_suite(["katas:1/softmax_rows", "katas:3"])) == 1 + len(load_suite("katas:3"))


def test_kernelbench_folder_is_in_order_of_numbers(folder) -> None:
    problems = load_suite(f"kernelbench:{folder}")
    assert [problem_id(problem) for problem in problems] == ["1/1_First", "1/2_Second", "1/10_Tenth", "2/1_Other"]
    assert [problem.name for problem in load_suite(f"kernelbench:{folder}:1/10")] == ["10_Tenth"]
    assert [problem.name for problem in load_suite(f"kernelbench:{folder}:1/2_Second")] == ["2_Second"]


def test_one_bad_file_does_not_cost_the_others(folder, caplog) -> None:
    (folder / "level1" / "3_Broken.py").write_text("def broken(:")
    (folder / "level1" / "4_Binary.py").write_bytes(b"\xff\xfe\x00")
    refused: list[Refused] = []
    problems = load_suite(f"kernelbench:{folder}:1", on_refused=refused.append)
    assert [problem.name for problem in problems] == ["1_First", "2_Second", "10_Tenth"]
    assert [(one.problem.name, one.problem.level) for one in refused] == [("3_Broken", 1), ("4_Binary", 1)]
    assert refused[0].reason.startswith("level 1, 3_Broken.py: not Python")
    assert refused[1].reason == "level 1, 4_Binary.py: not UTF-8 text"
    (folder / "level1" / "4_Binary.py").write_bytes(b"x = 1\0")
    load_suite(f"kernelbench:{folder}:1", on_refused=refused.append)
    assert "null bytes" in refused[-1].reason and "None" not in refused[-1].reason
    caplog.clear()
    assert load_suite(f"kernelbench:{folder}:1") == problems and caplog.text.count("left out") == 2
    caplog.clear()
    assert load_suite(f"kernelbench:{folder}:2") and load_suite(f"kernelbench:{folder}:1/2")
    assert not caplog.text  # Nobody who does not ask for them is told.


def test_a_checkout_may_hold_some_of_the_levels(folder, tmp_path) -> None:
    (tmp_path / "part" / "KernelBench").mkdir(parents=True)
    (folder / "level2").rename(tmp_path / "part" / "KernelBench" / "level2")
    assert [problem_id(one) for one in load_suite(f"kernelbench:{tmp_path / 'part'}")] == ["2/1_Other"]


def test_levels_beyond_the_fourth_and_files_without_a_number_are_not_passed_over(folder) -> None:
    (folder / "level12").mkdir()
    for name in ("3_Late.py", "Unnumbered.py", "__init__.py"):
        (folder / "level12" / name).write_text(SOURCE)
    refused: list[Refused] = []
    found = load_suite(f"kernelbench:{folder}", on_refused=refused.append)
    assert [problem_id(one) for one in found[-2:]] == ["2/1_Other", "12/3_Late"]
    (one,) = refused
    assert one.reason.startswith("level 12, Unnumbered.py: its name has no number")


def test_only_bad_files_are_one_line(folder) -> None:
    with pytest.raises(ProblemError, match=r"^level 2, 1_Other\.py: not Python[^\n]*$"):
        (folder / "level2" / "1_Other.py").write_text("def broken(:")
        load_suite(f"kernelbench:{folder}:2/1")
    (folder / "level2" / "2_Empty.py").write_text("")
    with pytest.raises(ProblemError, match=r"^none of 2 problems can be used; the first: level 2, 1_Other\.py[^\n]*$"):
        load_suite(f"kernelbench:{folder}:2")


def test_parquet(tmp_path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = {"code": [SOURCE, SOURCE], "level": [1, 1], "name": ["7_B", "3_A"], "problem_id": [7, 3], "extra": [0, 0]}
    parquet.write_table(pyarrow.table(rows), tmp_path / "level_1.parquet")
    assert [problem.name for problem in load_suite(f"kernelbench:{tmp_path}")] == ["3_A", "7_B"]
    assert [problem.name for problem in load_suite(f"kernelbench:{tmp_path}/level_1.parquet:1/7")] == ["7_B"]
    rows |= {"code": [SOURCE, "def broken(:"]}
    parquet.write_table(pyarrow.table(rows), tmp_path / "level_1.parquet")
    assert [problem.name for problem in load_suite(f"kernelbench:{tmp_path}")] == ["7_B"]
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(ProblemError, match=r"bad\.parquet"):
        load_suite(f"kernelbench:{tmp_path}/bad.parquet")


@pytest.mark.parametrize(
    "spec", ["", "kata", "katas:9", "katas:1/nothing", "kernelbench:", "kernelbench:/no/such/folder"]
)
def test_bad_specifications_are_one_line(spec) -> None:
    with pytest.raises(ProblemError) as caught:
        load_suite(spec)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(:", "not Python"),
        ("x = '\0'", "not Python"),
        ("(" * 5000 + ")" * 5000, "not Python"),
        ("#" * (1 << 21), "longer than"),
        (SOURCE.replace("class Model", "class Modell"), "no class Model"),
        (SOURCE.replace("(torch.nn.Module)", ""), "not derived"),
        (SOURCE.replace("get_inputs", "inputs"), "no function get_inputs"),
        (SOURCE.replace("get_init_inputs", "init"), "no function get_init_inputs"),
    ],
)
def test_static_checks(source, message) -> None:
    with pytest.raises(ProblemError, match=message):
        check_source(source)


def test_checking_runs_nothing(tmp_path) -> None:
    trap = tmp_path / "sprung"
    path = tmp_path / "problem.py"
    path.write_text(f"open({str(trap)!r}, 'w')\n{SOURCE}")
    assert problem_from_file(path).name == "problem"
    assert not trap.exists()
    with pytest.raises(ProblemError):
        problem_from_file(tmp_path / "absent.py")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProblemError, match="UTF-8"):
        problem_from_file(tmp_path / "binary.py")


def test_a_kata_without_its_small_size_is_refused() -> None:
    with pytest.raises(ProblemError, match="SMALL"):
        at_size(SOURCE, "small")
    with pytest.raises(ProblemError, match="ROWS"):
        at_size('SMALL = {"ROWS": 4}\n' + SOURCE, "full")
    kata = at_size('"""Sums."""\nROWS = 9  # many\nSMALL = {\n    "ROWS": 4,\n}\n' + SOURCE, "small")
    assert kata.source == '"""Sums."""\nROWS = 4\n' + SOURCE
    assert kata.summary == "Sums."
