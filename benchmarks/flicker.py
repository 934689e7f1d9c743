"""Measure the flicker of every temporal setting on clips with known motion and write a record.

    python benchmarks/flicker.py [--weights FILE] [--style NAME] [--out FILE]

Flicker is in levels of 255 per frame (`clips.measure`). "detail" distinguishes low flicker from blur, and
"frames_per_second" is per second of processor time. The clips and the style are made from embedded pictures, so the record
can be reproduced anywhere. The run takes seconds on one core; it is many times slower with more threads than idle cores.
"""

import time
from pathlib import Path
from typing import get_args

import torch
from clips import CLIPS, NOISE, clip, measure
from records import make_parser, write_record

from efdm.data.embedded import STYLES, read_style
from efdm.style.options import Temporal
from efdm.style.stylizer import Stylizer
from efdm.style.video import stylize_frames

FRAMES, SIZE, STYLE_SIZE = 10, (192, 256), 256


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--weights", type=Path, help="weights of the small network; default: the shipped ones")
    parser.add_argument("--style", choices=tuple(STYLES), default="starry")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    stylizer = Stylizer.from_pretrained("small", "cpu", options.weights)
    look = stylizer.prepare(read_style(options.style, STYLE_SIZE))
    list(stylize_frames(stylizer, clip("pan", frames=2, size=SIZE).frames, look))  # compiles kernels
    rows = []
    for name in CLIPS:
        shown = clip(name, frames=FRAMES, size=SIZE)
        for temporal in get_args(Temporal):
            start = time.process_time()
            made = list(stylize_frames(stylizer, shown.frames, look, temporal=temporal))
            seconds = time.process_time() - start
            found = {k: round(v, 3) for k, v in measure(shown.frames, made, shown.motions).items()}
            row = {"clip": name, "temporal": temporal, **found, "frames_per_second": round(FRAMES / seconds, 2)}
            print(f"{name:9} {temporal:7} " + "  ".join(f"{k} {v}" for k, v in list(row.items())[2:]), flush=True)
            rows.append(row)
    record = {
        "network": stylizer.network.name, "style": options.style, "frames": FRAMES,
        "size": list(SIZE), "noise": round(255 * NOISE, 3), "rows": rows,
    }  # fmt: skip
    write_record(record, options.out, "flicker.json")


if __name__ == "__main__":
    main()
