"""``efdm dg predict``: what a trained classifier sees in pictures."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from efdm.apps import bars, dg_open
from efdm.apps.devices import pick_device
from efdm.apps.tell import tell
from efdm.data import PictureError, find_pictures
from efdm.data.domains import decode_items
from efdm.data.images import write_bytes
from efdm.data.layouts import Item
from efdm.dg import Classifier, load_classifier
from efdm.dg.evaluate import predict as probabilities
from efdm.ops.choices import check_choice
from efdm.text import first_few

console = Console()

LABELS = ("none", "folders")
COLUMNS = ("top", "all")
AT_ONCE = 512  # pictures in memory


@dataclass(frozen=True)
class Prediction:
    item: Item
    label: str
    probability: float
    probabilities: Sequence[float]  # of all classes

    @property
    def is_right(self) -> bool:
        return self.label == self.item.label


def predict(
    model: Annotated[Path, typer.Argument(help="model.safetensors of a training, or the folder of the training.")],
    pictures: Annotated[list[Path], typer.Argument(help="Pictures: files, folders, zips.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="A file: .csv, or .json, which has the confusions of --labels, too. Default: printed."
        ),
    ] = None,
    labels: Annotated[
        str, typer.Option(help="folders: a picture's folder is its class, the one above its domain; tells the accuracy.")
    ] = "none",
    columns: Annotated[
        str, typer.Option(help="top: the likeliest class; all: the probability of every class, too.")
    ] = "top",
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1. Default: the GPU if there is one.")] = "",
) -> None:
    """Tell the class of pictures, and how sure the classifier is of it.

    Damaged pictures are left out and named; the exit code is then 1, or 2 if nothing could be read.
    """
    with dg_open.sentences(console, lambda: "interrupted; nothing was written"):
        check_choice("--labels", labels, LABELS)
        check_choice("--columns", columns, COLUMNS)
        if out is not None and out.suffix.lower() not in WRITERS:
            raise ValueError(f"{out}: predictions are not written as that; end it in one of {', '.join(WRITERS)}")
        classifier = load_classifier(dg_open.model_file(model), pick_device(device))
        items = [item for source in pictures for item in _items(source, prefixed=len(pictures) > 1)]
        if labels == "folders":
            _check_labels(items, classifier.classes)
        if out is not None and (out.is_dir() or any(out.exists() and out.samefile(i.source.path) for i in items)):
            raise ValueError(f"{out} is a folder or one of the pictures; choose a file for the predictions")
        found: list[Prediction] = []
        with bars.progress(console) as shown:
            for begin in range(0, len(items), AT_ONCE):
                found += _look(classifier, items[begin : begin + AT_ONCE])
                if len(items) > AT_ONCE:
                    shown.show("looking at pictures", min(begin + AT_ONCE, len(items)), len(items))
        if out is not None and found:
            write_bytes(out, WRITERS[out.suffix.lower()](found, classifier, labels, columns).encode())
    failed = len(items) - len(found)
    _report(found, classifier, labels, columns, out)
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
            f"--labels folders: {first_few(unknown)} {'is no class' if len(unknown) == 1 else 'are no classes'} of this "
            f"model, which knows {first_few(classes, 10)}; expected class/picture or domain/class/picture"
        )


def _look(classifier: Classifier, items: Sequence[Item]) -> list[Prediction]:
    """Of these, what could be read."""
    try:
        # to a square as it is, as pictures are in training, and by the same steps
        data = decode_items(items, [set()] * len(items), size=classifier.stored_size)
    except PictureError as error:
        tell(console, error)
        return []
    for _, reason in data.skipped:
        tell(console, reason)
    found = probabilities(classifier.model, data.images, classifier.size)
    best = found.max(1)
    skipped = {name for name, _ in data.skipped}
    kept = [item for item in items if item.name not in skipped]
    told = zip(kept, best.indices.tolist(), best.values.tolist(), found.tolist(), strict=True)
    return [Prediction(item, classifier.classes[number], top, every) for item, number, top, every in told]


# --- files -----------------------------------------------------------------------------------------------------------


def _row(p: Prediction, labels: str) -> dict[str, Any]:
    known = {"label": p.item.label, "domain": p.item.domain} if labels == "folders" else {}
    return {"picture": p.item.name, "class": p.label, "probability": round(p.probability, 4), **known}


def _of_classes(p: Prediction, classes: Sequence[str], columns: str, form: str = "{}") -> dict[str, float]:
    """What there is beside the likeliest class."""
    named = zip(map(form.format, classes), p.probabilities, strict=True)
    return {name: round(value, 4) for name, value in named} if columns == "all" else {}


def _csv(found: Sequence[Prediction], classifier: Classifier, labels: str, columns: str) -> str:
    out = io.StringIO()
    rows = [{**_row(p, labels), **_of_classes(p, classifier.classes, columns, "p_{}")} for p in found]
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _json(found: Sequence[Prediction], classifier: Classifier, labels: str, columns: str) -> str:
    """The predictions, and with labels what the accuracy is made of: [right, all] of domains and classes, and what the
    pictures of each class were taken for."""
    told: dict[str, Any] = {"classes": classifier.classes, "learnt_from": classifier.settings["train_domains"]}
    if labels == "folders":
        told["accuracy"] = {
            "all": _right(found),
            "domains": {domain: _right(some) for domain, some in _grouped(found, lambda p: p.item.domain).items()},
            "classes": {label: _right(some) for label, some in _grouped(found, lambda p: p.item.label).items()},
        }
        told["confusion"] = {
            label: dict(Counter(p.label for p in some).most_common())
            for label, some in _grouped(found, lambda p: p.item.label).items()
        }
    rows = []
    for p in found:
        every = _of_classes(p, classifier.classes, columns)
        rows.append({**_row(p, labels), **({"probabilities": every} if every else {})})
    return json.dumps({**told, "predictions": rows}, indent=1) + "\n"


WRITERS: Mapping[str, Callable[[Sequence[Prediction], Classifier, str, str], str]] = {".csv": _csv, ".json": _json}


def _grouped(found: Sequence[Prediction], key: Callable[[Prediction], str]) -> dict[str, list[Prediction]]:
    groups: dict[str, list[Prediction]] = {}
    for p in found:
        groups.setdefault(key(p), []).append(p)
    return groups


def _right(found: Sequence[Prediction]) -> tuple[int, int]:
    return sum(p.is_right for p in found), len(found)


# --- telling ---------------------------------------------------------------------------------------------------------


def _report(found: Sequence[Prediction], classifier: Classifier, labels: str, columns: str, out: Path | None) -> None:
    if not found:
        return
    if out is None:
        _show_each(found, classifier.classes, labels, columns)
    else:
        console.print(f"{len(found)} predictions: {out}", soft_wrap=True, markup=False, highlight=False)
        for label, count in Counter(p.label for p in found).most_common():
            console.print(f"  {count:6}  {label}", markup=False, highlight=False)
    if labels == "folders":
        _show_accuracy(found, classifier.settings["train_domains"])


def _show_each(found: Sequence[Prediction], classes: Sequence[str], labels: str, columns: str) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("picture", overflow="fold")
    table.add_column("class")
    table.add_column("sure", justify="right")
    if labels == "folders":
        table.add_column("label")
    for name in classes if columns == "all" else ():
        table.add_column(Text(name), justify="right")
    for p in found:
        cells = [Text(p.item.name), Text(p.label), Text(f"{p.probability:.0%}")]
        cells += [Text(p.item.label)] if labels == "folders" else []
        cells += [Text(f"{value:.0%}") for value in _of_classes(p, classes, columns).values()]
        table.add_row(*cells, style="red" if labels == "folders" and not p.is_right else None)
    console.print(table)


def _show_accuracy(found: Sequence[Prediction], learnt_from: Sequence[str]) -> None:
    console.print("\naccuracy", highlight=False)
    domains = _grouped(found, lambda p: p.item.domain)
    for name, some_of in {**domains, **({"all": found} if len(domains) > 1 else {})}.items():
        right, count = _right(some_of)
        told = f"  {100 * right / count:5.1f} %  {name or 'all'} ({right} of {count})"
        console.print(told, markup=False, highlight=False, soft_wrap=True)
    if known := [domain for domain in domains if domain in learnt_from]:
        told = f"the model has learnt from {', '.join(known)}: what it has right there says nothing of a new domain"
        console.print(told, style="yellow", markup=False, highlight=False, soft_wrap=True)
