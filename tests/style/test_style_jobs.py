"""Jobs give the pictures of `stylize_files` and `match_files`, bit for bit."""

import shutil
import signal
from pathlib import Path

import pytest
import torch

from efdm.data import memory, write_picture
from efdm.data.bulk import run_job
from efdm.data.shards import Sample, read_shard, write_shard
from efdm.errors import RunFolderError, SettingError
from efdm.models import build
from efdm.style.jobs import stylize_files, stylize_job
from efdm.style.match_files import match_job
from efdm.style.options import MatchOptions, StylizeOptions
from efdm.style.plan import plan_files
from efdm.style.stylizer import Stylizer


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    torch.manual_seed(0)
    for name in ("in/a", "in/sub/b", "in/c", "style", "other"):
        write_picture(folder / f"{name}.png", torch.rand(3, 20, 24))
    write_picture(folder / "in/deep.png", torch.rand(3, 9, 8), alpha=torch.rand(1, 9, 8), depth="16")
    with write_shard(folder / "in.tar") as add:
        for file in sorted((folder / "in").rglob("*.png")):
            key = file.relative_to(folder / "in").with_suffix("").as_posix()
            add(Sample(key, {"png": file.read_bytes(), "txt": b"words"}))
    return folder


@pytest.fixture(scope="module")
def network() -> object:
    torch.manual_seed(0)
    return build("small").eval()


def files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.png")}


def test_a_stylize_job(place: Path, network, tmp_path: Path) -> None:
    options = StylizeOptions(strength=0.7, ties="random", seed=3)
    styles = [place / "style.png", place / "other.png"]
    plan = plan_files(place / "in", styles, tmp_path / "direct", options=options)
    stylize_files(plan, Stylizer(network, "cpu"))
    expected = files(tmp_path / "direct")
    assert len(expected) == 8
    done = run_job(*stylize_job(place / "in", styles, tmp_path / "job", network, options=options))
    assert (done.done, done.failed) == (8, {})
    assert files(tmp_path / "job") == expected
    run_job(*stylize_job(place / "in.tar", styles, tmp_path / "shards", network, options=options))
    samples = list(read_shard(tmp_path / "shards/in.tar"))
    assert {f"{s.key}.png": s.members["png"] for s in samples} == expected
    assert all(s.members["txt"] == b"words" for s in samples)


def test_several_pictures_at_a_time(place: Path, network, tmp_path: Path) -> None:
    """They are those of one thread, bit for bit, and an unreadable picture is reported once."""
    shutil.copytree(place / "in", tmp_path / "in")
    (tmp_path / "in/broken.png").write_bytes(b"no picture")
    (tmp_path / "in/c2.png").write_bytes(b"")
    found, threads = {}, torch.get_num_threads()
    for count in (1, 3):
        torch.set_num_threads(count)
        out, failed = tmp_path / str(count), list[str]()
        plan = plan_files(tmp_path / "in", [place / "style.png", place / "other.png"], out)
        done = stylize_files(plan, Stylizer(network, "cpu"), failed=lambda name, _, failed=failed: failed.append(name))
        assert torch.get_num_threads() == count
        assert (done.done, done.failed) == (8, 4)
        found[count] = failed, files(out)
        with pytest.raises(ValueError, match=r"broken|c2"):
            stylize_files(plan, Stylizer(network, "cpu"))
    torch.set_num_threads(threads)
    assert found[1] == found[3]
    assert found[1][0] == [str(tmp_path / "in" / name) for name in ("broken.png", "c2.png")]


def test_a_size_beyond_the_free_memory_is_refused_before_a_style_is_read(
    place: Path, network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda device: 2 * 10**9)
    (tmp_path / "style.png").write_bytes(b"not read")
    plan = plan_files(place / "in/a.png", [tmp_path / "style.png"], tmp_path / "out.png", options=StylizeOptions(size=3000))
    with pytest.raises(SettingError, match=r"3000 x 3000 .* need 2\.88 GB"):
        stylize_files(plan, Stylizer(network, "cpu"), failed=lambda name, error: pytest.fail(name))


def test_another_style_network_or_option_is_another_job(place: Path, network, tmp_path: Path) -> None:
    stylize_job(place / "in", [place / "style.png"], tmp_path / "out", network)
    stylize_job(place / "in", [place / "style.png"], tmp_path / "out", network)
    write_picture(tmp_path / "style.png", torch.rand(3, 8, 8))  # of the same name
    other = build("small")
    for style, net, options in (
        (tmp_path / "style.png", network, StylizeOptions()),
        (place / "style.png", other, StylizeOptions()),
        (place / "style.png", network, StylizeOptions(strength=0.5)),
    ):
        with pytest.raises(RunFolderError, match="settings"):
            stylize_job(place / "in", [style], tmp_path / "out", net, options=options)
    match_job(place / "in", [place / "style.png"], tmp_path / "match", MatchOptions())
    with pytest.raises(RunFolderError, match="settings"):
        match_job(place / "in", [place / "other.png"], tmp_path / "match", MatchOptions())
    with pytest.raises(SettingError, match="mask"):
        match_job(place / "in", [place / "style.png"], tmp_path / "match", MatchOptions(mask=place / "other.png"))


@pytest.mark.long
def test_ray_gives_the_same_bits(place: Path, network, tmp_path: Path) -> None:
    pytest.importorskip("ray.data")
    threads, handler = torch.get_num_threads(), signal.getsignal(signal.SIGTERM)
    torch.set_num_threads(1)
    try:
        for engine in ("plain", "ray"):
            job = stylize_job(place / "in", [place / "style.png"], tmp_path / engine, network, output="files")
            assert run_job(*job, engine=engine, workers=2).done == 4
    finally:
        torch.set_num_threads(threads)
    assert files(tmp_path / "plain") == files(tmp_path / "ray")
    assert signal.getsignal(signal.SIGTERM) is handler  # which ray.init replaces
