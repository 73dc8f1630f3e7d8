"""Run folders: nothing lost, nothing doubled, nothing mixed, whenever and however a run ends."""

from __future__ import annotations

import asyncio
import json
import random
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from killed_run import CONFIG, NUM_SAMPLES, SEED, run
from small_policies import PROBLEMS, Fixed, Parity

from kerneldojo.rollout import Manifest, RolloutConfig, RunError, RunFolder, export, play
from kerneldojo.schema import Evaluation, Job, Status

HERE = Path(__file__).parent
SOON = RolloutConfig(retry_delay=0.0)


def played(folder, policy=None, judge=None, config=CONFIG, problems=PROBLEMS, **options):
    options = {"num_samples": 2, "rollout": SOON, **options}
    return asyncio.run(
        play(problems, policy or Fixed(), judge or Parity(), config, folder=RunFolder(folder), **options)
    )


def whole_run() -> list:
    return asyncio.run(play(PROBLEMS, Fixed(), Parity(), CONFIG, num_samples=NUM_SAMPLES, seed=SEED))


def test_what_is_on_disk_is_what_was_played(tmp_path):
    episodes = played(tmp_path)
    assert sorted(RunFolder(tmp_path).episodes(), key=lambda item: item.id) == sorted(
        episodes, key=lambda item: item.id
    )
    turns = RunFolder(tmp_path).turns()
    assert all(turns[episode.id] == episode.turns for episode in episodes)
    manifest = RunFolder(tmp_path).manifest()
    assert manifest.policy == "fixed" and manifest.versions["python"] and manifest.problems
    assert manifest.settings["play"] == CONFIG.model_dump(mode="json", exclude={"allow_degenerate"})


def test_a_finished_run_is_not_played_again(tmp_path):
    first = played(tmp_path)
    policy = Fixed()
    assert played(tmp_path, policy) == first and policy.requests == []


