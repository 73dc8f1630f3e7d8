"""Cross entropy with smoothed labels and a penalty on the normaliser, one loss a row."""

import torch
import torch.nn as nn

ROWS = 8192
CLASSES = 8192
SMALL = {"ROWS": 16, "CLASSES": 160}


class Model(nn.Module):
    """Cross entropy with smoothed labels and a penalty on the normaliser, one loss a row."""

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        normaliser = torch.logsumexp(logits, dim=-1)
        picked = logits.gather(1, labels[:, None]).squeeze(1)
        loss = normaliser - 0.9 * picked - 0.1 * logits.mean(dim=-1)
        return loss + 0.01 * normaliser.square()


def get_inputs():
    return [torch.randn(ROWS, CLASSES) * 2, torch.randint(0, CLASSES, (ROWS,))]


def get_init_inputs():
    return []
