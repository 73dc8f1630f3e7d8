"""Policies by name."""

from __future__ import annotations

import subprocess
import sys

import pytest
from policy_requests import episode

from kerneldojo.policies import open_policy, require_trainable
from kerneldojo.policies.endpoint import EndpointConfig
from kerneldojo.policies.local import LocalConfig
from kerneldojo.policies.registry import HOW_IT_IS_ASKED, deciding
from kerneldojo.policies.vllm import VllmConfig


@pytest.mark.parametrize(
    ("spec", "settings", "message"),
    [
        ("gpt-5", {}, "unknown policy 'gpt-5': use teacher"),
        ("", {}, "unknown policy"),
        ("openai:", {}, "names nothing"),
        ("vllm:localhost", {}, "http://"),
        ("hf:/no/such/folder", {}, "cannot load hf:/no/such/folder"),
        ("replay:/no/such/file", {}, "cannot read"),
        ("replay:/no/such/file", {"speed": 3}, "setting speed"),
        ("openai:m@http://h/v1", {"concurrency": 0}, "policy setting concurrency: "),
        ("openai:m@http://h/v1", {"retry": {"attempts": "x"}}, "policy setting retry.attempts: "),
        ("vllm:http://h", {"colour": "red"}, "policy setting colour: "),
        ("hf:x", {"dtype": "int4"}, "policy setting dtype: "),
    ],
)
def test_what_cannot_be_is_told_in_one_line(spec, settings, message):
    with pytest.raises(ValueError) as refused:
        open_policy(spec, **settings)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_names_and_addresses(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    assert open_policy("openai:gpt-5").url is None
    policy = open_policy("openai:org/model@v2@https://host:1/v1", concurrency=3)
    assert (policy.model, policy.url, policy.config.concurrency) == ("org/model@v2", "https://host:1/v1", 3)
    served = open_policy("vllm:http://host:8000/v1#org/model")
    assert served.url == "http://host:8000" and served.name == "vllm:host:8000#org/model"
    path = tmp_path / "run.jsonl"
    path.write_text(episode(answers=["a"]).model_dump_json() + "\n")
    replayed = open_policy(f"replay:{path}")
    with pytest.raises(ValueError, match="gives no token ids"):
        require_trainable(replayed)


def test_the_room_is_light():
    """Naming policies imports neither torch nor an endpoint's package."""
    code = (
        "import sys, kerneldojo.policies; print([m for m in ('torch', 'openai', 'transformers') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_what_decides_the_answers_beside_the_name(tmp_path):
    assert deciding("teacher:fused", {}) == {}
    assert deciding(f"hf:{tmp_path}", {"window": 1, "adapter": "a"}) == {"path": str(tmp_path), "adapter": '"a"'}
    asked = {"retry": {"attempts": 2}, "concurrency": 3, "extra_body": {"reasoning_effort": "low", "api_key": "k" * 20}}
    assert deciding("openai:m", asked) == {"extra_body": '{"api_key": "***", "reasoning_effort": "low"}'}
    fields = {name for config in (EndpointConfig, LocalConfig, VllmConfig) for name in config.model_fields}
    assert fields >= HOW_IT_IS_ASKED
