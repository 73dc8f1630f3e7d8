"""What an audit has to say of a problem: whether kernels may be judged on it, and how."""

from __future__ import annotations

from typing import Literal

from kerneldojo.schema import Frozen


class AcceptedAnswer(Frozen):
    """A trivial answer that one output of a problem accepts."""

    answer: str
    """For example `zeros` or `input 0`."""
    distribution: str
    """Inputs for which it passes."""
    output: int = 0
    """Number of the output."""


class AuditReport(Frozen):
    """What the audit found, and what it settled for the judge."""

    problem_hash: str
    status: Literal["admitted", "degenerate", "invalid"]
    reason: str = ""
    """Why it was not admitted, in one line."""
    lacks: Literal["", "memory", "time"] = ""
    """What there was too little of here to audit it: `invalid` then says nothing against the problem itself."""
    accepted: tuple[AcceptedAnswer, ...] = ()
    """Trivial answers that pass; some may be listed for an admitted problem with several outputs."""
    accepted_elsewhere: tuple[AcceptedAnswer, ...] = ()
    """Trivial answers that `torch.allclose` takes at 1e-2, as other evaluators use it, and that are refused here."""
    mode: Literal["train", "eval"] = "train"
    """`eval` where the reference is random in `train`."""
    oracle: Literal["float64", "float32"] = "float64"
    is_cramped: bool = False
    """Whether it is float32 for want of memory: with more there would be a better judge of what is right."""
    tells_tf32: bool = True
    """Whether products with TF32 operands change any output; if not, it need not be run in them."""
    is_sensitive: bool = False
    """Whether roundings of its inputs may move an answer far beyond the tolerance's floor (`budget.is_sensitive`)."""
    deciding: tuple[str, ...] = ("own",)
    """Distributions of inputs in which every answer must be right."""
    probing: tuple[str, ...] = ()
    """Distributions that refuse only non-finite or grossly wrong answers."""
    reduction_length: int = 1
    """Longest sum in the reference, for `make_budget`."""
    integer_outputs: bool = False
    """Whether any output must be met exactly."""
    updates_buffers: tuple[str, ...] = ()
    """Buffers that a call changes, and that are compared too."""
    mutates_inputs: bool = False
    num_outputs: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    state_bytes: int = 0
    """Parameters and buffers."""
    memory_bytes: int = 0
    """Inputs, outputs, state and the peak between them, for one native call."""
    compulsory_bytes: int = 0
    """Input bytes on which the output depends (a lower bound) plus output bytes; parameters not counted."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def admitted(self) -> bool:
        """Whether kernels may be judged on this problem without further ado."""
        return self.status == "admitted"
