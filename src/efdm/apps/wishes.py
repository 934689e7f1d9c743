"""What ``efdm stylize`` is asked for: which looks, and where each result goes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from efdm.data import WRITABLE, Picture, PictureError, Source, find_pictures, read_mask, read_picture
from efdm.data.embedded import STYLES, styles
from efdm.data.folders import names_in
from efdm.data.video_formats import video_format
from efdm.ops.choices import check_choice
from efdm.style.look import Look, normalise_weights
from efdm.style.pictures import Size
from efdm.style.stylizer import Stylizer
from efdm.text import plural

MIXES = ("none", "equal")
SOUND = ("keep", "drop")  # of a video
VIDEOS = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".webm")


@dataclass(frozen=True)
class Painting:
    """A style that is painted by code; reads like a `Source`."""

    name: str

    @property
    def stem(self) -> str:
        return self.name

    def read(self) -> Picture:
        return read_picture(styles()[self.name])


@dataclass(frozen=True)
class Wish:
    """One look: its name in file names, its styles, and the masks they go with."""

    name: str
    styles: tuple[Source | Painting, ...]
    weights: tuple[float, ...] | None = None
    content_masks: tuple[Path, ...] = ()
    style_masks: tuple[Path, ...] = ()

    def files(self) -> list[Path]:
        """What is read for it."""
        styles = [style.path for style in self.styles if isinstance(style, Source)]
        return [*styles, *self.content_masks, *self.style_masks]

    def looks(self, stylizer: Stylizer, size: Size) -> list[Look]:
        """The look, or one for each region."""
        pictures = [style.read() for style in self.styles]
        of = pictures * len(self.style_masks) if len(pictures) == 1 else pictures
        masks: list[Tensor | None] = [_mask(path, p) for path, p in zip(self.style_masks, of, strict=False)]
        masks = masks or [None] * len(pictures)
        if not self.content_masks:
            return [stylizer.prepare(pictures, weights=self.weights, size=size, masks=masks)]
        count = len(self.content_masks)
        pictures, masks = (each * count if len(each) == 1 else each for each in (pictures, masks))  # type: ignore[assignment]
        return [stylizer.prepare(p, size=size, masks=[m]) for p, m in zip(pictures, masks, strict=True)]

    def stylize(self, stylizer: Stylizer, content: Picture, looks: list[Look], **options: Any) -> Tensor:
        if not self.content_masks:
            return stylizer.stylize(content, looks[0], **options).rgb
        regions = [(_mask(path, content), look) for path, look in zip(self.content_masks, looks, strict=True)]
        return stylizer.stylize(content, regions=regions, **options).rgb


def _mask(path: Path, picture: Picture) -> Tensor:
    """A mask in the size of the picture that it belongs to, whatever size it was drawn at."""
    mask = read_mask(path)
    size = picture.rgb.shape[-2:]
    if mask.shape == size:
        return mask
    return F.interpolate(mask[None, None].float(), tuple(size), mode="nearest-exact")[0, 0] > 0


def find_styles(given: Sequence[str]) -> list[Source | Painting]:
    """Every style of files, folders and zips, and the painted ones by name."""
    found: list[Source | Painting] = []
    for each in given:
        if each in STYLES and not Path(each).exists():
            found.append(Painting(each))
            continue
        try:
            found.extend(find_pictures(each))
        except PictureError as error:
            hint = "" if Path(each).exists() else f"; or name a painted style: {', '.join(STYLES)}"
            raise PictureError(f"{error}{hint}") from error
    return found


def make_wishes(
    styles: list[Source | Painting],
    weights: Sequence[float],
    mix: str,
    content_masks: Sequence[Path],
    style_masks: Sequence[Path],
) -> list[Wish]:
    """The rule: masks or weights make one look of all styles, otherwise every style is a look of its own."""
    check_choice("--mix", mix, MIXES)
    count, mixed = len(styles), bool(weights) or mix == "equal"
    names = _unique([style.stem.replace("/", "-") for style in styles])
    if weights and len(weights) != count:
        both = f"{plural(count, 'style')} and {plural(len(weights), 'weight')}"
        raise ValueError(f"{both}; give --weight once for each style")
    if weights:
        normalise_weights(weights, count)  # refuses bad numbers now, and not after a model was loaded
    if content_masks:
        if mixed:
            raise ValueError("masks give each region its own style; leave --weight and --mix out")
        regions = len(content_masks)
        if count not in (1, regions) or len(style_masks) not in (0, regions):
            raise ValueError(
                f"{regions} --content-mask, {plural(count, 'style')} and {len(style_masks)} --style-mask; give one style "
                "for all regions or one for each, and no style mask or one for each"
            )
        return [Wish(_joined(names), tuple(styles), None, tuple(content_masks), tuple(style_masks))]
    if len(style_masks) not in (0, count):
        raise ValueError(f"{plural(count, 'style')} and {len(style_masks)} --style-mask; give one for each style, or none")
    if mixed:
        return [Wish(_joined(names), tuple(styles), tuple(weights) or None, style_masks=tuple(style_masks))]
    return [Wish(names[i], (styles[i],), style_masks=tuple(style_masks[i : i + 1])) for i in range(count)]


def _joined(names: Sequence[str]) -> str:
    return "+".join(names[:4]) + (f"+{len(names) - 4}-more" if len(names) > 4 else "")


def _unique(names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        count, wanted = 1, name
        while wanted in found:
            count += 1
            wanted = f"{name}-{count}"
        found.append(wanted)
    return found


# --- where it goes ---------------------------------------------------------------------------------------------------


def make_namer(
    content: Path, out: Path, contents: Sequence[Source], wishes: Sequence[Wish]
) -> Callable[[Source, Wish], Path]:
    """Where each result goes: one picture to the file OUT, anything else into the folder OUT."""
    suffix = out.suffix.lower()
    single = len(wishes) == 1 and content.is_file() and content.suffix.lower() != ".zip"
    if not out.is_dir() and single and suffix:
        if suffix not in WRITABLE:
            raise ValueError(f"{out} has an extension that cannot be written; use one of {', '.join(WRITABLE)}, or a folder")
        return lambda source, wish: out
    if not out.is_dir() and suffix in WRITABLE:
        several = f"{plural(len(contents), 'picture')} in {plural(len(wishes), 'look')}"
        raise ValueError(f"{out} is one file; for {several}, give a folder")
    _make_folder(out)
    return lambda source, wish: out / f"{source.stem}__{wish.name}.png"


def check_video(out: Path, wishes: Sequence[Wish]) -> None:
    """Whether a video can be made, and under this name."""
    if len(wishes) != 1 or wishes[0].content_masks:
        raise ValueError(
            "a video takes one look: one --style, or several with --weight or --mix equal, and no content masks"
        )
    if out.is_dir() or not out.suffix:
        raise ValueError(f"{out} is not the name of a video; give a file name such as {out / 'out.mp4'}")
    video_format(out)


def count_videos(source: Path) -> int:
    """How many videos a folder or a zip holds: pictures are looked for there, and videos are not."""
    return sum(name.lower().endswith(VIDEOS) for name in names_in(source))


def refuse_inputs(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """No result may take the place of what it is made from, by whatever name or link."""
    known = {_identity(path): path for path in inputs if path.exists()}
    for out in outputs:
        if out.exists() and (path := known.get(_identity(out))) is not None:
            raise ValueError(f"{out} would replace {path}, which is read for it; choose another name for the output")


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"the folder {out} cannot be made ({error.strerror}); choose another one") from error
    if not os.access(out, os.W_OK):
        raise ValueError(f"the folder {out} may not be written by you; choose another one")
