"""Histograms of one channel's features, domain by domain: are they Gaussian, and are they the same?

Features are standardised for each sample and channel, so mean and standard deviation cannot make a difference any more: what
is left between domains, and between a domain and the normal curve, is what matching mean and deviation does not see.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from efdm.data.domains import DomainSet
from efdm.lab.analyses.drawing import GRAY, colour_of, digits, new_figure, plain, save, with_spaces, write_csv
from efdm.lab.analyses.features import DomainNumbers, facts, features_of
from efdm.ops.choices import check_choice
from efdm.ops.moments import ChannelStats, channel_stats
from efdm.training.files import write_json

BINS = 100  # as in the paper
REACH = 4.0  # bins lie in [-4, 4) standard deviations; what is outside is counted there


# --- computing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Histograms:
    """Of every domain and channel. ``counts`` ``(domains, channels, bins + 2)``: the first is below all bins, the last above
    them.

    ``skewness`` and ``kurtosis`` ``(domains, channels)`` are those of the standardised values (a normal distribution has 0
    and 3). ``constant`` counts samples that are left out because the channel has one value only.
    """

    domains: list[str]
    edges: Tensor
    counts: Tensor
    skewness: Tensor
    kurtosis: Tensor
    constant: Tensor

    def shares(self) -> Tensor:
        """Counts as shares of all values, those outside included; NaN where there are none."""
        return self.counts / self.counts.sum(-1, keepdim=True)

    def domain_distance(self) -> Tensor:
        """For each channel, how far domains are apart: total variation (0 to 1), the mean over pairs; ``(channels,)``.

        NaN where a domain has no values. One domain alone has distance 0.
        """
        shares = self.shares()
        pairs = list(combinations(range(len(self.domains)), 2))
        if not pairs:
            return 0 * shares.sum((0, 2))
        return torch.stack([total_variation(shares[a], shares[b]) for a, b in pairs]).mean(0)

    def normal_distance(self) -> Tensor:
        """How far every histogram is from the normal curve, in total variation; ``(domains, channels)``."""
        return total_variation(self.shares(), normal_shares(self.edges))


def standardised(features: Tensor) -> tuple[Tensor, ChannelStats]:
    """Every (sample, channel) with mean 0 and unbiased deviation 1, ``(b, c, n)``, and what its statistics were.

    Where the deviation was 0 the values are about 0 and mean nothing.
    """
    stats = channel_stats(features)
    scale = torch.where(stats.std == 0, 1, stats.std)
    return (features.flatten(2) - stats.mean[..., None]) / scale[..., None], stats


def histograms(
    batches: Iterable[tuple[Tensor, Tensor]], domains: list[str], *, bins: int = BINS, reach: float = REACH
) -> Histograms:
    """Of all channels at once, from batches of features ``(b, c, *space)`` and the numbers of their domains ``(b,)``."""
    if bins < 1 or reach <= 0:
        raise ValueError(f"bins={bins} and reach={reach} leave no histogram; both must be above 0")
    counts = sums = torch.empty(0)
    for features, numbers in batches:
        c = features.shape[1]
        if not counts.numel():
            counts = torch.zeros(len(domains) * c * (bins + 2), dtype=torch.int64)
            sums = torch.zeros(4, len(domains), c, dtype=torch.float64)
        values, stats = standardised(features.float())
        varies = stats.std != 0
        place = (((values + reach) * (bins / (2 * reach))).floor().clamp(-1, bins) + 1).long()
        row = numbers.to(place.device)[:, None] * c + torch.arange(c, device=place.device)
        flat = (place + row[..., None] * (bins + 2))[varies].flatten()
        counts += torch.bincount(flat, minlength=len(counts)).cpu()
        parts = torch.stack([varies, ~varies, stats.skewness, stats.kurtosis]).double().cpu()
        sums.index_add_(1, numbers.cpu(), parts)
    if not counts.numel():
        raise ValueError("there are no features to make histograms of; give at least one batch")
    varied, constant, *moments = sums
    # the mean over samples is that of all their values: each has as many, with mean 0 and deviation 1
    skewness, kurtosis = (moment / varied for moment in moments)
    return Histograms(
        domains,
        torch.linspace(-reach, reach, bins + 1, dtype=torch.float64),
        counts.view(len(domains), -1, bins + 2),
        skewness,
        kurtosis,
        constant.long(),
    )


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    return (p - q).abs().sum(-1) / 2


def normal_shares(edges: Tensor) -> Tensor:
    """Of a standard normal distribution, with what lies outside as the first and last."""
    below = torch.special.ndtr(torch.cat([edges.new_tensor([-math.inf]), edges, edges.new_tensor([math.inf])]))
    return below.diff()


def _typical(distance: Tensor) -> int:
    """The one in the middle when channels are ordered by how far domains are apart in them."""
    known = (~distance.isnan()).nonzero()[:, 0]
    order = distance[known].sort(stable=True).indices
    return int(known[order[(len(order) - 1) // 2]])


def _farthest(distance: Tensor) -> int:
    """The one in which domains are farthest apart."""
    return int(distance.nan_to_num(-1).argmax())


CHANNELS: Mapping[str, Callable[[Tensor], int]] = MappingProxyType({"typical": _typical, "farthest": _farthest})


def choose_channel(found: Histograms, channel: int | str) -> int:
    """A channel by its number, or by a rule of `CHANNELS`, which passes over channels that are constant in a domain."""
    distance = found.domain_distance()
    if isinstance(channel, str):
        check_choice("channel", channel, CHANNELS)
        if distance.isnan().all():
            raise ValueError("every channel is constant in some domain; choose another stage, or a channel by its number")
        return CHANNELS[channel](distance)
    if not 0 <= channel < len(distance):
        raise ValueError(f"channel {channel} is not there; the stage has channels 0 to {len(distance) - 1}")
    if found.counts[:, channel].sum() == 0:
        raise ValueError(f"channel {channel} is constant in every picture; choose another, or a rule: {', '.join(CHANNELS)}")
    return channel


# --- telling ---------------------------------------------------------------------------------------------------------


def _numbers(found: Histograms, channel: int) -> dict[str, Any]:
    """The chosen channel, and the median over channels beside it: one channel could be an exception."""
    measures = {"skewness": found.skewness, "kurtosis": found.kurtosis, "distance_to_normal": found.normal_distance()}
    shares = found.shares()
    domains = {}
    for number, domain in enumerate(found.domains):
        own = {name: digits(values[number, channel]) for name, values in measures.items()}
        middle = {name: digits(values[number].nanmedian()) for name, values in measures.items()}
        outside = dict(zip(("below", "above"), digits(shares[number, channel, [0, -1]]), strict=True))
        constant = int(found.constant[number, channel])
        domains[domain] = {**own, "outside": outside, "constant_samples": constant, "median_over_channels": middle}
    distance = found.domain_distance()
    between = {"channel": digits(distance[channel]), "median_over_channels": digits(distance.nanmedian())}
    return {"domains": domains, "distance_between_domains": between}


def _tenths(value: Tensor) -> str:
    return f"{round(float(value), 1) + 0:.1f}"  # + 0: no "-0.0"


def draw(found: Histograms, channel: int, title: str, path: Path) -> None:
    figure = new_figure(5.2, 3.3)
    axes = figure.subplots()
    edges, width = found.edges, float(found.edges[1] - found.edges[0])
    middles = (edges[1:] + edges[:-1]) / 2
    axes.plot(middles, normal_shares(edges)[1:-1] / width, color=GRAY, linewidth=1, linestyle="--", label="normal: 0, 3")
    for number, (domain, shares) in enumerate(zip(found.domains, found.shares()[:, channel], strict=True)):
        moments = ", ".join(_tenths(moment[number, channel]) for moment in (found.skewness, found.kurtosis))
        label = f"{with_spaces(domain)}: {moments}"
        axes.stairs(shares[1:-1] / width, edges, color=colour_of(number), linewidth=1.3, label=label)
    axes.set_xlim(float(edges[0]), float(edges[-1]))
    # the root keeps low, wide histograms visible beside a peak, as flat pictures have
    axes.set_yscale("function", functions=(lambda y: np.sqrt(np.maximum(y, 0)), np.square))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("feature, standardised in each sample", fontsize=9)
    axes.set_ylabel("density (root scale)", fontsize=9)
    axes.set_title(title, fontsize=9, loc="left")
    plain(axes)
    axes.legend(frameon=False, fontsize=8, title="skewness, kurtosis", title_fontsize=8)
    save(figure, path)


def analyse(
    model: nn.Module,
    data: DomainSet,
    indices: Tensor,
    size: int,
    out: Path,
    *,
    stage: str = "stage1",
    channel: int | str = "typical",
    batch: int = 32,
    name: str = "",
) -> dict[str, Any]:
    """Write histogram.json, histogram.csv and histogram.png; returns what is in the JSON file.

    ``channel`` is a number, "typical" (the median channel by the distance of domains) or "farthest". ``name`` says which
    model it is.
    """
    domains = DomainNumbers(data, indices)
    parts = features_of(model, data, indices, stage, size, batch=batch)
    found = histograms(((features[stage], domains.of(part)) for part, features in parts), domains.names)
    chosen = choose_channel(found, channel)
    told = {
        **facts("histogram", model, data, indices, size, name),
        "stage": stage,
        "channel": chosen,
        "channels": found.counts.shape[1],
        "chosen": channel if isinstance(channel, str) else "by number",
        "bins": BINS,
        "reach": REACH,
        **_numbers(found, chosen),
    }
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "histogram.json", told)
    densities = found.shares()[:, chosen, 1:-1] / (2 * REACH / BINS)
    edges = [(round(a, 4), round(b, 4)) for a, b in pairwise(found.edges.tolist())]
    rows = ((*edge, *digits(column)) for edge, column in zip(edges, densities.T, strict=True))
    write_csv(out / "histogram.csv", ["from", "to", *found.domains], rows)
    draw(found, chosen, f"{told['model']}, {stage}, channel {chosen}", out / "histogram.png")
    return told


def summary(told: dict[str, Any]) -> list[str]:
    between = told["distance_between_domains"]
    return [
        f"{told['stage']}, channel {told['channel']} of {told['channels']} ({told['chosen']}): domains are "
        f"{_number(between['channel'])} apart, in the median channel {_number(between['median_over_channels'])} "
        "(total variation: 0 same, 1 apart)",
        *(
            f"  {domain}: skewness {_number(of['skewness'])}, kurtosis {_number(of['kurtosis'])}, "
            f"{_number(of['distance_to_normal'])} from the normal curve (0, 3, 0)"
            for domain, of in told["domains"].items()
        ),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
