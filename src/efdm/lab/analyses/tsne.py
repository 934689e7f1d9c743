"""t-SNE of simple feature statistics, and linear probes that predict the domain of a picture from them.

Each picture has one number per channel: mean, standard deviation, skewness, kurtosis or infinity norm. If skewness also
separates the domains, mean and standard deviation do not fully describe style, as the paper states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from efdm.errors import SettingError, requires
from efdm.lab.analyses.drawing import colour_of, marker_of, new_figure, round_digits, save, with_spaces, write_csv
from efdm.lab.analyses.features import Sample
from efdm.ops.moments import ChannelStats, channel_stats

PERPLEXITY = 50  # paper
FOLDS = 5
SEED = 0


def statistics(batches: Iterable[Tensor]) -> dict[str, Tensor]:
    """Return ``{"mean": (samples, channels), "std": ..., ...}`` of batches of features ``(b, c, *space)``."""
    parts = [ChannelStats(*(s.cpu() for s in channel_stats(features.float()))) for features in batches]
    return {name: torch.cat([getattr(part, name) for part in parts]) for name in ChannelStats._fields}


def embedded(vectors: Tensor, perplexity: float = PERPLEXITY) -> Tensor:
    """Return t-SNE coordinates ``(samples, 2)``. Channels are standardized first, so all have the same weight."""
    with requires("dg"):
        from sklearn.manifold import TSNE
    fitting = allowed_perplexity(len(vectors), perplexity)
    tsne = TSNE(perplexity=fitting, init="pca", learning_rate="auto", random_state=SEED, n_jobs=1)
    return torch.from_numpy(tsne.fit_transform(_scaled(vectors).numpy()))


def allowed_perplexity(samples: int, perplexity: float = PERPLEXITY) -> float:
    """Return the perplexity, reduced for few samples: t-SNE needs about three times as many neighbours."""
    if not perplexity > 0:
        raise SettingError(f"perplexity must be > 0, got {perplexity:g}", "perplexity")
    return min(float(perplexity), (samples - 1) / 3)


def _scaled(vectors: Tensor) -> Tensor:
    deviation, mean = torch.std_mean(vectors.double(), 0)
    return ((vectors - mean) / torch.where(deviation == 0, 1, deviation)).float()


def probe(vectors: Tensor, labels: Tensor) -> tuple[float, float]:
    """Return the cross-validated accuracy of logistic regression for the domain: mean and deviation over folds."""
    with requires("dg"):
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import StratifiedKFold, cross_val_score
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
    counts = labels.bincount()
    if len(counts) < 2 or int(counts.min()) < 2:
        message = f"a probe needs at least two domains with two pictures each, got {counts.tolist()} pictures"
        raise ValueError(f"{message}; use more domains or pictures")
    # scaled inside the pipeline, by the training folds
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    split = StratifiedKFold(min(FOLDS, int(counts.min())), shuffle=True, random_state=SEED)
    scores = cross_val_score(model, vectors.double().numpy(), labels.numpy(), cv=split)
    return float(scores.mean()), float(scores.std())


TITLES = {"std": "standard deviation", "infinity_norm": "infinity norm"}


def draw(
    points: dict[str, Tensor], accuracy: dict[str, float], labels: Tensor, names: list[str], title: str, path: Path
) -> None:
    figure = new_figure(7.2, 5)
    panels = figure.subplots(2, 3).flat
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SEED))  # so that no domain hides others
    for axes, (statistic, at) in zip(panels, points.items(), strict=False):
        for chunk in order.split(max(1, len(order) // 8)):
            for number in range(len(names)):
                of_domain = at[chunk[labels[chunk] == number]]
                style = {"color": colour_of(number), "marker": marker_of(number)}
                axes.scatter(*of_domain.T, s=7, linewidths=0, alpha=0.8, **style)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color("#bbbbbb")
        heading = TITLES.get(statistic, statistic)
        axes.set_title(f"{heading}\nprobe {100 * accuracy[statistic]:.0f}%", fontsize=9)
    last = figure.axes[-1]
    last.axis("off")
    for number, name in enumerate(names):
        last.scatter([], [], s=30, color=colour_of(number), marker=marker_of(number), label=with_spaces(name))
    chance = 100 * float(labels.bincount().max()) / len(labels)
    last.legend(frameon=False, fontsize=10, loc="center", title=f"{title}\nchance {chance:.0f}%", title_fontsize=9)
    save(figure, path)


def analyse(sample: Sample, out: Path, *, stages: Sequence[str], perplexity: float = PERPLEXITY) -> dict[str, Any]:
    """Write tsne.json (probes), tsne.csv (coordinates) and tsne.png, and return the contents of the JSON file.

    ``stages`` names one stage.
    """
    (stage,) = stages
    labels, data = sample.labels, sample.data
    fitting = allowed_perplexity(len(labels), perplexity)
    by_statistic = statistics(features[stage] for _, features in sample.features(stage))
    probes = {statistic: probe(vectors, labels) for statistic, vectors in by_statistic.items()}
    points = {statistic: embedded(vectors, perplexity) for statistic, vectors in by_statistic.items()}
    numbers = {
        "stage": stage, "channels": by_statistic["mean"].shape[1],
        "perplexity": round(fitting, 3), "perplexity_wanted": perplexity, "seed": SEED,
        "probe": "logistic regression on standardized channels, stratified cross-validation",
        "folds": min(FOLDS, int(labels.bincount().min())),
        "chance": round(float(labels.bincount().max()) / len(labels), 4),  # the largest domain
        "accuracy": {s: {"mean": round(mean, 4), "std_over_folds": round(std, 4)} for s, (mean, std) in probes.items()},
    }  # fmt: skip
    content = sample.save("tsne", numbers, out)
    head = ["domain", "class", *(f"{statistic}_{axis}" for statistic in points for axis in "xy")]
    classes = [data.classes[label] for label in data.labels[sample.indices].tolist()]
    coordinates = round_digits(torch.cat(list(points.values()), 1), 4)
    rows = ((sample.domains[d], c, *at) for d, c, at in zip(labels.tolist(), classes, coordinates, strict=True))
    write_csv(out / "tsne.csv", head, rows)
    accuracy = {statistic: mean for statistic, (mean, _) in probes.items()}
    title = ", ".join([content["model"], stage, *content.get("classes", ())])
    draw(points, accuracy, labels, sample.domains, title, out / "tsne.png")
    return content


def summary(content: dict[str, Any]) -> str:
    lines = [f"{content['stage']}, {content['channels']} channels: accuracy of a linear probe for the domain, by statistic"]
    for statistic, accuracy in content["accuracy"].items():
        lines.append(f"  {TITLES.get(statistic, statistic)}: {100 * accuracy['mean']:.0f} %")
    lines.append(f"  chance: {100 * content['chance']:.0f} %")
    if content["perplexity"] < content["perplexity_wanted"]:
        count = sum(content["pictures"].values())
        reduced = f"{content['perplexity_wanted']:g} to {content['perplexity']:.1f}"
        lines.append(f"perplexity reduced from {reduced} for {count} pictures; use more pictures per domain")
    return "\n".join(lines)
