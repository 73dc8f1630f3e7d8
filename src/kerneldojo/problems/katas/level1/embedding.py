"""Look rows up in a learned table."""

import torch
import torch.nn as nn

ROWS = 65536
VOCABULARY = 32000
WIDTH = 512
SMALL = {"ROWS": 64, "VOCABULARY": 50, "WIDTH": 64}


class Model(nn.Module):
    """Look rows up in a learned table."""

    def __init__(self, vocabulary: int, width: int):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.table(tokens)


def get_inputs():
    return [torch.randint(0, VOCABULARY, (ROWS,))]


def get_init_inputs():
    return [VOCABULARY, WIDTH]
