"""The share of feature values that equal another value of the same sample and channel.

Plain histogram matching cannot separate equal values, which is the paper's motivation for exact matching. Equal values come
from pictures with 256 levels, from the zeros of ReLU, and from low-precision dtypes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from efdm.errors import SettingError
from efdm.lab.analyses.drawing import colour_of, new_figure, plain, save
from efdm.lab.analyses.features import Sample, device_of
from efdm.nn import find_stage, stages_of
from efdm.ops.moments import tied_share
from efdm.text import markdown_table

RELUS = (nn.ReLU, nn.ReLU6)
OWN, PRELU = "own", "prelu"  # the model unchanged, and with PReLU in place of ReLU
PICTURES = "pictures"  # in place of a stage: the uint8 pictures themselves
PANELS = {"output": "after the stage", "activation": "last activation in the stage"}


def with_prelu(model: nn.Module) -> nn.Module:
    """Return a copy of the model with PReLU in place of every ReLU and ReLU6, and unchanged weights.

    The slopes have PyTorch's initial value; the paper gives none.
    """
    model = copy.deepcopy(model)
    for module in list(model.modules()):
        for name, child in list(module._modules.items()):  # named_children skips a second name of the same module
            if isinstance(child, RELUS):
                setattr(module, name, nn.PReLU().to(device_of(model)).train(child.training))
    return model


def relus_of(model: nn.Module) -> list[str]:
    """Return the names of the ReLU classes that the model uses."""
    return sorted({type(module).__name__ for module in model.modules() if isinstance(module, RELUS)})


def last_activation(model: nn.Module, stage: str) -> str | None:
    """Return the name of the last ReLU inside a stage. In stages without a final activation, most ties occur there."""
    name, module, *_ = find_stage(model, stage)
    inside = [inner for inner, m in module.named_modules(remove_duplicate=False) if inner and isinstance(m, RELUS)]
    return f"{name}.{inside[-1]}" if inside else None


def shares(batches: Iterable[tuple[Tensor, Mapping[str, Tensor]]], domains: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the percentage of tied values after each stage, over all pictures and by domain.

    ``batches`` yields domain numbers and features by stage. Percentages are means over samples and channels, and
    ``positions`` is the number of values in a channel.
    """
    labels, percent, positions = list[Tensor](), dict[str, list[Tensor]](), dict[str, int]()
    for numbers, features in batches:
        labels.append(numbers)
        for stage, values in features.items():
            percent.setdefault(stage, []).append(100 * tied_share(values).double().mean(1).cpu())
            positions[stage] = values[0, 0].numel()
    domain = torch.cat(labels)
    by_stage = {}
    for stage, parts in percent.items():
        each = torch.cat(parts)
        by_domain = {name: round(float(each[domain == number].mean()), 3) for number, name in enumerate(domains)}
        by_stage[stage] = {"positions": positions[stage], "percent": round(float(each.mean()), 3), "domains": by_domain}
    return by_stage


def _label(activation: str, precision: str, own: str) -> str:
    return f"{own if activation == OWN else 'PReLU'}, {precision}"


def _variants(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((r["activation"], r["precision"]) for r in rows if r["stage"] != PICTURES))


def table(content: Mapping[str, Any]) -> str:
    """Return a Markdown table: a line per stage, a column per activation and precision, and a line for the pictures."""
    rows, own = content["rows"], content["own"]
    variants, places = _variants(rows), {(r["stage"], r["at"]): r["positions"] for r in rows}
    cells = {(r["stage"], r["at"], r["activation"], r["precision"]): r["percent"] for r in rows}
    head = ["place", "values", *(_label(*variant, own) for variant in variants)]
    lines = []
    for (stage, at), positions in places.items():
        raw = cells.get((stage, at, "", "uint8"))
        percents = (cells.get((stage, at, *variant), raw) for variant in variants)
        place = stage if stage == PICTURES else f"{stage}, {PANELS[at]}"
        lines.append([place, str(positions), *(f"{percent:.1f}" for percent in percents)])
    note = "Percent of values that occur more than once within their sample and channel, mean over samples and channels."
    return f"{markdown_table(head, lines)}\n\n{note}\n"


