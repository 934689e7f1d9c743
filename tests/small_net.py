"""A small network with three named stages, and a test of whether a model mixes."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self, checkpointed: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 5)
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = checkpoint(self.body, x, use_reentrant=False) if self.checkpointed else self.body(x)
        return self.head(x.mean((2, 3)))


def images(device: torch.device, batch: int = 6) -> torch.Tensor:
    return torch.randn(batch, 3, 10, 10, device=device)


def mixing(model: nn.Module, x: torch.Tensor, **kwargs) -> bool:
    """Return True if two calls differ, which only mixing can cause."""
    return not torch.equal(model(x, **kwargs), model(x, **kwargs))
