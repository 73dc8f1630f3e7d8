"""What writes kernels: an endpoint, a local model, a vLLM server, a teacher with templates, or a recording."""

from kerneldojo.policies.policy import Policy, Request
from kerneldojo.policies.registry import open_policy, require_trainable

__all__ = ["Policy", "Request", "open_policy", "require_trainable"]
