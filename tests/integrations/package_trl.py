"""Run by a Python that has TRL: one optimiser step of its `GRPOTrainer` with our environment; prints what was logged.

The model is a real, tiny, random Qwen3 over bytes. As it cannot write a tool call, what it samples is put into its
mouth (`generate`); parsing, tool calls, rewards, advantages, log-probabilities, loss and step are TRL's.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import trl
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from kerneldojo.client import ClientExecutor
from kerneldojo.episodes import PlayConfig
from kerneldojo.integrations.trl import environment_factory, rows
from kerneldojo.problems.suite import load_suite

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>"]
SPECIAL += ["<tool_response>", "</tool_response>"]


def byte_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe = Tokenizer(models.BPE(vocab={character: number for number, character in enumerate(alphabet)}, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    wrapped.add_tokens(SPECIAL, special_tokens=False)
    wrapped.add_special_tokens({"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"})
    wrapped.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
    return wrapped


def call(code: str) -> str:
    arguments = json.dumps({"name": "submit_kernel", "arguments": {"code": code}})
    return f"<tool_call>\n{arguments}\n</tool_call><|im_end|>"


class Scripted(Qwen3ForCausalLM):
    """Says what a policy would have to sample."""

    tokenizer: PreTrainedTokenizerFast

    def generate(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: object) -> torch.Tensor:
        said: list[list[int]] = []
        for number, (ids, mask) in enumerate(zip(input_ids, attention_mask, strict=True)):
            text = self.tokenizer.decode(ids[mask.bool()])
            if "<tool_response>\n" not in text:
                reply = call(["compile_error one", "exploit one"][number % 2])
            elif "compile_error one" in text and "passed two" not in text:
                reply = call("passed two")
            else:
                reply = "Done.<|im_end|>"
            said.append(self.tokenizer(reply, add_special_tokens=False)["input_ids"])
        longest = max(map(len, said))
        pad = self.tokenizer.pad_token_id
        padded = torch.tensor([ids + [pad] * (longest - len(ids)) for ids in said])
        return torch.cat([input_ids, padded], dim=1)


def main(url: str) -> dict:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokenizer = byte_tokenizer()
    shape = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Scripted(shape)
    model.tokenizer = tokenizer
    before = {name: value.clone() for name, value in model.named_parameters()}
    executor = ClientExecutor(url)
    problems = load_suite("katas:1/softmax_rows", "small")
    with tempfile.TemporaryDirectory() as folder:
        trainer = trl.GRPOTrainer(
            model=model,
            args=trl.GRPOConfig(
                output_dir=folder,
                use_cpu=True,
                bf16=False,
                max_steps=1,
                num_generations=2,
                per_device_train_batch_size=2,
                max_completion_length=2048,
                learning_rate=1e-3,
                report_to=[],
                save_strategy="no",
                logging_steps=1,
                disable_tqdm=True,
                gradient_checkpointing=False,
            ),
            train_dataset=Dataset.from_list(rows(problems)),
            processing_class=tokenizer,
            environment_factory=environment_factory(
                executor, problems, PlayConfig(device="cpu", num_turns=2, one_shot=False)
            ),
        )
        rewards: list[float] = []
        score = trainer._calculate_rewards

        def seen(*arguments: object, **more: object) -> torch.Tensor:
            found = score(*arguments, **more)
            rewards.extend(found[:, 0].tolist())
            return found

        trainer._calculate_rewards = seen
        trainer.train()
    executor.close()
    logged = {key: value for entry in trainer.state.log_history for key, value in entry.items()}
    return {
        "rewards": rewards,
        "grad_norm": logged["grad_norm"],
        "tools/call_frequency": logged["tools/call_frequency"],
        "tools/failure_frequency": logged["tools/failure_frequency"],
        "num_changed": sum(not torch.equal(before[name], value) for name, value in model.named_parameters()),
        "prompt": str(trainer._logs["prompt"][0]),
        "completions": str(list(trainer._logs["completion"])),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
