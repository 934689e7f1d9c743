"""Time exported networks in onnxruntime and in PyTorch on one thread, and write a record.

    OMP_NUM_THREADS=1 python benchmarks/export.py [--out FILE]

Times are CPU seconds, the shortest of several, because other programs on the machine only add to them.
"""

import tempfile
import time
from pathlib import Path

import torch
from records import make_parser, write_record

from efdm.models.weights import pretrained
from efdm.style.export import PARTS, check_onnx, export_onnx

ROUNDS = 5


def measure(part: str) -> dict[str, object]:
    network = pretrained("small")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        export_onnx(network, path, part)  # type: ignore[arg-type]
        checks = [check_onnx(network, path, part, clock=time.process_time) for _ in range(ROUNDS)]  # type: ignore[arg-type]
        return {
            "network": "small", "part": part, "size": checks[0].size, "megabytes": round(path.stat().st_size / 1e6, 2),
            "difference": checks[0].difference, "cpu_seconds": round(min(c.seconds for c in checks), 4),
            "torch_cpu_seconds": round(min(c.torch_seconds for c in checks), 4),
        }  # fmt: skip


if __name__ == "__main__":
    options = make_parser(__doc__).parse_args()
    torch.set_num_threads(1)
    rows = [measure(part) for part in PARTS]
    print(*rows, sep="\n")
    write_record({"rows": rows}, options.out, "export-cpu.json")
