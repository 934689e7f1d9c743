"""Render the records of an evaluation: a table, the trade-off between content and style, and contact sheets."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from efdm.data import read_picture, write_picture
from efdm.data.sheets import sheet
from efdm.stats import standard_error, with_error
from efdm.style.evaluate import picture_paths, read_records, slug
from efdm.style.optimize import OPTIMIZERS
from efdm.text import markdown_table
from efdm.training.files import Record

# metric -> column header with the better direction; columns without records are omitted
COLUMNS: Mapping[str, str] = {
    "lpips": "content LPIPS, VGG-16 ↓",
    "edge_ssim": "edge SSIM ↑",
    "style_distance": "style distance ↓",
    "style_distance_robust": "style distance, faint channels dropped ↓",
    "gram_distance": "Gram ↓",
    "mean_error": "mean ↓",
    "std_error": "std ↓",
    "skewness_error": "skewness ↓",
    "kurtosis_error": "kurtosis ↓",
    "infinity_norm_error": "infinity norm ↓",
}  # fmt: skip
NOTE = (
    "Means over pairs ± standard errors. Style metrics use VGG-16 features from relu1_1 to relu4_1: sorted values in units "
    "of the style channel's standard deviation, and relative errors of Gram matrices and moments. Seconds are medians "
    "without the first image of each candidate and start. A metric favours candidates that minimize it in VGG-16 (all "
    "optimizers, and networks trained with it)."
)


@dataclass(frozen=True)
class Group:
    """The records of all pairs of one candidate with the same settings."""

    label: str
    candidate: dict[str, Any]
    settings: dict[str, Any]
    records: list[Record]

    def values(self, measure: str) -> list[float]:
        return [v for r in self.records if (v := r["measures"].get(measure)) is not None]


def groups(records: Sequence[Record]) -> list[Group]:
    """Group records by candidate and settings, in order of appearance.

    If a pair has several records, the last one is used.
    """
    by_key: dict[str, dict[tuple[str, str], Record]] = {}
    for record in records:
        key = json.dumps([record["candidate"], record["settings"]], sort_keys=True)
        by_key.setdefault(key, {})[record["content"], record["style"]] = record
    same = (list(by_pair.values()) for by_pair in by_key.values())
    return [Group(s[0]["label"], s[0]["candidate"], s[0]["settings"], s) for s in same]


def sweeps(candidates: Sequence[Group]) -> dict[str, list[Group]]:
    """Return groups that differ only in strength, in increasing order of strength, by a unique name."""
    by_key: dict[str, list[Group]] = {}
    for group in candidates:
        fixed = {**group.candidate, "strength": None}
        by_key.setdefault(json.dumps([fixed, group.settings], sort_keys=True), []).append(group)
    members = [sorted(same, key=lambda g: float(g.candidate.get("strength", 1))) for same in by_key.values()]
    names = _distinguish([_without_strength(m[0]) for m in members], [m[0] for m in members])
    return dict(zip(names, members, strict=True))


def _without_strength(group: Group) -> str:
    named = "strength" in group.candidate and "model" in group.candidate
    return " ".join(str(group.candidate[k]) for k in ("model", "method") if k in group.candidate) if named else group.label


def _distinguish(labels: Sequence[str], candidates: Sequence[Group]) -> list[str]:
    """Return the labels, with the differing settings appended to equal ones."""
    settings = [{k: v for k, v in {**g.settings, **g.candidate}.items() if k != "strength"} for g in candidates]
    unique = []
    for label, own in zip(labels, settings, strict=True):
        same = [s for other, s in zip(labels, settings, strict=True) if other == label]
        differing = [name for name, value in own.items() if any(s.get(name) != value for s in same)]
        described = [f"{name.replace('_', ' ')} {'own' if own[name] is None else own[name]}" for name in differing]
        unique.append(f"{label} ({', '.join(described)})" if described else label)
    return unique


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error, which is NaN for a single value."""
    return statistics.fmean(values), standard_error(values)


def table(records: Sequence[Record]) -> str:
    """Return a Markdown table with a row per candidate and a column per metric."""
    candidates = groups(records)
    shown = [m for m in COLUMNS if any(g.values(m) for g in candidates)]
    labels = _distinguish([g.label for g in candidates], candidates)
    rows = []
    for group, label in zip(candidates, labels, strict=True):
        cells = [_cell(group.values(m)) for m in shown]
        timed = [r["seconds"] for r in group.records if r["seconds"] is not None]
        rows.append([label, str(len(group.records)), *cells, f"{statistics.median(timed):.3g}" if timed else "-"])
    head = ["candidate", "n", *(COLUMNS[m] for m in shown), "s / image"]
    return f"{markdown_table(head, rows)}\n\n{NOTE} {_describe_optimizers(candidates)}{_describe_runs(records)}\n"


