from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from tolerances import close
from torch import Tensor, nn

from efdm.training import Capture
from efdm.training.step import set_lr

CPU = torch.device("cpu")
ON_SECOND_GPU = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="no second CUDA device")]
OPTIMIZERS = {
    "sgd": lambda p, lr, gpu: torch.optim.SGD(p, lr=lr, momentum=0.9, weight_decay=0.1, fused=gpu or None),
    "adam": lambda p, lr, gpu: torch.optim.Adam(p, lr=lr, fused=gpu or None, capturable=gpu),
}


class Learner:
    """A network with batch norm and dropout, and a step that draws noise."""

    def __init__(self, device: torch.device, mode: Any, optimizer: str = "sgd") -> None:
        torch.manual_seed(3)
        # no bias before the batch norm: its gradient is pure rounding error, which Adam would amplify
        layers = [nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Conv2d(4, 2, 3)]
        self.model = nn.Sequential(*layers).to(device)
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        gpu = device.type == "cuda"
        self.rate = {"sgd": 0.1, "adam": 1e-3}[optimizer]
        rate = torch.tensor(self.rate, device=device) if gpu else self.rate
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters(), rate, gpu)
        self.generator = torch.Generator(device)
        changed = [*self.model.parameters(), *self.model.buffers()]
        self.run = Capture(
            self.step, self.optimizer, device=device, changed=changed, generator=self.generator, mode=mode
        )  # fmt: skip

    def step(self, images: Tensor) -> dict[str, Tensor]:
        noise = torch.randn(images.shape, device=images.device, generator=self.generator)
        loss = self.model(images + noise).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return {"loss": loss.detach(), "noise": noise}

    def __call__(self, iteration: int) -> dict[str, Tensor]:
        images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(iteration))
        self.generator.manual_seed(iteration)
        torch.manual_seed(iteration)
        set_lr(self.optimizer, self.rate / (iteration + 1))
        return {k: v.clone() for k, v in self.run(images.to(self.generator.device)).items()}

    def state(self) -> dict[str, Tensor]:
        return {k: v.detach().clone() for k, v in self.model.state_dict().items()}


def test_without_a_gpu_the_step_is_called_directly() -> None:
    one, two = Learner(CPU, "plain"), Learner(CPU, "graph")
    for i in range(3):
        assert torch.equal(one(i)["loss"], two(i)["loss"])
    assert two.run.graph is None


