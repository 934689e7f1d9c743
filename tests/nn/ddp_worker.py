"""Worker of test_ddp.py: train a mixed model in two processes with DistributedDataParallel over gloo."""

import gc
import os
import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from efdm import DistributionNoise, EFDMix, mix_after


def train(net: nn.Module, rank: int, store: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model = DistributedDataParallel(net)
    with pytest.raises(ValueError, match="DistributedDataParallel"):
        mix_after(model, ["2"])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(rank)  # each process draws its own partners and weights
    for _ in range(3):
        optimizer.zero_grad()
        images, domains = torch.randn(5, 3, 8, 8), torch.tensor([0, 1, 0, 1, 1])
        model(images, domains=domains).square().mean().backward()
        optimizer.step()
    total = torch.cat([p.detach().flatten() for p in model.parameters()])
    other = [torch.empty_like(total) for _ in range(2)]
    dist.all_gather(other, total)
    assert torch.equal(other[0], other[1]), "parameters must stay equal"
    # gloo on CPU sometimes aborts at exit while the reducer is alive
    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


def main(store: str) -> None:
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    mix_after(net, ["0", "1"], [DistributionNoise(p=1.0), EFDMix(p=1.0, alpha=5.0, pairing="crossdomain")])
    child = os.fork()  # before any computation; a second interpreter would import torch again
    train(net, 0 if child else 1, store)
    if child:
        assert os.waitpid(child, 0)[1] == 0, "the second process failed"


if __name__ == "__main__":
    main(sys.argv[1])
