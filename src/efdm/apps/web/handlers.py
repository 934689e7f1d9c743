"""The handlers of the web app: functions from uploaded files and settings to files, without Gradio."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from efdm.data import Picture, read_picture
from efdm.data.embedded import styles as painted_styles
from efdm.data.images import PictureError, on_white, write_picture
from efdm.errors import SettingError
from efdm.models import NETWORKS
from efdm.models.weights import is_available
from efdm.progress import Progress, Report, ignore
from efdm.style.candidates import NO_FILES, Files, LoadedNetwork, load_stylizer, user_encoder
from efdm.style.color_match import match_picture
from efdm.style.jobs import stylize_video
from efdm.style.look import Look, corner_weights
from efdm.style.options import StylizeOptions
from efdm.style.pictures import Size
from efdm.style.stylizer import Stylizer
from efdm.text import make_unique, plural

MAX_STYLES = 4  # corners of the mixing pad
MAX_REFERENCES = 16
MAX_BYTES = 512 * 2**20  # of prepared styles in memory
CLOSE_SECONDS = 10


@dataclass(frozen=True)
class Limits:
    """Limits on the input of a request, and on the number of requests that run or wait at a time."""

    megabytes: int = 50  # of an uploaded file
    megapixels: int = 30  # of a picture or a frame
    seconds: int = 60  # of a video
    pictures: int = 64  # of one classification
    concurrency: int = 1
    queue: int = 64

    @property
    def pixels(self) -> int:
        return self.megapixels * 1_000_000


class Mixture(NamedTuple):
    """Styles by name and by file, and the point on the mixing pad that weights them."""

    names: Sequence[str]
    files: Sequence[str | Path]
    x: float = 0.5
    y: float = 0.5

    def paths(self) -> list[Path]:
        """Return the files of all styles: first the painted ones, then the uploaded ones."""
        painted = painted_styles()
        paths = [painted[name] for name in self.names] + [Path(file) for file in self.files]
        if not 1 <= len(paths) <= MAX_STYLES:
            raise SettingError(f"choose from 1 to {MAX_STYLES} styles, got {len(paths)}", "style")
        return paths


class Handlers:
    """The functions of the page, with the networks and prepared styles that they share.

    Results are written to new folders inside ``folder``. The networks of the package are loaded when they are first used.

    Args:
        networks: name -> file written by a training run, in addition to the rows of `NETWORKS` whose weights are found.
        classifiers: name -> folder or file of a trained classifier.
        vgg: file of the VGG encoder that is not part of the package.
    """

    def __init__(
        self,
        folder: Path,
        *,
        networks: Files = NO_FILES,
        classifiers: Files = NO_FILES,
        vgg: str | Path | None = None,
        device: Any = "cpu",
        limits: Limits | None = None,
    ) -> None:
        self.folder, self.device, self.limits = folder, device, limits or Limits()
        self.looks: dict[tuple[Stylizer, Path, Size], Look] = {}  # the most recently used one is the last
        self._stopping, self._changed, self._running = threading.Event(), threading.Condition(), 0
        available = [name for name in NETWORKS if user_encoder(name, vgg) or is_available(name)]
        self.models = list(dict.fromkeys([*available, *networks]))
        self.load = cache(lambda name: load_stylizer(name, networks.get(name), vgg=vgg, device=device))
        for name in networks:  # at once, to report a wrong file before the page opens
            self.load(name)
        self.classifiers: dict[str, Any] = {}
        if classifiers:  # needs the packages of the extra dg
            from efdm.dg.classifier import load_classifier

            self.classifiers = {name: load_classifier(path, device) for name, path in classifiers.items()}

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count a request as running inside the ``with`` block."""
        with self._changed:
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Stop running requests at their next step, and wait for them for at most `CLOSE_SECONDS`."""
        self._stopping.set()
        with self._changed:
            self._changed.wait_for(lambda: self._running == 0, CLOSE_SECONDS)

    def stylize(
        self, content: str | Path | None, styles: Mixture, *, model: str = "small", **settings: Any
    ) -> tuple[Path, Path]:
        """Stylize a picture and return two files: the content as a JPEG for display, and the result as a PNG.

        ``settings`` are fields of `StylizeOptions`.
        """
        picture = self._read(content)
        return self._save(picture, self._stylize(picture, styles, model, **settings), _name(content, styles))

    def compare(
        self,
        content: str | Path | None,
        styles: Mixture,
        *,
        models: Sequence[str],
        methods: Sequence[str],
        progress: Report = ignore,
        **settings: Any,
    ) -> list[tuple[Path, str]]:
        """Stylize a picture with every model and method, and return the files with their labels."""
        if not models or not methods:
            raise SettingError("choose at least one model and one method", ("model", "method"))
        picture, out, results = self._read(content), self._new_folder(), []
        for done, (model, method) in enumerate(product(models, methods)):
            self._check_stopping()
            progress(Progress("stylizing", done, len(models) * len(methods)))
            file = out / f"{model}-{method}.png"
            self._stylize(picture, styles, model, method=method, **settings).save(file)
            results.append((file, f"{model}, {method}"))
        return results

    def stylize_video(
        self, video: str | Path | None, styles: Mixture, *, model: str = "small", progress: Report = ignore, **settings: Any
    ) -> Path:
        """Stylize a video and return an MP4 file with its sound. ``settings`` are fields of `StylizeOptions`."""
        if video is None:
            raise SettingError("upload a video first", "content")
        source, network = Path(video), self.load(model)
        options = StylizeOptions(method=network.method, **settings)
        frames = self._check_video(source)

        def bounded(report: Progress) -> None:
            self._check_stopping()
            if report.done > frames:  # the header understated the length
                raise SettingError(f"{source.name} is longer than {self.limits.seconds} s; trim it", "content")
            progress(report)

        out = self._new_folder() / f"{_name(video, styles)}.mp4"
        look = self._look(network, styles, options.size)
        try:
            stylize_video(source, out, network.stylizer, options, style=look, progress=bounded)
        except PictureError as error:  # names the finished part, which the page does not offer, and has its reason as cause
            raise error.__cause__ if isinstance(error.__cause__, PictureError) else error from None
        return out

    def match_colors(
        self, content: str | Path | None, references: Sequence[str | Path] | None, **settings: Any
    ) -> tuple[Path, Path]:
        """Give a picture the colours of the references, and return two files as `stylize` does.

        ``settings`` are arguments of `match_picture`.
        """
        if not 1 <= len(references or ()) <= MAX_REFERENCES:
            raise SettingError(f"upload from 1 to {MAX_REFERENCES} references, got {len(references or ())}", "reference")
        picture, pooled = self._read(content), [self._read(reference) for reference in references or ()]
        matched = match_picture(picture, pooled, device=self.device, **settings)
        return self._save(picture, matched, f"{Path(str(content)).stem[:48]}__matched")

    def classify(self, pictures: Sequence[str | Path] | None) -> dict[str, dict[str, dict[str, float]]]:
        """Return probabilities by picture, classifier and class, most probable first."""
        from efdm.dg.predictions import predict_files

        files = [Path(picture) for picture in pictures or ()]
        if not 1 <= len(files) <= self.limits.pictures:
            raise SettingError(f"upload from 1 to {self.limits.pictures} pictures, got {len(files)}", "pictures")
        for file in files:
            read_picture(file, max_pixels=self.limits.pixels)
        table: dict[str, dict[str, dict[str, float]]] = {name: {} for name in make_unique(file.name for file in files)}
        for name, classifier in self.classifiers.items():
            predictions = predict_files(classifier, files)
            for row, prediction in zip(table.values(), predictions.found, strict=True):
                ranked = sorted(zip(predictions.classes, prediction.probabilities, strict=True), key=lambda pair: -pair[1])
                row[name] = dict(ranked)
        return table

    def _check_stopping(self) -> None:
        if self._stopping.is_set():
            raise InterruptedError("the app was stopped")

    def _save(self, content: Picture, result: Picture, name: str) -> tuple[Path, Path]:
        folder = self._new_folder()
        before, after = folder / "content.jpg", folder / f"{name}.png"
        write_picture(before, content.rgb if content.alpha is None else on_white(content.rgb, content.alpha))
        result.save(after)
        return before, after

    def _read(self, content: str | Path | None) -> Picture:
        if content is None:
            raise SettingError("upload a picture first", "content")
        return read_picture(content, max_pixels=self.limits.pixels)

    def _stylize(self, picture: Picture, styles: Mixture, model: str, **settings: Any) -> Picture:
        network = self.load(model)
        options = StylizeOptions(**{"method": network.method, **settings})
        return network.stylizer.stylize(picture, self._look(network, styles, options.size), options=options)

    def _look(self, network: LoadedNetwork, styles: Mixture, size: Size) -> Look:
        paths = styles.paths()
        weights = corner_weights(styles.x, styles.y, len(paths))
        looks = [self._prepare(network.stylizer, path, size) for path in paths]
        pictures, masks, features = zip(*((x.pictures[0], x.masks[0], x.features[0]) for x in looks), strict=True)
        return Look(pictures, masks, weights, features)

    def _prepare(self, stylizer: Stylizer, style: Path, size: Size) -> Look:
        key = (stylizer, style, size)  # Gradio names the folder of an upload by its content
        look = self.looks.get(key) or stylizer.prepare(self._read(style), size=size)
        with self._changed:
            self.looks.pop(key, None)
            self.looks[key] = look
            while sum(x.nbytes for x in self.looks.values()) > MAX_BYTES:
                del self.looks[next(iter(self.looks))]
        return look.copy()  # each request needs its own cache of values resampled for its content

    def _check_video(self, source: Path) -> int:
        """Return the maximum number of frames. Raise SettingError if the video is too large or too long."""
        from efdm.data.video import VideoReader

        with VideoReader(source) as reader:
            (height, width), seconds = reader.size, float((reader.frames or 0) / reader.fps)
            frames = int(self.limits.seconds * reader.fps) + 1
        if height * width > self.limits.pixels:
            limit = f"at most {self.limits.megapixels} megapixels are allowed"
            raise SettingError(f"{source.name} has {width} x {height} pixels, {limit}; make it smaller", "content")
        if seconds > self.limits.seconds:
            limit = f"at most {plural(self.limits.seconds, 'second')} are allowed"
            raise SettingError(f"{source.name} lasts {seconds:.0f} s, {limit}; trim it", "content")
        return frames

    def _new_folder(self) -> Path:
        folder = self.folder / secrets.token_hex(8)
        folder.mkdir()
        return folder


def _name(content: object, styles: Mixture) -> str:
    """Return a file name, without its extension, of at most 100 characters."""
    style = "+".join([*styles.names, *(Path(file).stem for file in styles.files)])
    return f"{Path(str(content)).stem[:48]}__{style[:50]}"
