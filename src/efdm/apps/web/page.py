"""The page: the tabs of the web app in Gradio."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, get_args

import gradio as gr

from efdm.apps.cli.errors import is_expected
from efdm.apps.web import pad
from efdm.apps.web.handlers import MAX_STYLES, Handlers, Mixture
from efdm.data.embedded import STYLES
from efdm.data.embedded import styles as painted_styles
from efdm.errors import is_out_of_memory
from efdm.ops import MATCHERS
from efdm.style.color import COLORS, SPACES
from efdm.style.options import Method, Temporal
from efdm.style.photoreal import PHOTOREAL

SIZES = [256, 384, 512, 768, 1024]
QUEUE = "work"  # all handlers share one queue, so that the limit of concurrency holds for their sum
KEEP_SECONDS = 3600  # uploads and results older than this are deleted while the app runs


def build_page(handlers: Handlers) -> Any:
    """Return the page as a Gradio app, ready to be launched."""
    with gr.Blocks(title="efdm", analytics_enabled=False, delete_cache=(KEEP_SECONDS // 4, KEEP_SECONDS)) as page:
        gr.Markdown(
            "# efdm\nExact feature distribution matching. Pictures stay on this machine and are deleted when the app stops."
        )
        for name, add in TABS.items():
            if name != "Domains" or handlers.classifiers:
                with gr.Tab(name):
                    add(handlers)
    limits = handlers.limits
    return page.queue(max_size=limits.queue, default_concurrency_limit=limits.concurrency, api_open=False)


def message(error: Exception, folder: Path) -> str:
    """Return the message of an error for the page, with file names in place of the paths of uploads."""
    if is_out_of_memory(error):
        return "not enough memory; choose a smaller size"
    return re.sub(rf"{re.escape(str(folder))}/(\S*/)?", "", str(error))


def _add_stylize(handlers: Handlers) -> None:
    with gr.Row():
        with gr.Column():
            content = _picture("Content")
            styles = _styles()
        with gr.Column():
            strength, model, size = _auto_strength(), _model(handlers), _size(512)
            stroke = gr.Slider(1, 4, value=1, step=0.5, label="Size of strokes")
            with gr.Row():
                color = gr.Dropdown(list(COLORS), label="Preserve colour")
                photoreal = gr.Dropdown(list(PHOTOREAL), label="Photoreal")
            run = gr.Button("Stylize", variant="primary")
            outputs = _before_after("result")

    inputs = {
        "content": content, **styles, "strength": strength, "stroke": stroke, "preserve_color": color,
        "photoreal": photoreal, "size": size, "model": model,
    }  # fmt: skip
    _on_click(handlers, run, "stylize", inputs, outputs, _show_before_after)


def _add_compare(handlers: Handlers) -> None:
    with gr.Row():
        with gr.Column():
            content = _picture("Content")
            styles = _styles()
        with gr.Column():
            models = gr.CheckboxGroup(handlers.models, value=handlers.models[:2], label="Models")
            methods = gr.CheckboxGroup(list(MATCHERS), value=["efdm", "adain"], label="Methods")
            strength, size = _auto_strength(), _size(384)
            run = gr.Button("Compare", variant="primary")
            gallery = gr.Gallery(label="Results", columns=2, format="png", interactive=False, elem_id="comparison")

    inputs = {
        "content": content, **styles, "models": models, "methods": methods, "strength": strength, "size": size,
    }  # fmt: skip
    _on_click(handlers, run, "compare", inputs, gallery, lambda results: [(str(path), label) for path, label in results])


def _add_video(handlers: Handlers) -> None:
    with gr.Row():
        with gr.Column():
            video = gr.Video(label=f"Video of at most {handlers.limits.seconds} seconds", sources=["upload", "webcam"])
            video.preprocess = _path  # as in `_picture`
            styles = _styles()
        with gr.Column():
            strength, model, size = _auto_strength(), _model(handlers), _size(384)
            temporal = gr.Dropdown(list(get_args(Temporal)), value="smooth", label="Flicker reduction")
            run = gr.Button("Stylize", variant="primary")
            result = gr.Video(label="Result", interactive=False, elem_id="video-result")

    inputs = {"video": video, **styles, "strength": strength, "temporal": temporal, "size": size, "model": model}
    _on_click(handlers, run, "stylize_video", inputs, result, str)


def _add_colors(handlers: Handlers) -> None:
    with gr.Row():
        with gr.Column():
            content = _picture("Content")
            references = gr.File(label="References, whose colours are pooled", file_count="multiple", file_types=["image"])
        with gr.Column():
            space = gr.Dropdown(list(SPACES), label="Colour space")
            method = gr.Dropdown(list(get_args(Method)), label="Channels separately or jointly")
            strength = gr.Slider(0, 1, value=1, step=0.05, label="Strength")
            run = gr.Button("Match colours", variant="primary")
            outputs = _before_after("matched")

    inputs = {"content": content, "references": references, "space": space, "method": method, "strength": strength}
    _on_click(handlers, run, "match_colors", inputs, outputs, _show_before_after)


def _add_domains(handlers: Handlers) -> None:
    names = list(handlers.classifiers)
    pictures = gr.File(label="Pictures", file_count="multiple", file_types=["image"])
    run = gr.Button("Classify", variant="primary")
    table = gr.Dataframe(headers=["picture", *names], label="Predicted classes", interactive=False, elem_id="predictions")
    with gr.Row():
        labels = [gr.Label(label=f"{name}, first picture", num_top_classes=5) for name in names]

    def show(predictions: Any) -> Any:
        cells = {name: {c: next(iter(p.items())) for c, p in row.items()} for name, row in predictions.items()}
        rows = [[name, *(f"{label} ({p:.0%})" for label, p in row.values())] for name, row in cells.items()]
        return rows, *next(iter(predictions.values())).values()

    _on_click(handlers, run, "classify", {"pictures": pictures}, [table, *labels], show)


TABS: dict[str, Callable[[Handlers], None]] = {
    "Stylize": _add_stylize, "Compare": _add_compare, "Video": _add_video, "Match colours": _add_colors,
    "Domains": _add_domains,
}  # fmt: skip


def _styles() -> dict[str, Any]:
    """Add inputs for up to four styles: a gallery, names, uploads and the mixing pad."""
    painted = [(str(path), name) for name, path in painted_styles().items()]
    gallery = gr.Gallery(
        painted, label="Painted styles", columns=4, height=330, allow_preview=False, interactive=False, buttons=[],
        elem_classes="painted",
    )  # fmt: skip
    names = gr.Dropdown(
        list(STYLES), value=[STYLES[0]], multiselect=True, max_choices=MAX_STYLES, label="Styles", elem_classes="styles"
    )
    with gr.Row():
        files = gr.File(label="Your own styles", file_count="multiple", file_types=["image"], height=220)
        point = gr.HTML(
            pad.pad_value([STYLES[0]]), html_template=pad.HTML, css_template=pad.CSS, js_on_load=pad.SCRIPT,
            apply_default_css=False, elem_classes="pad",
        )  # fmt: skip

    def toggle(chosen: Any, event: gr.SelectData) -> list[str]:
        name = STYLES[event.index]
        return [n for n in chosen if n != name] if name in chosen else [*chosen, name][-MAX_STYLES:]

    def label(chosen: Any, uploads: Any, point: Any) -> Any:
        return pad.pad_value([*chosen, *(Path(file).stem for file in uploads or ())], point["x"], point["y"])

    gallery.select(toggle, names, names, queue=False, api_visibility="private", show_progress="hidden")
    for part in (names, files):
        part.change(label, [names, files, point], point, queue=False, api_visibility="private", show_progress="hidden")
    return {"names": names, "files": files, "point": point}


def _picture(label: str) -> Any:
    image: Any = gr.Image(
        label=label, type="filepath", sources=["upload", "webcam", "clipboard"], image_mode=None, height=300
    )
    image.preprocess = _path
    return image


def _path(payload: Any) -> str | None:
    """Return the uploaded file; Gradio's own preprocessing would decode it, without our limits and messages."""
    return None if payload is None else payload.path


