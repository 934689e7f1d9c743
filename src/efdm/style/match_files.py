"""Match the colours of files: pictures, folders, zips, arrays and videos.

>>> from efdm.style.match_files import match_files
>>> from efdm.style.options import MatchOptions
>>> match_files("photos/", ["reference.jpg"], "matched/", MatchOptions(space="lab"))  # doctest: +SKIP
Result(done=12, failed=0, skipped=0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any

from efdm.data import WRITABLE, Picture, PictureError, Source, read_mask, resize
from efdm.data.arrays import ARRAYS, TIFF, created_array, is_array_file, is_deep_rgba, open_array
from efdm.data.bulk import Factory, Job, Output, Process, open_job
from efdm.data.folders import VIDEOS, is_video, list_paths
from efdm.data.images import to_picture, to_pixels
from efdm.data.results import Failed, Saving, report_failure
from efdm.data.video_formats import video_format
from efdm.errors import SettingError
from efdm.progress import Progress, Report, ignore
from efdm.style.color_match import Reference, match_picture, prepare_reference
from efdm.style.jobs import Result, digest
from efdm.style.match_large import CHUNK, match_array, match_video
from efdm.style.options import MatchOptions
from efdm.style.plan import PathLike, check_overwrite, find_contents, find_styles, is_file, make_folder
from efdm.style.planes import LEVELS_OF
from efdm.training.interrupt import stoppable

# values from which an array is matched in chunks; floats in chunks take more passes, and have their ties ordered by position
LARGE = {"uint8": CHUNK, "uint16": CHUNK, "float16": 8 * CHUNK, "float32": 8 * CHUNK}


@stoppable()
def match_files(
    content: PathLike | Sequence[PathLike],
    references: Sequence[PathLike],
    out: PathLike,
    options: MatchOptions | None = None,
    *,
    saving: Saving | None = None,
    progress: Report = ignore,
    failed: Failed | None = None,
    note: Callable[[str], object] = lambda text: None,
) -> Result:
    """Match a picture, an array, a video, or the pictures of folders and zips, with the pooled references.

    ``out`` is a file for a single content, otherwise a folder. The format of ``saving`` defaults to PNG in a folder, or to
    that of the content for TIFF and NumPy files.

    If a picture cannot be read, matched or written, ``failed`` is called with its path and the error, and the others are
    still matched. Without ``failed``, and if the disk is full or memory runs out, the error is raised. ``note`` is called
    with notes about skipped files. SIGTERM is handled like Ctrl-C.
    """
    contents, out = list_paths(content), Path(out)
    options, saving = options or MatchOptions(), saving or Saving()
    first, inputs = contents[0], [*contents, *map(Path, references)]
    if is_video(contents, out):
        video_format(out)
        check_overwrite([out], inputs)
        if saving.skips(out):
            return Result(0, skipped=1)
        reference = read_references(references, options)
        with report_failure(str(first), None):  # names the video if memory runs out
            return Result(match_video(first, reference, out, options, progress=progress))
    if first.exists() and is_file(out, contents, f"the pictures of {first}", (*WRITABLE, *ARRAYS)):
        targets = {Source(first.name, first.stem, first): out}
    else:
        sources, notes = find_contents(contents, out)
        for text in notes:
            note(text)
        targets = {source: saving.path(out, source.stem, _default_format(source)) for source in sources}
    check_overwrite(targets.values(), [*inputs, *(source.path for source in targets)])
    missing = {source: target for source, target in targets.items() if not saving.skips(target)}
    if not missing:
        return Result(0, skipped=len(targets))
    reference = read_references(references, options)
    if out not in missing.values():
        make_folder(out)
    done = 0
    for number, (source, target) in enumerate(missing.items()):
        progress(Progress("matching", number, len(missing)))
        with report_failure(str(source), failed):
            _match_file(source, reference, target, options, saving, progress if len(targets) == 1 else ignore)
            done += 1
    progress(Progress("matching", len(missing), len(missing)))
    return Result(done, len(missing) - done, len(targets) - len(missing))


def _default_format(source: Source) -> str:
    suffix = Path(source.name).suffix.lower()
    return suffix[1:] if suffix == ".npy" else "tif" if suffix in ARRAYS else "png"


def read_references(references: Sequence[PathLike], options: MatchOptions) -> Reference:
    """Return the pooled references: files, folders, zips, or names of painted styles."""
    settings = {"space": options.space, "method": options.method, "nodata": options.nodata, "device": options.device}
    pictures: list[Callable[[], Any]] = []
    for path in map(Path, references):
        if path.suffix.lower() in VIDEOS:
            raise PictureError(f"{path} is a video; expected a picture, such as one of its frames")
        if path.is_file() and is_array_file(path):
            pictures.append(partial(_open_array, path))
        else:
            pictures += [source.read for source in find_styles([path])[0]]
    masks: Sequence[Path | None] = options.reference_masks
    if len(masks) not in (0, len(pictures)):
        raise SettingError(f"expected no reference mask or {len(pictures)}, got {len(masks)}", "reference_mask")
    if not pictures:
        raise SettingError("expected at least one reference", "reference")
    opened = ((read(), mask) for read, mask in zip(pictures, masks or [None] * len(pictures), strict=True))  # one at a time
    return reduce(add, (prepare_reference(picture, masks=_mask(mask, picture), **settings) for picture, mask in opened))


def _open_array(path: Path) -> Any:
    """Return the array of a file, or 16-bit RGBA as a picture, whose alpha is not matched."""
    array = open_array(path)
    return to_picture(array) if path.suffix.lower() in TIFF and is_deep_rgba(path) else array


def _mask(path: Path | None, picture: Any) -> Any:
    if path is None:
        return None
    if path.suffix.lower() == ".npy":
        return open_array(path)
    if isinstance(picture, Picture):
        return resize(read_mask(path)[None], picture.rgb.shape[-2:])[0] >= 0.5
    return (read_mask(path) >= 0.5).numpy()


def _match_file(
    source: Source, reference: Reference, out: Path, options: MatchOptions, saving: Saving, progress: Report
) -> None:
    is_array = source.member is None and is_array_file(source.path)
    content: Any = _open_array(source.path) if is_array else source.read()
    arguments = {**options.arguments(), "mask": _mask(options.mask, content)}
    large = not isinstance(content, Picture) and content.size > LARGE.get(content.dtype.name, content.size)
    if large and reference.method == "channels":
        with created_array(out, content.shape, content.dtype) as array:
            return match_array(content, reference, array, progress=progress, **arguments)
    matched, suffix = match_picture(content, reference, **arguments), out.suffix.lower()
    if isinstance(matched, Picture):
        if suffix != ".npy":
            return matched.save(out, quality=saving.quality)
        matched = to_pixels(matched.rgb, None, matched.depth)
    elif suffix not in ARRAYS and matched.dtype.name in LEVELS_OF and matched.shape[2:] == (3,):
        return to_picture(matched).save(out, quality=saving.quality)
    with created_array(out, matched.shape, matched.dtype) as array:
        array[:] = matched


def match_process(references: Sequence[PathLike], options: MatchOptions, device: str) -> Process:
    """Return the process of a job that matches a picture with pooled references."""
    options = replace(options, device=device)
    reference = read_references(references, options)
    return lambda picture: {"": match_picture(picture, reference, **options.arguments())}


def match_job(
    content: PathLike,
    references: Sequence[PathLike],
    out: PathLike,
    options: MatchOptions,
    *,
    output: Output | None = None,
    saving: Saving | None = None,
) -> tuple[Job, Factory]:
    """Return a job for `run_job` that matches the pictures of a folder, a zip or WebDataset shards."""
    if options.mask is not None:
        raise SettingError("masks apply to single pictures, not to a job; omit the mask", "mask")
    described: dict[str, Any] = {**asdict(options), "reference_masks": list(map(str, options.reference_masks)), "device": ""}
    settings = {"options": described, "references": [digest(source) for source in find_styles(references)[0]]}
    return open_job(Path(content), Path(out), settings, output, saving), partial(match_process, tuple(references), options)
