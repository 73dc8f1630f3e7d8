"""Token and position embeddings summed and normalised."""

import torch
import torch.nn as nn

BATCH = 32
LENGTH = 1024
VOCABULARY = 32000
WIDTH = 512
SMALL = {"BATCH": 2, "LENGTH": 16, "VOCABULARY": 60, "WIDTH": 64}


class Model(nn.Module):
    """Token and position embeddings summed and normalised."""

    def __init__(self, vocabulary: int, length: int, width: int):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.norm(self.token(tokens) + self.position.weight)


def get_inputs():
    return [torch.randint(0, VOCABULARY, (BATCH, LENGTH))]


def get_init_inputs():
    return [VOCABULARY, LENGTH, WIDTH]
