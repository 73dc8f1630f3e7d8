"""Test-time scaling: spending a budget of calls on one problem, by several strategies under one accounting.

    found = await search(problem, policy, judge, BestFirst(), Budget(calls=32), PlayConfig())
    winner = await choose(found, judge)         # judged again with fresh seeds before anything is announced
    winner.first.speedup, winner.second.speedup

Every strategy grows the same *tree*: the root is the problem, each other node is one answer with its verdict, and the
path to it is an ordinary episode. They differ in one decision, which node to continue from next, so that what is
compared is that decision and nothing else (calls, prompts, judge and selection are the same code).

| strategy | continues from | source |
|---|---|---|
| `Parallel` | the root, always | best of n |
| `Serial` | the last answer | Kevin's refinement |
| `ParallelSerial` | the last answer of one of m chains | Kevin's 16 x 8 |
| `Sequential` | the last answer, with the best turns in the prompt | Dr. Kernel's sequential scaling |
| `BestFirst` | the node that promises most | ours |
"""

from kerneldojo.search.budget import Budget, Spent
from kerneldojo.search.selection import Winner, choose, running_winners
from kerneldojo.search.spending import Found, search
from kerneldojo.search.strategies import (
    BestFirst,
    Parallel,
    ParallelSerial,
    Sequential,
    Serial,
    Strategy,
    StrategyConfig,
    parse_strategy,
)
from kerneldojo.search.tree import Node, Tree

__all__ = [
    "BestFirst",
    "Budget",
    "Found",
    "Node",
    "Parallel",
    "ParallelSerial",
    "Sequential",
    "Serial",
    "Spent",
    "Strategy",
    "StrategyConfig",
    "Tree",
    "Winner",
    "choose",
    "parse_strategy",
    "running_winners",
    "search",
]