def test_killed_at_any_moment_it_goes_on_without_loss_or_doubling(tmp_path):
    expected = whole_run()
    chance, num_kills, at_kill = random.Random(5), 0, []
    for _ in range(40):
        command = [sys.executable, str(HERE / "killed_run.py"), str(tmp_path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()  # imports are over: the moments that count begin here
        try:
            process.wait(chance.uniform(0.02, 0.35))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            num_kills += 1
        process.stdout.close()
        at_kill.append((len(RunFolder(tmp_path).finished()), sum(map(len, RunFolder(tmp_path).turns().values()))))
        if num_kills >= 6 or process.returncode == 0:
            break
    assert num_kills >= 2 and any(0 < done < len(expected) for done, _ in at_kill), at_kill
    assert at_kill == sorted(at_kill), "something that was on disk is gone"
    assert run(str(tmp_path), latency=0.0) == expected
    ids = [json.loads(line)["id"] for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    assert sorted(ids) == sorted(item.id for item in expected)


def test_an_episode_goes_on_after_its_last_turn(tmp_path):
    class Stops(Fixed):
        async def answer(self, request):
            if len(self.requests) == 20:
                raise ZeroDivisionError("a bug")
            return await super().answer(request)

    with pytest.raises(ZeroDivisionError):
        played(tmp_path, Stops())
    kept = sum(len(turns) for turns in RunFolder(tmp_path).turns().values())
    assert 0 < kept < 20
    policy = Fixed()
    episodes = played(tmp_path, policy)
    assert len(policy.requests) == 6 * 2 * 3 - kept
    assert episodes == asyncio.run(play(PROBLEMS, Fixed(), Parity(), CONFIG, num_samples=2))


def test_an_interrupt_writes_what_was_played_and_lets_go_of_the_folder(tmp_path):
    command = [sys.executable, str(HERE / "killed_run.py"), str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not RunFolder(tmp_path).finished() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0 and errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert (tmp_path / "episodes.jsonl").read_bytes().endswith(b"\n")
    assert 0 < len(RunFolder(tmp_path).finished()) < len(whole_run())
    assert run(str(tmp_path), latency=0.0) == whole_run()


def test_verdicts_of_before_are_not_asked_for_again(tmp_path):
    class Same(Fixed):
        async def answer(self, request):
            return await Fixed.answer(self, request.model_copy(update={"seed": 4}))

    judges = [Parity(), Parity()]
    asyncio.run(play(PROBLEMS[:2], Same(), judges[0], CONFIG, folder=RunFolder(tmp_path)))
    lines = (tmp_path / "episodes.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "episodes.jsonl").write_text(lines[0])
    asyncio.run(play(PROBLEMS[:2], Same(), judges[1], CONFIG, folder=RunFolder(tmp_path)))
    assert len(judges[0].asked) == 2 and not judges[1].asked


def test_an_episode_that_a_fault_ended_is_continued_by_the_next_run(tmp_path):
    broken = played(tmp_path, judge=Parity(num_faults=10**9))
    assert {item.finish for item in broken} == {"fault"} and len(broken) == 12
    assert RunFolder(tmp_path).finished() == set()
    mended = played(tmp_path)
    assert {item.finish for item in mended} == {"turns"} and len(mended) == len(set(item.id for item in mended)) == 12
    assert len(list(RunFolder(tmp_path).episodes())) == 12


def test_what_cannot_be_judged_is_recorded_once_and_not_judged_again(tmp_path):
    async def refuses(job: Job) -> Evaluation:
        asked.append(job)
        return Evaluation(status=Status.INVALID_PROBLEM, message="the problem is degenerate")

    asked: list[Job] = []
    first = played(tmp_path, judge=refuses)
    assert {item.finish for item in first} == {"refused"} and len(first) == len(asked) == 12
    kept = (tmp_path / "episodes.jsonl").read_bytes()
    assert played(tmp_path, judge=refuses) == first and len(asked) == 12
    assert (tmp_path / "episodes.jsonl").read_bytes() == kept
    assert not (tmp_path / "faults.jsonl").read_bytes()


def test_a_folder_from_before_a_setting_is_continued(tmp_path):
    expected = played(tmp_path)
    assert "allow_degenerate" not in RunFolder(tmp_path).manifest().settings["play"]
    assert played(tmp_path) == expected
    with pytest.raises(RunError, match="allow_degenerate"):
        played(tmp_path, config=CONFIG.model_copy(update={"allow_degenerate": True}))


@pytest.mark.parametrize("name", ["episodes.jsonl", "turns.jsonl"])
def test_a_torn_last_line_is_left_out_and_cut_off(tmp_path, name):
    expected = played(tmp_path)
    path = tmp_path / name
    data = path.read_bytes()
    for size in (len(data) - 1, len(data) - 100, data.rfind(b"\n", 0, -1) + 2):
        path.write_bytes(data[:size])
        list(RunFolder(tmp_path).episodes()), RunFolder(tmp_path).turns()
        assert played(tmp_path) == expected
        assert path.read_bytes().endswith(b"\n") and len(RunFolder(tmp_path).finished()) == 12


def test_damage_elsewhere_is_told_with_file_and_line(tmp_path):
    played(tmp_path)
    for name in ("episodes.jsonl", "turns.jsonl"):
        path = tmp_path / name
        good = path.read_bytes()
        lines = good.splitlines(keepends=True)
        path.write_bytes(b"".join([lines[0], lines[1][:40] + b"\n", *lines[2:]]))
        with pytest.raises(RunError, match=rf"{name}, line 2: no (episode|turn)") as refusal:
            played(tmp_path)
        assert "\n" not in str(refusal.value)
        path.write_bytes(good)
    lines = (tmp_path / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "episodes.jsonl").write_bytes(b"".join([*lines, lines[0]]))
    with pytest.raises(RunError, match="is there twice"):
        list(RunFolder(tmp_path).episodes())


def test_other_settings_are_refused_in_one_line_that_names_them(tmp_path):
    played(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.json*")}
    changed, new = PROBLEMS[0].model_copy(update={"source": "x"}), PROBLEMS[0].model_copy(update={"name": "new"})
    for options, words in (
        ({"config": CONFIG.model_copy(update={"num_turns": 4})}, "settings.play.num_turns was 3 and is 4"),
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"num_samples": 3}, "settings.num_samples was 2 and is 3"),
        ({"policy": Fixed(name="other")}, 'policy was "fixed" and is "other"'),
        ({"settings": {"suite": "x"}}, 'settings.suite was null and is "x"'),
        ({"rollout": RolloutConfig(temperature=0.1)}, "settings.sampling.temperature was 1.0 and is 0.1"),
        ({"seed": 1, "problems": PROBLEMS[1:]}, "seed was 0 and is 1"),
        ({"problems": PROBLEMS[1:]}, f"its problem request/{PROBLEMS[0].name} is missing"),
        ({"problems": [*PROBLEMS, new]}, f"problem request/new is not among its {len(PROBLEMS)}"),
        ({"problems": [*PROBLEMS[1:], changed]}, f"problem request/{changed.name} has another source"),
    ):
        with pytest.raises(RunError, match="begun with other settings") as refusal:
            played(tmp_path, **options)
        assert words in str(refusal.value) and len(str(refusal.value)) < len(str(tmp_path)) + 120
        assert "\n" not in str(refusal.value)
    assert before == {path.name: path.read_bytes() for path in tmp_path.glob("*.json*")}
    played(tmp_path, rollout=RolloutConfig(max_concurrent=1))


def test_a_policy_of_one_name_opened_otherwise_is_another_one(tmp_path):
    played(tmp_path, opened_as={"path": "/a/final"})
    with pytest.raises(RunError, match=r'opened_as\.path was "/a/final" and is "/b/final"'):
        played(tmp_path, opened_as={"path": "/b/final"})
    with pytest.raises(RunError, match=r'opened_as\.adapter was null and is "/c"'):
        played(tmp_path, opened_as={"path": "/a/final", "adapter": "/c"})
    played(tmp_path, opened_as={"path": "/a/final"})
    played(tmp_path)  # who does not know is not asked, and a folder that does not know is continued


def test_one_process_writes_at_a_time(tmp_path):
    command = [sys.executable, str(HERE / "killed_run.py"), str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "episodes.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(RunError, match=f"process {process.pid}\\) is writing"):
            run(str(tmp_path), latency=0.0)
        list(RunFolder(tmp_path).episodes())  # reading is free
    finally:
        process.kill()
        process.communicate()
    assert run(str(tmp_path), latency=0.0) == whole_run()


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    (tmp_path / "episodes.jsonl").write_text("{}\n")
    with pytest.raises(RunError, match=r"no manifest\.json"):
        played(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file"):
        played(tmp_path / "file")
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(RunError, match="not a manifest"):
        played(tmp_path)
    assert list(RunFolder(tmp_path / "nothing").episodes()) == []


def test_a_full_disk_stops_the_run_in_one_line_and_loses_nothing(tmp_path):
    """A limit on the size of files is as good as a full disk: a write stops in the middle of a line."""
    script = (
        "import resource, signal, sys; sys.path.insert(0, sys.argv[2]); signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from killed_run import run\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, {resource.RLIM_INFINITY}))\n"
        "from kerneldojo.rollout import RunError\n"
        "try:\n    run(sys.argv[1], latency=0.0)\n"
        "except RunError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path), str(HERE)], capture_output=True, text=True)
    assert done.stdout.strip() == f"{tmp_path}: File too large", done.stderr
    kept = RunFolder(tmp_path).finished()
    assert 0 < len(kept) < len(PROBLEMS) * NUM_SAMPLES
    assert run(str(tmp_path), latency=0.0) == whole_run()
    assert kept < RunFolder(tmp_path).finished()


def test_a_disk_that_is_full_before_the_run_begins_is_named(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(RunError, match=f"^{re.escape(str(tmp_path))}: File too large$"):
            RunFolder(tmp_path).open(Manifest(settings={}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    RunFolder(tmp_path).open(Manifest(settings={})).close()


def test_a_writer_takes_only_what_belongs_in_a_folder(tmp_path):
    (episode, *_) = asyncio.run(play(PROBLEMS[:1], Fixed(), Parity(), CONFIG))
    with RunFolder(tmp_path).open(Manifest(settings={})) as writer:
        with pytest.raises(ValueError, match="has not ended"):
            writer.add_episode(episode.model_copy(update={"finish": ""}))
        writer.add_episode(episode).result(timeout=10)
        with pytest.raises(ValueError, match="recorded twice"):
            writer.add_episode(episode)
    assert list(RunFolder(tmp_path).episodes()) == [episode]
    with pytest.raises(RuntimeError, match="closed"):
        writer.add_episode(episode.model_copy(update={"id": "other"}))


def test_a_run_is_exported_to_parquet(tmp_path):
    from pyarrow import parquet

    episodes = played(tmp_path)
    assert export(RunFolder(tmp_path).episodes(), tmp_path / "turns.parquet") == 36
    rows = {(row["episode"], row["turn"]): row for row in parquet.read_table(tmp_path / "turns.parquet").to_pylist()}
    assert len(rows) == 36
    for episode in episodes:
        for turn in episode.turns:
            row = rows[episode.id, turn.index]
            assert row["reward"] == turn.reward and row["answer"] == turn.answer.text
            assert row["status"] == turn.evaluation.status and row["speedup"] == turn.evaluation.speedup
            assert row["code"] == turn.candidate.source and row["prompt_ids"] is None and row["exploits"] == []
    assert export([], tmp_path / "empty.parquet") == 0
    assert parquet.read_table(tmp_path / "empty.parquet").column_names == list(rows[episodes[0].id, 0])
    with pytest.raises(RunError, match="No such file"):
        export([], tmp_path / "nowhere" / "x.parquet")
