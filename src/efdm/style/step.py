"""One training step, run plainly, compiled, or as a captured CUDA graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from efdm.ops.choices import check_choice
from efdm.training import PRECISIONS, SPEEDS, Capture, autocast
from efdm.training.checkpoint import restore_optimizer, set_rate


class Step:
    """Forward, backward and update for an objective. Keeps the moving average of the weights, if one is wanted.

    ``speed="graph"`` records the step once and replays it: small networks spend more time being launched than being run.
    """

    def __init__(
        self,
        objective: nn.Module,
        *,
        device: torch.device,
        lr: float,
        weight_decay: float = 0.0,
        ema_decay: float = 0.0,
        max_grad_norm: float = 0.0,
        precision: str = "fp32",
        speed: str = "plain",
    ) -> None:
        check_choice("speed", speed, SPEEDS)
        check_choice("precision", precision, tuple(PRECISIONS))
        self.objective = objective.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.device, self.precision, self.ema_decay = device, precision, ema_decay
        self.max_grad_norm = max_grad_norm or torch.inf  # gradient; a longer one is shortened
        objective.requires_grad_(False)
        for module in objective.trained():  # type: ignore[operator]
            module.requires_grad_(True)
        self.parameters = [p for p in objective.parameters() if p.requires_grad]
        on_gpu = device.type == "cuda"
        rate = torch.tensor(lr, device=device) if on_gpu else lr
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=rate, weight_decay=weight_decay, fused=on_gpu or None, capturable=on_gpu
        )
        self.averaged = [p.detach().clone() for p in self.parameters] if ema_decay else []
        if on_gpu:
            torch.backends.cudnn.benchmark = True  # shapes do not change
        self.forward = _compiled(objective) if "compile" in speed else objective
        self.run = Capture(
            self._step, self.optimizer, device=device, changed=[*self.parameters, *self.averaged],
            how="graph" if "graph" in speed and not dist.is_initialized() else "plain",
        )  # fmt: skip

    def __call__(self, content: Tensor, style: Tensor, directions: Sequence[Tensor], lr: float) -> dict[str, Tensor]:
        """Losses before the update, on the device; on a replayed graph they are overwritten by the next step."""
        set_rate(self.optimizer, lr)
        return self.run(content, style, *directions)

    def _step(self, content: Tensor, style: Tensor, *directions: Tensor) -> dict[str, Tensor]:
        pictures = [i.float().div(255).contiguous(memory_format=torch.channels_last) for i in (content, style)]
        with autocast(self.device, self.precision):
            losses = self.forward(*pictures, list(directions))
        losses["loss"].backward()
        if dist.is_initialized():
            _average_over_processes(self.parameters)
        norm = nn.utils.clip_grad_norm_(self.parameters, self.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.ema_decay:
            torch._foreach_lerp_(self.averaged, [p.detach() for p in self.parameters], 1 - self.ema_decay)
        return {**{k: v.detach() for k, v in losses.items()}, "gradient": norm}

    def state(self) -> dict[str, object]:
        return {"optimizer": self.optimizer.state_dict(), "averaged": self.averaged}

    def restore(self, state: Mapping[str, Any]) -> None:
        restore_optimizer(self.optimizer, state["optimizer"])
        with torch.no_grad():
            for mine, theirs in zip(self.averaged, state["averaged"], strict=True):
                mine.copy_(theirs)

    def use_average(self) -> None:
        """Put the averaged weights into the network."""
        with torch.no_grad():
            for parameter, value in zip(self.parameters, self.averaged, strict=False):
                parameter.copy_(value)


def processes() -> tuple[int, int]:
    """Which of the processes of a run this is, and how many there are."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def averaged(losses: Mapping[str, Tensor]) -> dict[str, float]:
    """Losses as numbers: means over all processes, which must ask for them together."""
    values = torch.stack([value.float() for value in losses.values()])
    if dist.is_initialized():
        dist.all_reduce(values)
        values /= dist.get_world_size()
    return dict(zip(losses, values.tolist(), strict=True))


def _compiled(objective: nn.Module) -> nn.Module:
    """Compile all of an objective, or only its teacher where that is most of the work: the rest takes long to compile."""
    teacher = getattr(objective, "teacher", None)
    if teacher is None:
        return torch.compile(objective)  # type: ignore[return-value]
    teacher.compile(dynamic=False)
    return objective


def _average_over_processes(parameters: Sequence[nn.Parameter]) -> None:
    """One message for all gradients: the networks are small."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))
