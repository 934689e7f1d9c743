"""The command ``efdm app``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from efdm.apps.cli.options import Device, Words, option, parse_pairs, resolve_device
from efdm.apps.cli.printing import print_text
from efdm.apps.cli.style_options import Vgg
from efdm.apps.web.handlers import Handlers, Limits
from efdm.apps.web.server import serve

DEFAULT = Limits()


def run_app(
    port: Annotated[int | None, option("Default: the first free port from 7860.", min=1, max=65535)] = None,
    share: Annotated[bool, option("Also open a public address at gradio.live for a week.", "--share")] = False,
    network: Annotated[Words, option("NAME=FILE, a network of `efdm train style`. Repeat for several.")] = None,
    vgg: Vgg = None,
    classifier: Annotated[Words, option("NAME=FOLDER of `efdm dg train`, for the tab Domains. Repeat for several.")] = None,
    max_megabytes: Annotated[int, option("Size limit of an uploaded file.", min=1)] = DEFAULT.megabytes,
    max_megapixels: Annotated[int, option("Limit for pictures and video frames.", min=1)] = DEFAULT.megapixels,
    max_seconds: Annotated[int, option("Length limit of a video.", min=1)] = DEFAULT.seconds,
    concurrency: Annotated[int, option("Requests that run at the same time.", min=1)] = DEFAULT.concurrency,
    queue: Annotated[int, option("Requests that may wait; others are refused.", min=1)] = DEFAULT.queue,
    device: Device = None,
) -> None:
    """Open a web page on this machine: stylize pictures and videos, and compare models.

    The page is reachable from this machine only. Uploads and results are deleted when the app stops (Ctrl-C).
    """
    limits = Limits(
        megabytes=max_megabytes, megapixels=max_megapixels, seconds=max_seconds, concurrency=concurrency, queue=queue
    )
    networks = parse_pairs("network", network)
    classifiers = parse_pairs("classifier", classifier, "FOLDER")
    target = resolve_device(device)

    def make(folder: Path) -> Handlers:
        return Handlers(folder, networks=networks, classifiers=classifiers, vgg=vgg, device=target, limits=limits)

    def ready(local: str, public: str | None) -> None:
        print_text(f"{local} (Ctrl-C to stop)" + (f"\npublic: {public}" if public else ""))

    serve(make, port=port, share=share, ready=ready)
