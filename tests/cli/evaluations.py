"""Verdicts of every kind, built through the schema, so that an impossible one cannot be drawn."""

from __future__ import annotations

from kerneldojo.schema import (
    Evaluation,
    Exploit,
    KernelTime,
    ProtocolRecord,
    Roofline,
    Status,
    Timing,
    Unverified,
)

HOSTILE = "\x1b[2J\x1b]0;owned\x07[bold green]ok[/bold green]\u202egnp\u200b\r\x08\x9b31m\udcff"
"""Clears the screen, retitles the window, pretends to be markup, reads backwards, and is not even valid Unicode."""

PROTOCOL = ProtocolRecord(version="1", num_rounds=5, num_trials=100, oracle="float64")


def measured() -> Evaluation:
    return Evaluation(
        status=Status.PASSED,
        correct=True,
        speedup=2.0,
        coverage=0.983,
        kernel_ms=0.04,
        reference_ms=0.08,
        device="cuda:0 (NVIDIA H200)",
        language="triton",
        precision_class="tf32",
        max_error=0.31,
        timing=Timing(source="measured", median_ms=0.04, confidence_interval_ms=(0.039, 0.041), num_trials=100),
        reference_timing=Timing(source="measured", median_ms=0.08, confidence_interval_ms=(0.078, 0.082)),
        kernels=(
            KernelTime(name="biased_softmax", device_ms=0.039, own=True),
            KernelTime(name="void at::native::elementwise_kernel<128, 2>", device_ms=0.0007, num_launches=2),
        ),
        roofline=Roofline(limit_ms=0.03, fraction=0.75),
        protocol=PROTOCOL,
        notes=("the first call took 812 ms",),
        stage_seconds={"build": 0.4, "rounds": 0.6, "held": 0.2, "alone": 0.1, "total": 1.1},
    )


def modelled() -> Evaluation:
    return measured().model_copy(
        update={
            "device": "model:h100",
            "timing": Timing(source="modeled", median_ms=0.04, confidence_interval_ms=(0.04, 0.04)),
            "reference_timing": Timing(source="modeled", median_ms=0.08, confidence_interval_ms=(0.08, 0.08)),
        }
    )


def untimed() -> Evaluation:
    return Evaluation(status=Status.PASSED, correct=True, device="cpu", language="triton", protocol=PROTOCOL)


def exploit() -> Evaluation:
    return Evaluation(
        status=Status.EXPLOIT,
        exploits=(Exploit(name="no_causal_kernel", evidence="The answer is right without its own kernels."),),
        unverified=Unverified(outputs_matched=True, speedup=361.0),
        device="cuda:0",
        protocol=PROTOCOL,
    )


def failed(status: Status) -> Evaluation:
    if status is Status.EXPLOIT:
        return exploit()
    if status is Status.PASSED:
        return measured()
    return Evaluation(status=status, message=f"the message for {status.value}", device="model:h100")


def hostile() -> Evaluation:
    return Evaluation(
        status=Status.EXPLOIT,
        exploits=(Exploit(name=HOSTILE, evidence=HOSTILE),),
        message=HOSTILE * 3,
        device=HOSTILE,
        kernel_ms=0.1,
        kernels=(KernelTime(name=HOSTILE, device_ms=0.1, own=True),),
        notes=(HOSTILE,),
        stage_seconds={HOSTILE: 1.0},
        max_error=float("inf"),
    )
