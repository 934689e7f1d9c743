"""Every weight the project knows: name, where it comes from, licence, checksum, card. The only place that loads files.

Ours are inside the package. Other people's are looked up where they usually are, and never downloaded behind your back.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from efdm.errors import requires
from efdm.files import atomic_write, cache_folder
from efdm.models.networks import NETWORKS, StyleNetwork, build
from efdm.models.vgg import VGG, MirrorDecoder, load_decoder, load_vgg, normalise

with requires("style"):
    from safetensors import safe_open
    from safetensors.torch import load_file, save

FOLDER_VARIABLE = "EFDM_WEIGHTS"
WITHIN = ("state_dict", "model")  # under these names a training's checkpoint has its weights


@dataclass(frozen=True)
class Weight:
    """One row: what a file is, and how to come by it."""

    about: str
    files: tuple[str, ...]  # names under which it is known; the first is the one to ask for
    source: str
    licence: str
    sha256: str = ""  # of the first file, or its beginning
    card: str = ""  # below docs/models
    place: str = "user"  # "package": shipped with the project
    argument: str = ""  # by which networks, trainings and measures take a user's file


WEIGHTS: Mapping[str, Weight] = MappingProxyType({
    "small": Weight(
        "style transfer at a quarter of the size, exact matching at three depths", ("small.safetensors",),
        "trained by this project", "MIT; the training data are for research, see the card",
        "0d6700ba197ff682b052448b47b52d4f01723e10cb843e8d1a101b2c1a65cbc8", "small.md", "package",
    ),
    "vgg16-efdm": Weight(
        "EFDM decoder for the normalised VGG-16 at relu4_1", ("vgg16-efdm.safetensors",),
        "trained by this project", "MIT; the training data are for research, see the card",
        "15bce9995d84a0dc6f6af62513db3dd79793a54b5487b18c05e3af510c0367b4", "vgg16-efdm.md", "package",
    ),
    "vgg16-means": Weight(
        "mean activations of VGG-16, which its normalisation divides by", ("vgg16-means.safetensors",),
        "measured by this project on 300 Flickr8k photographs", "MIT",
        "290b600cd0a38d091f3ecb01fda384c9aa06de7f1440d48028a53bf68a165341", "vgg16-efdm.md", "package",
    ),
    "vgg16": Weight(
        "VGG-16, ImageNet", ("vgg16-397923af.pth", "vgg16.safetensors", "vgg16_features.fp16.safetensors"),
        "https://download.pytorch.org/models/vgg16-397923af.pth", "BSD-3-Clause (torchvision)", "397923af",
        argument="vgg",
    ),
    "alexnet": Weight(
        "AlexNet, ImageNet, for a second LPIPS", ("alexnet-owt-7be5be79.pth", "alexnet_features.fp16.safetensors"),
        "https://download.pytorch.org/models/alexnet-owt-7be5be79.pth", "BSD-3-Clause (torchvision)", "7be5be79",
        argument="alexnet",
    ),
    "vgg19": Weight(
        "VGG-19, ImageNet", ("vgg19-dcbb9e9d.pth", "vgg19.safetensors"),
        "https://download.pytorch.org/models/vgg19-dcbb9e9d.pth", "BSD-3-Clause (torchvision)", "dcbb9e9d",
        argument="vgg",
    ),
    "vgg19-normalised": Weight(
        "VGG-19, normalised, as pytorch-AdaIN uses it", ("vgg_normalised.pth", "vgg19-normalised.safetensors"),
        "the releases of github.com/naoto0804/pytorch-AdaIN", "not stated by its authors", argument="vgg",
    ),
    "vgg19-adain": Weight(
        "AdaIN decoder for the normalised VGG-19", ("decoder.pth",),
        "the releases of github.com/naoto0804/pytorch-AdaIN", "MIT", argument="weights",
    ),
})  # fmt: skip


class MissingWeights(FileNotFoundError):
    """A sentence that says which file to put where. ``weight`` is the row of `WEIGHTS` that was looked up in vain: the
    argument for its file is told, too. A command goes on from ``sentence``, which is without it, with its own option."""

    def __init__(self, sentence: str, weight: str = "") -> None:
        super().__init__(f"{sentence}, or give its path as {WEIGHTS[weight].argument}" if weight else sentence)
        self.sentence, self.weight = sentence, weight


def folders() -> list[Path]:
    """Where weights are looked for: the folder in EFDM_WEIGHTS, our cache, torch's own cache of downloads."""
    given = os.environ.get(FOLDER_VARIABLE)
    return [*([Path(given)] if given else []), cache_folder() / "weights", Path(torch.hub.get_dir()) / "checkpoints"]


