"""The page and its server, with Gradio but without a browser."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from commands import invoke
from web_files import classifier, clip, photo

from efdm.apps.web.handlers import Handlers, Limits
from efdm.apps.web.page import build_page, message
from efdm.apps.web.server import private_folder, serving
from efdm.data import read_picture
from efdm.style import Stylizer

pytest.importorskip("gradio")

from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

PAD = {"names": ["starry"], "x": 0.5, "y": 0.5}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("classifiers")
    paths = {name: classifier(place / f"{name}.safetensors", seed) for seed, name in enumerate(("erm", "efdmix"))}
    limits = Limits(megabytes=1, megapixels=1, seconds=2, concurrency=2)
    with private_folder() as folder, serving(Handlers(folder, classifiers=paths, limits=limits)) as (local, _):
        yield local


@pytest.fixture
def client(address: str, tmp_path: Path) -> Client:
    return Client(address, verbose=False, download_files=tmp_path / "downloads")


def stylize(client: Client, content: Path, size: int = 256) -> tuple[list[str], str]:
    given = (["starry"], [], PAD, "auto", 1.0, "none", "none", size, "small")
    return client.predict(handle_file(content), *given, api_name="/stylize")


def tabs(handlers: Handlers) -> list[str]:
    return [block.label for block in build_page(handlers).blocks.values() if block.get_block_name() == "tabitem"]


def test_the_tab_of_domains_needs_a_classifier(tmp_path: Path) -> None:
    assert tabs(Handlers(tmp_path)) == ["Stylize", "Compare", "Video", "Match colours"]
    path = classifier(tmp_path / "model.safetensors", 0)
    assert tabs(Handlers(tmp_path, classifiers={"erm": path})) == ["Stylize", "Compare", "Video", "Match colours", "Domains"]


def test_a_result_equals_the_python_call(client: Client, tmp_path: Path) -> None:
    cat = photo(tmp_path / "cat.png")
    (before, after), download = stylize(client, cat)
    expected = Stylizer.from_pretrained("small", "cpu").stylize(cat, "starry", size=256).rgb
    assert (read_picture(after).rgb - expected).abs().max() <= 0.5 / 255 + 1e-6
    assert Path(download).read_bytes() == Path(after).read_bytes()
    assert Path(download).name == "cat__starry.png"
    assert (read_picture(before).rgb - read_picture(cat).rgb).abs().mean() < 0.02


def test_the_other_tabs(client: Client, tmp_path: Path) -> None:
    cat = handle_file(photo(tmp_path / "cat.png"))
    made = client.predict(cat, ["wave"], [], PAD, ["small"], ["efdm", "hm"], 1.0, 256, api_name="/compare")
    assert [each["caption"] for each in made] == ["small, efdm", "small, hm"]
    video = {"video": handle_file(clip(tmp_path / "clip.mp4"))}
    path = client.predict(video["video"], ["wave"], [], PAD, 1.0, "none", 256, "small", api_name="/stylize_video")
    assert Path(path["video"] if isinstance(path, dict) else path).stat().st_size > 1000
    _, matched = client.predict(cat, [cat], "rgb", "channels", 1.0, api_name="/match_colors")
    assert Path(matched).name == "cat__matched.png"
    table, first, second = client.predict([cat], api_name="/classify")
    assert table["headers"] == ["picture", "erm", "efdmix"]
    assert table["data"][0][0] == "cat.png"
    assert first["label"] in table["data"][0][1]
    assert second["label"] in table["data"][0][2]


def test_errors_name_the_file_but_not_its_folder(client: Client, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_text("no picture")
    with pytest.raises(AppError) as error:
        stylize(client, tmp_path / "broken.png")
    assert str(error.value).startswith("broken.png is not a picture")
    assert message(ValueError(f"{tmp_path}/a1/b c.png is bad"), tmp_path) == "b c.png is bad"
    assert "smaller size" in message(MemoryError(), tmp_path)


def test_large_files_are_refused(client: Client, tmp_path: Path) -> None:
    (tmp_path / "large.png").write_bytes(torch.zeros(1_100_000, dtype=torch.uint8).numpy().tobytes())
    with pytest.raises(Exception, match=r"413|size"):
        stylize(client, tmp_path / "large.png")


def test_the_page_does_not_load_anything_from_elsewhere(address: str) -> None:
    page = urllib.request.urlopen(address).read().decode()
    assert "fonts.googleapis" not in page
    assert urllib.request.urlopen(address + "theme.css").read().decode().count("@import") == 0


def listening(port: int) -> set[str]:
    """Return the addresses at which a port is open, as in /proc/net/tcp."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux")
def test_nothing_is_left_when_the_app_stops_during_work(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place, work = tmp_path / "temporary", tmp_path / "work"
    place.mkdir()
    work.mkdir()
    words = [sys.executable, "-m", "efdm", "app", "--port", str(port), "--device", "cpu"]
    environment = {**os.environ, "TMPDIR": str(place), "OMP_NUM_THREADS": "1"}
    app = subprocess.Popen(words, cwd=work, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert f"http://127.0.0.1:{port}/" in app.stdout.readline()
        assert listening(port) == {f"0100007F:{port:04X}"}
        client = Client(f"http://127.0.0.1:{port}/", verbose=False, download_files=tmp_path / "downloads")
        video = handle_file(clip(tmp_path / "clip.mp4", frames=200))
        client.submit(video, ["wave"], [], PAD, 1.0, "smooth", 256, "small", api_name="/stylize_video")
        deadline = time.monotonic() + 30
        while not (writing := list(place.rglob("*.tmp"))) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert writing, "the video was not started"
        app.send_signal(signal.SIGTERM)
        assert app.wait(timeout=20) == 0
    finally:
        app.kill()
        app.communicate()
    assert [path for path in place.rglob("*") if "torch" not in path.name] == []
    assert list(work.iterdir()) == []


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert "pip install 'efdm[app]'" in invoke("app", "--device", "cpu", code=2).output


def test_a_port_in_use_is_named(address: str) -> None:
    port = address.rstrip("/").rpartition(":")[2]
    result = invoke("app", "--device", "cpu", "--port", port, code=2)
    assert f"port {port}" in result.output
    assert "--port" in result.output


def test_share_is_off_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gradio as gr

    given: list[dict[str, object]] = []
    monkeypatch.setattr(gr.Blocks, "launch", lambda self, **named: (given.append(named), (None, "", None))[1])
    monkeypatch.setattr(gr.Blocks, "close", lambda self, **_: None)
    for share in (False, True):
        with serving(Handlers(tmp_path), share=share):
            pass
    assert [row["share"] for row in given] == [False, True]
    assert all(row["server_name"] == "127.0.0.1" for row in given)


def test_folders_of_killed_apps_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with private_folder() as running:
        (killed := tmp_path / "efdm-app-killed").mkdir()
        (killed / ".lock").touch()
        (killed / "upload.png").touch()
        (starting := tmp_path / "efdm-app-starting").mkdir()  # not locked yet
        with private_folder() as other:
            assert {p.name for p in tmp_path.iterdir()} == {running.name, other.name, starting.name}
    assert list(tmp_path.iterdir()) == [starting]
