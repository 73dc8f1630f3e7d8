"""Settings of a policy from the command line."""

from __future__ import annotations

import pytest

from kerneldojo.cli.arguments import BadUsage
from kerneldojo.cli.policies import opened, settings_of


def test_values_are_json_or_text_and_dots_lead_into_tables() -> None:
    told = ["input_price=0.15", "streaming=true", "retry.num_retries=2", "retry.first_delay=0.5", "key=a=b", "word=x y"]
    assert settings_of(told) == {
        "input_price": 0.15,
        "streaming": True,
        "retry": {"num_retries": 2, "first_delay": 0.5},
        "key": "a=b",
        "word": "x y",
    }


@pytest.mark.parametrize("option", ["alone", "=1", "a..b=1", ".=1"])
def test_what_is_no_pair_is_told(option: str) -> None:
    with pytest.raises(BadUsage, match="is not KEY=VALUE"):
        settings_of([option])


def test_a_value_is_no_table() -> None:
    with pytest.raises(BadUsage, match="retry has a value already"):
        settings_of(["retry=3", "retry.num_retries=2"])


def test_settings_reach_the_policy_and_unknown_ones_are_named() -> None:
    assert opened("teacher:mixture", None).name == "teacher:mixture"
    assert opened("teacher", ["quality=lazy"]).name == "teacher:lazy"
    with pytest.raises(BadUsage, match="policy setting wit"):
        opened("teacher", ["wit=1"])
