"""CUDA graphs of repeated calls: which calls share one, and that replays equal plain calls."""

import copy
from typing import Any

import pytest
import torch
from style.test_tiles import randomized

from efdm.ops import MATCHERS
from efdm.style.replay import MAX_GRAPHS, Graphs
from efdm.style.stylizer import Stylizer

SEPARATE = [name for name, row in MATCHERS.items() if row.channels == "separate"]


def test_the_second_call_of_a_key_captures() -> None:
    graphs, made = Graphs(), []

    def call(key: str) -> Any:
        return graphs.get(key, lambda: made.append(key) or key.upper())

    assert [call(key) for key in "abab"] == [None, None, "A", "B"]
    assert [call("a"), made] == ["A", ["a", "b"]]
    assert copy.deepcopy(graphs).get("a", lambda: "A") is None


def test_the_graph_unused_for_longest_is_dropped() -> None:
    graphs, made = Graphs(), []
    keys = "abcdefgh"[: MAX_GRAPHS + 1]
    for key in (*keys[:-1], *keys[:-1], "a", keys[-1], keys[-1], "a", "b"):
        graphs.get(key, lambda key=key: made.append(key) or key)
    assert "".join(made) == keys + "b"
    assert len(graphs._graphs) == MAX_GRAPHS


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("method", SEPARATE)
def test_replays_equal_plain_calls(method: str, precision: str) -> None:
    """Every content is stylized with the look of a captured graph and with a fresh copy of the look, without a graph."""
    torch.manual_seed(0)
    stylizer = Stylizer(randomized("small", torch.float32), "cuda", precision=precision)
    mask = torch.zeros(40, 60, dtype=torch.bool)
    mask[:, :30] = True
    styles = torch.rand(3, 40, 60), torch.rand(3, 64, 64)
    looks = [stylizer.prepare(styles[0]), stylizer.prepare(list(styles)), stylizer.prepare(styles[0], masks=mask)]
    settings: list[dict[str, Any]] = [{}, {"strength": 0.5}, {"size": 32}]
    if method == "efdm":
        settings += [{"ties": "neighbor"}, {"tolerance": 0.0}]
    contents = torch.rand(3, 40, 60, device="cuda"), torch.rand(2, 3, 48, 40, device="cuda")
    for look in looks:
        for given in settings:
            for _ in range(3):
                for content in contents:  # the caches of the look change between replays
                    made = stylizer.stylize(content, look, method=method, **given)
                    assert torch.equal(made, stylizer.stylize(content, look.copy(), method=method, **given))
    looks_of_graphs = {key[0]() for key in stylizer._graphs._graphs}  # type: ignore[index]
    assert looks_of_graphs == {looks[0]}  # neither mixed nor masked styles


@pytest.mark.gpu
def test_results_stay_after_the_next_replay_and_values_are_checked() -> None:
    torch.manual_seed(0)
    stylizer = Stylizer(randomized("small", torch.float32), "cuda", precision="bf16")
    look, contents = stylizer.prepare(torch.rand(3, 64, 64)), torch.rand(4, 3, 64, 64, device="cuda")
    with torch.inference_mode():
        made = [stylizer.stylize(content, look) for content in contents]
    again = [stylizer.stylize(content, look) for content in contents]
    assert len(stylizer._graphs._graphs) == 1
    assert all(torch.equal(a, b) for a, b in zip(made, again, strict=True))
    assert not torch.equal(made[2], made[3])
    for wrong in (255 * contents[0], torch.full_like(contents[0], float("nan"))):
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            stylizer.stylize(wrong, look)
    assert torch.equal(stylizer.to("cuda").stylize(contents[0], look), made[0])
