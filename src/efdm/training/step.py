"""One optimization step: losses, gradients, update, moving average; captured as a CUDA graph where that is faster."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from efdm.ops.generator import default_generator
from efdm.training.capture import Capture
from efdm.training.distributed import average_gradients

# name -> class, and the options it takes besides the learning rate and weight decay
OPTIMIZERS: Mapping[str, tuple[type[torch.optim.Optimizer], tuple[str, ...]]] = {
    "sgd": (torch.optim.SGD, ("momentum",)),
    "adam": (torch.optim.Adam, ("capturable",)),
    "adamw": (torch.optim.AdamW, ("capturable",)),
}  # fmt: skip
DEVICE_OPTIONS = ("lr", "fused", "capturable")  # not loaded from a checkpoint of another device


class Step:
    """Minimize ``losses(*inputs)["loss"]`` over the parameters of ``modules`` that require gradients.

    Args:
        losses: maps tensors to named losses.
        modules: what is trained, by the name under which it is saved in a checkpoint.
        optimizer: row of `OPTIMIZERS`.
        max_grad_norm: clip gradients to this norm and report the norm as "gradient"; None disables both.
        ema_decay: decay of the exponential moving average of the parameters; 0 keeps none.
        generator: what ``losses`` draws from. Iteration ``i`` seeds it, and the default generator, from ``seed`` and ``i``
            alone, so a resumed run draws the same numbers.
    """

    def __init__(
        self,
        losses: Callable[..., dict[str, Tensor]],
        modules: Mapping[str, nn.Module],
        *,
        device: torch.device,
        optimizer: str = "adamw",
        lr: float,
        weight_decay: float = 0.0,
        momentum: float = 0.9,
        max_grad_norm: float | None = None,
        ema_decay: float = 0.0,
        speed: str = "plain",
        generator: torch.Generator | None = None,
        seed: int = 0,
    ) -> None:
        self.losses, self.modules, self.device = losses, modules, device
        self.max_grad_norm, self.ema_decay = max_grad_norm, ema_decay
        self.generator, self.seed = generator, seed
        self.parameters = [p for module in modules.values() for p in module.parameters() if p.requires_grad]
        on_gpu = device.type == "cuda"
        cls: Any
        cls, takes = OPTIMIZERS[optimizer]
        # on a GPU the rate is a tensor, which a captured graph reads at every replay; fused, because foreach would read it
        # back to the CPU
        rate = torch.tensor(lr, device=device) if on_gpu else lr
        options = {name: {"momentum": momentum, "capturable": on_gpu}[name] for name in takes}
        self.optimizer = cls(self.parameters, lr=rate, weight_decay=weight_decay, fused=on_gpu or None, **options)
        self.averaged = [p.detach().clone() for p in self.parameters] if ema_decay else []
        if on_gpu:
            torch.backends.cudnn.benchmark = True  # shapes do not change
            torch.set_float32_matmul_precision("high")
        tensors = [t for module in modules.values() for t in (*module.parameters(), *module.buffers())]
        self.capture = Capture(
            self._step, self.optimizer, device=device, changed=[*tensors, *self.averaged], generator=generator,
            mode="graph" if "graph" in speed and not dist.is_initialized() else "plain",
        )  # fmt: skip

    def prepare(self, *inputs: Tensor) -> None:
        """Capture the graph, or run a step and undo it, so that the first step takes as long as any other."""
        self.capture.prepare(*inputs)

    def __call__(self, iteration: int, *inputs: Tensor, lr: float) -> dict[str, Tensor]:
        """Take a step and return the losses before the update, on the device. The next step may overwrite them."""
        if self.generator is not None:
            own, default = seeds_of(self.seed, iteration)
            self.generator.manual_seed(own)
            default_generator(self.device).manual_seed(default)
        set_lr(self.optimizer, lr)
        return self.capture(*inputs)

    def _step(self, *inputs: Tensor) -> dict[str, Tensor]:
        losses = self.losses(*inputs)
        losses["loss"].backward()
        if dist.is_initialized():
            average_gradients(self.parameters)
        found = {name: value.detach() for name, value in losses.items()}
        if self.max_grad_norm is not None:
            found["gradient"] = nn.utils.clip_grad_norm_(self.parameters, self.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.ema_decay:
            torch._foreach_lerp_(self.averaged, [p.detach() for p in self.parameters], 1 - self.ema_decay)
        return found

    def state(self) -> dict[str, Any]:
        modules = {name: module.state_dict() for name, module in self.modules.items()}
        return {"modules": modules, "optimizer": self.optimizer.state_dict(), "averaged": self.averaged}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name, module in self.modules.items():
            module.load_state_dict(state["modules"][name])
        restore_optimizer(self.optimizer, state["optimizer"])
        with torch.no_grad():
            for mine, saved in zip(self.averaged, state["averaged"], strict=True):
                mine.copy_(saved)

    def finish(self) -> None:
        """Put the averaged weights into the modules and free the memory of the graph."""
        with torch.no_grad():
            for parameter, value in zip(self.parameters, self.averaged, strict=False):
                parameter.copy_(value)
        self.release()

    def release(self) -> None:
        """Free the memory of the graph. The modules stay usable."""
        self.capture.release()


def seeds_of(seed: int, iteration: int) -> tuple[int, int]:
    """Return two seeds for an iteration. They are hashed, so neighbouring iterations have unrelated seeds."""
    mixed = hashlib.sha256(f"step {seed}/{iteration}".encode()).digest()
    return int.from_bytes(mixed[:4], "little"), int.from_bytes(mixed[4:8], "little")


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate, in place where it is a tensor that a captured graph reads."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def restore_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Load the ``state_dict`` of an optimizer that may have been on another device."""
    # merged before loading: these options decide on which device the optimizer keeps its count of steps
    own = [{name: group[name] for name in DEVICE_OPTIONS if name in group} for group in optimizer.param_groups]
    groups = [{**saved, **mine} for saved, mine in zip(state["param_groups"], own, strict=True)]
    optimizer.load_state_dict({**state, "param_groups": groups})
