"""Settings of a policy from the command line."""

from __future__ import annotations

import pytest

from kerneldojo.cli.arguments import BadUsage
from kerneldojo.cli.policies import opened


def test_values_are_typed_and_dots_lead_into_tables() -> None:
    told = ["input_price=0.15", "streaming=true", "retry.attempts=2", "api_key_env=a=b", "concurrency=3"]
    config = opened("openai:m@http://localhost:9/v1", told).config  # type: ignore[attr-defined]
    assert (config.input_price, config.streaming, config.retry.attempts) == (0.15, True, 2)
    assert (config.api_key_env, config.concurrency) == ("a=b", 3)


@pytest.mark.parametrize("option", ["alone", "=1", "a..b=1", ".=1"])
def test_what_is_no_pair_is_told(option: str) -> None:
    with pytest.raises(BadUsage, match=r"--policy-option .*: expected dotted.key=value"):
        opened("teacher", [option])


def test_a_value_is_no_table() -> None:
    with pytest.raises(BadUsage, match="retry is a value, not a table"):
        opened("teacher", ["retry=3", "retry.attempts=2"])


def test_settings_reach_the_policy_and_unknown_ones_are_named() -> None:
    assert opened("teacher:mixture", None).name == "teacher:mixture"
    assert opened("teacher", ["quality=lazy"]).name == "teacher:lazy"
    with pytest.raises(BadUsage, match="policy setting wit"):
        opened("teacher", ["wit=1"])
