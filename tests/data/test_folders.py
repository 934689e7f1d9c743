import io
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from PIL import Image
from trees import touch

from efdm.data import PictureError, find_pictures, folders, read_picture


def picture_bytes(colour: int = 100, size: tuple[int, int] = (4, 3)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, (colour, 0, 0)).save(out, "PNG")
    return out.getvalue()


FOUND = ["b.png", "a/z.JPG", "a/b/c.webp", "a.png"]
FILES = [*FOUND, ".hidden.png", ".git/x.png", "a/._b.png", "__MACOSX/b.png", "notes.txt", "a/inner.zip"]


def zip_of(path: Path, names: list[str], data: bytes = picture_bytes(), method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a/", b"")
        for name in names:
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_pictures_are_found_sorted_and_can_be_read(tmp_path: Path, kind: str) -> None:
    source = touch(tmp_path, FILES, picture_bytes()) if kind == "folder" else zip_of(tmp_path / "set.ZIP", FILES)
    found = find_pictures(source)
    assert [s.name for s in found] == sorted(FOUND)
    assert [s.stem for s in found] == ["a", "a/b/c", "a/z", "b"]
    for item in found:
        assert item.read().rgb.shape == (3, 3, 4)
        with item.open() as file:
            assert file.read() == picture_bytes()
    assert pickle.loads(pickle.dumps(found)) == found  # for workers in other processes


def test_single_file_with_any_extension(tmp_path: Path) -> None:
    (found,) = find_pictures(touch(tmp_path, ["upload.v2"], picture_bytes()) / "upload.v2")
    assert (found.name, found.stem) == ("upload.v2", "upload")
    assert found.read().rgb.shape == (3, 3, 4)


def test_errors_show_the_path_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(touch(tmp_path, ["set/a/p.png"], b"no picture"))
    zip_of(Path("set.zip"), ["a/p.png"], b"no picture")
    cases = {"set": "set/a/p.png", "set/a/p.png": "set/a/p.png", tmp_path / "set": str(tmp_path / "set/a/p.png")}
    for source, shown in {**cases, "set.zip": "set.zip: a/p.png"}.items():
        (found,) = find_pictures(source)
        assert str(found) == shown
        with pytest.raises(PictureError) as caught:
            found.read()
        assert str(caught.value).startswith(f"{shown} is not a picture")


def test_stems_are_unique_without_regard_to_case(tmp_path: Path) -> None:
    found = find_pictures(zip_of(tmp_path / "s.zip", ["p.jpg", "p.png", "P.png", "p-2.png", "Qr.png", "qR.png"]))
    stems = [s.stem for s in found]
    assert len({stem.lower() for stem in stems}) == 6
    assert "p-2" in stems


def test_stems_stay_below_the_folder_they_are_joined_to(tmp_path: Path) -> None:
    names = ["../up.png", "/etc/root.png", "a/../../x.png", "C:\\windows\\y.png", "..\\z.png", "what?.png", ".h.png"]
    found, notes = folders.scan_pictures(zip_of(tmp_path / "evil.zip", names))
    assert [note.partition(": ")[2] for note in notes] == ["3 unsafe paths skipped", "1 hidden file skipped"]
    assert [s.name for s in found] == ["/etc/root.png", "C:/windows/y.png", "what?.png"]
    assert [s.stem for s in found] == ["etc/root", "C_/windows/y", "what_"]
    assert folders._safe_stem("../../x.png") == "x"
    for item in found:
        target = Path(os.path.normpath(tmp_path / (item.stem + ".png")))
        assert tmp_path in target.parents
        assert not set('\\:?*"<>|') & set(item.stem)
        assert item.read().rgb.shape == (3, 3, 4)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_skipped_files_are_counted_by_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "READABLE", (".png",))
    touch(tmp_path, [*FILES, "clip.MOV", "tape.mts", "phone.heic", "shut/c.png", "old/d.png"], picture_bytes())
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "link.png").symlink_to(tmp_path / "pipe.png")
    (tmp_path / "broken.png").symlink_to(tmp_path / "nowhere")
    (tmp_path / "self.png").symlink_to(tmp_path / "self.png")
    scandir = os.scandir

    def scan(path: Path) -> object:
        if path.name == "shut":
            raise PermissionError
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    found, notes = folders.scan_pictures(tmp_path, without=tmp_path / "old")
    assert [source.name for source in found] == ["a.png", "b.png", "broken.png", "self.png"]
    counts = {note.partition(": ")[2].partition(" skipped")[0] for note in notes}
    pictures = {"2 videos", "1 HEIC picture"}
    assert counts == pictures | {"4 hidden files", "2 special files", "1 unreadable folder", "4 other files"}
    assert any("pip install 'pillow-heif'" in note for note in notes)
    for read in (find_pictures, read_picture, lambda path: folders.Source("pipe.png", "pipe", path).read()):
        with pytest.raises(PictureError, match="pipe"):
            read(tmp_path / "pipe.png")
    os.mkfifo(tmp_path / "pipe.zip")
    with pytest.raises(PictureError, match="pipe"):
        find_pictures(tmp_path / "pipe.zip")


