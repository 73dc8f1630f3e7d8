"""Checkpoints and journals on a disk that is full, and after processes that were killed."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest
import torch
import toy_world

from kerneldojo.training.checkpoints import CheckpointError, Checkpoints, load_state
from kerneldojo.training.journal import Journal, JournalError, LogConfig, read_journal
from kerneldojo.training.parallel import Ranks
from kerneldojo.training.rl import train_rl
from kerneldojo.training.runs import open_run, point
from kerneldojo.training.settings import ConfigError
from kerneldojo.training.sft import train_sft

LOG = LogConfig(tensorboard=False)


def save_some(folder: Path) -> None:
    folder.mkdir()
    (folder / "weights").write_bytes(b"x" * 100)


def test_the_latest_are_kept_and_what_a_link_leads_to(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    assert checkpoints.latest() is None
    for step in range(1, 6):
        path = checkpoints.save(step, save_some, {"step": step, "tensor": torch.arange(step)})
        if step == 2:
            point(tmp_path / "best", path / "model")
        checkpoints.prune(tmp_path / "model", tmp_path / "best")
    (tmp_path / "checkpoints" / "step-000005-kept").mkdir()  # somebody's own copy is no checkpoint of the run
    assert checkpoints.steps() == [2, 4, 5]
    latest = checkpoints.latest()
    assert latest is not None and load_state(latest)["step"] == 5


def test_nothing_but_plain_values_is_read(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self):
            return (os.system, ("touch /tmp/should-not-exist",))

    torch.save({"step": Evil()}, tmp_path / "state.pt")
    with pytest.raises(CheckpointError, match=r"state\.pt"):
        load_state(tmp_path)


@pytest.mark.parametrize("mapped", [False, True])
def test_a_state_that_is_empty_or_damaged_says_so(tmp_path: Path, *, mapped: bool) -> None:
    file = tmp_path / "state.pt"
    torch.save({"averages": torch.zeros(1000)}, file)
    whole = file.read_bytes()
    for data, reason in (
        (b"", "the file is empty"),
        (whole[:2000], "the file is damaged"),
        (b"\x80", "the file is damaged"),
    ):
        file.write_bytes(data)
        with pytest.raises(CheckpointError) as caught:
            load_state(tmp_path, mapped=mapped)
        assert str(caught.value) == f"cannot read {file}: {reason}"
    file.unlink()
    with pytest.raises(CheckpointError, match=r"state\.pt: No such file or directory$"):
        load_state(tmp_path, mapped=mapped)


def test_a_full_disk_leaves_the_older_checkpoint(tmp_path: Path) -> None:
    """A limit on the size of files is as good as a full disk: the kernel refuses the write."""
    script = f"""
import resource
from pathlib import Path
import torch
from kerneldojo.training.checkpoints import CheckpointError, Checkpoints
checkpoints = Checkpoints(Path({str(tmp_path)!r}))
def save(folder):
    folder.mkdir()
    (folder / "weights").write_bytes(b"x" * 100)
checkpoints.save(1, save, {{"step": 1}})
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
for state in ({{"big": torch.zeros(10000)}}, {{"big": "x" * 100000}}):
    try:
        checkpoints.save(2, save, state)
    except CheckpointError as error:
        print(str(error).count("\\n"), checkpoints.steps(), sorted(p.name for p in Path({str(tmp_path)!r}).iterdir()))
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert told.stdout.splitlines() == ["0 [1] ['step-000001']"] * 2, told.stderr


