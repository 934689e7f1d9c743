"""Write a page that stylizes pictures in the browser, as one HTML file that works offline.

    npm install --prefix build/browser onnxruntime-web
    python docs/browser/make.py build/browser/stylize.html

The page embeds onnxruntime-web, both halves of the exported network and the painted styles, and loads nothing else.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import tempfile
from pathlib import Path

from efdm.data.embedded import photos, styles
from efdm.models.weights import pretrained
from efdm.style.export import export_onnx

HERE = Path(__file__).parent
RUNTIME = Path("build/browser/node_modules/onnxruntime-web")
FILES = {"runtime.mjs": "dist/ort.wasm.bundle.min.mjs", "runtime.wasm": "dist/ort-wasm-simd-threaded.wasm"}


def make_page(out: Path, runtime: Path = RUNTIME, network: str = "small") -> None:
    """Write the page for a network. ``runtime`` is the folder of the npm package onnxruntime-web."""
    if not runtime.is_dir():
        raise SystemExit(f"{runtime} does not exist; run: npm install --prefix build/browser onnxruntime-web")
    assets = {name: (runtime / file).read_bytes() for name, file in FILES.items()}
    with tempfile.TemporaryDirectory() as folder:
        for part in ("prepare", "apply"):
            file = Path(folder, f"{part}.onnx")
            export_onnx(pretrained(network), file, part)
            assets[file.name] = file.read_bytes()
    scripts = [f'<script type="application/gzip" id="{name}">{_base64(gzip.compress(data, mtime=0))}</script>'
               for name, data in assets.items()]  # fmt: skip
    scripts += [f'<script type="image/webp" data-style="{name}">{_base64(path.read_bytes())}</script>'
                for name, path in styles().items()]  # fmt: skip
    scripts.append(f'<script type="image/webp" id="photo">{_base64(photos()["coffee"].read_bytes())}</script>')
    page = (HERE / "page.html").read_text().replace("<!-- assets -->", "\n".join(scripts))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page.replace("/* script */", (HERE / "page.js").read_text()))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--runtime", type=Path, default=RUNTIME)
    options = parser.parse_args()
    make_page(options.out, options.runtime)
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB")
