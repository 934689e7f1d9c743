"""Paint the style pictures of the package: ``python -m tools.paint_styles [FOLDER]``, about 30 seconds."""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from . import PAINTERS, paint

PICTURES = Path(__file__).parents[2] / "src" / "efdm" / "data" / "pictures"

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES
    for name in PAINTERS:
        pixels = np.rint(paint(name).transpose(1, 2, 0) * 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{name}.webp", quality=88, method=6)
        print(folder / f"{name}.webp")
