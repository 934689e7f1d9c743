"""ONNX files of a network: equal to PyTorch at every size, in one piece and in halves."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from efdm.errors import MissingExtraError
from efdm.models import NetworkSpec, StyleNetwork
from efdm.style import export
from efdm.style.export import PARTS, check_onnx, export_onnx
from efdm.style.pipeline import transfer

onnxruntime = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")

SIZES = [((64, 48), (33, 90)), ((17, 16), (16, 19)), ((45, 62), (45, 62))]  # of contents and styles


def two_stages() -> StyleNetwork:
    """A network at strides 2 and 4 that is traced in a second."""
    torch.manual_seed(0)
    stages: list[nn.Module] = [nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 5, 3, 2, 1)]
    decoder = nn.Sequential(nn.Upsample(scale_factor=4), nn.Conv2d(5, 3, 3, padding=1))
    return StyleNetwork(NetworkSpec("two-stages", lambda: (stages, decoder), (2, 4), (1, 4, 4), tolerance=0.2)).eval()


@pytest.fixture(scope="module")
def network() -> StyleNetwork:
    return two_stages()


@pytest.fixture(scope="module")
def sessions(network: StyleNetwork, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("onnx")
    for part in PARTS:
        assert export_onnx(network, folder / "new" / f"{part}.onnx", part).difference < 1e-3  # type: ignore[arg-type]
    load = onnxruntime.InferenceSession
    return {part: load(str(folder / "new" / f"{part}.onnx"), providers=["CPUExecutionProvider"]) for part in PARTS}


@torch.no_grad()
def in_torch(network: StyleNetwork, content: Tensor, style: Tensor, strength: float) -> Tensor:
    return transfer(network, content, network.features(style), strength=strength).clamp(0, 1)


@pytest.mark.parametrize(("content_size", "style_size"), SIZES)
@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0])
def test_every_size_and_strength(
    network: StyleNetwork,
    sessions: dict[str, Any],
    content_size: tuple[int, int],
    style_size: tuple[int, int],
    strength: float,
) -> None:
    content, style = torch.rand(1, 3, *content_size), torch.rand(1, 3, *style_size)
    given = {"content": content.numpy(), "strength": torch.tensor([strength]).numpy()}
    (whole,) = sessions["whole"].run(None, {**given, "style": style.numpy()})
    expected = in_torch(network, content, style, strength).numpy()
    assert whole.shape == expected.shape
    assert abs(whole - expected).mean() < 1e-4
    assert strength or abs(whole - given["content"]).max() < 1e-6
    names = [output.name for output in sessions["prepare"].get_outputs()]
    features = dict(zip(names, sessions["prepare"].run(None, {"style": style.numpy()}), strict=True))
    (halves,) = sessions["apply"].run(None, {**given, **features})
    assert abs(halves - whole).max() < 1e-5


def test_the_file_describes_itself(sessions: dict[str, Any]) -> None:
    described = sessions["apply"].get_modelmeta().custom_metadata_map
    assert (described["network"], described["part"]) == ("two-stages", "apply")
    assert [i.name for i in sessions["apply"].get_inputs()] == ["content", "strength", "features1", "features2"]
    assert sessions["whole"].get_inputs()[0].shape == [1, 3, "height", "width"]


@pytest.fixture
def untraced(network: StyleNetwork, sessions: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace tracing by the file of another part."""

    class Program:
        def __init__(self) -> None:
            self.model = type("Model", (), {"metadata_props": {}})

        def save(self, path: str) -> None:
            Path(path).write_bytes(Path(sessions["whole"]._model_path).read_bytes())

    monkeypatch.setattr(export, "_trace", lambda network, part: Program())


def test_a_wrong_graph_is_not_kept(network: StyleNetwork, untraced: None, tmp_path: Path) -> None:
    other = two_stages()
    nn.init.normal_(other.stages[0].weight)
    with pytest.raises(RuntimeError, match="differs from PyTorch"):
        export_onnx(other, tmp_path / "out.onnx")
    assert not list(tmp_path.iterdir())
    assert export_onnx(network, tmp_path / "out.onnx").difference < 1e-3
    assert check_onnx(other, tmp_path / "out.onnx").difference > 2 / 255


def test_a_missing_runtime_names_its_extra(network: StyleNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"onnxruntime.*efdm\[onnx\]"):
        export_onnx(network, tmp_path / "out.onnx")


def test_an_older_torch_is_refused(network: StyleNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.6.0+cpu")
    with pytest.raises(ImportError, match=r"needs torch 2\.11 .*got 2\.6\.0"):
        export_onnx(network, tmp_path / "net.onnx")
