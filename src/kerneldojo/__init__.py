"""Kernel Dojo: a judge for generated GPU kernels, and the environment to train kernel-writing models on it."""

from kerneldojo.schema import Candidate, Evaluation, Exploit, Problem, Status

__all__ = ["Candidate", "Evaluation", "Exploit", "Problem", "Status"]
