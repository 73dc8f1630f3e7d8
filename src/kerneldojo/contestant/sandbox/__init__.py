"""A locked room for one contestant: what generated code may not do, and that nothing of it is left afterwards.

    features = probe()                                        # what this host offers, each thing tried
    policy = Policy(scratch=folder, readable=toolchain())     # all that exists for the contestant
    contained = launch(main, policy, features)                # a fork, locked in, then main()
    ended = contained.result()                                # or contained.kill()

Only the standard library and `ctypes`; importing it costs milliseconds. How it holds, and where it does not:
`docs/sandbox.md`.
"""

from __future__ import annotations

from kerneldojo.contestant.sandbox.contained import Contained, begin, launch
from kerneldojo.contestant.sandbox.features import Features
from kerneldojo.contestant.sandbox.leftovers import sweep_groups
from kerneldojo.contestant.sandbox.policy import Cause, Ended, Limits, Policy, SandboxError, toolchain
from kerneldojo.contestant.sandbox.porter import Porter
from kerneldojo.contestant.sandbox.probing import probe

__all__ = [
    "Cause",
    "Contained",
    "Ended",
    "Features",
    "Limits",
    "Policy",
    "Porter",
    "SandboxError",
    "begin",
    "launch",
    "probe",
    "sweep_groups",
    "toolchain",
]
