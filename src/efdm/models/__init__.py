"""Networks and their weights."""

from efdm.models.classifiers import classifier_of, embedding, embedding_width
from efdm.models.compat import allow_torchvision
from efdm.models.networks import NETWORKS, NetworkSpec, StyleNetwork, build
from efdm.models.vgg import VGG, MirrorDecoder, load_decoder, load_vgg, mean_activations, normalize

__all__ = [
    "NETWORKS", "VGG", "MirrorDecoder", "NetworkSpec", "StyleNetwork", "allow_torchvision", "build", "classifier_of",
    "embedding", "embedding_width", "load_decoder", "load_vgg", "mean_activations", "normalize",
]  # fmt: skip
