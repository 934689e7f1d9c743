"""Measure test-time projection for the trained models of a recipe, and write a record.

    python benchmarks/projection.py FOLDER [--out FILE] [--data PACS ...] [--methods ROW ...] [--stages NAME ...]

FOLDER is the output of `efdm dg run`, including the models of its runs. For every run, matcher and strength, the record has
the numbers of correct pictures and of all pictures in each test domain. The printed table has averages over domains and
seeds; "none" is the unchanged model.
"""

import statistics
import tempfile
from pathlib import Path

from records import make_parser, write_record

from efdm.dg.classifier import load_classifier
from efdm.lab import load_data, read_study
from efdm.lab.analyses import Sample, pick, projection
from efdm.text import markdown_table
from efdm.training.device import default_device


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, nargs="*")
    parser.add_argument("--methods", nargs="*", help="rows of the recipe; default: all")
    parser.add_argument("--stages", nargs="*", help="default: those of the recipe")
    parser.add_argument("--device", default=default_device())
    o = parser.parse_args()
    study = read_study(o.folder)
    data = load_data(study.recipe, o.data).to(o.device)
    rows = []
    for planned in study.plan:
        model = o.folder / "runs" / planned.run
        if planned.row not in (o.methods or study.recipe.rows) or not model.exists():
            continue
        classifier = load_classifier(model, o.device)
        settings = classifier.settings
        indices = pick(data, None, domains=settings["test_domains"])
        stages = o.stages or settings["stages"]
        with tempfile.TemporaryDirectory() as files:
            found = projection.analyse(
                Sample(classifier.model, data, indices, classifier.size), Path(files), stages=stages,
                train_domains=settings["train_domains"],
            )  # fmt: skip
        rows += [{"row": planned.row, "seed": planned.seed, "stages": list(stages), **row} for row in found["rows"]]
        print(planned.row, planned.seed, *settings["test_domains"], flush=True)
    accuracies: dict[tuple[str, str, float], list[float]] = {}
    for row in rows:
        right, count = map(sum, zip(*row["counts"].values(), strict=True))
        accuracies.setdefault((row["row"], row["method"], row["strength"]), []).append(100 * right / count)
    lines = [[*map(str, key), f"{statistics.fmean(values):.1f}", str(len(values))] for key, values in accuracies.items()]
    print(markdown_table(["method", "match", "strength", "accuracy", "runs"], lines))
    write_record({"recipe": study.recipe.name, "rows": rows}, o.out, f"projection-{study.recipe.data}.json", o.device)


if __name__ == "__main__":
    main()
