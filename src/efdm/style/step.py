"""One training step, run plainly, compiled, or as a captured CUDA graph."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from efdm.ops.choices import check_choice

SPEEDS = ("plain", "compile", "graph", "compile+graph")
OF_THE_DEVICE = ("lr", "fused", "capturable")  # options of the optimizer that a run on another device does not take over
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


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
        average: float = 0.0,
        longest: float = 0.0,
        precision: str = "fp32",
        speed: str = "plain",
    ) -> None:
        check_choice("speed", speed, SPEEDS)
        check_choice("precision", precision, tuple(PRECISIONS))
        self.objective = objective.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.device, self.precision, self.speed, self.average = device, precision, speed, average
        self.longest = longest or torch.inf  # gradient; a longer one is shortened
        objective.requires_grad_(False)
        for module in objective.trained():  # type: ignore[operator]
            module.requires_grad_(True)
        self.parameters = [p for p in objective.parameters() if p.requires_grad]
        on_gpu = device.type == "cuda"
        rate = torch.tensor(lr, device=device) if on_gpu else lr
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=rate, weight_decay=weight_decay, fused=on_gpu or None, capturable=on_gpu
        )
        self.averaged = [p.detach().clone() for p in self.parameters] if average else []
        if on_gpu:
            torch.backends.cudnn.benchmark = True  # shapes do not change
        self.forward = _compiled(objective) if "compile" in speed else objective
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: list[Tensor] = []
        self.outputs: dict[str, Tensor] = {}

    def __call__(self, content: Tensor, style: Tensor, directions: Sequence[Tensor], lr: float) -> dict[str, Tensor]:
        """Losses before the update, on the device; on a replayed graph they are overwritten by the next step."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr
        inputs = [content, style, *directions]
        if "graph" not in self.speed or self.device.type != "cuda" or dist.is_initialized():
            return self._step(inputs)
        with torch.cuda.device(self.device):  # graphs belong to the current device, whatever that of their tensors is
            if self.graph is None:
                self._capture(inputs)
            for mine, given in zip(self.inputs, inputs, strict=True):
                mine.copy_(given, non_blocking=True)
            self.graph.replay()  # type: ignore[union-attr]
        return self.outputs

    def _autocast(self) -> AbstractContextManager[object]:
        # the cache of cast weights would outlive a captured graph
        return torch.autocast(
            self.device.type, PRECISIONS[self.precision], enabled=self.precision != "fp32", cache_enabled=False
        )

    def _step(self, inputs: list[Tensor]) -> dict[str, Tensor]:
        content, style = (i.float().div(255).contiguous(memory_format=torch.channels_last) for i in inputs[:2])
        with self._autocast():
            losses = self.forward(content, style, inputs[2:])
        losses["loss"].backward()
        if dist.is_initialized():
            _average_over_processes(self.parameters)
        norm = nn.utils.clip_grad_norm_(self.parameters, self.longest)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average:
            torch._foreach_lerp_(self.averaged, [p.detach() for p in self.parameters], 1 - self.average)
        return {**{k: v.detach() for k, v in losses.items()}, "gradient": norm}

    def _capture(self, inputs: list[Tensor]) -> None:
        """Record a step, leaving weights and optimizer as they were."""
        self.inputs = [i.clone() for i in inputs]
        before = [p.detach().clone() for p in [*self.parameters, *self.averaged]]
        state = copy.deepcopy(self.optimizer.state_dict())
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._step(self.inputs)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):  # torch's own stream stays on the device of the first capture
            self.outputs = self._step(self.inputs)
        with torch.no_grad():
            for tensor, value in zip([*self.parameters, *self.averaged], before, strict=True):
                tensor.copy_(value)
            for index, parameter in enumerate(self.parameters):
                for name, value in self.optimizer.state[parameter].items():
                    kept = state["state"].get(index, {}).get(name)
                    value.copy_(kept) if kept is not None else value.zero_()

    def state(self) -> dict[str, object]:
        return {"optimizer": self.optimizer.state_dict(), "averaged": self.averaged}

    def restore(self, state: dict[str, object]) -> None:
        given: dict[str, Any] = state["optimizer"]  # type: ignore[assignment]
        # before it is loaded: they decide where the optimizer keeps its count of steps
        own = [{name: group[name] for name in OF_THE_DEVICE} for group in self.optimizer.param_groups]
        groups = [{**theirs, **mine} for theirs, mine in zip(given["param_groups"], own, strict=True)]
        self.optimizer.load_state_dict({**given, "param_groups": groups})
        with torch.no_grad():
            for mine, theirs in zip(self.averaged, state["averaged"], strict=True):  # type: ignore[call-overload]
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
