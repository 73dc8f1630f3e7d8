"""Answers in training by a server: it is given the weights, and what it says is checked before it is learned from."""

from __future__ import annotations

from pathlib import Path

import pytest
import toy_world
from toy_world import TextJudge

from endpoint_server import EndpointServer, running
from kerneldojo.policies.rows import Sampled, ServedConfig
from kerneldojo.policies.served import ServedSampler
from kerneldojo.training.parallel import Ranks
from kerneldojo.training.rl import train_rl
from kerneldojo.training.settings import ConfigError

# With a real server: tests/integrations/test_vllm_server.py


def sampled(server: ServedSampler, *prompts: tuple[int, ...], temperature: float = 1.0) -> list[Sampled]:
    waiting = [[server.row(prompt, 8, temperature=temperature, tag=place) for place, prompt in enumerate(prompts)]]
    found: dict[int, Sampled] = {}
    server.serve(lambda _free, _idle: waiting.pop() if waiting else None, lambda row, one: found.update({row.tag: one}))
    return [found[place] for place in range(len(prompts))]


def test_ids_come_and_go_and_what_is_lost_says_why(tmp_path: Path) -> None:
    fake = EndpointServer()
    with running(fake) as url:
        server = ServedSampler(ServedConfig(url=url), tmp_path, end_ids=(2, 3), positions=20)
        server.check()
        first, second = sampled(server, (5, 6), (7, 8, 9))
        assert first == Sampled((6, 7, 2), (-0.506, -0.507, -0.502), "stop") and second.ids == (8, 9, 10, 2)
        assert fake.seen[-1]["stop_token_ids"] == [2, 3] and not server.was_lost
        (greedy,) = sampled(server, (5, 6), temperature=0.0)
        assert greedy.log_probs == (0.0, 0.0, 0.0), "nothing is drawn"
        (other,) = sampled(server, (5, 6), temperature=0.7)
        assert "logprobs_mode" in other.error and server.was_lost
        fake.plan.append({"status": 400, "message": "too long"})
        (refused,) = sampled(server, (5, 6))
        assert "too long" in refused.error and refused.ids == ()
        with pytest.raises(ValueError, match="does not fit"):
            server.row(range(20), 1)


def test_weights_are_handed_over_in_a_folder_of_their_own(tmp_path: Path) -> None:
    fake = EndpointServer()

    def save(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"x")

    with running(fake) as url:
        server = ServedSampler(ServedConfig(url=url, patience_s=0), tmp_path / "weights", end_ids=(2,), positions=None)
        server.publish(save)
        server.publish(save)
        assert len(set(fake.loaded)) == 2 and [str(one) for one in (tmp_path / "weights").iterdir()] == fake.loaded[1:]
        fake.takes_weights = False
        with pytest.raises(ConnectionError, match="VLLM_SERVER_DEV_MODE=1"):
            server.publish(save)
    with pytest.raises(ConnectionError, match="does not take the weights: "):
        server.publish(save)


def test_a_server_of_other_weights_is_refused(tmp_path: Path, imitator: Path, ranks: Ranks) -> None:
    toy_world.write_problems(tmp_path / "problems")
    with running(EndpointServer()) as url:
        told = toy_world.rl_config(tmp_path / "rl", imitator, sampling={"served": {"url": url}})
        with pytest.raises(ConfigError, match="the server's log-probabilities are not the trainer's"):
            train_rl(told, TextJudge(), ranks, show=False)
    with pytest.raises(ConfigError, match=r"sampling.served: .* does not take the weights"):
        gone = {"served": {"url": url, "patience_s": 0}}
        train_rl(toy_world.rl_config(tmp_path / "other", imitator, sampling=gone), TextJudge(), ranks, show=False)


def test_what_cannot_be_served_is_refused(tmp_path: Path, imitator: Path, ranks: Ranks) -> None:
    toy_world.write_problems(tmp_path / "problems")
    served = {"served": {"url": "http://localhost:9"}}
    with pytest.raises(ValueError, match="logprobs_mode: at temperatures other than 1"):
        toy_world.rl_config(tmp_path / "rl", imitator, sampling={**served, "temperature": 0.7})
    told = toy_world.rl_config(tmp_path / "rl", imitator, sampling=served)
    wrong = told.sampling.model_copy(update={"served": ServedConfig(url="nowhere")})
    with pytest.raises(ConfigError, match=r"sampling\.served: a vLLM server's address begins with"):
        train_rl(told.model_copy(update={"sampling": wrong}), TextJudge(), ranks, show=False)
