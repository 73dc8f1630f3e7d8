"""What others say, fit to be logged, stored and shown: on one line, of bounded length, without keys.

An endpoint's error may repeat the key that it was asked with, and a gateway's may name the key that *it* uses, which
nobody here knows. So the own key is taken out wherever it stands, and whatever looks like somebody's: rather a harmless
number too many than a key in a run folder.
"""

from __future__ import annotations

import re

MAX_READ = 1 << 14
"""Characters of a text that are read at all."""
HIDDEN = "***"

_SCHEME = re.compile(r"\b(bearer|basic)[ \t]+[\w+/=.~*%:-]{6,}", re.IGNORECASE)
_LABEL = re.compile(
    r"((?:api[ _-]?key|secret|password|passwd|authorization|access[ _-]?key|[\w-]{0,40}token|credentials?)"
    r"(?:[ \t]+(?:provided|given|used|is))?[\"'\\]*[ \t]*[:=][ \t\"'\\]*)(?!\*\*\*)[^\s\"'\\,;&}<>]{6,}",
    re.IGNORECASE,
)
_USER = re.compile(r"(://)[^/\s@\"']+@")
_PREFIX = re.compile(
    r"\b(?:sk|pk|rk|gsk|hf|xai|ghp|gho|ghs|glpat|github_pat|nvapi|pplx|r8|xox[a-z]|AKIA|ASIA|AIza|ya29|eyJ)"
    r"[-_.]?[\w.*-]{8,}"
)
_OPAQUE = re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z])\w{32,}\b", re.ASCII)


def redacted(text: str, secret: str = "", max_chars: int = 300) -> str:
    """The text on one line of at most `max_chars` characters, keys replaced by `***`.

    Args:
        text: what somebody else wrote.
        secret: the own key, which is taken out whatever it looks like.
        max_chars: cut there, after keys are gone: half a key is one too.
    """
    text = " ".join(text[:MAX_READ].split())
    if secret.strip():
        text = text.replace(secret.strip(), HIDDEN)
    text = _SCHEME.sub(rf"\1 {HIDDEN}", text)
    text = _LABEL.sub(rf"\1{HIDDEN}", text)
    text = _USER.sub(rf"\1{HIDDEN}@", text)
    for pattern in (_PREFIX, _OPAQUE):
        text = pattern.sub(HIDDEN, text)
    return text[:max_chars]
