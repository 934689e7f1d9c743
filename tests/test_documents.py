"""The examples in the documents run, and their numbers come from records."""

import importlib
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import documents
import lab_report
import pytest

from efdm import lab
from efdm.models.backbones import BACKBONES, ORIGINS

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
README = (ROOT / "README.md").read_text()


def words_of(document: str) -> str:
    """Return the text of a document with its lines joined."""
    return " ".join((ROOT / document).read_text().split())


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


LONG = {"export.md": pytest.mark.long}  # traces the shipped network; tests/style/test_export.py traces a small one


@pytest.mark.parametrize("document", [pytest.param(p, marks=LONG.get(p.name, ()), id=p.name) for p in DOCUMENTS])
def test_python_examples(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "\n".join(blocks(document.read_text(), "python"))
    assert script, "a document without an example"
    monkeypatch.chdir(tmp_path)
    exec(compile(script, str(document), "exec"), {"__name__": "example"})


def table_in(page: str, name: str) -> list[str]:
    """Return the rows of a table between two comments that name it."""
    begin, end = rf"<!-- {name}: checked by tests/test_\w+\.py -->\n", rf"\n<!-- end of {name} -->"
    (table,) = re.findall(f"{begin}(.*?){end}", page, re.DOTALL)
    return table.splitlines()[2:]


def test_the_page_of_backbones_lists_their_table() -> None:
    page = (ROOT / "docs" / "models" / "backbones.md").read_text()
    assert table_in(page, "backbones table") == [f"| `{name}` | {row.about} |" for name, row in BACKBONES.items()]
    assert all(f"`{file}`" in page for file in ORIGINS)


def test_lightning_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks are marked `py`, because lightning is not among the packages that the tests need."""
    pytest.importorskip("lightning")
    from efdm import EFDMix
    from efdm.nn import feature_layers

    mixed: list[bool] = []
    forward = EFDMix.forward
    monkeypatch.setattr(
        EFDMix, "forward", lambda self, x, **named: (mixed.append(x.requires_grad), forward(self, x, **named))[1]
    )
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "example"}
    exec("\n".join(blocks((ROOT / "docs/guide/your-training-script.md").read_text(), "py")), names)
    model = names["trainer"].lightning_module
    assert mixed.count(True) == 2 * 2 * 3  # epochs, batches, stages
    assert feature_layers(model.backbone) == []
    plain = names["Classifier"]()
    plain.load_state_dict(model.state_dict())


def test_the_lightning_example_repairs_torchvision_first() -> None:
    code = "\n".join(blocks((ROOT / "docs/guide/your-training-script.md").read_text(), "py"))
    assert code.index("allow_torchvision()") < code.index("import lightning")  # lightning imports torchvision


def commands(text: str = README) -> list[str]:
    return [line for block in blocks(text, "bash") for line in block.splitlines() if line.strip()]


def run_commands(lines: Iterable[str], folder: Path, small: Mapping[str, str] = MappingProxyType({"": ""})) -> None:
    """Run commands in a folder and check that they write their outputs.

    ``small`` maps the start of a command to options that make it small; an option given twice takes its last value.
    """
    from commands import invoke

    for line in lines:
        more = next(options for start, options in small.items() if line.startswith(start))
        words = [*shlex.split(line, comments=True), *more.split()]
        invoke(*words[1:])
        if "-o" in words:
            out = folder / words[words.index("-o") + 1]
            assert out.is_file() or any(out.iterdir()), line


MATCH_COMMANDS = commands((ROOT / "docs/guide/match-colours.md").read_text())


def test_every_command_is_tested() -> None:
    assert {c.split()[0] for c in commands()} == {"pip", "efdm", "make"}


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with small versions of the files that the commands name."""
    from efdm.data import read_picture, resize_short_side, write_picture
    from efdm.data.embedded import photos, read_style
    from efdm.data.video import VideoWriter

    folder = tmp_path_factory.mktemp("workplace")
    cat, rocket = (resize_short_side(read_picture(photos()[n]).rgb, 96) for n in ("cat", "rocket"))
    painting = read_style("fauve", 96)
    for name, picture in {
        "photo.jpg": cat, "other.jpg": rocket, "painting.jpg": painting, "photos/a.jpg": cat, "photos/b.jpg": rocket,
        "paintings/p.png": painting,
    }.items():  # fmt: skip
        write_picture(folder / name, picture)
    with VideoWriter(folder / "clip.mp4", fps=10) as video:
        for shift in range(4):
            video.write(cat.roll(shift, -1)[:, :64, :64])
    return folder


# test_dg_documents.py runs the commands of `efdm dg`
@pytest.mark.parametrize(
    "command", [c for c in commands() if c.startswith("efdm") and not c.startswith("efdm dg")] + MATCH_COMMANDS
)
def test_efdm_commands(command: str, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    run_commands([command], workplace)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_commands_and_their_options_exist(document: Path) -> None:
    """Including the commands that no test runs."""
    pytest.importorskip("typer")
    from efdm.apps.cli.group import COMMANDS, load

    for line in commands(document.read_text().replace("\\\n", " ")):
        name, *words = shlex.split(line, comments=True) or [""]
        if name != "efdm" or words[0].startswith("-"):
            continue
        row = COMMANDS[words.pop(0)]
        while not isinstance(row.target, str):
            row = row.target[words.pop(0) if words else row.default]
        accepted = {option for parameter in load(row).params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= accepted, line


@pytest.mark.parametrize("command", [c for c in commands() if c.startswith("make")])
def test_make_targets_exist(command: str) -> None:
    done = subprocess.run([*command.split(), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_installs_are_constrained_and_name_extras_that_exist() -> None:
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installs = [c for c in commands() if c.startswith("pip")]
    assert installs
    for command in installs:
        assert "-c constraints.txt" in command
        for name in re.findall(r"\[(.*?)\]", command):
            assert name in extras
    every = set(extras) - {"all"}
    assert set(re.search(r"\[(.*)\]", extras["all"][0]).group(1).split(",")) == every, "`all` has every extra"


def test_links_and_pictures_exist() -> None:
    for document in DOCUMENTS + [ROOT / n for n in ("ARCHITECTURE.md", "CONTRIBUTING.md")]:
        for link, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", document.read_text()):
            target = document.parent / link if link else document
            assert "://" in link or target.exists(), f"{document.name} points to {link}"
            if anchor and "://" not in link:
                headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
                assert anchor in [heading.lower().replace(" ", "-") for heading in headings], f"{document.name}: {anchor}"


@pytest.mark.parametrize("name", ["match_report", "pictures_report", "lab_report", "reproduction", "style_report"])
def test_tables_equal_the_records(name: str) -> None:
    for place in importlib.import_module(name).TABLES:
        text = place.document.read_text()
        assert documents.with_table(text, place) == text, place.name


@pytest.mark.parametrize("page", lab_report.pages(), ids=lambda page: page.parent.name)
def test_results_pages_equal_the_records(page: Path) -> None:
    assert lab_report.page(page) == page.read_text()


RUNS = ROOT / "results" / "pacs"
# document -> first and last words of the passage that quotes differences, and the runs they come from
QUOTED = {
    "docs/reproduction.md": (
        "# Does",
        "## What",
        [
            *(f"../pacs-resnet18/{name}" for name in ("leave-one-out", "single-source", "order-study", "paper-schedule")),
            *(f"../pacs-resnet50/{name}" for name in ("leave-one-out", "single-source")),
        ],
    ),
    "docs/guide/domain-generalization.md": (
        "without a gradient to the style",
        "### ",
        ["leave-one-out", "single-source", "../pacs-resnet18/leave-one-out", "../pacs-resnet18/single-source"],
    ),
    "docs/guide/gradients-and-ties.md": ("On PACS", "## ", ["leave-one-out", "../pacs-resnet18/leave-one-out"]),
    "results/pacs/leave-one-out/README.md": ("# PACS", "### ", ["leave-one-out"]),
    "results/pacs/single-source/README.md": ("# PACS", "### ", ["single-source"]),
    "results/pacs/order-study/README.md": ("# PACS", "### ", ["order-study"]),
    "results/pacs/ties/README.md": ("# PACS", "### ", ["ties"]),
    "results/pacs-resnet18/leave-one-out/README.md": ("# PACS", "### ", ["../pacs-resnet18/leave-one-out"]),
    "results/pacs-resnet18/single-source/README.md": ("# PACS", "### ", ["../pacs-resnet18/single-source"]),
}


@pytest.mark.parametrize("document", QUOTED)
def test_differences_in_the_prose_equal_the_records(document: str) -> None:
    begin, end, runs = QUOTED[document]
    passage = (ROOT / document).read_text().split(begin)[1].split(end)[0]
    tables = [table for name in runs for table in lab.tables(lab.read_study(RUNS / name))]
    compared = [row for table in tables if "comparisons" in table.title for row in table.rows]
    known = {f"{abs(float(mean)):.{n}f} ± {float(error):.{n}f}" for _, mean, error, *_ in compared for n in (1, 2)}
    quoted = re.findall(r"\d\.\d+ ± \d\.\d+", passage)
    assert len(quoted) >= 2
    assert set(quoted) <= known


def test_the_cost_of_mixing() -> None:
    found = lab_report.steps()
    most = {("one CPU core", "tiny"): 1.15, ("NVIDIA H200", "resnet18"): 1.10}
    assert found.keys() == most.keys()
    for what, row in found.items():
        assert row["times"]["efdmix"]["to_erm"] <= most[what], what
    rows = [row for record in lab_report.step_records() for row in record["lanes"] if row["backbone"] == "resnet18"]
    lanes = {row["lanes"]: row for row in rows}
    assert lanes[1]["run_seconds"] <= 45
    words = words_of("docs/guide/domain-generalization.md")
    assert f"take {lanes[1]['run_seconds']:.0f} s alone on an H200; four such runs at a time" in words
    assert f"take {lanes[4]['run_seconds']:.0f} s together" in words
    study = lab.read_study(RUNS / "single-source")
    took = {
        method: statistics.fmean(study.runs[p.run][-1]["seconds"] for p in study.plan if p.settings["method"] == method)
        for method in ("erm", "mixstyle", "efdmix", "efdmix-flow")
    }
    assert f"{took['erm']:.0f} s with ERM and MixStyle, {took['efdmix']:.0f} s with EFDMix" in words
    assert f"{took['mixstyle']:.0f}" == f"{took['erm']:.0f}"
    assert f"{took['efdmix-flow']:.0f} s with EFDMix and its gradient" in words


PREPARED = "prepared / unprepared, device time"
MISSED = {
    "cpu": {
        "vgg_relu4_1_512px float32 before ReLU: with a tolerance / efdm",  # 1.70, bound 1.5
        "resnet_layer1_batch32 float32 before ReLU: with a tolerance / efdm",  # 1.55
    },
    "cuda": {
        "vgg_relu4_1_512px bfloat16 after ReLU: three-sort / efdm",  # the host was slow: 52 us, of which the kernel takes 37
        f"vgg_relu1_1_256px_batch8 bfloat16 before ReLU: {PREPARED}",  # 0.6502, bound 0.65
        f"vgg_relu1_1_512px bfloat16 before ReLU: {PREPARED}",  # rows that one block cannot hold
        f"picture_4_megapixels bfloat16 before ReLU: {PREPARED}",
        "picture_4_megapixels float32 before ReLU: with a tolerance / efdm",
    },
}


def test_speed_targets() -> None:
    import match_report

    for record in match_report.records():
        assert all(row["exact"] for row in record["rows"])
        missed = {what for what, *_, met in match_report.targets(record) if not met}
        # with a tolerance, 1.5 times the exact match is not reached in bfloat16 on a GPU
        others = {what for what in missed if not ("tolerance" in what and "bfloat16" in what)}
        assert others == MISSED[record["environment"]["device"]]


@pytest.mark.slow
def test_figures_can_be_reproduced(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "docs/figures/make.py"), str(tmp_path), "--size", "32"], check=True)
    made = {p.name for p in tmp_path.iterdir()}
    assert made == {p.name for p in (ROOT / "docs/figures").iterdir() if p.suffix in (".png", ".webp")}
