"""Benchmark shapes and the networks they come from."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    name: str
    shape: tuple[int, ...]
    where: tuple[str, ...]  # devices to run on
    origin: str
    values: tuple[str, ...] = ("before ReLU", "after ReLU")


CASES = (
    Case("vgg_relu4_1_512px", (1, 512, 64, 64), ("cpu", "cuda"), "style transfer of one 512 px image"),
    Case("vgg_relu4_1_512px_batch8", (8, 512, 64, 64), ("cuda",), "style transfer of eight 512 px images"),
    Case("vgg_relu4_1_256px_batch8", (8, 512, 32, 32), ("cuda",), "training step of style transfer, 256 px crops"),
    Case("resnet_layer1_batch32", (32, 64, 56, 56), ("cpu",), "EFDMix after ResNet-18's layer1, batch 32"),
    Case("resnet_layer1_batch128", (128, 64, 56, 56), ("cuda",), "EFDMix after ResNet-18's layer1, batch 128"),
    Case("vgg_relu3_1_112px_batch32", (32, 256, 28, 28), ("cuda",), "256 channels at 28 x 28, batch 32"),
    Case("vgg_relu4_1_1024px", (1, 512, 128, 128), ("cuda",), "style transfer of one 1024 px image"),
    Case("vgg_relu1_1_256px_batch8", (8, 64, 256, 256), ("cuda",), "style loss at relu1_1 in training"),
    Case("vgg_relu1_1_512px", (1, 64, 512, 512), ("cuda",), "style loss at relu1_1 of one 512 px image"),
    Case("picture_4_megapixels", (1, 3, 2048, 2048), ("cuda",), "pixels of a picture", values=("before ReLU",)),
    Case("picture_12_megapixels", (1, 3, 3000, 4000), ("cpu",), "pixels of a picture", values=("8-bit levels",)),
)
