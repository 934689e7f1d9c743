"""Predict the classes of picture files and write the predictions as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from efdm.data import PictureError, find_pictures
from efdm.data.domains import decode_items
from efdm.data.images import write_bytes
from efdm.data.layouts import Item
from efdm.dg.classifier import Classifier
from efdm.dg.evaluate import predict
from efdm.errors import SettingError
from efdm.progress import Progress, Report, ignore
from efdm.text import first_few

Labels = Literal["none", "folders"]
CHUNK = 512  # pictures in memory


@dataclass(frozen=True)
class Prediction:
    """The predicted class of one picture. ``probabilities`` has one value per class, in the classifier's order."""

    item: Item
    label: str
    probability: float
    probabilities: Sequence[float]

    @property
    def is_correct(self) -> bool:
        return self.label == self.item.label


@dataclass(frozen=True)
class Predictions:
    """Predictions for all readable pictures. ``skipped`` lists the unreadable ones as (name, reason).

    With ``labels="folders"``, the true class of a picture is the name of its folder, and its domain is the folder above.
    """

    found: list[Prediction]
    skipped: list[tuple[str, str]]
    classes: list[str]
    train_domains: list[str]
    labels: Labels

    def accuracy(self) -> dict[str, tuple[int, int]]:
        """Return (correct, total) for every domain."""
        groups: dict[str, list[Prediction]] = {}
        for prediction in self.found:
            groups.setdefault(prediction.item.domain, []).append(prediction)
        return {domain: correct_and_total(group) for domain, group in groups.items()}


def correct_and_total(predictions: Sequence[Prediction]) -> tuple[int, int]:
    """Return the number of correct predictions and the number of all predictions."""
    return sum(p.is_correct for p in predictions), len(predictions)


def predict_files(
    classifier: Classifier, sources: Sequence[Path], *, labels: Labels = "none", progress: Report = ignore
) -> Predictions:
    """Classify the pictures of files, folders and zips. Unreadable pictures are skipped.

    Raises `SettingError` if ``labels="folders"`` and a folder is not named after a class.
    """
    items = [item for source in sources for item in _find_items(source, prefixed=len(sources) > 1)]
    classes = classifier.classes
    if labels == "folders" and (unknown := sorted({item.label for item in items} - set(classes))):
        message = f"folders {first_few(unknown)} are not classes of this model ({first_few(classes, 10)})"
        raise SettingError(f"{message}; expected class/picture or domain/class/picture", "labels")
    found: list[Prediction] = []
    skipped: list[tuple[str, str]] = []
    for start in range(0, len(items), CHUNK):
        chunk = items[start : start + CHUNK]
        try:
            # stretched to a square at the stored size, exactly as for training
            data = decode_items(chunk, size=classifier.stored_size)
        except PictureError as error:
            skipped += [(item.name, str(error)) for item in chunk]
        else:
            skipped += data.skipped
            damaged = {name for name, _ in data.skipped}
            readable = (item for item in chunk if item.name not in damaged)
            rows = predict(classifier.model, data.images, classifier.size).tolist()
            for item, row in zip(readable, rows, strict=True):
                best = max(range(len(classes)), key=row.__getitem__)
                found.append(Prediction(item, classes[best], row[best], row))
        if len(items) > CHUNK:
            progress(Progress("classifying pictures", min(start + CHUNK, len(items)), len(items)))
    return Predictions(found, skipped, classes, list(classifier.settings["train_domains"]), labels)


def _find_items(source: Path, *, prefixed: bool) -> Iterator[Item]:
    """Yield all pictures, with class and domain read from their folders, including the folders above ``source``."""
    for picture in find_pictures(source):
        in_zip = picture.member is not None
        inside = picture.name if source.is_dir() or in_zip else ""
        root = source.resolve().with_suffix("") if in_zip else source.resolve()
        parts = PurePosixPath(root.as_posix(), inside).parts
        label, domain = (parts[-n] if len(parts) >= n else "" for n in (2, 3))
        name = PurePosixPath(source.as_posix(), inside).as_posix() if prefixed else picture.name
        yield Item(name, domain, label, source=picture)


def check_path(path: Path) -> None:
    """Raise `SettingError` unless the file is a CSV file."""
    if path.suffix.lower() != ".csv":
        raise SettingError(f"{path} must end in .csv", "out")


def save_predictions(predictions: Predictions, path: Path) -> None:
    """Write CSV with the class and the probability of every class, and the true class and domain if they are known."""
    check_path(path)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    truth = ["label", "domain"] if predictions.labels == "folders" else []
    writer.writerow(["picture", "class", "probability", *truth, *(f"p_{name}" for name in predictions.classes)])
    for p in predictions.found:
        known = [getattr(p.item, name) for name in truth]
        numbers = [f"{value:.4f}" for value in (p.probability, *p.probabilities)]
        writer.writerow([p.item.name, p.label, numbers[0], *known, *numbers[1:]])
    write_bytes(path, out.getvalue().encode())