@contextmanager
def files_of_at_most(size: int) -> Generator[None]:
    """No file may grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_in_the_middle_of_a_run_does_not_end_it(tmp_path: Path, collected: Path, ranks: Ranks) -> None:
    told = toy_world.sft_config(tmp_path / "run", collected, epochs=1, checkpoint_every=1)
    with files_of_at_most(20_000):  # safetensors meets the limit first
        outcome = train_sft(told, ranks, show=False)
    assert outcome.reason.startswith("cannot write the checkpoint of step 3 ") and "\n" not in outcome.reason
    assert len(read_journal(told.output / "metrics.jsonl")) == outcome.steps == 3
    assert not list((told.output / "checkpoints").iterdir())


def test_whatever_cannot_be_written_is_told_and_removed(tmp_path: Path) -> None:
    checkpoints, tokenizer = Checkpoints(tmp_path), toy_world.tokenizer()
    with files_of_at_most(1000), pytest.raises(CheckpointError, match="File too large"):
        checkpoints.save(1, tokenizer.save_pretrained, {})
    with files_of_at_most(1000), pytest.raises(CheckpointError, match="File too large"):
        checkpoints.save(1, save_some, {"averages": torch.zeros(10_000)})

    def mistaken(folder: Path) -> None:
        raise TypeError(folder)

    with pytest.raises(TypeError):  # a mistake of ours is no full disk
        checkpoints.save(1, mistaken, {})
    assert not list(tmp_path.iterdir())


def test_links_never_lead_nowhere(
    tmp_path: Path, collected: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies while it removes the first old checkpoint has let `model` point to a newer one."""

    class Killed(BaseException):
        pass

    def removed(path: Path, **_: object) -> None:
        if path.name.startswith("step-"):
            raise Killed

    told = toy_world.sft_config(tmp_path / "run", collected, epochs=1, checkpoint_every=1, keep_checkpoints=1)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr("kerneldojo.training.checkpoints.shutil.rmtree", removed)
        train_sft(told, ranks, show=False)
    assert (told.output / "model").resolve() == told.output.resolve() / "checkpoints/step-000002/model"
    assert train_sft(told, ranks, resume=True, show=False).reason == "finished"
    assert [path.name for path in (told.output / "checkpoints").iterdir()] == ["step-000003"]


def test_a_journal_has_every_step_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path, LOG, {})
    for step in range(1, 5):
        journal.write({"step": step, "loss": float("nan") if step == 2 else 1.0})
    journal.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')
    again = Journal(tmp_path, LOG, {}, after_step=3)
    again.write({"step": 4, "loss": 2.0})
    again.close()
    records = read_journal(tmp_path / "metrics.jsonl")
    assert [one["step"] for one in records] == [1, 2, 3, 4]
    assert records[1]["loss"] is None and records[3]["loss"] == 2.0


def test_tensorboard_gets_the_numbers(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    journal = Journal(tmp_path, LogConfig(), {})
    journal.write({"step": 3, "loss": 0.5, "turns": {"0": {"reward": 1.5}}, "skipped": None})
    journal.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Scalars("turns/0/reward")[0].value == 1.5 and events.Scalars("loss")[0].step == 3


def test_a_step_and_its_evaluation_are_curves_of_their_own(tmp_path: Path) -> None:
    """Both records have the same step and count verdicts and seconds: one curve would have two values there."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    journal = Journal(tmp_path, LogConfig(), {})
    journal.write({"step": 3, "reward": 1.0, "verdicts": {"asked": 256}, "seconds": {"wait": 9.0, "step": 20.0}})
    looked = {"fast_1.2": 0.25, "turns": {"0": {"reward": 1.5}}}
    journal.write({"step": 3, "evaluation": looked, "verdicts": {"asked": 32}, "seconds": {"wait": 1.0}})
    journal.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    curves = {name: [event.value for event in events.Scalars(name)] for name in events.Tags()["scalars"]}
    assert curves == {
        "reward": [1.0],
        "verdicts/asked": [256.0],
        "seconds/wait": [9.0],
        "seconds/step": [20.0],
        "evaluation/fast_1.2": [0.25],
        "evaluation/turns/0/reward": [1.5],
        "evaluation/verdicts/asked": [32.0],
        "evaluation/seconds/wait": [1.0],
    }


@pytest.mark.parametrize("tracker", ["wandb", "trackio"])
def test_a_tracker_takes_two_runs_for_two(
    tracker: Literal["wandb", "trackio"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recipes call their folders `rl`: by that name alone the second run would go on with the first one's curves."""
    started: list[dict[str, str]] = []
    module = ModuleType(tracker)
    module.__dict__["init"] = lambda **told: started.append(told)
    monkeypatch.setitem(sys.modules, tracker, module)
    key = "id" if tracker == "wandb" else "name"
    log = LogConfig(tensorboard=False, tracker=tracker)
    for folder in ("laptop/rl", "kevin/rl", "laptop/rl"):
        Journal(tmp_path / folder, log, {})
    laptop, kevin, again = (told[key] for told in started)
    assert laptop == again != kevin
    assert all("rl" in told["name"] for told in started)


def test_a_journal_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot write"):
        Journal(tmp_path / "file" / "run", LOG, {})
    with pytest.raises(JournalError, match="wandb is not installed"):
        Journal(tmp_path, LogConfig(tensorboard=False, tracker="wandb"), {})


def test_a_tracker_that_is_not_installed_is_told_before_a_model_is_opened(tmp_path: Path) -> None:
    """Neither the model nor the data exist, and the folder of the run is not made."""
    ranks, log = Ranks(0, 1, torch.device("cpu")), LogConfig(tensorboard=False, tracker="wandb")
    rl = toy_world.rl_config(tmp_path / "run", tmp_path / "model").model_copy(update={"log": log})
    sft = toy_world.sft_config(tmp_path / "run", tmp_path / "data").model_copy(update={"log": log})
    with pytest.raises(JournalError, match=r"^log\.tracker: wandb is not installed$"):
        train_sft(sft, ranks, show=False)
    with pytest.raises(JournalError, match=r"^log\.tracker: wandb is not installed$"):
        train_rl(rl, toy_world.TextJudge(), ranks, show=False)
    assert not (tmp_path / "run").exists()


def test_a_journal_on_a_full_disk_says_so_until_its_end(tmp_path: Path) -> None:
    """What could not be written is tried once more as the file is closed, and fails again."""
    journal = Journal(tmp_path, LOG, {})
    with files_of_at_most(10):
        for act in (lambda: journal.write({"step": 1, "loss": 0.5}), journal.close):
            with pytest.raises(JournalError, match=r"^cannot write .*metrics\.jsonl: File too large$"):
                act()


def test_curves_that_cannot_be_written_are_not_blamed_on_the_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path, LogConfig(), {})
    with files_of_at_most(1000):
        with pytest.raises(JournalError, match=r"^cannot write .*tensorboard: File too large$"):
            for step in range(40):  # the curves of a step take more room than its line
                journal.write({"step": step, "a" * 100: 1.0})
                (tmp_path / "metrics.jsonl").write_text("")  # has room, always
        with pytest.raises(JournalError, match=r"^cannot write .*tensorboard: File too large$"):
            journal.close()