def _auto_strength() -> Any:
    return gr.Dropdown(["auto", *(tenths / 10 for tenths in range(11))], label="Strength")


def _model(handlers: Handlers) -> Any:
    return gr.Dropdown(handlers.models, label="Model")


def _size(value: int) -> Any:
    return gr.Dropdown(SIZES, value=value, label="Size: short side for the network, in pixels")


def _before_after(elem_id: str) -> list[Any]:
    slider = gr.ImageSlider(label="Before and after", format="png", interactive=False, elem_id=elem_id)
    return [slider, gr.DownloadButton("Download")]


def _show_before_after(files: tuple[Path, Path]) -> Any:
    """Return the values of the slider and of the download button."""
    return tuple(map(str, files)), str(files[1])


def _on_click(
    handlers: Handlers, button: Any, name: str, inputs: dict[str, Any], outputs: Any, show: Callable[[Any], Any]
) -> None:
    """Call the handler ``name`` with the values of ``inputs`` on a click, and write ``show(result)`` to ``outputs``."""
    run = getattr(handlers, name)
    has_progress = "progress" in signature(run).parameters

    def call(*arguments: Any) -> Any:
        *values, progress = arguments
        named = dict(zip(inputs, values, strict=True))
        if "names" in named:
            point = named.pop("point")
            named["styles"] = Mixture(named.pop("names"), named.pop("files") or (), point["x"], point["y"])
        if has_progress:
            named["progress"] = lambda report: progress((report.done, report.total), desc=report.label)
        try:
            with handlers.working():
                return show(run(**named))
        except Exception as error:
            if not is_expected(error):
                raise
            raise gr.Error(message(error, handlers.folder), duration=None, print_exception=False) from error

    # Gradio reads the names of the inputs from the signature, and finds the progress by its default
    parameters = [Parameter(argument, Parameter.POSITIONAL_OR_KEYWORD) for argument in inputs]
    progress = Parameter("progress", Parameter.POSITIONAL_OR_KEYWORD, default=gr.Progress())
    call.__signature__ = Signature([*parameters, progress])  # type: ignore[attr-defined]
    button.click(
        call, list(inputs.values()), outputs, api_name=name, concurrency_limit=handlers.limits.concurrency,
        concurrency_id=QUEUE,
    )  # fmt: skip
