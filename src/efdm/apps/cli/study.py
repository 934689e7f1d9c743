"""The commands ``efdm study make``, ``serve`` and ``report``."""

from __future__ import annotations

import shlex
import threading
from pathlib import Path
from typing import Annotated, get_args

import typer

from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.options import Device, Words, choice, option, resolve_device
from efdm.apps.cli.printing import print_text
from efdm.apps.cli.progress import show_progress
from efdm.apps.cli.style_options import PAIRING_HELP, Vgg
from efdm.apps.web.study import serving_study
from efdm.data import find_pictures
from efdm.errors import SettingError
from efdm.style.evaluate import Pairing, make_pairs
from efdm.style.study import DEFAULT_CANDIDATES, Question, Study, embedded_pairs, load_renders, make_study
from efdm.style.study_report import write_report
from efdm.text import plural

Folder = Annotated[Path, typer.Argument(metavar="STUDY", help="Folder of the study.")]


def make(
    out: Annotated[Path, option("Folder for the study.", "--out", "-o")] = Path("study"),
    content: Annotated[Path | None, option("Photographs: a folder or a zip. Default: those of the demo.")] = None,
    style: Annotated[Path | None, option("Paintings: a folder or a zip. Default: those of the demo.")] = None,
    candidate: Annotated[
        Words,
        option(
            "MODEL, MODEL:METHOD or MODEL:METHOD:STRENGTH; optimizer:METHOD; NAME=FILE, a trained network; or "
            f"NAME=FOLDER with pictures CONTENT__STYLE.png. Repeat for several. Default: {', '.join(DEFAULT_CANDIDATES)}."
        ),
    ] = None,
    question: Annotated[str, choice(get_args(Question), "favourite: best of all; ab: better of two.")] = "favourite",
    pairs: Annotated[int, option("Maximum number of pairs.", min=1)] = 12,
    pairing: Annotated[str, choice(get_args(Pairing), PAIRING_HELP)] = "order",
    size: Annotated[int, option("Short side of the pictures.", min=32)] = 384,
    iterations: Annotated[int | None, option("Iterations of the optimizers.", min=1)] = None,
    seed: Annotated[int, option("Random seed for the orders in which raters see pictures.")] = 0,
    vgg: Vgg = None,
    device: Device = None,
) -> None:
    """Render pairs of content and style by several candidates, under random names."""
    if content is not None and style is not None:
        sources = find_pictures(content), find_pictures(style)
        chosen = make_pairs(*sources, pairing=pairing, most=pairs)  # type: ignore[arg-type]
    elif content is None and style is None:
        chosen = embedded_pairs(pairs)
    else:
        raise SettingError("photographs and paintings are required together; pass both or neither", ("content", "style"))
    renders = load_renders(
        candidate or DEFAULT_CANDIDATES, chosen, vgg=vgg, iterations=iterations, device=resolve_device(device)
    )
    with show_progress() as progress:
        study = make_study(out, chosen, renders, question=question, size=size, seed=seed, progress=progress)  # type: ignore[arg-type]
    print_text(f"{plural(len(study.items), 'item')} in {out}; continue with: efdm study serve {shlex.quote(str(out))}")


@report_errors("stopped; all votes are stored")
def serve(
    study: Folder,
    host: Annotated[str, option("Address to listen on; 0.0.0.0 lets phones in the same network take part.")] = "127.0.0.1",
    port: Annotated[int, option("Port to listen on; 0 selects a free one.", min=0, max=65535)] = 7870,
) -> None:
    """Serve the page on which people vote, until Ctrl-C.

    Votes are stored immediately. To name raters, give each of them their own address, such as /?rater=anna. Other raters are
    anonymous and identified by their browser.
    """
    with serving_study(Study(study), host=host, port=port) as address:
        print_text(f"{address} (Ctrl-C to stop)")
        threading.Event().wait()


def report(study: Folder) -> None:
    """Print shares, Bradley-Terry strengths and agreement, and write report.md, votes.csv and disputed.png."""
    written = write_report(Study(study))
    print_text(written[0].read_text())
    print_text("written: " + ", ".join(map(str, written)))
