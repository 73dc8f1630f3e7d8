"""The teacher: a policy that writes kernels from operation graphs with code templates, at a chosen quality.

from kerneldojo.policies.teacher import Teacher, teach

policy = Teacher.of("mixture")      # or broken, cheating, lazy, fused, tuned, or lazy=3,fused=1
source = teach(problem, "fused")    # the code alone
"""

from kerneldojo.policies.teacher.config import LEVELS, Level, TeacherConfig
from kerneldojo.policies.teacher.policy import Teacher, teach

__all__ = ["LEVELS", "Level", "Teacher", "TeacherConfig", "teach"]