def test_curves_that_cannot_be_written_leave_the_screen_alone(tmp_path: Path) -> None:
    script = f"""
import resource
from pathlib import Path
from kerneldojo.training.journal import Journal, JournalError, LogConfig
folder = Path({str(tmp_path)!r})
journal = Journal(folder, LogConfig(), {{}})
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    for step in range(40):
        journal.write({{"step": step, "a" * 100: 1.0}})
        (folder / "metrics.jsonl").write_text("")
    journal.close()
except JournalError as error:
    print(error)
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert told.stdout == f"cannot write {tmp_path / 'tensorboard'}: File too large\n" and told.stderr == ""


def test_curves_of_steps_that_are_played_again_are_shown_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for steps, after_step in (((1, 2, 3), -1), ((2, 3, 4), 1)):
        journal = Journal(tmp_path, LogConfig(), {}, after_step)
        for step in steps:
            journal.write({"step": step, "loss": 10.0 * after_step + step})
        journal.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(one.step, one.value) for one in events.Scalars("loss")] == [(1, -9.0), (2, 12.0), (3, 13.0), (4, 14.0)]


def test_a_run_that_began_before_a_setting_existed_goes_on_as_it_was(tmp_path: Path) -> None:
    ranks = Ranks(0, 1, torch.device("cpu"))
    told = toy_world.rl_config(tmp_path / "run", tmp_path / "model")
    model = told.model.model_copy(update={"residual": "float32", "fused": False})
    optimizer = told.optimizer.model_copy(update={"fused": False})
    as_it_was = told.model_copy(update={"model": model, "optimizer": optimizer})
    with open_run(as_it_was, told.output, ranks, resume=False, keep=1):
        (told.output / "metrics.jsonl").write_text('{"step": 1}\n')
    path = told.output / "config.json"
    old = json.loads(path.read_text())
    del old["optimizer"]["fused"], old["sampling"]["engine"]["compile"]
    for key in ("residual", "fused", "compile"):
        del old["model"][key]
    path.write_text(json.dumps(old))
    with pytest.raises(ConfigError, match="model: differs"), open_run(told, told.output, ranks, resume=True, keep=1):
        pass
    with open_run(as_it_was, told.output, ranks, resume=True, keep=1):
        pass
    assert json.loads(path.read_text())["model"]["residual"] == "float32"
