"""Training: a policy is shown verified answers (`sft`), then learns from the judge's rewards (`rl`).

Read `rl` first: it is the loop. What it stands on, each a file:

| file | idea |
|---|---|
| `config`, `settings`, `fitting` | every key of the TOML files; one line for a mistake, alone or beside its model |
| `tokens`, `models` | a tokenizer over whole lines, small models from nothing, anybody's models |
| `packing`, `scoring` | several samples in a row; log-probabilities without logits |
| `optimizing`, `learner` | Muon and AdamW; gradients, steps, weights |
| `parallel`, `skeleton` | several GPUs (FSDP2), none of which ever holds the whole model |
| `playing`, `verdicts`, `steps` | episodes in lockstep; verdicts once each; columns for the algorithms |
| `updates`, `ahead` | from samples to a change of the weights; two steps on their way at once |
| `metering` | how busy the judges are |
| `checkpoints`, `journal`, `runs`, `stopping` | killed at any moment, going on as if not |
| `display` | what a person sees |
"""
