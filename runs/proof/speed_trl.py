"""TRL's `GRPOTrainer` at the same work, with a stopwatch around its own methods.

Nothing of TRL is replaced: methods are wrapped to be timed, and answers are given their lengths by what transformers
has for it. Where an answer may not end, the end token lies outside of the model's vocabulary; where its length is
drawn, `generate` gets a logits processor that writes the end token there and nowhere else, and continuous batching a
limit for each request.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch

from proof.speed_task import (
    Stopwatch,
    Task,
    lengths_of,
    memory,
    model_of,
    prompts_of,
    summary,
    text_of,
    tokenizer_of,
)

WAYS = ("dynamic", "static", "continuous")
"""How TRL generates without vLLM: `generate` with a growing or a static cache, or continuous batching."""


def measure(task: Task, device: str, way: str) -> dict[str, Any]:
    """Steps of `GRPOTrainer`; see `speed_task.summary`. `way`: one of `WAYS`."""
    import trl

    on_gpu = device.startswith("cuda")
    watch = Stopwatch(torch.device(device))
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(task, way, folder, on_gpu=on_gpu)
        _time(trainer, task, watch, way)
        trainer.train()
    kind = "bf16" if on_gpu else "float32"
    found = {"side": "trl", "way": way, "version": trl.__version__, "weights": kind, "steps": watch.steps}
    return {**found, **summary(watch, task), "memory": memory(watch.device)}


def _trainer(task: Task, way: str, folder: str, *, on_gpu: bool) -> Any:
    import trl
    from datasets import Dataset
    from datasets.table import InMemoryTable

    steps = task.num_warm + task.num_steps
    texts = [{"prompt": text_of(ids)} for step in range(steps) for ids in prompts_of(task, step)]
    tokenizer = tokenizer_of(task)
    if ends_by_token(task, way):  # must be one that the model can write
        tokenizer.eos_token = f"w{task.vocabulary - 1}"
    config = trl.GRPOConfig(
        output_dir=folder,
        use_cpu=not on_gpu,
        bf16=on_gpu,
        max_steps=steps,
        per_device_train_batch_size=task.micro_batch,
        gradient_accumulation_steps=task.num_rows // task.micro_batch,
        num_generations=task.num_samples,
        max_completion_length=task.answer_tokens,
        learning_rate=1e-6,
        temperature=1.0,
        beta=0.0,
        shuffle_dataset=False,
        gradient_checkpointing=task.checkpointing,
        cache_implementation="static" if way == "static" else None,
        use_transformers_continuous_batching=way == "continuous",
        transformers_continuous_batching_config=None if on_gpu else {"max_memory_percent": 0.02},
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        seed=task.seed,
    )
    return trl.GRPOTrainer(
        model=model_of(task, torch.bfloat16 if on_gpu else torch.float32),
        args=config,
        # Named here, as `datasets` cannot pickle the tables of every pyarrow to make up a name.
        train_dataset=Dataset(InMemoryTable.from_pylist(texts), fingerprint="prompts"),
        processing_class=tokenizer,
        reward_funcs=lambda completions, **_: [float(number % 7) for number in range(len(completions))],
    )


def ends_by_token(task: Task, way: str) -> bool:
    """Whether answers get their drawn lengths by an end token that a logits processor writes."""
    return task.shortest is not None and way != "continuous"


def _time(trainer: Any, task: Task, watch: Stopwatch, way: str) -> None:
    """Wrap what is timed."""
    from transformers import TrainerCallback

    number = [0]

    def wrapped(owner: Any, method: str, phase: str) -> None:
        inner = getattr(owner, method)

        def timed(*arguments: Any, **more: Any) -> Any:
            with watch.phase(phase):
                return inner(*arguments, **more)

        setattr(owner, method, timed)

    wrapped(trainer, "compute_loss", "forward")
    wrapped(trainer.accelerator, "backward", "backward")
    wrapped(trainer.accelerator, "clip_grad_norm_", "step")
    inner = trainer._generate_single_turn

    def generated(*arguments: Any, **more: Any) -> Any:
        lengths = lengths_of(task, number[0])
        with watch.phase("generate"), _lengths(trainer, task, way, lengths):
            ids, log_probs = inner(*arguments, **more)
        if [len(one) for one in ids] != lengths:
            raise RuntimeError(f"answers have other lengths than they were asked for: {[len(one) for one in ids][:8]}")
        return ids, log_probs

    trainer._generate_single_turn = generated

    class Steps(TrainerCallback):
        """The optimiser's step, and the end of a whole step."""

        began = 0.0

        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            self.began = watch.wait()

        def on_optimizer_step(self, *_: Any, **__: Any) -> None:
            watch.add("step", watch.wait() - self.began)

        def on_step_end(self, *_: Any, **__: Any) -> None:
            num_tokens = sum(lengths_of(task, number[0]))
            _score(trainer, watch)
            watch.add("answer_tokens", num_tokens)
            watch.add("all_tokens", num_tokens + task.num_rows * task.prompt_tokens)
            watch.end_step()
            print({name: round(value, 3) for name, value in watch.steps[-1].items()}, flush=True)
            number[0] += 1

    trainer.add_callback(Steps())


def _score(trainer: Any, watch: Stopwatch) -> None:
    """Log-probabilities of the step's answers without gradients, as TRL computes them whenever it needs them.

    With one update a batch it does not need them, and takes those of the forward pass: so this is timed by itself.
    """
    with watch.phase("log_probs"), torch.no_grad():
        for inputs in trainer._buffered_inputs:
            ids = torch.cat((inputs["prompt_ids"], inputs["completion_ids"]), 1)
            mask = torch.cat((inputs["prompt_mask"], inputs["completion_mask"]), 1)
            kept = inputs["completion_ids"].shape[1]
            trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, kept, batch_size=len(ids))


@contextmanager
def _lengths(trainer: Any, task: Task, way: str, lengths: list[int]) -> Generator[None]:
    """Let answers have drawn lengths."""
    if task.shortest is None:
        yield
        return
    if way == "continuous":
        yield from _limits(lengths)
        return
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    inner: Callable[..., Any] = model.generate
    ending = Ending(lengths, task.prompt_tokens, task.vocabulary - 1)
    model.generate = lambda *arguments, **more: inner(*arguments, logits_processor=[ending], **more)
    try:
        yield
    finally:
        del model.generate


class Ending:
    """A logits processor: the end token at the drawn length of each row, and nowhere before."""

    def __init__(self, lengths: list[int], prompt_tokens: int, end: int) -> None:
        self.lengths, self.prompt_tokens, self.end = torch.tensor(lengths), prompt_tokens, end

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """See transformers' `LogitsProcessor`."""
        self.lengths = self.lengths.to(scores.device)
        is_last = input_ids.shape[1] - self.prompt_tokens + 1 >= self.lengths
        scores[:, self.end] = torch.where(is_last, torch.finfo(scores.dtype).max / 2, -torch.inf)
        return scores


def _limits(lengths: list[int]) -> Generator[None]:
    """Give the requests of continuous batching limits of their own, in the order in which they are numbered."""
    from transformers.generation.continuous_batching.continuous_api import ContinuousBatchingManager

    inner = ContinuousBatchingManager.add_request

    def limited(self: Any, *arguments: Any, **more: Any) -> Any:
        more["max_new_tokens"] = lengths[int(str(more["request_id"]).removeprefix("req_")) % len(lengths)]
        return inner(self, *arguments, **more)

    ContinuousBatchingManager.add_request = limited
    try:
        yield
    finally:
        ContinuousBatchingManager.add_request = inner
