"""Compiling for a GPU that is not there. The compiler must not share a process with the interpreter, so: its own."""

import json
import os
import subprocess
import sys

import pytest

CANDIDATE = """
import torch, triton, triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def square(x):
    return x * x


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 256}, num_warps=8),
        triton.Config({"BLOCK": 2**21}),
    ],
    key=["n"],
)
@triton.jit
def tuned(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, square(tl.load(x + i, mask=i < n)), mask=i < n)


@triton.jit
def broken(x, o, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    wrong = tl.arange(0, 3)
    tl.store(o + i, value)


@triton.jit
def greedy(x, o, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(8):
        left = tl.load(x + k + i[:, None] * BLOCK + i[None, :])
        total += tl.dot(left, tl.load(o + k + i[:, None] * BLOCK + i[None, :]))
    tl.store(o + i[:, None] * BLOCK + i[None, :], total)


@triton.jit
def applied(x, o, FUNCTION: tl.constexpr, KIND: tl.constexpr, pair, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o + i, libdevice.tanh(FUNCTION(tl.load(x + i)).to(KIND).to(tl.float32)) * pair[0])


def make():
    @triton.jit
    def inner(x, BLOCK: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), 1.0)

    return inner


def run_all():
    x, o = torch.randn(256), torch.empty(256)
    tuned[lambda meta: (triton.cdiv(256, meta["BLOCK"]),)](x, o, 256)
    applied[(1,)](x, o, FUNCTION=square, KIND=tl.bfloat16, pair=(2.0, 1), BLOCK=256)
    make()[(1,)](x, BLOCK=16)
"""

METER = """
import json, sys
from kerneldojo.devices import interpreter
interpreter.prepare()
import candidate
with interpreter.Meter() as meter:
    candidate.run_all()
print(json.dumps([item.model_dump(mode="json") for item in meter.specializations]))
"""

COMPILE = """
import json, sys
from kerneldojo.devices import target
target.warm_up()
import candidate
compiled = target.compile_module(candidate, json.load(sys.stdin), (9, 0))
print(json.dumps([item.model_dump(mode="json") for item in compiled]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("candidate")
    (path / "candidate.py").write_text(CANDIDATE)
    return path


def run(script, folder, text="", **environment):
    settings = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
        "OMP_NUM_THREADS": "1",
        "TRITON_CACHE_DIR": str(folder / "cache"),
        "TMPDIR": str(folder),
        **environment,
    }
    if not environment:
        settings.pop("TRITON_INTERPRET", None)
    done = subprocess.run([sys.executable, "-c", script], env=settings, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def specialization(qualname, line, *arguments, **options):
    return {
        "kernel": {"module": "candidate", "qualname": qualname, "line": line},
        "arguments": list(arguments),
        "options": options,
    }


def pointer(name):
    return {"name": name, "type": "*fp32", "aligned": True}


def block(size):
    return {"name": "BLOCK", "type": "constexpr", "constant": {"kind": "int", "text": str(size)}}


def line_of(text):
    lines = CANDIDATE.splitlines()
    at = lines.index(text)
    while lines[at - 1].startswith(("@", " ", ")")):
        at -= 1
    return at + 1


def test_what_the_meter_saw_compiles(folder):
    seen = run(METER, folder, TRITON_INTERPRET="1")
    assert [item["kernel"]["qualname"] for item in seen] == ["tuned", "applied", "make.<locals>.inner"]
    tuned, applied, inner = run(COMPILE, folder, json.dumps(seen))
    assert tuned["error"] is None
    assert tuned["registers"] > 0
    assert tuned["spilled_bytes"] == 0
    assert len(tuned["cubin_sha256"]) == 64
    assert applied["error"] is None
    assert (inner["is_found"], inner["error"]) == (False, None)


def test_failures_say_where(folder):
    specializations = [
        specialization(
            "broken", line_of("def broken(x, o, BLOCK: tl.constexpr):"), pointer("x"), pointer("o"), block(64)
        ),
        specialization(
            "greedy",
            line_of("def greedy(x, o, BLOCK: tl.constexpr):"),
            pointer("x"),
            pointer("o"),
            block(128),
            num_stages=8,
        ),
        {
            **specialization(
                "tuned",
                line_of("def tuned(x, o, n, BLOCK: tl.constexpr):"),
                pointer("x"),
                pointer("o"),
                {"name": "n", "type": "i32"},
                block(2**21),
            ),
            "alternatives": [
                {"constants": {"BLOCK": block(size)["constant"]}, "options": {"num_warps": 8}} for size in (2**21, 256)
            ],
        },
    ]
    broken, greedy, tuned = run(COMPILE, folder, json.dumps(specializations))
    wrong = CANDIDATE.splitlines().index("    wrong = tl.arange(0, 3)") + 1
    assert "power of 2" in broken["error"]
    assert f"line {wrong}: wrong = tl.arange(0, 3)" in broken["error"]
    assert "shared memory" in greedy["error"]
    assert "232448" in greedy["error"]
    assert tuned["error"] is None
    assert tuned["num_failed"] == 2, "one good configuration is enough"
    assert tuned["num_warps"] == 8


def test_malformed_specializations_are_refused(folder):
    script = COMPILE.replace("compiled = ", "compiled = []\ntry:\n    ").replace(
        "print(", "except ValueError as error:\n    compiled = []\nprint("
    )
    bad = specialization("broken", 1, {"name": "x", "type": "__import__('os')"})
    assert run(script, folder, json.dumps([bad])) == []
