import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from efdm import EFDMix, domains_of_batch
from efdm.dg import METHODS, attach
from efdm.nn import FeatureMix, feature_layers
from efdm.nn.pairing import PAIRINGS
from efdm.recognition.methods import Parts, options_of

STAGES = ("one", "two")
RANDOM = [name for name, row in METHODS.items() if "p" in row.options]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.two = nn.Sequential(nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 4)

    def features(self, x: Tensor) -> Tensor:
        return self.two(self.one(x)).mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def always(method: str) -> dict[str, float]:
    """Return options with which a method changes every batch."""
    return {} if method not in RANDOM else {"p": 0.3} if method == "dropblock" else {"p": 1.0}


def batch(device: torch.device, size: int = 7) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    images = torch.randn(size, 3, 12, 12, generator=generator).to(device, memory_format=torch.channels_last)
    targets = F.one_hot(torch.arange(size) % 4, 4).float().to(device)
    return images, targets, (torch.arange(size) * 2 // size).to(device)


def net(device: torch.device) -> Net:
    torch.manual_seed(0)
    return Net().to(device, memory_format=torch.channels_last)


def loss_of(model: Net, parts: Parts, images: Tensor, targets: Tensor, domains: Tensor) -> Tensor:
    images, targets = parts.change(images, targets)
    with domains_of_batch(domains):
        features = model.features(images)
        logits = model.head(features)
    loss = F.cross_entropy(logits, targets)
    return loss if parts.penalty is None else loss + parts.penalty(features, logits, targets, domains)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(method: str, device: torch.device) -> None:
    """Odd batch size, autocast to bfloat16."""
    model = net(device)
    parts = attach(method, model, STAGES, generator=torch.Generator(device).manual_seed(0), **always(method))
    with torch.autocast(device.type, torch.bfloat16):
        loss = loss_of(model, parts, *batch(device))
    loss.backward()
    assert loss.isfinite()
    for parameter in model.parameters():
        assert parameter.grad.isfinite().all()
    assert all(parameter.grad.any() for name, parameter in model.named_parameters() if "0.bias" not in name)


@pytest.mark.parametrize("method", RANDOM)
def test_same_seed_same_loss(method: str, device: torch.device) -> None:
    losses = []
    for seed in (1, 1, 2, 3):
        model = net(device)
        parts = attach(method, model, STAGES, generator=torch.Generator(device).manual_seed(seed), **always(method))
        torch.manual_seed(len(losses))  # must not matter
        losses.append(loss_of(model, parts, *batch(device)).item())
    assert losses[0] == losses[1]
    assert len(set(losses)) > 1


@pytest.mark.parametrize("method", METHODS)
def test_no_effect_in_eval_mode(method: str, device: torch.device) -> None:
    model = net(device)
    parts = attach(method, model, STAGES, **always(method))
    model.eval()
    images, targets, _ = batch(device)
    same = parts.change(images, targets)
    assert same[0] is images
    assert same[1] is targets
    assert torch.equal(model(images), net(device).eval()(images))


@pytest.mark.parametrize("method", RANDOM)
def test_p_zero_is_erm(method: str, device: torch.device) -> None:
    model = net(device)
    parts = attach(method, model, STAGES, p=0.0)
    assert torch.equal(loss_of(model, parts, *batch(device)), loss_of(net(device), Parts(), *batch(device)))


def test_names_match_layers() -> None:
    for name, row in METHODS.items():
        assert row.name == name
        assert row.about
        assert row.source
        model = Net()
        attach(name, model, STAGES)
        for layer in feature_layers(model):
            pairing = getattr(layer, "pairing", "random")
            assert pairing in PAIRINGS
            assert row.batches == ("uniform" if pairing == "random" else "domains")
            assert ("labels" in name) == (pairing == "crossdomain")
            assert ("halves" in name) == (pairing == "halves")
            settings = getattr(layer, "options", {})
            if name != "crossnorm" and isinstance(layer, FeatureMix):
                assert name.endswith("-flow") == (settings.get("style_grad") == "flow")
            for ties in ("stable", "random", "neighbor"):
                assert name.endswith(f"-{ties}") == (settings.get("ties") == ties)


def test_options() -> None:
    assert options_of("cutout", {"side": 0.25}, METHODS) == {"p": 1.0, "side": 0.25}
    with pytest.raises(ValueError, match=r"method='efdmx' is not one of 'erm', .*did you mean 'efdmix'"):
        attach("efdmx", Net(), STAGES)
    with pytest.raises(TypeError, match=r"'dsu' has no option 'alpha'; its options are p"):
        attach("dsu", Net(), STAGES, alpha=0.1)
    with pytest.raises(TypeError, match=r"'erm' has no option 'p'; it has no options"):
        options_of("erm", {"p": 1.0}, METHODS)
    for name, row in METHODS.items():
        assert options_of(name, {}, METHODS) == dict(row.options)


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_in_a_captured_graph(method: str) -> None:
    device = torch.device("cuda")
    model, generator = net(device), torch.Generator(device)
    parts = attach(method, model, STAGES, generator=generator, **always(method))

    def step() -> Tensor:
        model.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = loss_of(model, parts, *inputs)
        loss.backward()
        return loss

    inputs = batch(device)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph, stream=stream):
        loss = step()
    torch.cuda.current_stream().wait_stream(stream)  # capturing also writes the seed, which a replay must overwrite

    def replayed(seed: int) -> float:
        generator.manual_seed(seed)
        graph.replay()
        return loss.item()

    first = [replayed(seed) for seed in range(4)]
    assert [replayed(seed) for seed in range(4)] == first
    assert (len(set(first)) == 1) == (method not in RANDOM)
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    for seed in range(2):  # a replay equals an eager step
        generator.manual_seed(seed)
        assert step().item() == pytest.approx(first[seed], rel=1e-2)


def test_the_table_names_the_row_that_equals_the_default_layer() -> None:
    (row,) = (row for row in METHODS.values() if row.about.endswith("the default of the layer EFDMix"))
    layer = row.make(1, None, **row.options).layers
    assert isinstance(layer, FeatureMix)
    assert layer.settings() == EFDMix().settings()