def test_graphs_are_captured_and_replayed_on_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.cuda.graph` captures on the current device, even if every tensor is on another."""
    current: list[torch.device] = []
    seen: list[tuple[str, list[torch.device]]] = []

    class On:
        def __init__(self, device: torch.device) -> None:
            self.device = device

        def __enter__(self) -> None:
            current.append(self.device)

        def __exit__(self, *_: object) -> None:
            current.pop()

    class Graph:
        def replay(self) -> None:
            seen.append(("replay", list(current)))

    def record(inputs: tuple[Tensor, ...]) -> None:
        seen.append(("record", list(current)))
        run.inputs, run.graph = [i.clone() for i in inputs], Graph()  # type: ignore[assignment]

    run = Learner(CPU, "graph").run
    second = run.device = torch.device("cuda:1")
    run.captures = True
    monkeypatch.setattr(torch.cuda, "device", On)
    monkeypatch.setattr(run, "_record", record)
    for value in range(2):
        run(torch.full((2,), value))
        assert run.inputs[0].tolist() == [value] * 2  # the tensors that a graph reads
    assert seen == [("record", [second]), ("replay", [second]), ("replay", [second])]


class PretendGraph:
    """Stand in for a CUDA graph on a CPU."""

    def __init__(self) -> None:
        self.generators: list[torch.Generator] = []

    def register_generator_state(self, generator: torch.Generator) -> None:
        self.generators.append(generator)

    def capture_begin(self) -> None: ...
    def capture_end(self) -> None: ...


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Replace everything in torch.cuda that capturing needs, and return the streams that were used."""
    used: list[Any] = []

    class Stream:
        def wait_stream(self, other: Stream) -> None:
            used.append(("waits", self, other))

    class Block:
        def __init__(self, *given: Any, **named: Any) -> None:
            used.append((*given, *named.values()))

        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    default = Stream()
    for name, value in {
        "CUDAGraph": PretendGraph, "stream": Block, "Stream": Stream, "device": Block, "mem_get_info": lambda: (3, 4),
        "default_stream": lambda: default, "current_stream": lambda: default, "current_device": lambda: 0,
        "default_generators": (torch.default_generator,),
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    return used


@contextmanager
def unchanged(optimizer: str, steps: int) -> Iterator[Learner]:
    """Yield a learner after some steps, and check that the block changes nothing that a later step depends on.

    Weights, buffers, the optimizer and both generators are compared, the optimizer by its effect on further steps.
    """
    one, two = Learner(CPU, "plain", optimizer), Learner(CPU, "plain", optimizer)
    for i in range(steps):
        one(i), two(i)
    before, drawn = two.state(), [two.generator.get_state(), torch.get_rng_state()]
    yield two
    assert all(torch.equal(value, before[name]) for name, value in two.state().items())
    assert torch.equal(two.generator.get_state(), drawn[0])
    assert torch.equal(torch.get_rng_state(), drawn[1])
    for i in range(steps, steps + 3):
        assert torch.equal(one(i)["loss"], two(i)["loss"])
    assert all(torch.equal(value, two.state()[name]) for name, value in one.state().items())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("steps", [0, 2])
def test_capturing_changes_nothing(pretend: list[Any], optimizer: str, steps: int) -> None:
    images = torch.rand(4, 3, 8, 8)
    with unchanged(optimizer, steps) as learner:
        learner.run._record([images])
    assert learner.run.graph.generators == [learner.generator]  # type: ignore[union-attr]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("fails", [RuntimeError("no memory"), KeyboardInterrupt()], ids=["error", "Ctrl-C"])
@pytest.mark.parametrize("where", ["before the update", "after it"])
def test_a_failed_preparation_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, optimizer: str, steps: int, fails: BaseException, where: str
) -> None:
    images = torch.rand(4, 3, 8, 8)
    with unchanged(optimizer, steps) as learner, monkeypatch.context() as patch:
        update = learner.optimizer.step

        def failing() -> None:
            if where == "after it":
                update()
            raise fails

        patch.setattr(learner.optimizer, "step", failing)
        with pytest.raises(type(fails)):
            learner.run.prepare(images)


def test_the_first_error_of_a_lost_device_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = Learner(CPU, "plain")

    def broken(*_: object) -> None:
        raise RuntimeError("the device is lost")

    def step(images: Tensor) -> dict[str, Tensor]:
        monkeypatch.setattr(learner.run, "_optimizer_state", broken)
        raise ValueError("no such stage")

    learner.run.step = step
    with pytest.raises(ValueError, match="no such stage"):
        learner.run.prepare(torch.rand(4, 3, 8, 8))


def test_the_default_stream_is_replaced_and_any_other_is_captured(
    pretend: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = Learner(CPU, "plain")
    learner.run._record([torch.rand(4, 3, 8, 8)])
    assert pretend[-1] == ("waits", torch.cuda.default_stream(), pretend[-2][0])
    assert pretend[-2][0] is not torch.cuda.default_stream()
    mine = torch.cuda.Stream()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: mine)
    learner.run._record([torch.rand(4, 3, 8, 8)])
    assert pretend[-2][0] is mine


def test_a_step_that_cannot_be_captured_is_reported(pretend: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(PretendGraph):
        def capture_begin(self) -> None:
            raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Refusing)
    with pytest.raises(RuntimeError, match=r"cannot be captured as a CUDA graph.*speed='plain'.*not permitted"):
        Learner(CPU, "plain").run._record([torch.rand(4, 3, 8, 8)])


class BreakingGraph(PretendGraph):
    """A graph whose capture fails to end after its step has failed, as in torch."""

    def capture_end(self) -> None:
        raise RuntimeError("capture invalidated")


@pytest.mark.parametrize(
    ("fails", "kind", "message"),
    [
        (RuntimeError("a number was read"), RuntimeError, r"cannot be captured as a CUDA graph.*a number was read"),
        (torch.OutOfMemoryError("2 GiB"), torch.OutOfMemoryError, "2 GiB"),
        (ValueError("no such stage"), ValueError, "no such stage"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
    ],
    ids=["cannot be captured", "memory", "another error", "Ctrl-C"],
)
def test_the_error_of_the_step_is_raised(
    pretend: list[Any], monkeypatch: pytest.MonkeyPatch, fails: BaseException, kind: type[BaseException], message: str | None
) -> None:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", BreakingGraph)
    learner, count = Learner(CPU, "plain"), iter(range(10))

    def step(images: Tensor) -> dict[str, Tensor]:
        if next(count) == 3:  # after the warm-up
            assert not gc.isenabled()
            raise fails
        return learner.step(images)

    learner.run.step = step
    with pytest.raises(kind, match=message):
        learner.run._record([torch.rand(4, 3, 8, 8)])
    assert gc.isenabled()
    assert learner.run.graph is None


@pytest.mark.parametrize(("free", "freed"), [(3, 0), (1, 1)])
def test_memory_is_released_only_if_little_is_free(
    pretend: list[Any], monkeypatch: pytest.MonkeyPatch, free: int, freed: int
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, 4))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("empty"))
    Learner(CPU, "plain").run._record([torch.rand(4, 3, 8, 8)])
    assert len(calls) == freed


def test_a_released_step_cannot_be_called() -> None:
    learner = Learner(CPU, "plain")
    learner(0)
    learner.run.release()
    with pytest.raises(RuntimeError, match="released"):
        learner(1)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", [pytest.param("cuda", marks=pytest.mark.gpu), pytest.param("cuda:1", marks=ON_SECOND_GPU)])
@pytest.mark.parametrize("stream", ["default", "own"])
def test_a_replayed_graph_equals_plain_steps(name: str, optimizer: str, stream: str) -> None:
    """The draws are equal bit for bit; the learning rate changes in every step."""
    device = torch.device(name)
    one, two = Learner(device, "plain", optimizer), Learner(device, "graph", optimizer)
    two.model.load_state_dict(copy.deepcopy(one.state()))
    where = torch.cuda.Stream(device) if stream == "own" else torch.cuda.default_stream(device)
    for i in range(5):
        expected = one(i)
        torch.cuda.synchronize(device)
        with torch.cuda.stream(where):
            found = two(i)
        torch.cuda.synchronize(device)
        assert torch.equal(found["noise"], expected["noise"])
        close(found["loss"], expected["loss"])
    for key, value in one.state().items():
        close(two.state()[key].float(), value.float())
    two.run.release()


@pytest.mark.gpu
def test_capturing_does_not_wait_for_other_streams() -> None:
    learner, images = Learner(torch.device("cuda"), "graph"), torch.rand(4, 3, 8, 8, device="cuda")
    learner.run.prepare(images)  # libraries are loaded
    second, busy = Learner(torch.device("cuda"), "graph"), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(busy):
        torch.cuda._sleep(10**10)  # several seconds
    with torch.cuda.stream(torch.cuda.Stream()):
        second.run.prepare(images)
        second.run(images)["loss"].item()
    assert not busy.query()
    torch.cuda.synchronize()
