import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from efdm.apps.cli import quiet_interrupt
from efdm.apps.cli.group import COMMANDS, app
from efdm.version import VERSION


def run(*arguments: str, **environment: str):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", **environment})


def test_the_help_text_lists_every_command_without_importing_torch() -> None:
    script = """
        import sys, time
        start = time.perf_counter()
        from efdm.apps.cli import main
        sys.argv = ["efdm", "--help"]
        try:
            main()
        except SystemExit as end:
            print(end.code, time.perf_counter() - start, sorted({"torch", "numpy", "PIL", "efdm.nn"} & set(sys.modules)))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    code, seconds, loaded = done.stdout.splitlines()[-1].split(maxsplit=2)
    assert (code, loaded) == ("0", "[]")
    assert float(seconds) < 1.5  # 0.2 s when nothing else runs
    assert all(name in done.stdout for name in COMMANDS)


def test_the_version_and_the_help_text() -> None:
    assert run("--version").output.strip() == VERSION
    assert "Usage" in run().output
    result = run("stylize")
    assert result.exit_code == 2
    assert "stylize" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_loaded_on_demand(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert f"{name} [OPTIONS]" in result.output


def test_info_needs_no_extra_and_the_other_commands_name_theirs() -> None:
    script = """
        import sys
        sys.modules.update(dict.fromkeys(["numpy", "PIL", "safetensors", "filelock"]))
        from typer.testing import CliRunner
        from efdm.apps.cli.group import app
        for words in (["info", "--device", "cpu"], ["stylize", "--help"], ["train", "style"], ["dg", "list"]):
            result = CliRunner().invoke(app, words)
            print(result.exit_code, " ".join(result.output.split()))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    info, stylize, train, dg = done.stdout.splitlines()
    assert info.startswith("0 ")
    assert "1,512,64,64 float32: torch" in info
    assert all(line.startswith("2 ") and "pip install 'efdm[style]'" in line for line in (stylize, train))
    assert "pip install 'efdm[dg]'" in dg


def test_every_command_names_an_existing_extra() -> None:
    tomllib = pytest.importorskip("tomllib")
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert {row.extra for row in COMMANDS.values()} <= set(pyproject["project"]["optional-dependencies"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals")
def test_an_interrupt_while_importing_leaves_no_traceback() -> None:
    script = """
        import time
        from efdm.apps.cli import quiet_interrupt
        with quiet_interrupt():
            print("importing", flush=True)
            time.sleep(60)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == -signal.SIGINT


def test_python_handles_interrupts_after_the_import() -> None:
    with quiet_interrupt():
        pass
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        time.sleep(1)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("efdm sty", {"stylize"}),
        ("efdm weights li", {"list"}),
        ("efdm stylize --skip", {"--skip-existing"}),
        ("efdm stylize a.jpg --style st", {"starry"}),
        ("efdm match a.jpg --space l", {"lab", "luminance"}),
    ],
)
def test_shell_completion(words: str, expected: set[str]) -> None:
    env = {"_EFDM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    result = CliRunner().invoke(app, [], prog_name="efdm", env=env)
    assert set(result.output.split()) == expected
