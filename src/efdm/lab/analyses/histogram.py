"""Histograms of one channel's features in each domain, to see whether they are Gaussian and whether domains differ.

Features are standardized per sample and channel. Matching means and standard deviations cannot remove the differences that
remain between domains, or from the normal distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from efdm.errors import SettingError
from efdm.lab.analyses.drawing import GRAY, colour_of, new_figure, plain, round_digits, save, with_spaces, write_csv
from efdm.lab.analyses.features import Sample
from efdm.ops.choices import check_choice
from efdm.ops.moments import ChannelStats, channel_stats

BINS = 100  # as in the paper
CHANNELS = ("typical", "farthest")
LIMIT = 4.0  # bins cover [-4, 4) standard deviations; values outside are counted separately


@dataclass(frozen=True, eq=False)
class Histograms:
    """Histograms of every domain and channel.

    The first and the last entry of ``counts`` ``(domains, channels, bins + 2)`` count the values below and above all bins.
    ``skewness`` and ``kurtosis`` ``(domains, channels)`` are 0 and 3 for a normal distribution. ``constant`` counts the
    samples whose channel is constant; they are excluded.
    """

    domains: list[str]
    edges: Tensor
    counts: Tensor
    skewness: Tensor
    kurtosis: Tensor
    constant: Tensor

    def shares(self) -> Tensor:
        """Return the counts as shares of all values, including those outside the bins; NaN if there are none."""
        return self.counts / self.counts.sum(-1, keepdim=True)

    def domain_distance(self) -> Tensor:
        """Return the total variation (0 to 1) between domains, averaged over pairs, ``(channels,)``.

        It is NaN if a domain has no values and 0 for a single domain.
        """
        shares = self.shares()
        pairs = [total_variation(a, b) for a, b in combinations(shares, 2)]
        return torch.stack(pairs).mean(0) if pairs else 0 * shares.sum((0, 2))

    def normal_distance(self) -> Tensor:
        """Return the total variation between each histogram and the normal distribution, ``(domains, channels)``."""
        return total_variation(self.shares(), normal_shares(self.edges))


def standardized(features: Tensor) -> tuple[Tensor, ChannelStats]:
    """Return features with mean 0 and unbiased standard deviation 1 per (sample, channel), and the original statistics.

    Constant channels are divided by 1.
    """
    stats = channel_stats(features)
    scale = torch.where(stats.std == 0, 1, stats.std)
    return (features.flatten(2) - stats.mean[..., None]) / scale[..., None], stats


def histograms(
    batches: Iterable[tuple[Tensor, Tensor]], domains: list[str], *, bins: int = BINS, limit: float = LIMIT
) -> Histograms:
    """Return the histograms of all channels, from batches of features ``(b, c, *space)`` and domain numbers ``(b,)``."""
    counts = sums = torch.empty(0)
    for features, numbers in batches:
        c = features.shape[1]
        if not counts.numel():
            counts = torch.zeros(len(domains) * c * (bins + 2), dtype=torch.int64)
            sums = torch.zeros(4, len(domains), c, dtype=torch.float64)
        values, stats = standardized(features.float())
        varies = stats.std != 0
        place = (((values + limit) * (bins / (2 * limit))).floor().clamp(-1, bins) + 1).long()
        row = numbers.to(place.device)[:, None] * c + torch.arange(c, device=place.device)
        flat = (place + row[..., None] * (bins + 2))[varies].flatten()
        counts += torch.bincount(flat, minlength=len(counts)).cpu()
        parts = torch.stack([varies, ~varies, stats.skewness, stats.kurtosis]).double().cpu()
        sums.index_add_(1, numbers.cpu(), parts)
    varied, constant, *moments = sums
    # all samples have equally many values with mean 0 and deviation 1, so the pooled moment is the mean over samples
    skewness, kurtosis = (moment / varied for moment in moments)
    edges = torch.linspace(-limit, limit, bins + 1, dtype=torch.float64)
    return Histograms(domains, edges, counts.view(len(domains), -1, bins + 2), skewness, kurtosis, constant.long())


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """Return the total variation distance of distributions over the last dimension."""
    return (p - q).abs().sum(-1) / 2


def normal_shares(edges: Tensor) -> Tensor:
    """Return the shares of a standard normal distribution, with those outside the bins first and last."""
    infinite = edges.new_tensor([math.inf])
    return torch.special.ndtr(torch.cat([-infinite, edges, infinite])).diff()


def choose_channel(found: Histograms, channel: int | str) -> int:
    """Return a channel by number, or the "typical" (median) or "farthest" one by the distance between domains.

    The two rules skip channels that are constant in a domain.
    """
    distance = found.domain_distance()
    if isinstance(channel, str):
        check_choice("channel", channel, CHANNELS)
        known = int((~distance.isnan()).sum())
        if not known:
            raise ValueError("every channel is constant in some domain; choose another stage or a channel number")
        typical = distance.argsort(stable=True)[(known - 1) // 2]  # NaN sorts last
        return int(typical if channel == "typical" else distance.nan_to_num(-1).argmax())
    if not 0 <= channel < len(distance):
        raise SettingError(f"channel must be between 0 and {len(distance) - 1}, got {channel}", "channel")
    return channel


def _numbers(found: Histograms, channel: int) -> dict[str, Any]:
    """Return the numbers of the chosen channel and the medians over all channels."""
    measures = {"skewness": found.skewness, "kurtosis": found.kurtosis, "distance_to_normal": found.normal_distance()}
    shares = found.shares()
    domains = {}
    for number, domain in enumerate(found.domains):
        own = {name: round_digits(values[number, channel]) for name, values in measures.items()}
        middle = {name: round_digits(values[number].nanmedian()) for name, values in measures.items()}
        outside = dict(zip(("below", "above"), round_digits(shares[number, channel, [0, -1]]), strict=True))
        constant = int(found.constant[number, channel])
        domains[domain] = {**own, "outside": outside, "constant_samples": constant, "median_over_channels": middle}
    distance = found.domain_distance()
    between = {"channel": round_digits(distance[channel]), "median_over_channels": round_digits(distance.nanmedian())}
    return {"domains": domains, "distance_between_domains": between}


def draw(found: Histograms, channel: int, title: str, path: Path) -> None:
    figure = new_figure(5.2, 3.3)
    axes = figure.subplots()
    edges, width = found.edges, float(found.edges[1] - found.edges[0])
    middles = (edges[1:] + edges[:-1]) / 2
    axes.plot(middles, normal_shares(edges)[1:-1] / width, color=GRAY, linewidth=1, linestyle="--", label="normal: 0, 3")
    for number, (domain, shares) in enumerate(zip(found.domains, found.shares()[:, channel], strict=True)):
        # + 0: no "-0.0"
        moments = ", ".join(f"{round(float(m[number, channel]), 1) + 0:.1f}" for m in (found.skewness, found.kurtosis))
        label = f"{with_spaces(domain)}: {moments}"
        axes.stairs(shares[1:-1] / width, edges, color=colour_of(number), linewidth=1.3, label=label)
    axes.set_xlim(float(edges[0]), float(edges[-1]))
    # the square root keeps low, wide histograms visible next to the peaks of flat pictures
    axes.set_yscale("function", functions=(lambda y: np.sqrt(np.maximum(y, 0)), np.square))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("standardized feature", fontsize=9)
    axes.set_ylabel("density (square-root scale)", fontsize=9)
    axes.set_title(title, fontsize=9, loc="left")
    plain(axes)
    axes.legend(frameon=False, fontsize=8, title="skewness, kurtosis", title_fontsize=8)
    save(figure, path)


def analyse(sample: Sample, out: Path, *, stages: Sequence[str], channel: int | str = "typical") -> dict[str, Any]:
    """Write histogram.json, histogram.csv and histogram.png, and return the contents of the JSON file.

    ``channel`` is a number, "typical" (the median by distance between domains) or "farthest". ``stages`` names one stage.
    """
    (stage,) = stages
    found = histograms(((features[stage], labels) for labels, features in sample.features(stage)), sample.domains)
    chosen = choose_channel(found, channel)
    numbers = {
        "stage": stage, "channel": chosen, "channels": found.counts.shape[1],
        "chosen": channel if isinstance(channel, str) else "by number", "bins": BINS, "reach": LIMIT,
        **_numbers(found, chosen),
    }  # fmt: skip
    content = sample.save("histogram", numbers, out)
    densities = found.shares()[:, chosen, 1:-1] / (2 * LIMIT / BINS)
    edges = [(round(a, 4), round(b, 4)) for a, b in pairwise(found.edges.tolist())]
    rows = ((*edge, *round_digits(column)) for edge, column in zip(edges, densities.T, strict=True))
    write_csv(out / "histogram.csv", ["from", "to", *found.domains], rows)
    draw(found, chosen, f"{content['model']}, {stage}, channel {chosen}", out / "histogram.png")
    return content


def summary(content: dict[str, Any]) -> str:
    between = content["distance_between_domains"]
    lines = [
        f"{content['stage']}, channel {content['channel']} of {content['channels']} ({content['chosen']}): total variation "
        f"between domains {_number(between['channel'])}, median channel {_number(between['median_over_channels'])}",
        *(
            f"  {domain}: skewness {_number(of['skewness'])}, kurtosis {_number(of['kurtosis'])}, "
            f"total variation from normal {_number(of['distance_to_normal'])}"
            for domain, of in content["domains"].items()
        ),
    ]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
