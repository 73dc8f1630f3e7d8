"""Writes the figures of the real verl that `tests/algorithms/test_verl.py` compares ours with.

Run it with a Python that has verl: `regenerate.sh` beside this file makes a throwaway one (two minutes, 2 GB: too much
for every test run, hence the file of figures). Inputs and outputs go into one JSON file together, so that nothing hangs
on a random generator's version.

    python verl_golden.py verl-0.9.1.json            # write
    python verl_golden.py --check verl-0.9.1.json    # recompute from the file's inputs; exit code 1 if they differ
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path

import numpy as np
import torch
from omegaconf import OmegaConf
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_rejection_mask

MODES = {
    "seq-mean-token-sum": "seq-mean-token-sum-norm",  # ours divides by a scale, which verl calls norm
    "token-mean": "token-mean",
    "seq-mean-token-mean": "seq-mean-token-mean",
}


def draw_inputs(seed: int) -> dict:
    """Ragged turns (1 to 4 a trajectory, 1 to 6 trajectories a prompt), answers of 1 to 12 tokens."""
    rng = np.random.default_rng(seed)
    rows = []
    trajectory = 0
    for prompt, num in enumerate((6, 4, 3, 2, 1, 5)):
        for _ in range(num):
            rows += [(prompt, trajectory, turn) for turn in range(int(rng.integers(1, 5)))]
            trajectory += 1
    order = rng.permutation(len(rows))  # nothing may hang on the order of rows
    prompt, trajectories, turn = (list(map(int, column)) for column in zip(*(rows[i] for i in order), strict=True))
    lengths = rng.integers(1, 13, len(rows)).tolist()
    tokens = int(sum(lengths))
    old = -rng.gamma(1.0, 1.0, tokens)
    return {
        "prompt": prompt,
        "trajectory": trajectories,
        "turn": turn,
        "lengths": lengths,
        "returns": np.round(rng.gamma(1.0, 1.0, len(rows)) * rng.integers(0, 2, len(rows)), 4).tolist(),
        "kept": (rng.random(len(rows)) < 0.7).tolist(),
        "log_probs": (old + rng.normal(0, 0.6, tokens)).astype(np.float32).tolist(),
        "old_log_probs": old.astype(np.float32).tolist(),
        "token_advantages": rng.normal(0, 1, tokens).astype(np.float32).tolist(),
        # Most answers a little off, one far off in a single token.
        "rollout_log_probs": (old + rng.normal(0, 0.002, tokens) + 11.0 * (np.arange(tokens) == 40)).tolist(),
    }


def compute(inputs: dict) -> dict:
    """What verl makes of the inputs."""
    lengths = inputs["lengths"]
    pad = lambda flat: torch.nn.utils.rnn.pad_sequence(torch.tensor(flat).split(lengths), batch_first=True)  # noqa: E731
    flat = lambda padded: [x for row, n in zip(padded.tolist(), lengths, strict=True) for x in row[:n]]  # noqa: E731
    mask = pad([1.0] * sum(lengths))
    rewards = torch.zeros_like(mask)
    for row, (length, value) in enumerate(zip(lengths, inputs["returns"], strict=True)):
        rewards[row, length - 1] = value
    uid = np.array([f"{p}#t{t}" for p, t in zip(inputs["prompt"], inputs["turn"], strict=True)], dtype=object)

    rloo, _ = core_algos.compute_rloo_outcome_advantage(rewards.clone(), mask, uid)
    outputs = {"rloo": rloo[:, 0].tolist()}
    for name, std in (("grpo", False), ("grpo_std", True)):
        result, _ = core_algos.compute_grpo_outcome_advantage(rewards.clone(), mask, uid, norm_adv_by_std_in_grpo=std)
        outputs[name] = result[:, 0].tolist()

    live = mask * torch.tensor(inputs["kept"])[:, None]
    outputs["loss"], outputs["gradient"] = {}, {}
    for ours, theirs in MODES.items():
        log_probs = pad(inputs["log_probs"]).requires_grad_()
        before_rejection = {"global_batch_size": len(lengths), "batch_num_tokens": sum(lengths)}
        config = OmegaConf.create(
            {
                "clip_ratio": 0.2,
                "clip_ratio_low": 0.2,
                "clip_ratio_high": 0.28,
                "clip_ratio_c": 3.0,
                "global_batch_info": {"dp_size": 1, "loss_scale_factor": 1000, **before_rejection},
            }
        )
        loss, _ = core_algos.compute_policy_loss_vanilla(
            pad(inputs["old_log_probs"]), log_probs, pad(inputs["token_advantages"]), live, theirs, config
        )
        loss.backward()
        outputs["loss"][ours] = float(loss.detach())
        outputs["gradient"][ours] = flat(log_probs.grad)

    for kind in ("k1", "k2", "k3"):
        values = core_algos.kl_penalty(pad(inputs["log_probs"]), pad(inputs["old_log_probs"]), kind)
        outputs[kind] = flat(values)

    log_ratio = pad(inputs["old_log_probs"]).double() - pad(inputs["rollout_log_probs"]).double()
    accepted, _ = compute_rollout_rejection_mask(log_ratio, mask, "seq_mean_k1,seq_max_k2", "0.999_1.001,42.4139")
    outputs["mrs_keep"] = (accepted.sum(1) > 0).tolist()
    return outputs


def main() -> int:
    path = Path(sys.argv[-1])
    if "--check" in sys.argv:
        golden = json.loads(path.read_text())
        same = golden["outputs"] == compute(golden["inputs"])
        print("the same" if same else "different")
        return 0 if same else 1
    inputs = draw_inputs(20261121)
    versions = {name: importlib.metadata.version(name) for name in ("verl", "torch", "numpy")}
    golden = {"versions": versions, "inputs": inputs, "outputs": compute(inputs)}
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
