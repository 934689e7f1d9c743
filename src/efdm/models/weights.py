"""Weight files: the table of all files, where they are found, and how networks are loaded from them.

Files trained by this project and the encoder of `vgg19` are part of the package. Other files are searched for in a few
folders and never downloaded.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from efdm.errors import DamagedFileError, SettingError, requires
from efdm.files import atomic_write, cache_folder
from efdm.models.networks import NETWORKS, StyleNetwork, build
from efdm.models.state_dicts import load_state, naming_file
from efdm.models.vgg import VGG, MirrorDecoder, Padding, Pooling, load_decoder, load_vgg, normalize
from efdm.ops.choices import check_choice
from efdm.text import first_few

with requires("style"):
    from safetensors import safe_open
    from safetensors.torch import load_file, save

SHIPPED = Path(__file__).parent / "files"
FOLDER_VARIABLE = "EFDM_WEIGHTS"
STATE_KEYS = ("state_dict", "model")  # entries of a training checkpoint that may hold the state dict


@dataclass(frozen=True)
class Weight:
    """A row of `WEIGHTS`."""

    about: str
    files: tuple[str, ...]  # accepted file names; the first is the original
    source: str
    licence: str
    sha256: str = ""  # checksum of the first file, or its first digits
    card: str = ""  # model card below docs/models
    place: Literal["user", "package"] = "user"
    argument: str = ""  # name of the argument that takes the path of the user's file


WEIGHTS: Mapping[str, Weight] = {
    "small": Weight(
        "style transfer at stride 4, exact matching at three depths", ("small.safetensors",),
        "trained by this project", "MIT; the training data are for research, see the card",
        "0d6700ba197ff682b052448b47b52d4f01723e10cb843e8d1a101b2c1a65cbc8", "small.md", "package",
    ),
    "vgg16-efdm": Weight(
        "EFDM decoder for the normalized VGG-16 at relu4_1", ("vgg16-efdm.safetensors",),
        "trained by this project", "MIT; the training data are for research, see the card",
        "15bce9995d84a0dc6f6af62513db3dd79793a54b5487b18c05e3af510c0367b4", "vgg16-efdm.md", "package",
    ),
    "vgg16-means": Weight(
        "mean activations of VGG-16, to normalize it", ("vgg16-means.safetensors",),
        "measured by this project on 300 Flickr8k photographs", "MIT",
        "290b600cd0a38d091f3ecb01fda384c9aa06de7f1440d48028a53bf68a165341", "vgg16-efdm.md", "package",
    ),
    "vgg16": Weight(
        "VGG-16, ImageNet", ("vgg16-397923af.pth", "vgg16.safetensors", "vgg16_features.fp16.safetensors"),
        "https://download.pytorch.org/models/vgg16-397923af.pth", "BSD-3-Clause (torchvision)", "397923af",
        argument="vgg",
    ),
    "vgg19": Weight(
        "VGG-19, ImageNet", ("vgg19-dcbb9e9d.pth", "vgg19.safetensors"),
        "https://download.pytorch.org/models/vgg19-dcbb9e9d.pth", "BSD-3-Clause (torchvision)", "dcbb9e9d",
        argument="vgg",
    ),
    "vgg19-normalized": Weight(
        "VGG-19 up to relu4_1, normalized, as pytorch-AdaIN uses it", ("vgg19-normalized.safetensors",),
        "vgg_normalised.pth of github.com/naoto0804/pytorch-AdaIN, in half precision",
        "CC BY 4.0 (Visual Geometry Group, University of Oxford)",
        "bfeaf29e83b33698500af06f49bc31c04490ac5b3fdb8c7a76fc3d7ee2f185fb", "vgg19.md", "package",
    ),
    "vgg19-efdm": Weight(
        "EFDM decoder for the normalized VGG-19 at relu4_1", ("vgg19-efdm.safetensors",),
        "trained by this project", "MIT; the training data are for research, see the card", "", "vgg19.md", "package",
        argument="weights",
    ),
    "vgg19-adain": Weight(
        "AdaIN decoder for the normalized VGG-19", ("decoder.pth",),
        "the releases of github.com/naoto0804/pytorch-AdaIN", "MIT", argument="weights",
    ),
}  # fmt: skip


class MissingWeights(FileNotFoundError):
    """A weight file was not found. ``settings`` names the argument that takes its path, if there is one."""

    def __init__(self, message: str, argument: str = "") -> None:
        super().__init__(message)
        self.settings = (argument,) if argument else ()


def folders() -> list[Path]:
    """Return the folders that are searched: $EFDM_WEIGHTS, the cache of this package, and that of torch.hub."""
    own = os.environ.get(FOLDER_VARIABLE)
    return [*([Path(own)] if own else []), cache_folder() / "weights", Path(torch.hub.get_dir()) / "checkpoints"]


def find_file(*names: str | os.PathLike[str]) -> Path | None:
    """Return the first file with one of these names in `folders`."""
    paths = (folder / name for folder in folders() for name in names)
    return next((path for path in paths if path.is_file()), None)


def find(name: str, path: str | Path | None = None) -> Path:
    """Return the file of a row of `WEIGHTS`. ``path`` takes precedence."""
    check_choice("name", name, WEIGHTS)
    weight = WEIGHTS[name]
    shipped = SHIPPED / weight.files[0] if weight.place == "package" else None
    file = Path(path) if path is not None else shipped or find_file(*weight.files)
    if file is not None and file.is_file():
        return file
    what = f"{name} ({weight.about})"
    if path is not None:
        raise MissingWeights(f"file not found: {path}, for {what}")
    or_path = f", or pass its path as {weight.argument}" if weight.argument else ""
    if shipped is not None and not weight.sha256:
        raise MissingWeights(f"{what} is not in the package yet; see docs/models/{weight.card}{or_path}", weight.argument)
    if shipped is not None:
        raise MissingWeights(f"{what} is missing: no file {shipped}; reinstall efdm{or_path}", weight.argument)
    download = f"download {weight.files[0]} from {weight.source} into {folders()[0]}"
    needed = f"{what} needs the file {' or '.join(weight.files)}: {download}, or set {FOLDER_VARIABLE} to its folder"
    raise MissingWeights(needed + or_path, weight.argument)


def is_available(network: str) -> bool:
    """Return True if the weight files of a row of `NETWORKS` are found."""
    row = NETWORKS[network]
    try:
        return all(find(name) for name in (row.weights, row.encoder) if name)
    except MissingWeights:
        return False


def find_checked(name: str, path: str | Path | None = None) -> Path:
    """Return the file of a row, as `find` does, or raise if its checksum does not match."""
    file = find(name, path)
    weight = WEIGHTS[name]
    own = path is not None and weight.place == "package"  # a network trained by the user
    if not own and not fits_table(name, file):
        again = "reinstall efdm" if weight.place == "package" else f"download it again from {weight.source}"
        raise DamagedFileError(file, f"its SHA-256 does not start with {weight.sha256[:8]}", again)
    return file


def fits_table(name: str, file: Path) -> bool:
    """Return False if a file with the original name has a wrong checksum; converted files are not checked."""
    weight = WEIGHTS[name]
    original = weight.place == "package" or file.name == weight.files[0]
    return not original or not weight.sha256 or checksum(file).startswith(weight.sha256)


def checksum(path: str | Path) -> str:
    """Return the SHA-256 of a file in hexadecimal. It is cached until the file changes."""
    file = Path(path).resolve()
    status = file.stat()
    return _sha256(file, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=32)
def _sha256(file: Path, modified: int, size: int) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while part := opened.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


@contextmanager
def _explain_read_errors(path: str | Path) -> Iterator[None]:
    expected = "expected .safetensors, or a .pth that holds tensors only"
    if Path(path).is_fifo():  # reading it could wait forever
        raise DamagedFileError(path, "cannot be read as weights (it is a pipe)", expected)
    try:
        yield
    except FileNotFoundError as error:
        raise MissingWeights(f"file not found: {path}") from error
    except Exception as error:
        # for a damaged file, only messages of the operating system are helpful; those of the readers are cryptic
        reason = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
        raise DamagedFileError(path, f"cannot be read as weights{reason}", expected) from error


def read(path: str | Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, or of a PyTorch file that holds only tensors."""
    with _explain_read_errors(path):
        if Path(path).suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict):
        raise ValueError(f"{path} must hold a state dict, got a {type(state).__name__}")
    state = next((state[key] for key in STATE_KEYS if isinstance(state.get(key), dict)), state)
    if other := [f"{key!r} ({type(value).__name__})" for key, value in state.items() if not isinstance(value, Tensor)]:
        raise ValueError(f"{path} must hold a state dict, at its top or under {STATE_KEYS}, got {first_few(other)}")
    return state


