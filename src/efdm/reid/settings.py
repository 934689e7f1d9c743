"""Settings of a re-identification run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from efdm.errors import SettingError
from efdm.ops.choices import check_choice
from efdm.recognition.methods import LAYER_METHODS, Method
from efdm.recognition.settings import RecognitionSettings
from efdm.reid.augment import Augmentation
from efdm.reid.protocols import PROTOCOLS
from efdm.training.settings import Count, Names, NonNegative, Share, validated

Size = Annotated[tuple[Count, Count], BeforeValidator(lambda v: tuple(v) if isinstance(v, list) else v)]
Augmentations = Annotated[tuple[Augmentation, ...], BeforeValidator(lambda v: tuple(v) if isinstance(v, list) else v)]
Protocols = Annotated[dict[str, str], BeforeValidator(lambda v: dict(v) if isinstance(v, Mapping) else v)]
METHODS = LAYER_METHODS
DOMAIN_WORDS: Mapping[str, str] = {"cameras": "cameras", "datasets": "training domains"}  # domain_labels in messages


@validated
class Settings(RecognitionSettings):
    """Settings of a run. Training and test domains are data sets; methods that pair domains pair ``domain_labels``.

    The defaults are those of the authors' code for OSNet and Market-1501 (``cfg_osnet.yaml`` of MixStyle's code, which
    EFDM's code uses), except for ``weights`` (ImageNet there) and ``schedule`` ("thirds" there).
    """

    protocols: Protocols = Field(default_factory=dict, kw_only=True)  # by test domain; the default is "official"
    protocol_seed: int = 0  # for protocols that draw queries
    backbone: str = "osnet_x1_0"
    stages: Names = ("conv2", "conv3")  # paper
    domain_labels: Literal["cameras", "datasets"] = "cameras"
    iterations: Count = 24_240  # 60 epochs of 404
    batch: Count = 32
    batches: Literal["uniform", "domains", "people"] = "uniform"
    instances: Count = 4  # pictures of a person, for batches="people"; torchreid's default
    lr: NonNegative = 0.01
    classifier_lr: NonNegative = 5.0  # multiple of lr; for SGD
    weight_decay: NonNegative = 1e-5
    label_smoothing: Share = 0.1
    triplet_weight: NonNegative = 0.0  # of the batch-hard triplet loss
    triplet_margin: NonNegative = 0.3  # torchreid's default
    augmentation: Augmentations = ("flip", "jitter")
    size: Size = (256, 128)

    methods: ClassVar[Mapping[str, Method]] = METHODS

    def protocol_of(self, name: str) -> str:
        """Return the protocol of a test domain."""
        return self.protocols.get(name, "official")

    def check(self) -> None:
        super().check()
        known = len(self.train_domains) if self.domain_labels == "datasets" else None
        self.check_batches(known, DOMAIN_WORDS[self.domain_labels])
        for name, protocol in self.protocols.items():
            check_choice("protocols", protocol, PROTOCOLS)
            if name not in self.test_domains:
                message = f"protocols names {name!r}, which is not a test domain ({', '.join(self.test_domains)})"
                raise SettingError(message, ("protocols", "test_domains"))
        for name in {*self.train_domains} & {*self.test_domains}:
            if self.protocol_of(name) != "official":
                message = f"protocol {self.protocol_of(name)!r} would test on the training pictures of {name}"
                raise SettingError(f"{message}; use 'official', or another test domain", ("protocols", "test_domains"))
        if self.batches == "people" and self.batch % self.instances:
            message = f"batch must be a multiple of instances={self.instances}, the pictures of a person"
            raise SettingError(f"{message}, got {self.batch}", ("batch", "instances"))
        if self.triplet_weight and (self.batches != "people" or self.instances < 2):
            message = "the triplet loss needs batches with several pictures of each person; set batches='people' and "
            raise SettingError(f"{message}instances >= 2", ("triplet_weight", "batches", "instances"))
        if self.classifier_lr != 1 and self.optimizer != "sgd":
            message = f"classifier_lr={self.classifier_lr} needs optimizer='sgd', got {self.optimizer!r}"
            raise SettingError(f"{message}; use classifier_lr=1.0", ("classifier_lr", "optimizer"))
