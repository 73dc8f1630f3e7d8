"""The main job from end to end, on a laptop: a model from nothing learns to write faster kernels.

    collect    a teacher of mixed quality answers for generated graphs, and the judge says what each answer is worth
    SFT        a small model from nothing imitates all of it, good and bad as they come
    RL         it answers for the same graphs, and learns from the judge's rewards alone
    benchmark  both policies answer for graphs that neither has seen (opened here for the first time)
    report     figures, pages, and the table of what each phase took

Which checkpoint of RL counts is chosen on `graphs:validation`. One pool judges for all phases; equal answers to equal
problems are judged once, and that is what makes it fast: a small model repeats itself. Everything follows from the
seed but the seconds. A run that was killed goes on with the phase that it was in.

`settings` has the numbers, `phases` does the work, `record` keeps what came out.
"""

from kerneldojo.learning.learn import learn
from kerneldojo.learning.record import Learned, LearnError, Unfinished
from kerneldojo.learning.run import Stopped
from kerneldojo.learning.settings import LearnConfig

__all__ = ["LearnConfig", "LearnError", "Learned", "Stopped", "Unfinished", "learn"]