def find(name: str, path: str | Path | None = None) -> Path:
    """The file of a weight; ``path`` goes before everything."""
    if name not in WEIGHTS:
        raise ValueError(f"{name!r} is not a known weight; known are {', '.join(WEIGHTS)}")
    weight = WEIGHTS[name]
    if path is not None:
        if not Path(path).is_file():
            raise MissingWeights(f"there is no file {path} with the weights of {name} ({weight.about})")
        return Path(path)
    if weight.place == "package":
        file = Path(str(resources.files("efdm.models"))) / "files" / weight.files[0]
        if file.is_file():
            return file
        raise MissingWeights(f"the package has no {file.name}; it was installed without its data: install efdm again")
    for folder in folders():
        for candidate in weight.files:
            if (folder / candidate).is_file():
                return folder / candidate
    files = " or ".join(weight.files)
    it = "it" if len(weight.files) == 1 else "the first"
    raise MissingWeights(
        f"{name} ({weight.about}) needs the file {files}: get {it} from {weight.source} and put it into "
        f"{folders()[0]}, or name the folder where it is in {FOLDER_VARIABLE}",
        name,
    )


def read(path: str | Path) -> dict[str, Tensor]:
    """A file's tensors: safetensors, or a PyTorch file that holds tensors alone."""
    path = Path(path)
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise _unreadable(path, error) from error
    if isinstance(state, dict):
        state = next((state[name] for name in WITHIN if isinstance(state.get(name), dict)), state)
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise ValueError(
            f"{path} does not hold a dictionary of tensors, but {_told(state)}; write it with "
            f"torch.save(model.state_dict(), ...), or put that under {' or '.join(map(repr, WITHIN))}"
        )
    return state


def _told(state: object) -> str:
    """What a file has instead of tensors: the first few names."""
    if not isinstance(state, dict):
        return f"a {type(state).__name__}"
    others = [f"{name!r} ({type(value).__name__})" for name, value in state.items() if not isinstance(value, Tensor)]
    return ", ".join(others[:5]) + (", ..." if others[5:] else "")


def metadata(path: str | Path) -> dict[str, str]:
    """What a file tells about itself: of `save_network`, its ``network`` and ``settings``; a .pth tells nothing."""
    if not Path(path).is_file():
        raise MissingWeights(f"there is no file {path}")
    if Path(path).suffix != ".safetensors":
        return {}
    try:
        with safe_open(str(path), "pt") as file:
            return file.metadata() or {}
    except Exception as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str | Path, error: Exception) -> Exception:
    if isinstance(error, FileNotFoundError):
        return MissingWeights(f"there is no file {path}")
    # what the readers say of a file that is none is a number or a page; what the system says is of use
    why = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
    return ValueError(
        f"{path} is not a file of weights that can be read safely{why}; expected .safetensors or a .pth of tensors alone"
    )


def checksum(path: str | Path) -> str:
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def checksum_once(file: Path) -> str:
    """`checksum`, which is not computed again while the file stays as it is."""
    status = file.stat()
    return _remembered(str(file.resolve()), status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=32)
def _remembered(path: str, changed: int, size: int) -> str:
    return checksum(path)


def fits_table(name: str, file: Path, path: str | Path | None = None) -> bool:
    """Whether a file that `find` found is the one of the table, as far as the table knows.

    Only for files of the package, and of others for the name that has the checksum in it: a file of your own, given as
    ``path``, may be called as it likes, and so may a conversion.
    """
    weight = WEIGHTS[name]
    known = path is None if weight.place == "package" else file.name == weight.files[0]
    if not known or not weight.sha256:
        return True
    return checksum_once(file).startswith(weight.sha256)


def find_checked(name: str, path: str | Path | None = None) -> Path:
    """`find` for a file that is about to be used: a damaged or exchanged one is refused."""
    file = find(name, path)
    if not fits_table(name, file, path):
        weight = WEIGHTS[name]
        again = "install efdm again" if weight.place == "package" else f"get it again from {weight.source}"
        raise ValueError(f"{file} is not what its name says: its sha256 does not begin with {weight.sha256[:8]}; {again}")
    return file


def load_encoder(
    name: str, until: str, *, path: str | Path | None = None, padding: str = "reflect", pooling: str = "ceil"
) -> VGG:
    """A VGG with its ImageNet weights, as it was trained."""
    found = find_checked(name, path)
    state = read(found)
    if _is_normalised(state):
        raise ValueError(
            f"{found} is normalised, its channels are rescaled for a decoder; here ImageNet's own weights are needed, "
            f"such as {WEIGHTS[name].files[0]}"
        )
    return load_vgg(VGG(name, until, padding=padding, pooling=pooling), state).eval()


