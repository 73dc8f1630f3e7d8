"""Tokens a second of the sampler beside transformers' own `generate`, for a small model on this machine.

    python benchmarks/sampler.py [--device cpu|cuda] [--prompts 256] [--groups 1] [--width 128] [--layers 4] ...

CPU time (of all threads) stands beside the wall clock, which other programs on the machine disturb.
"""

from __future__ import annotations

import argparse
import time

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from kerneldojo.policies.sampler import Sampler, SamplerConfig


def build(args: argparse.Namespace) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=args.vocab,
        hidden_size=args.width,
        intermediate_size=3 * args.width,
        num_hidden_layers=args.layers,
        num_attention_heads=args.width // args.head,
        num_key_value_heads=max(1, args.width // args.head // 2),
        head_dim=args.head,
        max_position_embeddings=args.prompt_tokens * 2 + args.new_tokens,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return Qwen3ForCausalLM(config).to(args.device, getattr(torch, args.dtype)).eval()


def measure(name: str, args: argparse.Namespace, work) -> None:
    best = None
    for _ in range(args.repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        num_tokens = work()
        if args.device == "cuda":
            torch.cuda.synchronize()
        took = (time.perf_counter() - wall, time.process_time() - cpu)
        best = took if best is None else min(best, took)
    print(f"{name:28} {num_tokens / best[0]:9.0f} tokens/s   wall {best[0]:6.2f} s   cpu {best[1]:6.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--vocab", type=int, default=1024)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--head", type=int, default=32)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--prompts", type=int, default=256)
    parser.add_argument("--groups", type=int, default=1, help="samples of each prompt")
    parser.add_argument("--prompt-tokens", type=int, default=150)
    parser.add_argument("--new-tokens", type=int, default=40)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    model = build(args)
    generator = torch.Generator().manual_seed(1)
    spread = args.prompt_tokens // 5
    lengths = torch.randint(args.prompt_tokens - spread, args.prompt_tokens + spread + 1, (args.prompts,))
    distinct = [torch.randint(1, args.vocab, (int(n),), generator=generator).tolist() for n in lengths]
    prompts = [distinct[i // args.groups] for i in range(args.prompts)]
    limits = torch.randint(args.new_tokens // 2, args.new_tokens * 3 // 2 + 1, (args.prompts,)).tolist()
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters / 1e6:.2f} M parameters, {args.prompts} prompts, {sum(limits)} new tokens, {args.device}")
    sampler = Sampler(model, [], SamplerConfig(max_rows=args.rows))

    def ours() -> int:
        samples = sampler.generate(prompts, max_tokens=limits, seeds=range(len(prompts)))
        return sum(len(sample.ids) for sample in samples)

    def theirs() -> int:
        width = max(len(prompt) for prompt in prompts)
        ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts], device=args.device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=args.device)
        model.generate(ids, attention_mask=mask, max_new_tokens=max(limits), do_sample=True, top_k=0)
        return sum(limits)

    measure("Sampler.generate", args, ours)
    measure("transformers generate", args, theirs)


if __name__ == "__main__":
    main()
