"""Settings of a domain-generalization run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from efdm.dg.augment import AUGMENTATIONS
from efdm.dg.methods import METHODS
from efdm.errors import SettingError
from efdm.ops.choices import check_choice
from efdm.recognition.methods import Method
from efdm.recognition.settings import RecognitionSettings
from efdm.training.settings import Count, NonNegative, validated


@validated
class Settings(RecognitionSettings):
    """Settings of a run. The defaults are the paper's for PACS, leave one domain out (random shuffle).

    Only ``weights`` differ: random here, those of ImageNet in the paper.
    """

    iterations: Count = 5000  # paper: 50 epochs of about 100
    batches: Literal["uniform", "domains"] = "uniform"
    weight_decay: NonNegative = 5e-4  # paper
    augmentation: str = "paper"
    size: Count = 224

    methods: ClassVar[Mapping[str, Method]] = METHODS

    def check(self) -> None:
        super().check()
        check_choice("augmentation", self.augmentation, AUGMENTATIONS)
        if both := set(self.train_domains) & set(self.test_domains):
            message = f"{', '.join(sorted(both))} cannot be both a training and a test domain"
            raise SettingError(message, ("train_domains", "test_domains"))
        self.check_batches(len(self.train_domains))
