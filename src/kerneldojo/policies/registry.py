"""Policies by name, as the command line and configurations write them.

teacher[:QUALITY]     templates over operation graphs, at a chosen quality (or a mixture: lazy=3,fused=1)
openai:MODEL[@URL]    any OpenAI-compatible chat endpoint
hf:PATH               a Hugging Face model in this process
vllm:URL[#MODEL]      a vLLM server
replay:FILE           a recorded run
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from kerneldojo.policies.policy import Policy
from kerneldojo.policies.redaction import redacted
from kerneldojo.schema import Frozen

Config = TypeVar("Config", bound=Frozen)

HOW_IT_IS_ASKED = frozenset(
    {"concurrency", "requests_per_minute", "tokens_per_minute", "retry", "streaming", "window", "api_key_env"}
    | {"input_price", "output_price", "max_tokens_field", "device"}
)
"""Settings of policies that change no answer; a run may go on under others."""

FORMS = "teacher[:QUALITY], openai:MODEL[@URL], hf:PATH, vllm:URL[#MODEL] or replay:FILE"


def open_policy(spec: str, **settings: Any) -> Policy:
    """The policy that `spec` names.

    Args:
        spec: As in the module's docstring.
        settings: Fields of the policy's configuration: `TeacherConfig`, `EndpointConfig`, `LocalConfig`, `VllmConfig`.

    Raises:
        ValueError: It cannot be; one line says why.
    """
    kind, _, rest = spec.partition(":")
    opener = _OPENERS.get(kind)
    if opener is None:
        raise ValueError(f"unknown policy {spec!r}: use {FORMS}")
    if not rest and kind != "teacher":
        raise ValueError(f"policy {spec!r} names nothing: use {FORMS}")
    return opener(rest, settings)


def deciding(spec: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """What decides the answers of the policy that `spec` and `settings` open, beside its name; without keys.

    Two checkpoints may share the last part of their path, and a model with an adapter is another one than without.
    """
    kind, _, rest = spec.partition(":")
    found = {"path": str(Path(rest).resolve())} if kind == "hf" and Path(rest).exists() else {}
    for name, value in sorted(settings.items()):
        if name not in HOW_IT_IS_ASKED:
            found[name] = redacted(json.dumps(value, sort_keys=True, default=str), max_chars=1000)
    return found


def require_trainable(policy: Policy, temperature: float = 1.0, top_p: float = 1.0) -> None:
    """Raise ValueError, in one line, if RL cannot learn from the policy's answers at these sampling settings."""
    try:
        gives_ids = policy.gives_ids
    except ConnectionError as error:
        raise ValueError(str(error)) from error
    if not gives_ids:
        raise ValueError(f"{policy.name} gives no token ids and log-probabilities: use it to collect, not for RL")
    if temperature <= 0:
        raise ValueError("RL needs a temperature above 0: a greedy policy has no log-probabilities to learn from")
    holds: Callable[[float, float], bool] | None = getattr(policy, "has_true_log_probs", None)
    if holds is not None and not holds(temperature, top_p):
        raise ValueError(
            f"{policy.name} gives log-probabilities of temperature 1 only: start vLLM with --logprobs-mode "
            "processed_logprobs and set logprobs_mode = processed, or sample at temperature 1 without top-p"
        )


def _configured(config: type[Config], settings: dict[str, Any]) -> Config:
    """A configuration from settings; an error names the setting."""
    try:
        return config(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"policy setting {place}: {first['msg']}") from error


def _module(name: str, extra: str) -> Any:
    """A policy's module, imported only now: each needs packages that the others do not."""
    try:
        return import_module(f"kerneldojo.policies.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("kerneldojo"):
            raise
        raise ValueError(f"this policy needs {error.name}: install kerneldojo[{extra}]") from error


def _teacher(rest: str, settings: dict[str, Any]) -> Policy:
    teacher = _module("teacher", "judge").Teacher
    named = teacher.of(rest).config.model_dump() if rest else {}
    return teacher(_configured(_module("teacher.config", "judge").TeacherConfig, {**named, **settings}))


def _openai(rest: str, settings: dict[str, Any]) -> Policy:
    model, mark, address = rest.partition("@http")
    module = _module("endpoint", "policies")
    url = f"http{address}" if mark else None
    return module.EndpointPolicy(model, url, _configured(module.EndpointConfig, settings))


def _hf(rest: str, settings: dict[str, Any]) -> Policy:
    module = _module("local", "train")
    return module.LocalPolicy.open(rest, _configured(module.LocalConfig, settings))


def _vllm(rest: str, settings: dict[str, Any]) -> Policy:
    url, _, model = rest.partition("#")
    module = _module("vllm", "policies")
    return module.VllmPolicy(url, model or None, _configured(module.VllmConfig, settings))


def _replay(rest: str, settings: dict[str, Any]) -> Policy:
    if settings:
        raise ValueError(f"policy setting {next(iter(settings))}: a replay has none")
    return _module("replay", "policies").ReplayPolicy(rest)


_OPENERS: dict[str, Callable[[str, dict[str, Any]], Policy]] = {
    "teacher": _teacher,
    "openai": _openai,
    "hf": _hf,
    "vllm": _vllm,
    "replay": _replay,
}
