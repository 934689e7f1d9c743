"""``efdm stylize``: pictures and videos in the look of others."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from efdm.apps.devices import pick_device
from efdm.apps.networks import pick_model, with_option
from efdm.apps.tell import tell
from efdm.apps.wishes import (
    SOUND,
    VIDEOS,
    Painting,
    Wish,
    check_video,
    count_videos,
    find_styles,
    make_namer,
    make_wishes,
    refuse_inputs,
)
from efdm.data import Picture, PictureError, Source, find_pictures, write_picture
from efdm.models import NETWORKS
from efdm.models.weights import MissingWeights
from efdm.ops import MATCHERS
from efdm.ops.choices import CHOICES, check_choice
from efdm.style.color import COLORS
from efdm.style.photoreal import PHOTOREAL
from efdm.style.pictures import Size
from efdm.style.stylizer import Stylizer
from efdm.style.video import TEMPORAL
from efdm.text import plural
from efdm.training import PRECISIONS

console = Console()
app = typer.Typer(add_completion=False)

EXPECTED = (ValueError, TypeError, PictureError, MissingWeights)  # one sentence for the user
FAILURES = (*EXPECTED, RuntimeError, MemoryError)  # of one picture: torch says with RuntimeError that memory is short
SHORT_OF_MEMORY = ("DefaultCPUAllocator", "out of memory", "ALLOC_FAILED")  # how the allocators of torch say so


@dataclass
class Tally:
    """What became of the pictures, told while it happens."""

    done: int = 0
    failed: int = 0

    def fail(self, error: Exception, count: int = 1) -> None:
        self.failed += count
        tell(console, _sentence(error))

    def exit_code(self) -> int:
        return 0 if not self.failed else 1 if self.done else 2


def _sentence(error: Exception) -> str:
    short = isinstance(error, RuntimeError) and any(text in str(error) for text in SHORT_OF_MEMORY)
    if short or isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return "there is not enough memory for this picture; work at a smaller --size, or try --device cpu"
    return str(error)


def stylize_all(
    stylizer: Stylizer,
    contents: Sequence[Source],
    wishes: Sequence[Wish],
    name: Callable[[Source, Wish], Path],
    *,
    style_size: Size,
    seed: int,
    **options: Any,
) -> Tally:
    """Every content in every look. What fails is told and left out; a look is prepared once and not kept."""
    tally, bad = Tally(), set[Source]()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    total = len(contents) * len(wishes)
    with Progress(*columns, console=console, transient=True, disable=total == 1) as bar:
        task = bar.add_task("stylizing", total=total)
        for wish in wishes:
            try:
                looks = wish.looks(stylizer, style_size)
            except FAILURES as error:
                tally.fail(error, len(contents))
                bar.advance(task, len(contents))
                continue
            for source in contents:
                bar.update(task, description=f"{source.stem} in {wish.name}")
                if source in bad:
                    tally.failed += 1  # said before
                elif (picture := _read(source, tally)) is None:
                    bad.add(source)
                else:
                    try:
                        generator = torch.Generator(stylizer.device).manual_seed(seed)
                        made = wish.stylize(stylizer, picture, looks, generator=generator, **options)
                        write_picture(name(source, wish), made, alpha=picture.alpha, depth=picture.depth)
                        tally.done += 1
                    except FAILURES as error:
                        tally.fail(error)
                bar.advance(task)
    return tally


def _read(source: Source, tally: Tally) -> Picture | None:
    try:
        return source.read()
    except FAILURES as error:
        tally.fail(error)
        return None


def _is_video(content: Path, out: Path) -> bool:
    moving = out.suffix.lower() in (*VIDEOS, ".gif")
    return content.suffix.lower() in VIDEOS or (content.suffix.lower() == ".gif" and moving)


def _size(option: str, text: str) -> int | str:
    if text in ("auto", "full"):
        return text
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{option} {text} is not a short side in pixels; write a number, full or auto")
    return int(text)


def _checked(**choices: tuple[str, Sequence[str]]) -> None:
    for name, (value, allowed) in choices.items():
        check_choice("--" + name.replace("_", "-"), value, allowed)


def _contents(content: Path) -> list[Source]:
    _tell_videos(content, "give a video by itself")
    return find_pictures(content)


def _styles(given: Sequence[str]) -> list[Source | Painting]:
    for each in filter(os.path.exists, given):  # the others are painted, or missed below
        _tell_videos(Path(each), "a style is a picture")
    return find_styles(given)


def _tell_videos(source: Path, advice: str) -> None:
    if videos := count_videos(source):
        tell(console, f"{plural(videos, 'video')} in {source} left out; {advice}")


Many = list[Path] | None


@app.command()
def stylize(
    content: Annotated[Path, typer.Argument(help="A picture, a folder, a zip, or a video.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A file for one result, a folder for several.")],
    style: Annotated[
        list[str], typer.Option(help="A picture, a folder, a zip, or the name of a painted style. Can be repeated.")
    ],
    weight: Annotated[list[float] | None, typer.Option(help="Mix all styles into one look: once for each style.")] = None,
    mix: Annotated[str, typer.Option(help="equal: mix all styles in equal parts; none: one result for each.")] = "none",
    strength: Annotated[float, typer.Option(help="From 0 (the content) to 1.")] = 1.0,
    method: Annotated[str, typer.Option(help=f"One of {', '.join(MATCHERS)}.")] = "efdm",
    preserve_color: Annotated[str, typer.Option(help=f"Keep the content's colours: {', '.join(COLORS)}.")] = "none",
    photoreal: Annotated[str, typer.Option(help=f"Keep the content's edges: {', '.join(PHOTOREAL)}.")] = "none",
    content_mask: Annotated[Many, typer.Option(help="White is where the style goes. Repeat it for several regions.")] = None,
    style_mask: Annotated[Many, typer.Option(help="White is what counts of the style. One for each region.")] = None,
    size: Annotated[
        str, typer.Option(help="Short side at which the network works: a number, full, or auto (full up to 1024).")
    ] = "auto",
    style_size: Annotated[
        str, typer.Option(help="The same for styles; a larger one has larger strokes. Default: --size.")
    ] = "",
    model: Annotated[str, typer.Option(help=f"One of {', '.join(NETWORKS)}. Default: what --weights says, or small.")] = "",
    weights: Annotated[Path | None, typer.Option(help="A network of your own, from `efdm train style`.")] = None,
    vgg: Annotated[Path | None, typer.Option(help="The VGG's file, for the models that need it.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1. Default: the GPU if there is one.")] = "",
    precision: Annotated[str, typer.Option(help=f"One of {', '.join(PRECISIONS)}; bf16 is faster on a GPU.")] = "fp32",
    ties: Annotated[str | None, typer.Option(help=f"Order of equal values: {', '.join(CHOICES['ties'])} (efdm).")] = None,
    seed: Annotated[int, typer.Option(help="For --ties random.")] = 0,
    temporal: Annotated[str, typer.Option(help=f"Against flicker in videos: {', '.join(TEMPORAL)}.")] = "smooth",
    audio: Annotated[str, typer.Option(help=f"The sound of a video: {', '.join(SOUND)}.")] = "keep",
) -> None:
    """Stylize pictures or a video.

    Every content gets every style; several results go into the folder OUT as CONTENT__STYLE.png.

    With --weight or --mix equal, all styles are mixed into one look.

    With --content-mask, each region has its own style, or its own part (--style-mask) of one; the rest stays as it is.
    """
    try:
        _checked(
            method=(method, tuple(MATCHERS)), preserve_color=(preserve_color, tuple(COLORS)),
            photoreal=(photoreal, tuple(PHOTOREAL)), temporal=(temporal, tuple(TEMPORAL)), audio=(audio, SOUND),
            precision=(precision, tuple(PRECISIONS)),
        )  # fmt: skip
        if not 0 <= strength <= 1:
            raise ValueError(f"--strength {strength} is outside 0 (the content) to 1")
        if ties is not None:
            check_choice("--ties", ties, CHOICES["ties"])
        named = pick_model(model, weights)
        at, style_at = _size("--size", size), _size("--style-size", style_size or size)
        wishes = make_wishes(_styles(style), weight or [], mix, content_mask or [], style_mask or [])
        video = _is_video(content, out)
        if video:
            if (preserve_color, photoreal, ties) != ("none", "none", None):
                raise ValueError("--preserve-color, --photoreal and --ties are for pictures; leave them out for a video")
            check_video(out, wishes)
        contents = [] if video else _contents(content)
        namer = None if video else make_namer(content, out, contents, wishes)
        refuse_inputs(
            [out] if namer is None else (namer(source, wish) for source in contents for wish in wishes),
            [content, *(s.path for s in contents), *(f for w in wishes for f in w.files()), *filter(None, (weights, vgg))],
        )
        stylizer = Stylizer.from_pretrained(named, pick_device(device), weights, vgg, precision=precision)
        if namer is None:
            _stylize_video(
                content, out, stylizer, wishes[0], style_at,
                strength=strength, method=method, temporal=temporal, sound=audio, size=at if isinstance(at, int) else None,
            )  # fmt: skip
            return
        tally = stylize_all(
            stylizer, contents, wishes, namer, style_size=style_at, seed=seed, strength=strength, method=method,
            ties=ties, preserve_color=preserve_color, photoreal=photoreal, size=at,
        )  # fmt: skip
    except EXPECTED as error:
        tell(console, with_option(error))
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        tell(console, "interrupted; what is finished is complete")
        raise typer.Exit(130) from None
    _report(tally, out)


def _report(tally: Tally, out: Path) -> None:
    if tally.done:
        what = f"{plural(tally.done, 'picture')} in {out}" if out.is_dir() else str(out)
        console.print(what, markup=False, highlight=False, soft_wrap=True)
    if tally.failed and tally.done + tally.failed > 1:
        tell(console, f"{tally.failed} of {tally.done + tally.failed} pictures failed")
    raise typer.Exit(tally.exit_code())


def _stylize_video(content: Path, out: Path, stylizer: Stylizer, wish: Wish, style_size: Size, **options: Any) -> None:
    from efdm.apps.video import run  # needs a package for videos

    run(content, out, stylizer, wish.looks(stylizer, style_size)[0], console=console, **options)
