"""Where a model is: a folder here or a name of the hub, and in one line why it cannot be loaded from there."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from kerneldojo.training.settings import ConfigError

HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
"""`owner/name`, which the hub may know."""


def check_path(path: str) -> None:
    """Refuse what can be no checkpoint, without asking the hub for it.

    Raises:
        ConfigError: there is no such folder, or no model in it.
    """
    wrong = what_is_wrong(path)
    if wrong:
        raise ConfigError(f"model.path: {wrong}")


def what_is_wrong(path: str) -> str:
    """Why `path` can be no checkpoint; empty if it may be one."""
    folder = Path(path)
    if not path:
        return "is empty"
    if folder.is_dir():
        names = ("config.json", "adapter_config.json")
        return "" if any((folder / name).is_file() for name in names) else f"{path} has no {' and no '.join(names)}"
    if folder.exists():
        return f"{path} is not a folder"
    # A name of the hub, unless it begins with a folder that is here: then it is a misspelt path.
    is_name = HUB_NAME.fullmatch(path) and not Path(folder.parts[0]).exists()
    return "" if is_name else f"there is no folder {path} (and a name of the hub is owner/name)"


@contextmanager
def loading(what: str, path: str, key: str = "model.path") -> Generator[None]:
    """Tell in one line why `what` of `path` cannot be loaded: every library involved has exceptions of its own.

    Raises:
        ConfigError: with that line.
    """
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{key}: cannot load the {what} of {path}: {reason[:200]}") from error
