"""What is written when a task ends: by a verdict, or by a fault or a deadline of ours, which are never scored."""

from __future__ import annotations

import time
from typing import Any

from kerneldojo.schema import Evaluation, Status
from kerneldojo.service.store import Ending

COMPUTED = {"timing_source"}
"""Fields that an evaluation computes from others: left out, so that what is stored reads back exactly."""


def ending_of(task_id: str, evaluation: Evaluation, *, expired: bool = False) -> Ending:
    """The row and the text that keep a verdict."""
    columns: dict[str, Any] = {
        "status": str(evaluation.status),
        "speedup": evaluation.speedup,
        "coverage": evaluation.coverage,
        "kernel_ms": evaluation.kernel_ms,
        "reference_ms": evaluation.reference_ms,
        "baseline": evaluation.protocol.baseline if evaluation.speedup is not None else None,
        "roofline_fraction": evaluation.roofline.fraction if evaluation.roofline else None,
        "timing_source": evaluation.timing.source,
        "judged_on": evaluation.device,
        "expired": int(expired),
    }
    # A verdict may quote a candidate; what UTF-8 cannot hold must not keep it from being stored.
    body = readable(evaluation).model_dump_json(exclude=COMPUTED)
    return Ending(task_id, time.time(), columns, body)


def readable(evaluation: Evaluation) -> Evaluation:
    """The same verdict, with characters that no encoding has replaced."""
    try:
        evaluation.model_dump_json()
    except Exception:
        plain = _replaced(evaluation.model_dump(mode="python", exclude=COMPUTED))
        return Evaluation.model_validate(plain)
    return evaluation


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_replaced(key): _replaced(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replaced(item) for item in value]
    return value


def expired(task_id: str) -> Ending:
    """The deadline passed while the task was queued."""
    message = "its deadline passed while it was queued: it was not judged"
    return ending_of(task_id, Evaluation(status=Status.INFRASTRUCTURE_ERROR, message=message), expired=True)


def refused(task_id: str, reason: str) -> Ending:
    """No device of the executor can ever serve the job."""
    return ending_of(task_id, Evaluation(status=Status.UNSUPPORTED_ON_DEVICE, message=reason))


def failed(task_id: str, reason: str) -> Ending:
    """A fault of ours."""
    return ending_of(task_id, Evaluation(status=Status.INFRASTRUCTURE_ERROR, message=f"our fault: {reason}"))
