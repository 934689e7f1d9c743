from pathlib import Path

import pytest

from efdm.apps.cli.options import parse_pairs, parse_shard
from efdm.apps.cli.recognition_options import parse_names, parse_seeds, parse_sets, parse_settings
from efdm.errors import SettingError


def test_settings_are_parsed_by_the_type_of_their_field() -> None:
    words = ["lr=1", "stages=layer1, layer2", 'options={"alpha": 0.3}', "weights=3", "domains_per_batch=all", "batch=8"]
    assert parse_settings(words) == {
        "lr": 1, "stages": ("layer1", "layer2"), "options": {"alpha": 0.3}, "weights": "3", "domains_per_batch": "all",
        "batch": 8,
    }  # fmt: skip
    assert parse_settings(["lr=.01", "options.alpha=.5"]) == {"lr": 0.01, "options": {"alpha": 0.5}}  # not JSON
    assert parse_settings(["size=64,32"], "reid") == {"size": (64, 32)}
    assert parse_settings(["options.p=1", "options.ties=stable"]) == {"options": {"p": 1, "ties": "stable"}}


@pytest.mark.parametrize(("text", "seeds"), [("3", [0, 1, 2]), ("3,1,3", [3, 1]), ("3,", [3]), (None, None)])
def test_seeds_are_a_count_or_a_list(text: str | None, seeds: list[int] | None) -> None:
    assert parse_seeds(text) == seeds


def test_shards_are_counted_from_one() -> None:
    assert parse_shard("2/4") == (2, 4)
    assert parse_shard(None) == (1, 1)


def test_known_names_may_contain_commas() -> None:
    assert parse_names("methods", ["a, b", "c,d"], known=["a, b"]) == ["a, b", "c", "d"]


@pytest.mark.parametrize(
    ("word", "name", "path"),
    [
        ("market=some/folder", "market", "some/folder"),
        ("some/market.zip", "market", "some/market.zip"),
        ("some/market/", "market", "some/market"),  # as a shell completes it
        ("./market", "market", "market"),
    ],
)
def test_sets_are_named_or_called_like_their_path(word: str, name: str, path: str) -> None:
    assert parse_sets([word]) == {name: Path(path)}


@pytest.mark.parametrize(
    ("parse", "setting"),
    [
        (lambda: parse_seeds("x"), "seeds"),
        (lambda: parse_seeds(""), "seeds"),
        (lambda: parse_shard("3"), "shard"),
        (lambda: parse_pairs("network", ["a"]), "network"),
        (lambda: parse_pairs("network", ["a=x", "a=y"]), "network"),  # one of the files would be ignored
        (lambda: parse_settings(["lr"]), "set"),
        (lambda: parse_settings(["momentm=1"]), "set"),
        (lambda: parse_settings(["movable=1"]), "set"),  # a class variable, not a setting
        (lambda: parse_sets(["market="]), "data"),
    ],
)
def test_the_wrong_option_is_named(parse: object, setting: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse()
    assert caught.value.settings == (setting,)
