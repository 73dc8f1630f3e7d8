"""What a model in this process sampled, as the answer that is judged: by one rule, in training and in benchmarks.

Text is all that was said but the end token. A special token amid it (another turn's opening, a padding) stays in it: an
answer that needs it taken out is no better code in training than it is in a benchmark.
"""

from __future__ import annotations

import math
from typing import Any

from kerneldojo.policies.rows import Row, Sampled
from kerneldojo.schema import Answer, Usage


def answer_of(row: Row, sampled: Sampled, tokenizer: Any, *, version: int | None, seconds: float = 0.0) -> Answer:
    """The answer to `row`, with its ids and log-probabilities; a failed one where these are no numbers.

    Args:
        row: what was asked.
        sampled: what came.
        tokenizer: turns ids into text.
        version: of the weights that said it.
        seconds: since it was asked for.
    """
    if sampled.error:
        return Answer(text="", finish="failed", error=sampled.error)
    if not all(map(math.isfinite, sampled.log_probs)):  # drawn from no distribution: nothing may be learned from it
        return Answer(text="", finish="failed", error="the model's log-probabilities are not finite")
    spoken = sampled.ids[:-1] if sampled.finish == "stop" else sampled.ids
    return Answer(
        text=str(tokenizer.decode(list(spoken), skip_special_tokens=False)),
        finish=sampled.finish,
        prompt_ids=row.prompt,
        answer_ids=sampled.ids,
        log_probs=sampled.log_probs,
        version=version,
        usage=Usage(prompt_tokens=len(row.prompt), answer_tokens=len(sampled.ids), seconds=seconds),
    )
