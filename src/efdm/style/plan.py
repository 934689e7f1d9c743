"""Plans for stylizing files: contents, looks, options and the path of each result."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from efdm.data import WRITABLE, PictureError, Source
from efdm.data.embedded import styles as painted_styles
from efdm.data.folders import VIDEOS, NoPicturesError, is_video, list_paths, scan_pictures
from efdm.data.results import Saving
from efdm.data.video_formats import VIDEO_FORMATS, video_format
from efdm.errors import SettingError
from efdm.ops.choices import check_choice
from efdm.style.look import normalize_weights
from efdm.style.options import StylizeOptions
from efdm.style.stylizer import Stylizer
from efdm.text import make_unique, plural, suggest

PathLike = str | os.PathLike[str]
Mix = Literal["none", "equal"]


@dataclass(frozen=True)
class LookSpec:
    """The styles of one look with their weights and masks, the masks of its content regions, and its name in file names."""

    name: str
    styles: tuple[Source, ...]
    weights: tuple[float, ...] | None = None
    content_masks: tuple[Path, ...] = ()
    style_masks: tuple[Path, ...] = ()

    def files(self) -> list[Path]:
        return [*(style.path for style in self.styles), *self.content_masks, *self.style_masks]

    def prepare(self, stylizer: Stylizer, options: StylizeOptions) -> dict[str, Any]:
        """Read the styles and return the arguments ``style`` or ``regions`` of `Stylizer.stylize`."""
        size = options.style_size or options.size
        pictures = [style.read() for style in self.styles]
        if not self.content_masks:
            return {"style": stylizer.prepare(pictures, weights=self.weights, size=size, masks=self.style_masks or None)}
        if len(pictures) == 1:
            pictures *= len(self.content_masks)
        style_masks = self.style_masks or (None,) * len(pictures)
        looks = [stylizer.prepare(p, size=size, masks=m) for p, m in zip(pictures, style_masks, strict=True)]
        return {"regions": list(zip(self.content_masks, looks, strict=True))}


@dataclass(frozen=True)
class Plan:
    """The files to read and to write. `plan_files` makes a plan and reports most mistakes before a model is loaded."""

    content: Path
    out: Path
    looks: tuple[LookSpec, ...]
    contents: tuple[Source, ...]  # empty for a video
    options: StylizeOptions
    notes: tuple[str, ...]  # about skipped files
    saving: Saving = field(default_factory=Saving)

    @property
    def is_video(self) -> bool:
        return not self.contents

    def target(self, source: Source, look: LookSpec) -> Path:
        """Return the file for a content in a look: ``out`` itself, or a file in the folder ``out``."""
        return self.saving.path(self.out, f"{source.stem}__{look.name}") if self.out.is_dir() else self.out


def plan_files(
    content: PathLike | Sequence[PathLike],
    styles: Sequence[PathLike],
    out: PathLike,
    *,
    weights: Sequence[float] = (),
    mix: Mix = "none",
    content_masks: Sequence[PathLike] = (),
    style_masks: Sequence[PathLike] = (),
    options: StylizeOptions | None = None,
    saving: Saving | None = None,
) -> Plan:
    """Find contents and styles and decide where the results go, without reading a picture.

    Args:
        content: a picture, a folder, a zip or a video, or several of them except videos.
        styles: pictures, folders, zips, or names of painted styles.
        out: a file for one result, otherwise a folder, which is created.
        weights: mix all styles into one look, with one weight per style.
        mix: ``"equal"`` mixes all styles in equal parts; ``"none"`` makes one look per style.
        content_masks: one mask per region; each region gets its own style, or the only one.
        style_masks: one mask per style, or per region.
    """
    paths, out, options, saving = list_paths(content), Path(out), options or StylizeOptions(), saving or Saving()
    sources, notes = find_styles(styles)
    looks = make_looks(sources, weights, mix, [Path(p) for p in content_masks], [Path(p) for p in style_masks])
    first = paths[0]
    if is_video(paths, out):
        if len(looks) != 1:
            raise ValueError("a video takes one look: one style, or several that are mixed")
        video_format(out)
        check_overwrite([out], [first, *looks[0].files()])
        return Plan(first, out, looks, (), options, tuple(notes), saving)
    contents, content_notes = find_contents(paths, out)
    results = f"{plural(len(contents), 'picture')} in {plural(len(looks), 'look')}"
    if not is_file(out, paths, results, WRITABLE, len(looks)):
        make_folder(out)
    plan = Plan(first, out, looks, tuple(contents), options, (*notes, *content_notes), saving)
    inputs = [*paths, *(source.path for source in contents), *(file for look in looks for file in look.files())]
    check_overwrite((plan.target(source, look) for source in contents for look in looks), inputs)
    return plan


def find_contents(paths: Sequence[Path], out: Path) -> tuple[list[Source], list[str]]:
    """Return the pictures of files, folders and zips, except those in the folder ``out``, and notes about skipped files."""
    sources: list[Source] = []
    notes: list[str] = []
    for path in paths:
        reason = _reason_to_skip(path, out) if len(paths) > 1 else ""
        if reason:
            notes.append(f"{path} skipped; {reason}")
            continue
        try:
            pictures, about = scan_pictures(path, without=out)
        except NoPicturesError as error:
            if len(paths) == 1:
                raise
            pictures, about = [], [str(error)]
        sources, notes = sources + pictures, notes + about
    if not sources:
        raise PictureError("; ".join(notes))
    stems = make_unique(source.stem for source in sources)
    return [replace(source, stem=stem) for source, stem in zip(sources, stems, strict=True)], notes


def _reason_to_skip(path: Path, out: Path) -> str:
    """Return why one of several contents, such as those of ``*`` in a shell, is skipped, or "" if it is not."""
    if path.suffix.lower() in VIDEOS:
        return "pass a video by itself"
    if path.is_dir():
        return "it is the folder of the results" if path.resolve() == out.resolve() else ""
    return "it is a pipe or a device" if path.exists() and not path.is_file() else ""


def find_styles(names: Sequence[PathLike]) -> tuple[list[Source], list[str]]:
    """Return the styles of files, folders, zips and painted styles, and notes about skipped files."""
    sources: list[Source] = []
    notes: list[str] = []
    painted = painted_styles()
    for name in map(str, names):
        if Path(name).exists():
            pictures, about = scan_pictures(name)
            sources, notes = sources + pictures, notes + about
        elif name in painted:
            sources.append(Source(name, name, painted[name]))
        else:
            close = suggest(name, painted)
            remedy = f"did you mean {close}?" if close else f"pass a file, a folder, a zip or one of {', '.join(painted)}"
            raise PictureError(f"{name} does not exist; {remedy}")
    return sources, notes


def make_looks(
    styles: Sequence[Source], weights: Sequence[float], mix: Mix, content_masks: Sequence[Path], style_masks: Sequence[Path]
) -> tuple[LookSpec, ...]:
    """Combine styles into looks: one look of all styles for weights or content masks, otherwise one look per style."""
    check_choice("mix", mix, get_args(Mix))
    count, regions = len(styles), len(content_masks)
    names = make_unique([style.stem.replace("/", "-") for style in styles])
    if weights:
        normalize_weights(weights, count)  # raises for a wrong number of weights and for negative ones
    mixed = bool(weights) or mix == "equal"
    if regions and mixed:
        raise ValueError("styles cannot be mixed if content masks give every region its own style; use only one of the two")
    if regions and count not in (1, regions):
        raise ValueError(f"expected one style, or one per content mask ({regions}), got {count}")
    if len(style_masks) not in (0, regions or count):
        role = "content mask" if regions else "style"
        raise ValueError(f"expected no style mask, or one per {role} ({regions or count}), got {len(style_masks)}")
    if regions or mixed:
        joined = "+".join(names[:4]) + (f"+{count - 4}-more" if count > 4 else "")
        return (LookSpec(joined, tuple(styles), tuple(weights) or None, tuple(content_masks), tuple(style_masks)),)
    return tuple(LookSpec(names[i], (styles[i],), style_masks=tuple(style_masks[i : i + 1])) for i in range(count))


def is_file(out: Path, contents: Sequence[Path], results: str, extensions: Collection[str], looks: int = 1) -> bool:
    """Return True if ``out`` is the file of a single result, False if it is a folder; raise if it can be neither."""
    suffix = out.suffix.lower()
    if out.is_dir() or not suffix:
        return False
    one_picture = len(contents) == 1 and not contents[0].is_dir() and contents[0].suffix.lower() != ".zip"
    single = one_picture and looks == 1
    if single and suffix not in extensions:
        allowed = ", ".join(dict.fromkeys(extensions))
        raise SettingError(f"{out} cannot be written as a picture; the extension must be one of {allowed}", "out")
    if not single and suffix in (*extensions, *VIDEO_FORMATS):
        message = f"{out} is a single file; {results} need a folder"
        if one_picture:
            raise SettingError(f"{message}, or mix='equal' for one look", ("out", "mix"))
        raise SettingError(message, "out")
    return single


def make_folder(out: Path) -> None:
    """Create the folder of the results. Raise ValueError if it cannot be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"the folder {out} cannot be created ({error.strerror}); choose another one") from error
    if not os.access(out, os.W_OK):
        raise ValueError(f"the folder {out} is not writable; choose another one")


def check_overwrite(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Raise if an output is also an input, possibly under another name or a symbolic link."""
    known = {os.path.realpath(path): path for path in inputs}  # `Path.resolve` raises for a link to itself
    for out in outputs:
        if (path := known.get(os.path.realpath(out))) is not None:
            raise ValueError(f"{out} would overwrite the input {path}; choose another output")
