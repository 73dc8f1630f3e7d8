"""Many episodes at once, and the folder that keeps them.

`play` plays problems with a policy and a judge; `RunFolder` is where it records them, so that a run that is killed goes
on when it is started again. `play_episodes` is the same for episodes that somebody else made, as training does.
"""

from kerneldojo.rollout.export import export
from kerneldojo.rollout.folder import Manifest, RunFolder, RunWriter
from kerneldojo.rollout.journal import RunError
from kerneldojo.rollout.judges import AsyncJudge, from_executor, from_function
from kerneldojo.rollout.play import RolloutConfig, play, play_episodes

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
]
