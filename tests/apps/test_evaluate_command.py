"""``efdm evaluate style``: candidates, resuming and error messages."""

from pathlib import Path

import pytest
from commands import invoke
from safetensors.torch import save_file
from training import noise_pictures, numbered_vgg

from efdm.models import build
from efdm.models.weights import checksum, save_network
from efdm.style.evaluate import read_records


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate")
    noise_pictures(folder / "content", 2, seed=1)
    noise_pictures(folder / "style", 2, seed=2)
    save_file(numbered_vgg("vgg16"), folder / "vgg16.safetensors")
    save_network(build("small"), folder / "network.safetensors", {"encoder": "small", "method": "adain"})
    save_network(build("vgg16"), folder / "deep.safetensors", {"encoder": "vgg16", "method": "efdm"})
    return folder


def run(home: Path, *arguments: str, out: str = "run", code: int = 0):
    fixed = ["evaluate", "style", "-o", str(home / out), "--vgg", str(home / "vgg16.safetensors"), "--device", "cpu"]
    sets = ["--content", str(home / "content"), "--style", str(home / "style"), "--size", "40", "--measured-at", "32"]
    return invoke(*fixed, *sets, *arguments, code=code)


def test_a_trained_network_over_strengths_and_an_optimizer(home: Path) -> None:
    network = f"mine={home / 'network.safetensors'}"
    arguments = ("--network", network, "--strength", "0,1", "--optimizer", "efdm", "--iterations", "2")
    result = run(home, *arguments, "--pairs", "1")
    labels = ["unchanged content", "mine adain 0", "mine adain 1", "optimizer efdm 2"]  # the network was trained with adain
    assert [r["label"] for r in read_records(home / "run")] == labels
    assert "| mine adain 1 | 1 |" in result.output
    candidate = read_records(home / "run")[3]["candidate"]
    assert (candidate["padding"], candidate["pooling"]) == ("zeros", "floor")
    assert candidate["weights"] == checksum(home / "vgg16.safetensors")[:12]
    before = (home / "run" / "records.jsonl").read_text()
    assert "| mine adain 1 | 2 |" in run(home, *arguments, "--pairs", "2").output
    after = (home / "run" / "records.jsonl").read_text()
    assert after.startswith(before)
    assert len(after.splitlines()) == 8
    assert "| mine adain 1 | 2 |" in invoke("evaluate", "style", "--table", "-o", home / "run").output
    assert (home / "run" / "records.jsonl").read_text() == after


def test_an_unreadable_picture_is_skipped(home: Path, tmp_path: Path) -> None:
    noise_pictures(tmp_path / "content", 2, seed=1)
    (tmp_path / "content" / "0.png").write_text("not a picture")
    words = ("--network", f"mine={home / 'network.safetensors'}", "--content", str(tmp_path / "content"))
    result = run(home, *words, out="unreadable", code=1)
    assert "0.png" in result.output
    assert {r["content"] for r in read_records(home / "unreadable")} == {"1.png"}


def test_methods_override_the_method_of_the_file(home: Path) -> None:
    network = f"mine={home / 'network.safetensors'}"
    run(home, "--network", network, "--method", "efdm", "--method", "hm", "--pairing", "grid", "--pairs", "3", out="m")
    assert [r["label"] for r in read_records(home / "m")] == ["unchanged content", "mine efdm 1", "mine hm 1"] * 3


def test_the_vgg_of_the_metrics_is_also_the_encoder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("efdm.models.weights.folders", lambda: [tmp_path])
    run(home, "--network", f"deep={home / 'deep.safetensors'}", "--model", "vgg16", "--pairs", "1", out="encoder")
    used = {r["candidate"]["weights"].split("+")[1] for r in read_records(home / "encoder")[1:]}
    assert used == {checksum(home / "vgg16.safetensors")[:12]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--strength", "2"), "(--strength)"),
        (("--strength", "a"), "(--strength)"),
        (("--model", "smal"), "did you mean 'small'? (--model)"),
        (("--model", "smal", "--vgg", "/nowhere"), "(--model)"),
        (("--network", "file"), "NAME=FILE"),
        (("--network", "mine=/nowhere"), "/nowhere"),
        (("--optimizer", "gaty"), "did you mean 'gatys'"),
        (("--pairing", "all"), "'order', 'grid'"),
        (("--vgg", "/nowhere"), "/nowhere"),
        (("--device", "cudaa"), "cudaa"),
        (("--content", "/nowhere"), "/nowhere"),
        (("--content", ""), "(--content, --style)"),
        (("--table",), "no records"),
    ],
)
def test_invalid_arguments(home: Path, arguments: tuple[str, ...], message: str) -> None:
    result = run(home, *arguments, out="wrong", code=2)
    assert message in result.output
