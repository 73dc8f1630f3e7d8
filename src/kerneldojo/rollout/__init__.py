"""Many episodes at once, and the folder that keeps them.

`play` plays problems with a policy and a judge; `RunFolder` is where it records them, so that a run that is killed goes
on when it is started again. `play_run` is the same for a program that is not asynchronous, `play_episodes` for episodes
that somebody else made, as training does.
"""

from kerneldojo.rollout.export import export, write_table
from kerneldojo.rollout.folder import Manifest, RunFolder, RunWriter
from kerneldojo.rollout.judges import AsyncJudge, from_executor, from_function
from kerneldojo.rollout.lock import RunError
from kerneldojo.rollout.play import RolloutConfig, play, play_episodes
from kerneldojo.rollout.run import play_run

__all__ = [
    "AsyncJudge",
    "Manifest",
    "RolloutConfig",
    "RunError",
    "RunFolder",
    "RunWriter",
    "export",
    "from_executor",
    "from_function",
    "play",
    "play_episodes",
    "play_run",
    "write_table",
]
