"""What a policy is told: the task in the first message, and what to do next after each verdict.

The full style follows KernelBench's manner (a worked example, then the module to be replaced) in our own words, with
the device's figures and what is judged. The compact style is `compact.outline` and nothing else: a small model that is
trained on one task needs no instructions, only what tells one problem from another.
"""

from __future__ import annotations

import re
from functools import lru_cache

from kerneldojo.devices.specs import GIB, GPU, GPUS, KIB, MIB, gpu
from kerneldojo.episodes.compact import outline
from kerneldojo.episodes.config import PlayConfig, Summaries
from kerneldojo.episodes.one_shot import ANSWERS, REFERENCE
from kerneldojo.schema import Problem

LANGUAGES = {
    "triton": "Triton (kernels decorated with `@triton.jit`)",
    "cuda": "CUDA C++ (kernels compiled with `torch.utils.cpp_extension.load_inline`)",
}


@lru_cache(maxsize=4096)  # as many problems as a laptop's run has: each is shown many times
def _outline(source: str) -> str:
    return outline(source)


def task(problem: Problem, config: PlayConfig, *, example: bool = True) -> str:
    """The first message of an episode.

    Args:
        problem: what is to be made faster; of it only the source is shown.
        config: how it is to be said.
        example: whether the worked example is in it, if the configuration wants one at all.
    """
    if config.style == "compact":
        return _outline(problem.source)
    parts = [
        f"Make a PyTorch module faster with GPU kernels of your own in {LANGUAGES[config.language]}.\n"
        "You are given a module `Model`. Write a module `ModelNew` that computes the same and takes less time. Which "
        "operations you replace, fuse or reorganise, and how, is up to you; so is the algorithm."
    ]
    if example and config.one_shot:
        parts.append(
            "An example of the form. For this module:\n\n"
            f"{fenced(REFERENCE)}\n\nan answer could be:\n\n{fenced(ANSWERS[config.language])}"
        )
    target = described_gpu(config)
    if target is not None:
        parts.append(figures(target.name))
    parts.append(_judging(config))
    parts.append(f"The module to make faster:\n\n{fenced(problem.source)}")
    parts.append(_form(config))
    return "\n\n".join(parts)


def request(config: PlayConfig) -> str:
    """What is asked after the feedback on an answer; empty in the compact style."""
    if config.style == "compact":
        return ""
    return f"Think it through afresh, then write an improved `ModelNew`.\n{_form(config)}"


def described_gpu(config: PlayConfig) -> GPU | None:
    """The GPU whose figures the prompt gives; None where neither the configuration nor its device names one."""
    return gpu(config.gpu) if config.gpu else _modelled(config.device)


@lru_cache
def _modelled(device: str) -> GPU | None:
    kind, _, name = device.partition(":")
    return GPUS.get("".join(c for c in name.lower() if c.isalnum())) if kind == "model" else None


@lru_cache
def figures(name: str) -> str:
    """The figures of the GPU of that name that decide how a kernel is laid out, in a few lines."""
    target = gpu(name)
    rates = ", ".join(f"{name} {rate / 1e12:.0f}" for name, rate in target.peak_flops.items())
    major, minor = target.compute_capability
    return (
        f"It will run on one {target.full_name} (compute capability {major}.{minor}):\n"
        f"- {target.num_multiprocessors} multiprocessors at up to {target.clock_hz / 1e9:.2f} GHz, each with "
        f"{target.registers_per_multiprocessor} registers and {target.shared_bytes_per_multiprocessor // KIB} KiB of "
        f"shared memory, of which one block can have {target.shared_bytes_per_block // KIB} KiB\n"
        f"- {target.memory_bytes / GIB:.0f} GiB of memory at {target.memory_bandwidth / 1e12:.2f} TB/s, behind "
        f"{target.l2_bytes // MIB} MiB of L2 cache\n"
        f"- dense peak rates in TFLOP/s: {rates}"
    )


@lru_cache(maxsize=256)
def fenced(source: str) -> str:
    """A Python source as a block of Markdown; the fence is longer than any in the source."""
    longest = max((len(run) for run in re.findall("`+", source)), default=0)
    mark = "`" * max(3, longest + 1)
    return f"{mark}python\n{source.rstrip()}\n{mark}"


def _judging(config: PlayConfig) -> str:
    library = "`torch.compile`" if config.baseline == "compile" else "PyTorch in eager mode"
    precision = "float32 products may use TF32, no less"
    if config.precision == "ieee":
        precision = "float32 means IEEE float32: no TF32"
        if config.language == "triton":
            precision += ' (`input_precision="ieee"` for `tl.dot`)'
    timed = (
        f"- Then it is timed against {library} on inputs that are new each time. The time of the device spent in your "
        "own kernels is looked at too: handing the work to the library earns little."
    )
    if config.device == "cpu":
        timed = "- It is not timed here, for it runs under an interpreter without a GPU: being right is what counts."
    return (
        "How it is judged:\n"
        "- `ModelNew` is constructed with the same arguments as `Model`, under the same seed, so parameters of the "
        "same names and shapes made in the same order get the same values. With another layout, define "
        "`load_reference_state(self, state_dict)`.\n"
        "- Its outputs must agree with those of `Model` on inputs that you do not see, of the given shapes and types, "
        f"in shape, type and value; {precision}. Inputs must not be changed, and a result must survive the next call.\n"
        f"{timed}\n"
        "- Kernels that do not compute the answer, results kept from earlier calls, and anything else that seeks "
        "credit without the work are found out and earn nothing."
    )


def _form(config: PlayConfig) -> str:
    parts: list[str] = []
    if config.ask_plan:
        parts.append(
            f"First write your plan between {config.plan_open} and {config.plan_close}: what limits the time, what you "
            "fuse, how you tile it."
        )
    parts.append(
        "Give the complete source of the answer, imports included, in one fenced Python block. No tests, no main."
    )
    if isinstance(config.context, Summaries):
        parts.append("Outside of the block, summarise in a few sentences what you did and why.")
    return " ".join(parts)
