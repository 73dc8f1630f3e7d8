"""What writes kernels: an endpoint, a local model, a vLLM server, a teacher with templates, or a recording."""

from kerneldojo.policies.policy import Policy, Request

__all__ = ["Policy", "Request"]
