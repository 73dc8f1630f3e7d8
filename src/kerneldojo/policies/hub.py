"""Models by their names at the hub: asked for once, before libraries ask.

A library that opens a model asks for one file after the other, and for each five times over half a minute where the hub
cannot be reached. A name that is misspelt, or a machine that has no network, is told by the first question.
"""

from __future__ import annotations

from pathlib import Path

ASK_SECONDS = 10.0
"""How long the hub may take to answer."""


def located(name: str) -> str:
    """Where libraries find the model `name`, after one question to the hub: the name itself, for a folder or a model
    that the hub has; its folder in the cache where the hub is not there.

    Raises:
        ValueError: there is no such model, or the hub is not there; one line says which.
    """
    if Path(name).exists():
        return name
    if name.startswith(("/", ".", "~")):
        raise ValueError(f"there is no folder {name}")
    from huggingface_hub import HfApi
    from huggingface_hub.utils import HFValidationError, RepositoryNotFoundError

    nothing = f"there is no folder {name}, and the hub"
    try:
        HfApi().model_info(name, timeout=ASK_SECONDS)
    except HFValidationError:
        raise ValueError(f"there is no folder {name} (and a name of the hub is owner/name)") from None
    except RepositoryNotFoundError:
        raise ValueError(f"{nothing} has no such model, or not for you") from None
    except Exception as error:  # of whichever library asks
        if folder := _cached(name):
            return folder
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"{nothing} cannot be asked: {reason}") from error
    return name


def _cached(name: str) -> str | None:
    """The folder of a model in the hub's cache; None where it has none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return snapshot_download(name, local_files_only=True)
    except LocalEntryNotFoundError:
        return None
