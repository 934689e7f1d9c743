"""What the commands of ``efdm dg`` have in common: the words of a command line, the pictures, and what is said of errors."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
import typer
from rich.console import Console

from efdm.apps.dg_show import training_name
from efdm.apps.tell import tell
from efdm.data import datasets, digits, pacs
from efdm.data.domains import DomainSet
from efdm.data.images import write_error
from efdm.data.layouts import find_items
from efdm.dg import METHODS
from efdm.dg.run import MODEL
from efdm.dg.settings import Settings, read_settings
from efdm.ops.choices import check_choice
from efdm.text import first_few
from efdm.training.device import suited as usually_suited

EXPECTED = (ValueError, TypeError, OSError, ImportError, FloatingPointError)  # OSError: pictures, weights, folders
OPTION = "options."  # begins the name of a method's option
UNSET = "(a variable of the shell that is not set?); give a value, or leave the option out"
FEW = 12  # names that are read at a glance

# what the libraries advise, and how it is said on a command line
ADVICE: Mapping[str, str] = {
    "lists=...": "--lists FOLDER",
    "split='own'": "--split own",
    "copy='partial'": "--copy partial",
    "split off a share": "split off a share (of PACS: --split own)",
    "give its path as weights, or begin with 'random'": "give it as --weights FILE (--weights random begins untrained)",
}


@contextmanager
def sentences(console: Console, interrupted: Callable[[], str], *, out: Path | None = None) -> Iterator[None]:
    """What goes wrong is one sentence and an exit code: 2, or 130 after Ctrl-C, when ``interrupted`` says how to go on.

    ``out`` is the folder that will be written: one that cannot be is told of at once.
    """
    try:
        if out is not None:
            check_writable(out)
        yield
    except EXPECTED as error:
        told: Exception = error
        if out is not None and isinstance(error, OSError) and error.errno and _on_the_way(error.filename, out):
            told = write_error(error, out)
        tell(console, _as_options(str(told)))
        raise typer.Exit(2) from error
    except torch.OutOfMemoryError as error:
        tell(console, "the GPU has not enough memory for this; try fewer --lanes, a smaller batch, or --device cpu")
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        console.print(interrupted(), soft_wrap=True, markup=False, highlight=False)
        raise typer.Exit(130) from None


def check_writable(out: Path) -> None:
    """Raise for a folder that can be seen to be closed, before anything is read for it. Nothing is made."""
    nearest = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if nearest.is_dir() and not os.access(nearest, os.W_OK | os.X_OK):
        raise write_error(PermissionError(), out)


def _on_the_way(name: object, folder: Path) -> bool:
    """Whether a file that the system speaks of is in the folder, or a folder above it that could not be made."""
    if not isinstance(name, str | os.PathLike):
        return False
    path, folder = Path(name).absolute(), folder.absolute()
    return path.is_relative_to(folder) or folder.is_relative_to(path)


def _as_options(sentence: str) -> str:
    for python, option in ADVICE.items():
        sentence = sentence.replace(python, option)
    return sentence


def model_file(path: Path) -> Path:
    """The model that is meant by a path: a file, or the folder of one training. Names those inside a folder of several."""
    if not path.is_dir() or (path / MODEL).exists():
        return path / MODEL if path.is_dir() else path
    inside = sorted(found.parent for pattern in (f"*/{MODEL}", f"*/*/{MODEL}") for found in path.glob(pattern))
    if not inside:
        return path / MODEL
    told = [str(run) for run in inside]
    with suppress(OSError, ValueError, TypeError):  # a model can be used without its settings
        told[:3] = [f"{run} ({training_name(read_settings(run))})" for run in inside[:3]]
    raise ValueError(f"{path} has no model itself; give the folder of one training inside: {first_few(told)}")


# --- words -----------------------------------------------------------------------------------------------------------


def names(given: Sequence[str] | None, known: Sequence[str] = ()) -> list[str] | None:
    """Names with commas between them; a known one may have a comma itself. None when nothing was given."""
    parts = [[one] if one in known else one.split(",") for one in given or ()]
    found = [name.strip() for part in parts for name in part if name.strip()]
    if given and not found:
        raise ValueError(f"a list of names is empty {UNSET}")
    return found or None


def seeds(given: str | None) -> list[int] | None:
    """ "5" is the seeds 0 to 4, "0,3" those two, "3," that one alone. None when nothing was given."""
    if given is None:
        return None
    if not given.strip():
        raise ValueError(f"--seeds is empty {UNSET}")
    try:
        found = [int(part) for part in given.split(",") if part.strip()]
    except ValueError:
        found = []
    if not found or min(found) < 0 or ("," not in given and found[0] == 0):
        raise ValueError(
            f"--seeds {given} is no count and no list of seeds; write 5 for 0 to 4, 0,3 for those two, 3, for that one alone"
        )
    return list(dict.fromkeys(found)) if "," in given else list(range(found[0]))


def asked(set_: Sequence[str] | None, **options: Any) -> dict[str, Any]:
    """The settings that a command line asks for, by ``--set`` and by options of their own; raises for both at once."""
    made = changes(set_)
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value == "":
            raise ValueError(f"{option} is empty {UNSET}")
        if value is not None and name in made:
            raise ValueError(f"{option} and --set {name} both say what {name} is; give one of them")
    return made | {name: value for name, value in options.items() if value is not None}


def changes(given: Sequence[str] | None) -> dict[str, Any]:
    """NAME=VALUE for settings: numbers, words, words with commas for several. The method's options are ``options.p=1``, or
    all in one as JSON."""
    fields = {field.name: field for field in dataclasses.fields(Settings)}
    made: dict[str, Any] = {}
    for word in given or ():
        name, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"--set {word} should be NAME=VALUE, such as lr=0.01")
        if name.startswith(OPTION):
            made["options"] = {**made.get("options", {}), name.removeprefix(OPTION): _number_or_word(text)}
            continue
        if name not in fields and any(name in method.options for method in METHODS.values()):
            raise ValueError(f"--set {word}: {name} is an option of methods; write --set {OPTION}{word}")
        check_choice("--set", name, fields)
        made[name] = _value(name, text, fields[name].default)
    return made


def _number_or_word(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _value(name: str, text: str, default: object) -> Any:
    if isinstance(default, tuple) or name.endswith("_domains"):
        return tuple(names([text]) or ()) if text else ()
    value = _number_or_word(text)
    wanted = int if isinstance(default, int) else float if isinstance(default, float) else None
    if wanted is not None and name != "domains_per_batch" and not isinstance(value, (int, wanted)):
        raise ValueError(f"--set {name}={text}: expected a number such as {default}")
    if name == "options" and not isinstance(value, dict):
        raise ValueError(f'--set {name}={text}: expected options of the method as JSON, such as {{"alpha": 0.3}}')
    return str(text) if isinstance(default, str) else value


def suited(device: torch.device, own: Mapping[str, Any], *, trainings: str = "one") -> dict[str, Any]:
    """How to train on a device, where nothing else was said. Compiling takes a minute, which "many" trainings share."""
    told: dict[str, Any] = {**usually_suited(str(device))}
    if device.type != "cuda":
        told["log_every"] = 10
    elif trainings == "many" and importlib.util.find_spec("triton") is not None:
        told["speed"] = "compile+graph"
    return {"device": str(device), **{name: value for name, value in told.items() if name not in own}}


# --- pictures --------------------------------------------------------------------------------------------------------


class Listing(NamedTuple):
    """What pictures are called, in the words of a `DomainSet`: known before one is read."""

    domain_names: list[str]
    classes: list[str]


# of sets that are always called the same
LISTINGS: Mapping[str, Listing] = {
    datasets.DIGITS: Listing(list(digits.STYLES), list(digits.CLASSES)),
    datasets.PACS: Listing(list(pacs.PICTURES), list(pacs.CLASSES)),
}


def listing(kind: str, sources: Sequence[Path]) -> Listing:
    if kind in LISTINGS:
        return LISTINGS[kind]
    items, _ = find_items(list(sources))
    return Listing(sorted({item.domain for item in items}), sorted({item.label for item in items}))


def kind_of(sources: Sequence[Path]) -> str:
    """ "digits" when the word itself was given; a folder of that name is ./digits."""
    return datasets.DIGITS if [str(source) for source in sources] == [datasets.DIGITS] else "folder"


def refuse_swapped(option: str, given: Sequence[str] | None, data: DomainSet | Listing) -> None:
    """Raise for a domain that is a class of these pictures: their folders lie the other way round."""
    for name in given or ():
        if name in data.classes and name not in data.domain_names:
            raise ValueError(
                f"{option} {name}: that is a class here, the domains are {first_few(data.domain_names, FEW)}; "
                "are your folders domain/class?"
            )


def tell_classes(console: Console, data: DomainSet, domains: Sequence[str], tested: Sequence[str] = ()) -> None:
    """Tell what is to be known of the pictures, and of classes that are not in all of ``domains``: often one class under
    two names."""
    for note in data.notes:
        console.print(note, style="yellow", soft_wrap=True, markup=False, highlight=False)
    if told := uneven_classes(data, domains, tested):
        hint = "is each class called the same in all domains?"
        sentence = f"classes differ between domains: {'; '.join(told)}; {hint}"
        console.print(sentence, style="yellow", soft_wrap=True, markup=False, highlight=False)


def uneven_classes(data: DomainSet, domains: Sequence[str], tested: Sequence[str] = ()) -> list[str]:
    """What a domain lacks, and what one alone has; or only those ``tested``, so that it is never learnt."""
    counts = data.counts("class")
    lacking: dict[str, list[str]] = {}
    alone: dict[str, list[str]] = {}
    for label in data.classes:
        having = [domain for domain in domains if counts[domain][label]]
        if having and (set(having) <= set(tested) or len(having) == 1 < len(domains) - 1):
            alone.setdefault(f"{', '.join(having)} {'has' if len(having) == 1 else 'have'}", []).append(label)
        elif having:
            for domain in (domain for domain in domains if domain not in having):
                lacking.setdefault(domain, []).append(label)
    return [
        *(f"{domain} has no {first_few(labels)}" for domain, labels in lacking.items()),
        *(f"only {domains_have} {first_few(labels)}" for domains_have, labels in alone.items()),
    ]


def tell_skipped(console: Console, data: DomainSet, where: str) -> None:
    if data.skipped:
        first = first_few([reason for _, reason in data.skipped])
        told = f"left out because they could not be used: {len(data.skipped)} of {len(data) + len(data.skipped)} pictures"
        console.print(f"{told} ({first}); {where} names them", soft_wrap=True, markup=False, highlight=False)