def metadata(path: str | Path) -> dict[str, str]:
    """Return the metadata of a safetensors file: `save_network` writes ``network`` and ``settings``.

    A .pth file has no metadata.
    """
    with _explain_read_errors(path):
        if Path(path).suffix != ".safetensors":
            Path(path).stat()
            return {}
        with safe_open(str(path), "pt") as file:
            return file.metadata() or {}


def describe(path: str | Path) -> tuple[str, str] | None:
    """Return the names of the network and the matcher in a file of `save_network`, or None for other files.

    pytorch-AdaIN's decoder.pth is recognized by its numbered layers.
    """
    stored = metadata(path)
    if "network" in stored:
        return stored["network"], json.loads(stored["settings"]).get("method", "efdm")
    return ("vgg19", "adain") if all(key.split(".")[0].isdigit() for key in read(path)) else None


def write_tensors(tensors: Mapping[str, Tensor], path: str | Path, metadata: dict[str, str]) -> None:
    """Write a safetensors file atomically. Equal input gives equal bytes."""
    # safetensors.torch.save_file would write files that only their owner can read
    data = _sort_metadata(save({k: v.contiguous() for k, v in tensors.items()}, metadata))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(data)


def _sort_metadata(file: bytes) -> bytes:
    """Sort the metadata of a safetensors file, whose order is otherwise random."""
    end = 8 + int.from_bytes(file[:8], "little")
    header = json.loads(file[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of 8
    return len(text).to_bytes(8, "little") + text + file[end:]


def load_encoder(
    name: str, until: str, *, path: str | Path | None = None, padding: Padding = "reflect", pooling: Pooling = "ceil"
) -> VGG:
    """Return a VGG with its ImageNet weights, not normalized."""
    file = find_checked(name, path)
    state = read(file)
    if _is_normalized(state):
        raise ValueError(f"{file} is normalized for a decoder; expected ImageNet weights such as {WEIGHTS[name].files[0]}")
    with naming_file(file):
        return load_vgg(VGG(name, until, padding=padding, pooling=pooling), state).eval()


def load_normalized_encoder(encoder: VGG, *, path: str | Path | None = None) -> VGG:
    """Fill an encoder so that its mean activations are 1, from a normalized file or by rescaling ImageNet weights."""
    row = NETWORKS[encoder.name].encoder
    file = find_checked(row, path)
    state = read(file)
    with naming_file(file):
        load_vgg(encoder, state)
    if not _is_normalized(state):
        if f"{encoder.name}-means" not in WEIGHTS:
            raise ValueError(f"{file} is not normalized for a decoder; expected weights such as {WEIGHTS[row].files[0]}")
        normalize(encoder, read(find_checked(f"{encoder.name}-means")))
    return encoder


def _is_normalized(state: Mapping[str, Tensor]) -> bool:
    """Return True for `vgg_normalised.pth`, which starts with a 1x1 convolution, and for files of `save_encoder`."""
    return "input.weight" in state or ("0.weight" in state and state["0.weight"].shape[-1] == 1)


def save_encoder(encoder: VGG, path: str | Path) -> None:
    """Write a normalized encoder in float16, or in float32 if values exceed float16."""
    state = {k: v.detach().cpu() for k, v in encoder.state_dict().items()}
    if wrong := [k for k, v in state.items() if not v.isfinite().all()]:
        raise ValueError(f"{wrong[0]} of the encoder is not finite; measure its means on more photographs")
    halves = {k: v.half() for k, v in state.items()}
    # dividing by the mean of a rarely active channel can overflow
    fits = all(v.isfinite().all() for v in halves.values())
    write_tensors(halves if fits else state, path, {"encoder": encoder.name})


def save_network(network: StyleNetwork, path: str | Path, settings: Mapping[str, object], dtype: str = "float16") -> None:
    """Write the trained weights: the whole network, or its decoder if the encoder is frozen."""
    prefix = "decoder." if NETWORKS[network.name].encoder else ""
    state = {k: v.detach().to("cpu", getattr(torch, dtype)) for k, v in network.state_dict().items() if k.startswith(prefix)}
    write_tensors(state, path, {"network": network.name, "settings": json.dumps(dict(settings), default=str)})


def load_network(network: StyleNetwork, path: str | Path) -> StyleNetwork:
    """Fill a network from a file of `save_network`, or the decoder of a VGG from pytorch-AdaIN's decoder.pth."""
    state = read(path)
    with naming_file(path):
        if isinstance(network.decoder, MirrorDecoder):
            load_decoder(network.decoder, {key.removeprefix("decoder."): value for key, value in state.items()})
        else:
            load_state(network, network.name, state)
    return network


def pretrained(name: str | None = None, *, weights: str | Path | None = None, vgg: str | Path | None = None) -> StyleNetwork:
    """Return a trained network in evaluation mode.

    ``name`` is a row of `NETWORKS`; it defaults to the network named in the file ``weights``, or to the first row.
    ``weights`` is a file written by a training run and ``vgg`` the file of a VGG encoder; both default to the row's files.
    """
    if name:
        check_choice("model", name, NETWORKS)
    described = None if weights is None else describe(weights)
    stored = None if described is None else described[0]
    if name is None and weights is not None and stored is None:
        raise SettingError(f"{weights} does not name its network; pass a name, one of {', '.join(NETWORKS)}", "model")
    name = name or stored or next(iter(NETWORKS))
    if stored not in (None, name):
        raise SettingError(f"{weights} holds the network {stored}, not {name}; pass {stored}, or no name", "model")
    network, row = build(name), NETWORKS[name]
    load_network(network, find_checked(row.weights, weights))
    if row.encoder:
        load_normalized_encoder(network.stages[0], path=vgg)  # type: ignore[arg-type]
    return network.eval().requires_grad_(False)
