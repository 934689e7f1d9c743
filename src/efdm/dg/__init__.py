"""Domain generalization: train a classifier on some domains so that it works on others."""

from efdm.errors import requires

with requires("dg"):
    from efdm.dg.classifier import Classifier, load_classifier, save_classifier
    from efdm.dg.evaluate import count_correct, predict
    from efdm.dg.methods import METHODS, attach
    from efdm.dg.settings import Settings
    from efdm.dg.training import Trained, train, train_together
    from efdm.recognition.methods import Method
    from efdm.recognition.settings import identity

__all__ = [
    "METHODS", "Classifier", "Method", "Settings", "Trained", "attach", "count_correct", "identity", "load_classifier",
    "predict", "save_classifier", "train", "train_together",
]  # fmt: skip
