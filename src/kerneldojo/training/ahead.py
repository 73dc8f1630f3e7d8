"""Two steps on their way in one thread, so that the judges never wait for the policy, nor the policy long for them.

While step k is judged, step k + 1 is written; while step k + 1 is judged, step k is learned from. In between the two
take turns (a step has several where episodes have), so that whenever the policy waits for verdicts on one, the answers
of the other stand in the judges' queue behind them:

    write k+1 turn 0 | settle k turn 0, write k turn 1 | settle k+1 turn 0, write k+1 turn 1 | settle k turn 1: over
    learn from k                                       # meanwhile k+1 turn 1 is judged
    write k+2 turn 0 | settle k+1 turn 1: over
    learn from k+1                                     # meanwhile k+2 turn 0 is judged

Nothing here runs at the same time as anything else: only judging does, in processes of its own. No weight changes while
an answer is written, and which weights write which turn follows from this order alone, never from how long a verdict
takes. An answer is written by the weights that learn from it, or by those one update before.

When a checkpoint is written, the step after it has been begun: what was written of it by then is part of the checkpoint
(`Played.packed`). So a run that was killed writes nothing twice with other weights, and needs no old ones.
"""

from __future__ import annotations

from kerneldojo.training.playing import Played, Player
from kerneldojo.training.updates import Updates


def play_beside(now: Played, following: Played | None, player: Player, updates: Updates) -> float:
    """Play `now` to its end, and `following` as far as its verdicts come without waiting for nothing.

    Args:
        now: a step that was begun with the weights of before, or with these.
        following: the step after it, not begun; None if there is none. What is written of it here will be learned from
            after the next update, so it is scored by the weights of now.
        player: plays both.
        updates: scores.

    Returns:
        Seconds of scoring.
    """
    seconds = 0.0
    if not now.is_begun:
        player.advance(now)
    while True:
        if following is not None:
            player.advance(following)
            seconds += updates.score_written(following)
        player.advance(now)
        if now.is_over:
            return seconds
