"""``efdm dg predict``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.options import Device, option, resolve_device
from efdm.apps.cli.printing import print_error, print_text, print_warning
from efdm.apps.cli.progress import show_progress
from efdm.apps.cli.recognition_options import MODEL_HELP
from efdm.apps.cli.recognition_printing import print_accuracy, print_tables
from efdm.dg.classifier import load_classifier
from efdm.dg.predictions import Labels, Predictions, check_path, correct_and_total, predict_files, save_predictions
from efdm.lab.report import Table
from efdm.text import plural


@report_errors("interrupted; nothing was written")
def predict(
    model: Annotated[Path, typer.Argument(help=MODEL_HELP)],
    pictures: Annotated[list[Path], typer.Argument(help="Picture files, folders or zips.")],
    out: Annotated[
        Path | None, option("Write a .csv file, with the probability of every class, instead.", "--out", "-o")
    ] = None,
    labels: Annotated[Labels, option("folders: report accuracy; the folders domain/class are true labels.")] = "none",
    device: Device = None,
) -> None:
    """Predict classes and their probabilities.

    Damaged pictures are skipped and reported; the exit code is then 1, or 2 if no picture could be read.
    """
    if out is not None:
        check_path(out)
    classifier = load_classifier(model, resolve_device(device))
    with show_progress() as progress:
        predictions = predict_files(classifier, pictures, labels=labels, progress=progress)
    if out is not None and predictions.found:
        save_predictions(predictions, out)
    found, skipped = predictions.found, predictions.skipped
    if found:
        _print_predictions(predictions, out)
    for reason in dict.fromkeys(reason for _, reason in skipped):
        print_error(reason)
    if skipped and (total := len(found) + len(skipped)) > 1:
        print_error(f"{len(skipped)} of {total} pictures could not be read")
    raise typer.Exit(0 if not skipped else 1 if found else 2)


def _print_predictions(predictions: Predictions, out: Path | None) -> None:
    if out is None:
        print_tables([_table(predictions)])
    else:
        print_text(f"{plural(len(predictions.found), 'prediction')}: {out}")
        for label, count in Counter(p.label for p in predictions.found).most_common():
            print_text(f"  {count:6}  {label}")
    if predictions.labels == "folders":
        domains = predictions.accuracy()
        total = {"all": correct_and_total(predictions.found)} if len(domains) > 1 else {}
        print_accuracy("these pictures", {name or "all": counts for name, counts in (domains | total).items()})
        if trained_on := [domain for domain in domains if domain in predictions.train_domains]:
            print_warning(f"accuracy on training domains ({', '.join(trained_on)}) says nothing about new domains")


def _table(predictions: Predictions) -> Table:
    labelled = predictions.labels == "folders"
    head = ["picture", "class", "probability", *(["label"] if labelled else [])]
    rows = [[p.item.name, p.label, f"{p.probability:.0%}", *([p.item.label] if labelled else [])] for p in predictions.found]
    return Table("predictions", head, rows, [])
