"""Generated problems: graphs of operations in four frozen sets, written in KernelBench's format and read back from it.

from kerneldojo.problems.graphs import graph_of, graph_problems

problems = graph_problems("train", count=100, seed=1)
graph = graph_of(problems[0])
"""

from kerneldojo.problems.graphs.generate import COUNTS, graph_problem, graph_problems, graphs
from kerneldojo.problems.graphs.graph import CLASSES, Graph, GraphClass, Input, Node, Shape, signature
from kerneldojo.problems.graphs.operations import OPERATIONS, Operation, operation
from kerneldojo.problems.graphs.parse import graph_of
from kerneldojo.problems.graphs.render import render
from kerneldojo.problems.graphs.splits import SPLITS, Split, is_held_back, split_of

__all__ = [
    "CLASSES",
    "COUNTS",
    "OPERATIONS",
    "SPLITS",
    "Graph",
    "GraphClass",
    "Input",
    "Node",
    "Operation",
    "Shape",
    "Split",
    "graph_of",
    "graph_problem",
    "graph_problems",
    "graphs",
    "is_held_back",
    "operation",
    "render",
    "signature",
    "split_of",
]
