"""Signatures of exploits: one cheat is one, whatever the problem; two cheats are two; honest answers are others."""

from __future__ import annotations

import pytest
from proof.signatures import UNREADABLE, outline, signature

from kerneldojo.policies.teacher.cheating import EXPECTED, cheating
from kerneldojo.policies.teacher.writing import fused, lazy
from kerneldojo.problems.graphs import graphs

GRAPHS = [graph for graph in graphs("train", 60) if graph.graph_class == "elementwise"]


@pytest.mark.parametrize("kind", ["decoy", "unused", "idle", "replay"])
def test_a_cheat_is_the_same_whatever_the_graph(kind: str) -> None:
    found = {signature(cheating(graph, kind)) for graph in GRAPHS}
    assert len(GRAPHS) >= 10
    # Whether a graph has one, two or three inputs beside the first shows in how often a pointer is loaded, no more.
    assert len(found) <= 2, [outline(cheating(graph, kind)) for graph in GRAPHS[:3]]


def test_different_cheats_have_different_signatures() -> None:
    graph = GRAPHS[0]
    found = {kind: signature(cheating(graph, kind)) for kind in EXPECTED}
    found["honest"] = signature(fused(graph))
    assert len(set(found.values())) == len(found), found


def test_names_numbers_and_layout_make_no_difference() -> None:
    source = cheating(GRAPHS[0], "decoy")
    other = source.replace("BLOCK", "SIZE").replace("1024", "256").replace("return x", "return x  # nothing")
    assert other != source and signature(other) == signature(source)


def test_a_kept_answer_shows() -> None:
    graph = GRAPHS[0]
    lines = outline(cheating(graph, "replay"))
    forward = next(line for line in lines if line.startswith("ModelNew.forward"))
    assert "if self" in forward and "into self" in forward
    assert "into self" not in " ".join(outline(fused(graph)) + outline(lazy(graph, 0)))


def test_what_cannot_be_parsed_has_no_outline() -> None:
    assert outline("class (") == [] and signature("class (") == UNREADABLE
