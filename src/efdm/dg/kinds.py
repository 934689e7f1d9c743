"""What a value must be, by the annotation of its field: settings and recipes are written by hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

_KINDS = {int: "whole number", float: "number", str: "string", Mapping: "mapping", tuple: "tuple", Sequence: "list"}


def check_fields(kind: type, given: Mapping[str, Any], examples: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Raise for a value that is not what the field of a dataclass is said to be. ``examples`` are for fields whose default
    is none."""
    for name, value in given.items():
        check_kind(name, value, _hints(kind)[name], examples.get(name) or getattr(kind, name, None))


def check_kind(name: str, value: Any, hint: Any, example: Any = None) -> None:
    if not _fits(value, hint):
        like = f", such as {example!r}" if example else ""
        raise ValueError(f"{name} is {value!r}; give a {_in_words(hint)}{like}")


_hints = cache(get_type_hints)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says; lists are good for tuples, and whole numbers for any."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    if kind is Mapping:
        return isinstance(value, Mapping) and all(_fits(k, parts[0]) and _fits(v, parts[1]) for k, v in value.items())
    if kind in (tuple, Sequence):
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Collection):
            return False
        each = parts if kind is tuple and ... not in parts else parts[:1] * len(value)
        return len(each) == len(value) and all(map(_fits, value, each))
    return kind is Any or isinstance(value, kind)


def _in_words(hint: Any, plural: str = "") -> str:
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return " or a ".join(_in_words(part) for part in parts)
    of = f" of {_in_words(parts[0], 's')}" if kind in (tuple, Sequence) and parts[0] is not Any else ""
    return f"{_KINDS.get(kind, getattr(kind, '__name__', 'value'))}{plural}{of}"
