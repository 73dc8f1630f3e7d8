"""The nouns of the dojo: a problem and a candidate go in, an evaluation comes out; play strings them into episodes.

Everything here is frozen, validated and cheap to import (neither torch nor triton), because these are the objects
that travel: from the judge to the service, into a training run's files, and back out of them years later.
"""

from kerneldojo.schema.base import Frozen, Settings, content_hash
from kerneldojo.schema.episode import Answer, Episode, Message, Turn, Usage
from kerneldojo.schema.evaluation import (
    Evaluation,
    Exploit,
    KernelTime,
    ProtocolRecord,
    Roofline,
    Status,
    Timing,
    Unverified,
)
from kerneldojo.schema.job import Job
from kerneldojo.schema.problem import MAX_SOURCE_BYTES, Candidate, Problem, SourceLanguage

__all__ = [
    "MAX_SOURCE_BYTES",
    "Answer",
    "Candidate",
    "Episode",
    "Evaluation",
    "Exploit",
    "Frozen",
    "Job",
    "KernelTime",
    "Message",
    "Problem",
    "ProtocolRecord",
    "Roofline",
    "Settings",
    "SourceLanguage",
    "Status",
    "Timing",
    "Turn",
    "Unverified",
    "Usage",
    "content_hash",
]
