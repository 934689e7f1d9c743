"""The server and the commands of a preference study, without a browser."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from commands import invoke
from studies import small_study

from efdm.apps.web.study import serving_study
from efdm.style.study import Study


def ask(address: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(address + path, data), timeout=10) as answer:
        return json.loads(answer.read())


def test_a_rater_votes_on_every_item(tmp_path: Path) -> None:
    study = small_study(tmp_path, pairs=3)
    with serving_study(study) as address:
        item = ask(address, "next?rater=anna")
        for done in range(3):
            assert (item["done"], item["total"]) == (done, 3)
            assert set(item["options"]) == set(study.items[item["item"]].outputs.values())
            with urllib.request.urlopen(f"{address}pictures/{item['options'][0]}") as picture:
                assert picture.read().startswith(b"\x89PNG")
            item = ask(address, "vote", {"rater": "anna", "item": item["item"], "position": 1, "seconds": 2})
        assert item == {"item": None, "done": 3, "total": 3}
    assert [vote.position for vote in study.votes()] == [1, 1, 1]


def test_nothing_reveals_the_candidates(tmp_path: Path) -> None:
    study = small_study(tmp_path, pairs=2)
    with serving_study(study) as address:
        seen = urllib.request.urlopen(address).read().decode() + json.dumps(ask(address, "next?rater=anna"))
    assert not any(label in seen for label in study.candidates)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("vote", b"nonsense", 400),
        ("vote", b"[]", 400),
        ("vote", b'{"rater": "a"}', 400),
        ("vote", b'{"rater": "a", "item": 9, "position": 0}', 400),
        ("vote", b'{"rater": "a b", "item": 0, "position": 0}', 400),
        ("vote", b"x" * 5000, 413),
        ("other", b"{}", 404),
        ("next?rater=", None, 400),
        ("pictures/../study.json", None, 404),
        ("pictures/%2e%2e/study.json", None, 404),
        ("study.json", None, 404),
    ],
)
def test_wrong_requests(tmp_path: Path, path: str, body: bytes | None, status: int) -> None:
    study = small_study(tmp_path, pairs=1)
    with serving_study(study) as address, pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(urllib.request.Request(address + path, body), timeout=10)
    assert error.value.code == status
    assert study.votes() == []


@pytest.mark.slow
def test_a_killed_server_loses_no_vote(tmp_path: Path) -> None:
    study = small_study(tmp_path, pairs=4)
    words = [sys.executable, "-m", "efdm", "study", "serve", str(study.folder), "--port", "0"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().split()[0]
        item = ask(address, "next?rater=anna")
        for _ in range(3):
            item = ask(address, "vote", {"rater": "anna", "item": item["item"], "position": 0})
        server.send_signal(signal.SIGKILL)
    finally:
        server.kill()
        server.communicate()
    assert len(Study(study.folder).votes()) == 3
    with serving_study(Study(study.folder)) as again:
        assert ask(again, "next?rater=anna")["item"] == item["item"]


def test_the_commands_work_without_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "2 items in study" in invoke("study", "make", "--pairs", "2", "--size", "32", "--device", "cpu").output
    study = Study("study")
    assert len(study.candidates) == 3
    assert "no votes" in invoke("study", "report", "study", code=2).output
    for rater in "ab":
        study.vote(rater, 0, 0)
    assert "2 votes of 2 raters" in invoke("study", "report", "study").output
    assert Path("study/votes.csv").read_text().count("\n") == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["make", "--content", "photos"], "--content"),
        (["make", "--candidate", "small", "--pairs", "1", "--size", "32"], "two candidates"),
        (["make", "--candidate", "smal"], "(--candidate)"),
        (["serve", "nowhere"], "not a study"),
        (["report", "nowhere"], "not a study"),
    ],
)
def test_mistakes_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in invoke("study", *words, code=2).output


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with serving_study(study := small_study(tmp_path, pairs=1)) as address:
        port = address.rstrip("/").rpartition(":")[2]
        result = invoke("study", "serve", study.folder, "--port", port, code=2)
    assert port in result.output
    assert "--port" in result.output
