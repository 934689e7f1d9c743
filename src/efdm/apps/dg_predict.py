"""``efdm dg predict``: what a trained classifier sees in pictures."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from efdm.apps import dg_open
from efdm.apps.devices import pick_device
from efdm.apps.tell import tell
from efdm.data import PictureError, find_pictures
from efdm.data.domains import decode_items
from efdm.data.images import write_whole
from efdm.data.layouts import Item, some
from efdm.dg import Classifier, load_classifier
from efdm.dg.evaluate import predict as probabilities
from efdm.ops.choices import check_choice

console = Console()

LABELS = ("none", "folders")
AT_ONCE = 512  # pictures in memory


@dataclass(frozen=True)
class Prediction:
    item: Item
    label: str
    probability: float


def predict(
    model: Annotated[Path, typer.Argument(help="model.safetensors of a training, or the folder of the training.")],
    pictures: Annotated[list[Path], typer.Argument(help="Pictures: files, folders, zips.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A CSV file. Default: printed.")] = None,
    labels: Annotated[
        str, typer.Option(help="folders: a picture's folder is its class, the one above its domain; tells the accuracy.")
    ] = "none",
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1. Default: the GPU if there is one.")] = "",
) -> None:
    """Tell the class of pictures, and how sure the classifier is of it.

    Damaged pictures are left out and named; the exit code is then 1, or 2 if nothing could be read.
    """
    with dg_open.sentences(console, lambda: "interrupted; nothing was written"):
        check_choice("--labels", labels, LABELS)
        classifier = load_classifier(dg_open.model_file(model), pick_device(device))
        items = [item for source in pictures for item in _items(source, prefixed=len(pictures) > 1)]
        if labels == "folders":
            _check_labels(items, classifier.classes)
        if out is not None and (out.is_dir() or any(out.exists() and out.samefile(i.source.path) for i in items)):
            raise ValueError(f"{out} is a folder or one of the pictures; choose a file for the predictions")
        found: list[Prediction] = []
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        with Progress(*columns, console=console, transient=True, disable=len(items) < AT_ONCE) as bar:
            task = bar.add_task("looking at pictures", total=len(items))
            for begin in range(0, len(items), AT_ONCE):
                found += _look(classifier, items[begin : begin + AT_ONCE])
                bar.update(task, completed=begin + AT_ONCE)
        if out is not None and found:
            write_whole(out, _csv(found, labels).encode())
    failed = len(items) - len(found)
    _report(found, labels, out)
    if failed and len(items) > 1:
        tell(console, f"{failed} of {len(items)} pictures could not be read")
    raise typer.Exit(0 if not failed else 1 if found else 2)


def _items(source: Path, *, prefixed: bool) -> Iterator[Item]:
    """Every picture with what its folders would say, the folders above what was given included."""
    for found in find_pictures(source):
        inside = found.name if source.is_dir() or found.member is not None else ""
        above = source.resolve().with_suffix("") if found.member is not None else source.resolve()
        parts = PurePosixPath(above.as_posix(), inside).parts
        label, domain = (parts[-n] if len(parts) >= n else "" for n in (2, 3))
        yield Item(PurePosixPath(source.as_posix(), inside).as_posix() if prefixed else found.name, domain, label, "", found)


def _check_labels(items: Sequence[Item], classes: Sequence[str]) -> None:
    if unknown := sorted({item.label for item in items} - set(classes)):
        raise ValueError(
            f"--labels folders: {some(unknown)} {'is no class' if len(unknown) == 1 else 'are no classes'} of this model, "
            f"which knows {some(classes, 10)}; expected class/picture or domain/class/picture"
        )


def _look(classifier: Classifier, items: Sequence[Item]) -> list[Prediction]:
    """Of these, what could be read."""
    try:
        # to a square as it is, as pictures are in training
        data = decode_items(items, [set()] * len(items), size=classifier.size)
    except PictureError as error:
        tell(console, error)
        return []
    for _, reason in data.skipped:
        tell(console, reason)
    best = probabilities(classifier.model, data.images, classifier.size).max(1)
    skipped = {name for name, _ in data.skipped}
    kept = [item for item in items if item.name not in skipped]
    told = zip(kept, best.indices.tolist(), best.values.tolist(), strict=True)
    return [Prediction(item, classifier.classes[number], probability) for item, number, probability in told]


# --- telling ---------------------------------------------------------------------------------------------------------


def _csv(found: Sequence[Prediction], labels: str) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    known = labels == "folders"
    writer.writerow(["picture", "class", "probability", *(["label", "domain"] if known else [])])
    for p in found:
        more = [p.item.label, p.item.domain] if known else []
        writer.writerow([p.item.name, p.label, f"{p.probability:.4f}", *more])
    return out.getvalue()


def _report(found: Sequence[Prediction], labels: str, out: Path | None) -> None:
    if not found:
        return
    if out is None:
        _show_each(found, labels)
    else:
        console.print(f"{len(found)} predictions: {out}", soft_wrap=True, markup=False, highlight=False)
        for label, count in Counter(p.label for p in found).most_common():
            console.print(f"  {count:6}  {label}", markup=False, highlight=False)
    if labels == "folders":
        groups = dict.fromkeys(p.item.domain for p in found)
        console.print("\naccuracy", highlight=False)
        for domain in groups if len(groups) > 1 else ():
            _show_accuracy(domain, [p for p in found if p.item.domain == domain])
        _show_accuracy("all", found)


def _show_each(found: Sequence[Prediction], labels: str) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("picture", overflow="fold")
    table.add_column("class")
    table.add_column("sure", justify="right")
    if labels == "folders":
        table.add_column("label")
    for p in found:
        cells = [Text(p.item.name), Text(p.label), Text(f"{p.probability:.0%}")]
        wrong = labels == "folders" and p.label != p.item.label
        table.add_row(*cells, *([Text(p.item.label)] if labels == "folders" else []), style="red" if wrong else None)
    console.print(table)


def _show_accuracy(name: str, found: Sequence[Prediction]) -> None:
    right = sum(p.label == p.item.label for p in found)
    told = f"  {100 * right / len(found):5.1f} %  {name} ({right} of {len(found)})"
    console.print(told, markup=False, highlight=False, soft_wrap=True)
