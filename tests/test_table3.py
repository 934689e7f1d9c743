"""The benchmark of the paper's Table 3 runs on small pictures."""

import json
from pathlib import Path

import pytest
import table3
import torch

from efdm.data import read_picture, write_picture
from efdm.models import build
from efdm.models.weights import save_network


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Command-line options for one small pair and a random decoder."""
    monkeypatch.chdir(tmp_path)
    for folder, name in zip(("content", "style"), table3.PAIRS[0], strict=True):
        write_picture(f"inputs/{folder}/{name}.png", torch.rand(3, 40, 48))
    save_network(build("vgg19"), "decoder.safetensors", {})
    words = "--inputs inputs --out out --decoder efdm=decoder.safetensors --side 32 --size 32 --iterations 1"
    return words.split()


def test_times_and_pictures_of_every_method(options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(table3.ROUNDS, "cpu", 1)
    table3.main([*options, "--device", "cpu"])
    times = {row["method"]: row for row in json.loads(Path("out/times.json").read_text())["times"]}
    assert set(times) == {*table3.METHODS, "hm-skimage"}
    assert times["gatys"]["share_timed"] == 1 / 500
    (name,) = {path.name for path in Path("out").rglob("*.png")}
    made = {method: read_picture(Path("out") / method / name).rgb for method in table3.METHODS}
    assert all(picture.shape == (3, 32, 38) for picture in made.values())
    assert not torch.equal(made["gatys"], made["cmd"])


def test_published_histogram_matching_is_ours() -> None:
    network = build("vgg19").eval()
    content, style = torch.rand(2, 1, 3, 32, 32)
    torch.testing.assert_close(
        table3.with_skimage(network)(content, style), table3.trained(network, "hm")(content, style), atol=1e-4, rtol=0
    )
