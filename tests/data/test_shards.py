import io
import json
import tarfile
from pathlib import Path

import pytest
import torch

from efdm.data import PictureError, write_picture
from efdm.data.images import encode_picture
from efdm.data.shards import Sample, find_shards, read_shard, write_shard

PNG = encode_picture("x.png", torch.rand(3, 4, 5))


def shard(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def test_samples_are_written_and_read(tmp_path: Path) -> None:
    samples = [Sample("a", {"png": PNG, "json": b"{}"}), Sample("sub/b", {"seg.png": b"x", "jpg": PNG})]
    for name in ("one.tar", "two.tar"):
        with write_shard(tmp_path / name) as add:
            for sample in samples:
                add(sample)
    assert list(read_shard(tmp_path / "one.tar")) == samples
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    assert torch.equal(samples[0].read().rgb, samples[1].read().rgb)  # "seg.png" is not the picture
    assert find_shards(tmp_path) == [tmp_path / "one.tar", tmp_path / "two.tar"]
    assert find_shards(tmp_path / "one.tar") == [tmp_path / "one.tar"]
    write_picture(tmp_path / "p.png", torch.rand(3, 4, 5))
    assert find_shards(tmp_path / "p.png") == []


def test_folders_links_and_hidden_files_are_skipped(tmp_path: Path) -> None:
    path = shard(tmp_path / "s.tar", {"a.png": PNG, ".hidden.png": PNG, "README": b"text", "v1.0/b.png": PNG})
    with tarfile.open(path, "a") as archive:
        link = tarfile.TarInfo("c.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert [sample.key for sample in read_shard(path)] == ["a", "v1.0/b"]


def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PictureError, match=r"a holds no picture.*json"):
        Sample("a", {"json": b"{}"}).read()
    path = shard(tmp_path / "s.tar", {"a.png": PNG, "b.png": PNG * 20})
    path.write_bytes(path.read_bytes()[: 512 + 512 + 512 + 600])  # cut inside b.png
    samples = read_shard(path)
    with pytest.raises(PictureError, match=r"s\.tar is cut short"):
        list(samples)
    whole = shard(tmp_path / "big.tar", {"a.png": PNG})
    monkeypatch.setattr("efdm.data.shards.MAX_MEMBER_BYTES", 3)
    with pytest.raises(PictureError, match=r"big\.tar: a\.png has .* at most 3"):
        list(read_shard(whole))
    with pytest.raises(AttributeError), write_shard(tmp_path / "new.tar") as add:
        add(None)
    assert not (tmp_path / "new.tar").exists()


def test_the_package_webdataset_reads_and_writes_the_same(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    with write_shard(tmp_path / "ours.tar") as add:
        add(Sample("sub/a", {"png": PNG, "json": json.dumps({"label": 3}).encode()}))
        add(Sample("b", {"png": PNG}))
    first, second = webdataset.WebDataset(str(tmp_path / "ours.tar"), shardshuffle=False)
    assert (first["__key__"], first["png"], json.loads(first["json"])) == ("sub/a", PNG, {"label": 3})
    assert second["__key__"] == "b"
    with webdataset.TarWriter(str(tmp_path / "theirs.tar")) as sink:
        sink.write({"__key__": "x/c", "png": PNG, "cls": b"7"})
    (sample,) = read_shard(tmp_path / "theirs.tar")
    assert (sample.key, sample.members) == ("x/c", {"cls": b"7", "png": PNG})
