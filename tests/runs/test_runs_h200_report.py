"""What is claimed of the proof on measured times, computed from made-up results whose answer is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from proof.h200_config import POLICIES, load_proof
from proof.h200_report import write_report
from proof.tables import Row, write_json, write_rows

ROOT = Path(__file__).parents[2]
FAST = {"sft": 0.2, "rl": 0.6, "naive": 0.3}
OLD, NEW = "a" * 12, "b" * 12


def policy(results: Path, name: str, seed: int, *, cheats_of: str = "naive") -> None:
    place = results / name / f"seed-{seed}"
    generator = np.random.default_rng([POLICIES.index(name), seed])
    rows: list[Row] = []
    for way in ("t=0", "t=0.3", "t=0.6", "t=1"):
        for number in range(40):
            cheats = name == cheats_of and number % 4 == 0
            fast = not cheats and bool(generator.random() < FAST[name])
            rows.append(
                Row(
                    arm=name,
                    seed=seed,
                    way=way,
                    problem=f"p{number}",
                    sample=0,
                    turn=0,
                    status="exploit" if cheats else "passed",
                    correct=not cheats,
                    speedup=None if cheats else (1.5 if fast else 1.0),
                    signature=(OLD if number % 8 else NEW) if cheats else "",
                )
            )
    write_rows(place / "rows.csv", rows)
    write_json(place / "validation.json", {"scores": {}, "chosen": "t=0.3"})
    machine = {"processor": "p", "cores": 2, "commit": "c", "versions": {}, "gpus": ["a GPU"]}
    write_json(place / "done.json", {"machine": machine})
    if name != "sft":
        example = {"names": ["no_causal_kernel"], "outline": ["kernel: store masked by False"], "code": ""}
        step = {"step": 1, "answers": 9, "exploits": {OLD: 2, NEW: 3}, "examples": {OLD: example, NEW: example}}
        write_json(place / "rollouts.json", [step])
        record = {"step": 1, "reward": 1.0, "fast_1.2": 0.5, "exploits": 0.1, "verdicts": {"asked": 9, "judged": 6}}
        record["seconds"] = {"generate": 1.0, "wait": 5.0, "step": 7.0}
        (place / "metrics.jsonl").write_text(json.dumps(record) + "\n")


def test_gains_and_exploits_are_what_was_put_in(tmp_path: Path) -> None:
    results = tmp_path / "results"
    for name in POLICIES:
        for seed in range(3):
            policy(results, name, seed)
    write_json(results / "corpus.json", {"statuses": {"passed": 90, "exploit": 10}, "exploits": {OLD: 10}})
    text = write_report(tmp_path, load_proof(ROOT / "runs" / "h200.toml", tiny=False))
    lines = text.splitlines()
    pooled = next(line for line in lines if line.startswith("| RL, with the exploit checks | all |"))
    ratio = float(pooled.partition("**")[2].partition("**")[0])
    assert 2 < ratio < 4.5 and pooled.count("to") == 1
    claims = [line for line in lines if line.endswith(("| yes |", "| NO |"))]
    assert len(claims) == 3 and all("0.00%: yes" in line for line in claims)
    assert "The corpus has 10 exploits among 100 answers, with 1 signatures." in lines
    assert "| RL, without them | 120 of 480 (25.0%) | 60 | 60 |" in lines
    assert "| RL, with the exploit checks | 0 of 480 (0.0%) | 0 | 0 |" in lines
    assert "| RL, without them | 0 | 5 | 2 | 1 | 1 | 3 |" in lines
    assert f"New: `{NEW}`, no_causal_kernel" in lines
    assert "| rl | 0 | 1 | 1.0 | 5.0 | 0.0 | 0.0 | 7.0 | 0% | 9 | 6 | 60 |" in lines


def test_a_claim_that_does_not_hold_is_told(tmp_path: Path) -> None:
    for name in POLICIES:
        policy(tmp_path / "results", name, 0, cheats_of="rl")
    write_json(tmp_path / "results" / "corpus.json", {"statuses": {"passed": 90, "exploit": 10}, "exploits": {OLD: 10}})
    lines = write_report(tmp_path, load_proof(ROOT / "runs" / "h200.toml", tiny=False)).splitlines()
    (claim,) = [line for line in lines if line.endswith("| NO |")]
    assert "| 25.00%: NO |" in claim


def test_nothing_is_said_of_nothing(tmp_path: Path) -> None:
    proof = load_proof(ROOT / "runs" / "h200.toml", tiny=False)
    assert write_report(tmp_path, proof).startswith("nothing to report")
