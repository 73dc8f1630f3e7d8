"""Packing: several samples in one row, so that no token is spent on padding.

Samples have very different lengths. Side by side in one row they cannot see one another: positions start again at 0
for each, which is how Hugging Face models know where a sample begins, and build a block-diagonal attention mask (or
FlashAttention's variable-length call) from it. Log-probabilities are the same as one by one; a test holds us to it.
Some models look at no positions (ALiBi, a state instead of attention); `scoring.keeps_samples_apart` finds them out,
and their samples have rows of their own.

Attention over a row costs the square of its length, so rows should not be longer than they must: `row_tokens` of a few
samples' length, and several rows in a batch.

Rows of one sample each need no mask, for what pads them comes after all that counts, and attention without a mask is
several times faster (on an H200 scoring ran at 114,000 tokens a second without, 58,000 with one). Where the order of
samples is free and sorting them by length leaves little to pad, every sample has a row of its own.

Drawn lengths make a batch of nearly every width, and an odd width is slow on a GPU. `width_multiple` rounds widths up,
what is added is padding: with 64, answers of drawn lengths are learned from as fast a token as answers of equal length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MAY_PAD = 1.15
"""So many times the tokens of packed rows may rows of one sample have, with what pads them, to be chosen."""

WIDTH_MULTIPLE = 64
"""What widths of rows are rounded up to on a GPU. On an H200 forward and backward passes over drawn lengths took 1.9 s
with widths as they came, 1.3 s with multiples of 8 and 0.95 s with multiples of 64 (`runs/trainer_speed.py`'s task)."""


@dataclass(frozen=True)
class Sample:
    """One turn as token ids: a prompt, and the answer that is learned from."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.answer)


@dataclass(frozen=True)
class Batch:
    """Rows for one forward pass, and where in them the answers' tokens are predicted."""

    input_ids: Tensor
    """(B, L) int64."""
    position_ids: Tensor
    """(B, L) int64, starting again at 0 with each sample, and with what pads a row of several."""
    predictors: Tensor
    """(K,) int64: flat positions in (B · L) whose output predicts an answer's token."""
    targets: Tensor
    """(K,) int64: the token that is predicted there."""
    tokens: Tensor
    """(K,) int64: which of the step's answer tokens each is (see `token_offsets`)."""
    num_tokens: int
    """Of its samples, prompts and answers, without what pads them: at most B · L."""

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        fields = (self.input_ids, self.position_ids, self.predictors, self.targets, self.tokens)
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in fields), num_tokens=self.num_tokens)


def fill_rows(lengths: Sequence[int], row_tokens: int, num_open: int = 16) -> list[list[int]]:
    """Assign samples to rows of at most `row_tokens`, roughly in the order given (a longer one has a row of its own).

    Next-fit with `num_open` rows open: each sample goes to the fullest open row that it fits into. Returns rows of
    indices into `lengths`.
    """
    rows: list[list[int]] = []
    used: list[int] = []
    opened: list[int] = []
    for index, length in enumerate(lengths):
        fitting = [row for row in opened if used[row] + length <= row_tokens]
        if fitting:
            row = max(fitting, key=lambda one: used[one])
        else:
            row = len(rows)
            rows.append([])
            used.append(0)
            opened = [*opened, row][-num_open:]
        rows[row].append(index)
        used[row] += length
    return rows


def rows_alone(lengths: Sequence[int], batch_tokens: int, *, any_order: bool = True) -> list[list[list[int]]]:
    """Batches of rows of one sample each, of at most `batch_tokens` with what pads them; `any_order`: longest first."""
    batches: list[list[list[int]]] = []
    width = 0
    for index in sorted(range(len(lengths)), key=lambda one: -lengths[one] if any_order else one):
        width = max(width, lengths[index])
        if not batches or (len(batches[-1]) + 1) * width > batch_tokens:
            batches.append([])
            width = lengths[index]
        batches[-1].append([index])
    return batches


