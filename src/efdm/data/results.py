"""Result files: format, names, and the handling of errors of single pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from efdm.data.images import DiskFullError
from efdm.data.picture_formats import WRITABLE
from efdm.errors import OutOfMemoryError, SettingError, is_out_of_memory
from efdm.files import fit_name
from efdm.ops.choices import check_choice

Existing = Literal["replace", "skip"]
Failed = Callable[[str, Exception], object]  # receives the path of a picture and its error

# errors of one picture, after which the others are still processed
FAILURES = (ValueError, TypeError, OSError, RuntimeError, MemoryError)
FORMATS = tuple(extension[1:] for extension in WRITABLE)


@dataclass(frozen=True)
class Saving:
    """Format and quality of result files, and whether existing files are replaced."""

    format: str = ""  # extension of results in a folder, such as "jpg"; "" selects the default, usually "png"
    quality: int = 95  # from 1 to 100, for JPEG, WebP and AVIF
    existing: Existing = "replace"

    def __post_init__(self) -> None:
        check_choice("format", self.format or FORMATS[0], FORMATS)
        check_choice("existing", self.existing, get_args(Existing))
        if not 1 <= self.quality <= 100:
            raise SettingError(f"quality must be from 1 to 100, got {self.quality}", "quality")

    def path(self, out: Path, name: str, default: str = "png") -> Path:
        """Return the path of the result ``name``, without an extension, in the folder ``out``."""
        return out / fit_name(name, f".{self.format or default}")

    def skips(self, path: Path) -> bool:
        """Return True if ``path`` exists and is not to be replaced. Files are written atomically, so it is complete."""
        return self.existing == "skip" and path.exists()


@contextmanager
def report_failure(name: str, failed: Failed | None) -> Iterator[None]:
    """Pass an error of the picture ``name`` to ``failed``, so that the other pictures are still processed.

    Without ``failed``, the error is raised. A full disk or a lack of memory always raises, because it affects all pictures.
    """
    try:
        yield
    except FAILURES as error:
        if is_out_of_memory(error):
            raise OutOfMemoryError(name) from error
        if failed is None or isinstance(error, DiskFullError):
            raise
        failed(name, error)
