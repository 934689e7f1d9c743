"""Preview sheets of a training run."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from efdm.data import ImageSet, write_picture
from efdm.data.sheets import sheet
from efdm.models import StyleNetwork
from efdm.style.pipeline import transfer


@torch.no_grad()
def preview(network: StyleNetwork, contents: ImageSet, styles: ImageSet, path: Path, device: torch.device) -> None:
    """Write a sheet of the first contents in the first styles."""
    dtype = next(network.parameters()).dtype

    def pictures(images: ImageSet, count: int) -> list[Tensor]:
        return [images[i].to(device, dtype)[None] / 255 for i in range(min(count, len(images)))]

    rows: list[list[Tensor | None]] = []
    columns, down = pictures(styles, 5), pictures(contents, 4)
    rows.append([None, *(s[0].cpu() for s in columns)])
    for content in down:
        made = [transfer(network, content, network.features(s)).clamp(0, 1)[0].cpu() for s in columns]
        rows.append([content[0].cpu(), *made])
    write_picture(path, sheet(rows, cell=224))
