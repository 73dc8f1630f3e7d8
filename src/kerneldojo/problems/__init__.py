"""What kernels are written for: suites of problems, what makes an answer right, and the audit that admits them.

Light names (`load_suite`, `problem_from_file`, ...) import no torch. The audit and the tolerance do:
`from kerneldojo.problems.audit import audit`, `from kerneldojo.problems.tolerance import compare`.
"""

from kerneldojo.problems.source import ProblemError, Size, check_source
from kerneldojo.problems.suite import Refused, load_suite, problem_from_file, problem_id, problem_names, problem_number

__all__ = [
    "ProblemError",
    "Refused",
    "Size",
    "check_source",
    "load_suite",
    "problem_from_file",
    "problem_id",
    "problem_names",
    "problem_number",
]
