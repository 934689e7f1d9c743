"""Folders of equal files, and zips of folders."""

import zipfile
from collections.abc import Iterable
from pathlib import Path


def touch(root: Path, names: Iterable[str], data: bytes = b"") -> Path:
    """Write files, by default empty ones, and return the folder."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def zip_folder(folder: Path, target: Path, under: str = "") -> Path:
    """Write the files of a folder to a zip, with ``under`` before their names."""
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            archive.write(path, under + path.relative_to(folder).as_posix())
    return target