def test_links_to_folders_are_followed_once(tmp_path: Path) -> None:
    touch(tmp_path / "elsewhere", ["p.png"], picture_bytes())
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "round").symlink_to(tmp_path / "elsewhere")
    assert [s.name for s in find_pictures(tmp_path / "set")] == ["link/p.png"]


def test_sources_without_pictures(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.zip").write_bytes(b"PK not really")
    (tmp_path / "zips").mkdir()
    (tmp_path / "zips" / "art.zip").write_bytes(b"PK")
    cases = {
        "empty": "holds no pictures; expected files", "zips": r"zips themselves, such as art\.zip",
        "broken.zip": "not a zip", "none": "does not exist", "none.zip": "does not exist",
    }  # fmt: skip
    for name, sentence in cases.items():
        with pytest.raises(PictureError, match=sentence) as caught:
            find_pictures(tmp_path / name)
        assert name in str(caught.value)


def test_decompression_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = find_pictures(zip_of(tmp_path / "s.zip", ["p.png"]))
    monkeypatch.setattr(folders, "MAX_MEMBER_BYTES", len(picture_bytes()) - 1)
    with pytest.raises(PictureError, match=r"p\.png decompresses to"):
        found.read()
    path = zip_of(tmp_path / "bomb.zip", ["p.png"], bytes(10**7))  # states a wrong size
    data = path.read_bytes().replace((10**7).to_bytes(4, "little"), (50).to_bytes(4, "little"))
    path.write_bytes(data)
    (found,) = find_pictures(path)
    with pytest.raises(PictureError, match=r"p\.png is damaged"):
        found.open()


def test_members_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PictureError, match="deflate"):
        find_pictures(zip_of(tmp_path / "lzma.zip", ["p.png"], method=zipfile.ZIP_LZMA))[0].read()
    path = zip_of(tmp_path / "s.zip", ["p.png"])
    whole = path.read_bytes()
    at = whole.rindex(b"PK\x01\x02")  # the first entry is the folder
    path.write_bytes(whole[: at + 8] + b"\x01" + whole[at + 9 :])
    with pytest.raises(PictureError, match="encrypted"):
        find_pictures(path)[0].read()
    body = whole.index(b"p.png") + 12
    (tmp_path / "t.zip").write_bytes(whole[:body] + b"\xff\xff\xff" + whole[body + 3 :])
    with pytest.raises(PictureError, match="damaged"):
        find_pictures(tmp_path / "t.zip")[0].read()


def test_a_replaced_zip_is_reopened(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "s.zip", ["p.png"])
    (found,) = find_pictures(path)
    before = found.read().rgb
    zip_of(tmp_path / "new.zip", ["p.png"], picture_bytes(colour=200))
    os.utime(tmp_path / "new.zip", ns=(1, 1))
    os.replace(tmp_path / "new.zip", path)
    assert not torch.equal(found.read().rgb, before)