def _describe_optimizers(candidates: Sequence[Group]) -> str:
    """Return a sentence that describes the optimizers in the table."""
    models = {g.candidate.get("model") for g in candidates}
    titles = [f"{name}: {row.title}" for name, row in OPTIMIZERS.items() if f"optimizer {name}" in models]
    return f"Optimizers: {'; '.join(titles)}. " if titles else ""


def _cell(values: Sequence[float]) -> str:
    return with_error(*mean_and_error(values), ".3f") if values else "-"


def _describe_runs(records: Sequence[Record]) -> str:
    seen = {f"{r['environment']['device_name']}, torch {r['environment']['versions'].get('torch', '?')}" for r in records}
    sizes = {f"{r['settings']['size'] or 'own'} px, measured at {r['settings']['measured_at']}" for r in records}
    return f"Short side {'; '.join(sorted(sizes))}. Device: {'; '.join(sorted(seen))}."


def tradeoff(records: Sequence[Record], path: Path) -> None:
    """Plot the style metric against the content metric, one line per sweep over strengths. Lower left is better."""
    from matplotlib.figure import Figure

    candidates, content, style = groups(records), "lpips", "style_distance_robust"
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    for name, members in sweeps([g for g in candidates if g.values(content) and g.values(style)]).items():
        x, x_error = zip(*(mean_and_error(g.values(content)) for g in members), strict=True)
        y, y_error = zip(*(mean_and_error(g.values(style)) for g in members), strict=True)
        line, *_ = axes.errorbar(
            x, y, xerr=x_error, yerr=y_error, label=name, marker="o", markersize=5, linewidth=1.4, elinewidth=0.7
        )
        place = {"textcoords": "offset points", "xytext": (5, 5), "fontsize": 7, "color": line.get_color()}
        for a, b, group in zip(x, y, members, strict=True) if len(members) > 1 else ():
            axes.annotate(f"{group.candidate['strength']:g}", (a, b), **place)
    axes.set_xlabel(f"{COLUMNS[content].rstrip(' ↓↑')}  (lower: closer to the content)")
    axes.set_ylabel(f"{COLUMNS[style].rstrip(' ↓↑')}  (lower: closer to the style)")
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=160)


def sheets(records: Sequence[Record], run: Path) -> list[Path]:
    """Write contact sheets of the first six pairs and return their paths.

    ``candidates.png`` shows every candidate at its greatest strength, ``strength-*.png`` the sweep of each network.
    """
    by_name = sweeps([g for g in groups(records) if g.candidate["kind"] != "unchanged"])
    columns = {"candidates.png": [members[-1] for members in by_name.values()]}
    columns |= {f"strength-{slug(name)}.png": members for name, members in by_name.items() if len(members) > 1}
    return [_sheet(run, name, members) for name, members in columns.items() if members]


def _sheet(run: Path, name: str, columns: Sequence[Group]) -> Path:
    by_pair: dict[tuple[str, str], dict[int, dict[str, Path]]] = {}
    for column, group in enumerate(columns):
        for record in (r for r in group.records if "pictures" in r):
            by_pair.setdefault((record["content"], record["style"]), {})[column] = picture_paths(run, record)
    lines: list[list[Tensor | None]] = []
    for paths in list(by_pair.values())[:6]:
        inputs = next(iter(paths.values()))
        outputs = (_picture(paths[c]["output"]) if c in paths else None for c in range(len(columns)))
        lines.append([_picture(inputs["content"]), _picture(inputs["style"]), *outputs])
    labels = _distinguish([g.label for g in columns], columns)
    write_picture(run / name, sheet(lines, column_labels=["content", "style", *labels]))
    return run / name


def _picture(path: Path) -> Tensor | None:
    return read_picture(path).rgb if path.is_file() else None


def render(run: Path) -> list[Path]:
    """Render a run and return the files: table.md, tradeoff.png (if matplotlib is installed) and the sheets."""
    records = read_records(run)
    if not records:
        raise ValueError(f"{run} has no records; run an evaluation with this folder as output first")
    (run / "table.md").write_text(table(records))
    written = [run / "table.md"]
    with suppress(ImportError):  # matplotlib is optional
        tradeoff(records, run / "tradeoff.png")
        written.append(run / "tradeoff.png")
    return [*written, *sheets(records, run)]
