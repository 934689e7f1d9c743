"""The network that a user names, and the files that it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from efdm.models import NETWORKS
from efdm.models.weights import MissingWeights, metadata
from efdm.ops.choices import check_choice

# what gives the file of a weight that is not found; a command whose options are others has a table of its own
OPTIONS: Mapping[str, str] = MappingProxyType({
    "vgg16": "--vgg FILE", "vgg19": "--vgg FILE", "vgg19-normalised": "--vgg FILE", "vgg19-adain": "--weights FILE",
})  # fmt: skip


def pick_model(name: str, weights: Path | None) -> str | None:
    """The model of ``--model``; None: the one that the file of ``--weights`` says, or the usual one."""
    if name:
        check_choice("--model", name, tuple(NETWORKS))
    elif weights is not None and "network" not in metadata(weights):
        raise ValueError(f"{weights} does not say which network it is of; add --model, one of {', '.join(NETWORKS)}")
    return name or None


def with_option(error: Exception, options: Mapping[str, str] = OPTIONS) -> str:
    """The sentence of an error; of a file that is missing, with the option of the command that takes it, if one does."""
    if not isinstance(error, MissingWeights) or not error.weight:
        return str(error)
    option = options.get(error.weight)
    return f"{error.sentence}, or give its path with {option}" if option else error.sentence
