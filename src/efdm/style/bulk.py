"""Stylize pictures and match their colours in resumable jobs; see `efdm.data.bulk`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from efdm.data.bulk import Job, Output, Process, open_job
from efdm.data.folders import Source
from efdm.data.results import Saving
from efdm.errors import SettingError
from efdm.models import StyleNetwork
from efdm.style.color_match import match_picture
from efdm.style.match_files import MatchOptions, read_references
from efdm.style.options import StylizeOptions
from efdm.style.plan import LookSpec, Mix, PathLike, find_styles, make_looks
from efdm.style.stylizer import Stylizer


@dataclass(frozen=True)
class Stylize:
    """Makes the process of a job that stylizes every picture in every look. The styles are prepared once per worker."""

    network: StyleNetwork
    looks: tuple[LookSpec, ...]
    options: StylizeOptions
    precision: str = "fp32"

    def __call__(self, device: str) -> Process:
        stylizer = Stylizer(self.network, device, precision=self.precision)
        prepared = {f"__{look.name}": look.prepare(stylizer, self.options) for look in self.looks}
        return lambda picture: {
            ending: stylizer.stylize(picture, **given, options=self.options) for ending, given in prepared.items()
        }


def stylize_job(
    content: PathLike,
    styles: Sequence[PathLike],
    out: PathLike,
    network: StyleNetwork,
    *,
    weights: Sequence[float] = (),
    mix: Mix = "none",
    options: StylizeOptions | None = None,
    precision: str = "fp32",
    output: Output | None = None,
    saving: Saving | None = None,
) -> tuple[Job, Stylize]:
    """Return a job for `run_job` that stylizes a folder, a zip or WebDataset shards, as `plan_files` and `stylize_files` do.

    >>> from efdm.data.bulk import run_job
    >>> from efdm.models.weights import pretrained
    >>> from efdm.style.bulk import stylize_job
    >>> run_job(*stylize_job("photos/", ["starry"], "out/", pretrained("small")), engine="ray")  # doctest: +SKIP
    """
    options = options or StylizeOptions()
    looks = make_looks(find_styles(styles)[0], weights, mix, (), ())
    settings = {
        "options": asdict(options), "precision": precision, "network": _network_digest(network),
        "looks": [[look.name, look.weights, [_file_digest(style) for style in look.styles]] for look in looks],
    }  # fmt: skip
    return open_job(str(content), str(out), settings, output, saving), Stylize(network, looks, options, precision)


@dataclass(frozen=True)
class Match:
    """Makes the process of a job that matches every picture with pooled references."""

    references: tuple[PathLike, ...]
    options: MatchOptions

    def __call__(self, device: str) -> Process:
        options = replace(self.options, device=device)
        reference = read_references(self.references, options)
        return lambda picture: {"": match_picture(picture, reference, **options.arguments())}


def match_job(
    content: PathLike,
    references: Sequence[PathLike],
    out: PathLike,
    options: MatchOptions,
    *,
    output: Output | None = None,
    saving: Saving | None = None,
) -> tuple[Job, Match]:
    """Return a job for `run_job` that matches the pictures of a folder, a zip or WebDataset shards."""
    if options.mask is not None:
        raise SettingError("a mask is for single pictures, not for a job", "mask")
    described: dict[str, Any] = {**asdict(options), "reference_masks": list(map(str, options.reference_masks)), "device": ""}
    files = [_file_digest(source) for source in find_styles(references)[0]]
    factory = Match(tuple(references), options)
    return open_job(str(content), str(out), {"options": described, "references": files}, output, saving), factory


def _network_digest(network: StyleNetwork) -> str:
    values = [values.cpu().numpy().tobytes() for values in network.state_dict().values()]
    return f"{network.name} {_digest(b''.join(values))}"


def _file_digest(source: Source) -> str:
    with source.open() as file:
        return _digest(file.read())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