def load_normalised_encoder(encoder: VGG, *, path: str | Path | None = None) -> VGG:
    """Fill an encoder with weights whose mean activations are 1: a file that is normalised already, or the ImageNet
    weights rescaled by our own measurement."""
    found = find_checked(NETWORKS[encoder.name].encoder, path)
    state = read(found)
    load_vgg(encoder, state)
    if not _is_normalised(state):
        if f"{encoder.name}-means" not in WEIGHTS:
            usual = WEIGHTS[NETWORKS[encoder.name].encoder].files[0]
            raise ValueError(
                f"{found} is not normalised, and {encoder.name} has not been measured for it; use {usual}, or "
                f"make one with `efdm weights normalise {encoder.name}`"
            )
        normalise(encoder, read(find_checked(f"{encoder.name}-means")))
    return encoder


def _is_normalised(state: Mapping[str, Tensor]) -> bool:
    """`vgg_normalised.pth` begins with a 1x1 convolution; our own files have a layer ``input`` and say so themselves."""
    return "input.weight" in state or ("0.weight" in state and state["0.weight"].shape[-1] == 1)


def save_network(network: StyleNetwork, path: str | Path, settings: Mapping[str, object], dtype: str = "float16") -> None:
    """Write what was trained, as safetensors: all of a network of our own, the decoder alone of a VGG."""
    prefix = "decoder." if NETWORKS[network.name].encoder else ""
    kept = {k: v.detach().to("cpu", getattr(torch, dtype)) for k, v in network.state_dict().items() if k.startswith(prefix)}
    write_tensors(kept, path, {"network": network.name, "settings": json.dumps(dict(settings), default=str)})


def save_encoder(encoder: VGG, path: str | Path) -> None:
    """Write a normalised encoder under our own names, as halves; as floats where a channel that hardly ever fires was
    divided by so little that halves cannot hold it."""
    state = {k: v.detach().cpu() for k, v in encoder.state_dict().items()}
    if wrong := [k for k, v in state.items() if not v.isfinite().all()]:
        raise ValueError(f"{wrong[0]} of the encoder has numbers that are not finite; measure it on more photographs")
    halves = {k: v.half() for k, v in state.items()}
    whole = all(v.isfinite().all() for v in halves.values())
    write_tensors(halves if whole else state, path, {"encoder": encoder.name})


def write_tensors(tensors: Mapping[str, Tensor], path: str | Path, told: dict[str, str]) -> None:
    """Write safetensors with what is ``told`` as metadata; the same again gives the same bytes.

    A file appears whole or not at all: one that was there is kept until the new one is finished.
    """
    # as bytes: safetensors itself writes files that nobody else may read
    data = _in_order(save({k: v.contiguous() for k, v in tensors.items()}, told))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(data)


def _in_order(file: bytes) -> bytes:
    """The same safetensors with sorted metadata, which they come without: theirs change from call to call."""
    end = 8 + int.from_bytes(file[:8], "little")
    head = json.loads(file[8:end])
    head["__metadata__"] = dict(sorted(head["__metadata__"].items()))
    words = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    words += b" " * (-len(words) % 8)  # the tensors begin at a multiple of eight
    return len(words).to_bytes(8, "little") + words + file[end:]


def load_network(network: StyleNetwork, path: str | Path) -> StyleNetwork:
    """Fill a network from a file that `save_network` wrote, or a VGG's decoder from pytorch-AdaIN's decoder.pth."""
    state = read(path)
    if not any(k.startswith(("decoder.", "stages.")) for k in state):
        if not isinstance(network.decoder, MirrorDecoder):
            raise ValueError(f"{path} is not a file of the network {network.name}; `save_network` writes those")
        load_decoder(network.decoder, state)
        return network
    whole = any(k.startswith("stages.") for k in state)
    target = network if whole else network.decoder
    try:
        target.load_state_dict({k if whole else k.removeprefix("decoder."): v.float() for k, v in state.items()})
    except RuntimeError as error:  # a list of all tensors, of no use to a reader
        said = metadata(path).get("network", "another, and does not say which")
        why = "its tensors are others" if said == network.name else f"it is of {said}"
        raise ValueError(f"{path} does not fit the network {network.name}: {why}") from error
    return network


def pretrained(name: str | None = None, *, weights: str | Path | None = None, vgg: str | Path | None = None) -> StyleNetwork:
    """Return a trained network in evaluation mode.

    ``name`` is a row of `NETWORKS`; it defaults to the network named in the file ``weights``, or to the first row.
    ``weights`` is a file written by a training run and ``vgg`` the file of a VGG encoder; both default to the row's files.
    """
    stored = None if weights is None else metadata(weights).get("network")
    if name is None and weights is not None and stored is None:
        raise ValueError(f"{weights} does not name its network; pass a name, one of {', '.join(NETWORKS)}")
    name = name or stored or next(iter(NETWORKS))
    if stored not in (None, name):
        raise ValueError(f"{weights} holds the network {stored}, not {name}; pass {stored}, or no name")
    network, row = build(name), NETWORKS[name]
    load_network(network, find_checked(row.weights[row.matcher], weights))
    if row.encoder:
        load_normalised_encoder(network.stages[0], path=vgg)  # type: ignore[arg-type]
    return network.eval().requires_grad_(False)