def rows_together(
    rows: Sequence[list[int]], lengths: Sequence[int], row_tokens: int, batch_tokens: int, width_multiple: int = 1
) -> list[list[list[int]]]:
    """Batches of rows in the order given, as many to a batch as rows of `row_tokens` fit into `batch_tokens`.

    A row of one longer sample makes all others of its batch as wide, so it has fewer beside it: of 4 rows to a batch
    one of 8,000 tokens would be a batch of 32,000, which is memory that nobody counted with.
    """
    most = max(1, batch_tokens // row_tokens)
    batches: list[list[list[int]]] = []
    width = 0
    for row in rows:
        length = rounded(sum(lengths[index] for index in row), width_multiple)
        width = max(width, length)
        if not batches or len(batches[-1]) == most or (len(batches[-1]) + 1) * width > batch_tokens:
            batches.append([])
            width = length
        batches[-1].append(row)
    return batches


def num_cells(batches: Sequence[Sequence[Sequence[int]]], lengths: Sequence[int], width_multiple: int = 1) -> int:
    """Tokens of batches of rows of samples, with what pads them."""
    return sum(len(rows) * width_of(rows, lengths, width_multiple) for rows in batches)


def width_of(rows: Sequence[Sequence[int]], lengths: Sequence[int], width_multiple: int = 1) -> int:
    """Tokens from the first to the last of a batch's rows, which are all as wide as the longest."""
    return rounded(max(sum(lengths[index] for index in row) for row in rows), width_multiple)


def rounded(length: int, multiple: int) -> int:
    """The next multiple."""
    return length + -length % multiple


def make_batches(
    samples: Sequence[Sample],
    *,
    chosen: Sequence[int] | None = None,
    row_tokens: int,
    batch_tokens: int,
    pad_id: int = 0,
    any_order: bool = False,
    alone: bool = False,
    width_multiple: int = 1,
) -> list[Batch]:
    """Pack the `chosen` samples (all by default) into batches of about `batch_tokens`.

    `any_order`: all batches are for one step, so that it does not matter which of them a sample is in. `alone`: every
    sample has a row of its own, for models that cannot tell several apart. `width_multiple`: widths are rounded up to
    it; `batch_tokens` counts what that adds.

    `Batch.tokens` counts the answer tokens of *all* samples, chosen or not, so that sums over batches are sums over
    the step. Samples must have a prompt (something must predict the first token) and an answer.
    """
    picked = list(range(len(samples))) if chosen is None else list(chosen)
    offsets = token_offsets(samples)
    lengths = [len(samples[index]) for index in picked]
    widths = [rounded(length, width_multiple) for length in lengths]
    if alone:
        batches = rows_alone(widths, batch_tokens, any_order=any_order)
    else:
        row_tokens = max(row_tokens - row_tokens % width_multiple, 1)
        rows = fill_rows(lengths, row_tokens)
        batches = rows_together(rows, lengths, row_tokens, batch_tokens, width_multiple)
        if any_order:
            single = rows_alone(widths, batch_tokens)
            few = num_cells(single, widths) <= MAY_PAD * num_cells(batches, lengths, width_multiple)
            batches = single if few else batches
    chosen_rows = [[[picked[index] for index in row] for row in batch] for batch in batches]
    return [_batch(samples, rows, offsets, pad_id, width_multiple) for rows in chosen_rows]


def token_offsets(samples: Sequence[Sample]) -> list[int]:
    """Index of the first answer token of each sample, where answers lie one after the other; one more for the end."""
    offsets = [0]
    for sample in samples:
        offsets.append(offsets[-1] + len(sample.answer))
    return offsets


def sample_of_token(samples: Sequence[Sample]) -> Tensor:
    """(T,) int64: the sample that each answer token belongs to."""
    lengths = torch.tensor([len(sample.answer) for sample in samples], dtype=torch.int64)
    return torch.repeat_interleave(torch.arange(len(samples)), lengths)


def _batch(
    samples: Sequence[Sample], rows: list[list[int]], offsets: list[int], pad_id: int, width_multiple: int
) -> Batch:
    width = rounded(max(sum(len(samples[index]) for index in row) for row in rows), width_multiple)
    ids: list[int] = []
    positions: list[int] = []
    predictors: list[int] = []
    targets: list[int] = []
    tokens: list[int] = []
    for row in rows:
        for index in row:
            sample = samples[index]
            if not sample.prompt or not sample.answer:
                raise ValueError("a sample needs a prompt and an answer")
            first = len(ids) + len(sample.prompt) - 1
            predictors.extend(range(first, first + len(sample.answer)))
            targets.extend(sample.answer)
            tokens.extend(range(offsets[index], offsets[index + 1]))
            ids.extend((*sample.prompt, *sample.answer))
            positions.extend(range(len(sample)))
        padding = -len(ids) % width
        ids.extend([pad_id] * padding)
        # One sample goes on into its padding: positions that start again would ask for a mask.
        first = len(samples[row[0]]) if len(row) == 1 else 0
        positions.extend(range(first, first + padding))
    shape = (len(rows), width)
    return Batch(
        torch.tensor(ids, dtype=torch.int64).view(shape),
        torch.tensor(positions, dtype=torch.int64).view(shape),
        *(torch.tensor(column, dtype=torch.int64) for column in (predictors, targets, tokens)),
        num_tokens=sum(len(samples[index]) for row in rows for index in row),
    )
