"""What the scripts of `runs/` share: scales, arms, single trials, the queue that runs them, packs, figures.

The scripts prove the trainer on real hardware and are no part of the package; what they measure, and what they cannot
show, is written down beforehand in `docs/results/README.md`.
"""