def draw(content: Mapping[str, Any], path: Path) -> None:
    """Draw a panel for the outputs of stages, and one for the activations inside them if they differ."""
    rows, own = content["rows"], content["own"]
    variants, stages = _variants(rows), list(dict.fromkeys(r["stage"] for r in rows))
    panels = [at for at in PANELS if any(r["at"] == at for r in rows)]
    activations, precisions = (list(dict.fromkeys(part)) for part in zip(*variants, strict=True))
    figure = new_figure(max(4.5, 1.5 + 1.5 * len(activations), 1.8 + 0.55 * len(stages)), 0.9 + 1.8 * len(panels))
    width = 0.8 / len(variants)
    for axes, panel in zip(figure.subplots(len(panels), 1, sharex=True, squeeze=False).flat, panels, strict=True):
        shown = {(r["stage"], r["activation"], r["precision"]): r["percent"] for r in rows if r["at"] == panel}
        for number, (activation, precision) in enumerate(variants):
            values = [shown.get((stage, activation, precision), 0) for stage in stages]
            places = [at + (number - (len(variants) - 1) / 2) * width for at in range(len(stages))]
            pale = 1 - 0.6 * precisions.index(precision) / max(1, len(precisions) - 1)
            colour = colour_of(activations.index(activation))
            axes.bar(places, values, 0.92 * width, color=colour, alpha=pale, label=_label(activation, precision, own))
        if (raw := shown.get((PICTURES, "", "uint8"))) is not None:
            axes.bar(stages.index(PICTURES), raw, 0.4, color="#999999", label=f"{PICTURES}, uint8")
        slanted = {"rotation": 30, "ha": "right"} if max(map(len, stages)) > len(PICTURES) else {}
        axes.set_xticks(range(len(stages)), stages, **slanted)
        axes.set(ylim=(0, 100), yticks=[0, 50, 100])
        axes.set_ylabel("equal values, %", fontsize=9)
        axes.set_title(PANELS[panel], fontsize=9, loc="left")
        plain(axes)
    figure.suptitle(content["model"], fontsize=9)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    # legend columns: one per activation, and one for the pictures
    figure.legend(handles, labels, loc="outside lower center", frameon=False, fontsize=8, ncols=len(activations) + 1)
    save(figure, path)


def analyse(
    sample: Sample, out: Path, *, stages: Sequence[str] = (), precisions: Sequence[str] = ("fp32", "bf16")
) -> dict[str, Any]:
    """Write ties.json, ties.md and ties.png, and return the contents of the JSON file.

    ``stages`` defaults to all stages of a known model. PReLU replaces ReLU without retraining; a model without ReLU modules
    is analysed unchanged only.
    """
    model, data = sample.model, sample.data
    stages = tuple(stages) or tuple(stages_of(model))
    if not stages:
        raise SettingError(f"the stages of {type(model).__name__} are not known; name modules as stages", "stages")
    models = {OWN: model, **({PRELU: with_prelu(model)} if relus_of(model) else {})}
    inner = {stage: last for stage in stages if (last := last_activation(model, stage)) is not None}
    parts = zip(sample.labels.split(sample.batch), sample.indices.split(sample.batch), strict=True)
    pictures = shares(((labels, {PICTURES: data.images[part].float()}) for labels, part in parts), sample.domains)
    rows = [{"stage": PICTURES, "at": "output", "activation": "", "precision": "uint8", **pictures[PICTURES]}]
    for (activation, variant), precision in product(models.items(), precisions):
        by_stage = shares(replace(sample, model=variant).features([*stages, *inner.values()], precision), sample.domains)
        variant_fields = {"activation": activation, "precision": precision}
        rows += [{"stage": stage, "at": "output", **variant_fields, **by_stage[stage]} for stage in stages]
        rows += [{"stage": stage, "at": "activation", **variant_fields, **by_stage[inner[stage]]} for stage in inner]
    key = itemgetter("stage", "activation", "precision")
    outputs = {key(row): row["percent"] for row in rows if row["at"] == "output"}
    if all(row["percent"] == outputs[key(row)] for row in rows):  # every stage ends with its activation
        rows = [row for row in rows if row["at"] == "output"]
    content = sample.save("ties", {"own": " and ".join(relus_of(model)) or OWN, "rows": rows}, out)
    (out / "ties.md").write_text(table(content))
    draw(content, out / "ties.png")
    return content
