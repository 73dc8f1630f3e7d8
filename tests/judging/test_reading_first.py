"""A contestant that reads its source before it does anything else, as on CUDA, driven by the judge's own hands."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from kerneldojo import Candidate, Problem
from kerneldojo.judging.bench import read
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.host import COMPILE_ARENA_BYTES
from kerneldojo.judging.processes import ForkServer, Session, host_arena
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.submission import Submission
from kerneldojo.judging.surroundings import request
from kerneldojo.schema import Status

SWISH = (Path(__file__).parent.parent / "exploits" / "problems" / "swish.py").read_text()
GOOD = "import torch\nclass ModelNew(torch.nn.Module): pass\n"


def contestant(server: ForkServer, source: str) -> Contestant:
    session = Session(server, host_arena(COMPILE_ARENA_BYTES), request(Protocol(), "h100"))
    return Contestant(session, Submission(Candidate(source=source)), 60.0)


def test_what_has_been_read_is_loaded(server: ForkServer) -> None:
    good = contestant(server, GOOD)
    with closing(good.hosted.session):
        good.post_parse()
        good.collect_parse(30.0)
        good.load(30.0)


def test_what_is_not_python_is_refused_in_the_words_of_an_import(server: ForkServer) -> None:
    rulings: list[Ruling] = []
    for read_first in (True, False):
        bad = contestant(server, "x = 1\nclass ModelNew(:\n")
        with closing(bad.hosted.session), pytest.raises(Ruling) as caught:
            if read_first:
                bad.post_parse()
                bad.collect_parse(30.0)
            else:
                bad.load(30.0)
        rulings.append(caught.value)
    assert [ruling.status for ruling in rulings] == [Status.COMPILE_ERROR] * 2
    assert rulings[0].message == rulings[1].message
    assert "(line 2: class ModelNew(:)" in rulings[0].message


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import torch\ndef forward(:\n", "import: SyntaxError: invalid syntax (line 2: def forward(:)"),
        ("```python\nx = 1\n```", "import: SyntaxError: invalid syntax (line 1: ```python)"),
        ("import torch\nclass Other(torch.nn.Module): pass\n", "the source does not define ModelNew"),
        ("x = '\ud800'", "the source does not define ModelNew"),
    ],
)
def test_a_source_that_never_names_its_entry_point_hears_first_of_its_syntax(source: str, message: str) -> None:
    with pytest.raises(Ruling) as caught:
        read(Problem(name="swish", source=SWISH), Candidate(source=source))
    assert caught.value.status is Status.COMPILE_ERROR
    assert caught.value.message == message
