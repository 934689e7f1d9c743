import csv
import io
import statistics
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from sweeps import DOMAINS, SHORT, record, small, steady, studied, without

from efdm.dg.settings import Settings
from efdm.lab import FORMATS, Published, Study, accuracy_table, comparison_table, expand, render, summary_table, tables
from efdm.lab.records import by_run
from efdm.lab.report import best_row
from efdm.lab.results import numbers


def cell(study: Study, row: str, column: str, **how: str) -> str:
    table = accuracy_table(study, **how)
    (line,) = [r for r in table.rows if r[0] == row and r[1] == "here"]
    return line[table.head.index(column)]


def test_means_and_population_std_by_hand() -> None:
    study = studied(small(), steady)
    assert cell(study, "erm", "art") == f"61.0 ± {statistics.pstdev([60, 61, 62]):.1f}" == "61.0 ± 0.8"
    # the average: (60 + 70 + 90 + 50) / 4 = 67.5 for seed 0, and 7/4 more with each seed
    assert cell(study, "erm", "average") == f"69.2 ± {statistics.pstdev([67.5, 69.25, 71]):.1f}" == "69.2 ± 1.4"


def test_spread_is_a_choice_and_named() -> None:
    study = studied(small(), steady)
    assert cell(study, "erm", "art", std="sample") == "61.0 ± 1.0"
    assert cell(study, "erm", "art", std="error") == "61.0 ± 0.6"
    for std, words in {"population": "divided by n,", "sample": "divided by n - 1", "error": "standard error"}.items():
        assert words in " ".join(accuracy_table(study, std=std).caption)
    one = studied(small(seeds=(0,)), steady)
    assert (cell(one, "erm", "art"), cell(one, "erm", "average")) == ("60.0", "67.5")
    with pytest.raises(ValueError, match="std='biased'"):
        accuracy_table(study, std="biased")
    with pytest.raises(ValueError, match="selection='best'"):
        accuracy_table(study, "best")


def test_incomplete_cells() -> None:
    study = studied(small(), steady)
    assert [(p.row, p.cell.test[0]) for p in study.plan[:2]] == [("erm", "art"), ("erm", "cartoon")]
    less = without(study, 0)
    # the remaining seeds have 61 and 62, and averages of 69.25 and 71
    assert cell(less, "erm", "art") == "61.5 (2 of 3)"
    assert cell(less, "erm", "average") == "70.1 (2 of 3)"
    none = without(study, *(i for i, p in enumerate(study.plan) if p.row == "erm" and p.cell.test == ("art",)))
    assert (cell(none, "erm", "art"), cell(none, "erm", "average")) == ("0 of 3 seeds", "incomplete")
    assert cell(less, "erm", "cartoon") == cell(study, "erm", "cartoon")
    assert cell(less, "efdmix", "average") == cell(study, "efdmix", "average")
    assert "Incomplete: 23 of 24 runs have finished" in " ".join(accuracy_table(less).caption)
    assert "(n of m) is the mean of n of m seeds" in " ".join(accuracy_table(less).caption)


def test_no_average_without_all_domains() -> None:
    study = studied(small(), steady)
    part = replace(study, plan=[p for p in study.plan if p.cell.test != ("photo",)])
    assert (cell(part, "erm", "photo"), cell(part, "erm", "average")) == ("-", "incomplete")


def test_pooled_and_mean_of_domains_by_hand() -> None:
    """Trained on art: 10 of 30, 5 of 10 and 40 of 40 are 55 of 80 pooled; the domains' accuracies are 33.3, 50 and 100."""
    recipe = small(protocol="single-source", seeds=(0,), methods=["erm"])
    jobs = expand(recipe, DOMAINS)
    test = {"art": [7, 20], "cartoon": [10, 30], "photo": [5, 10], "sketch": [40, 40]}
    val = {domain: [1, 2] for domain in DOMAINS}
    records = [record(s, 30, val, {d: test[d] for d in s.test_domains}) for _, s in jobs]
    study = Study(recipe, list(DOMAINS), [p for p, _ in jobs], by_run(records))
    assert numbers(study, score="pooled").scores["erm"]["art"][0] == pytest.approx(100 * 55 / 80)
    assert numbers(study, score="mean of domains").scores["erm"]["art"][0] == pytest.approx((100 / 3 + 50 + 100) / 3)
    both = [t for t in tables(study) if "selection rules" not in t.title and "last" in t.title]
    assert [t.title for t in both] == ["small: last, pooled", "small: last, mean of domains"]
    assert "training domain" in both[0].caption[0]
    # the oracle does not score the split "val": 1 of 2 fewer in each domain
    assert numbers(study, "oracle").scores["erm"]["art"][0] == pytest.approx(100 * 52 / 74)


def rising_and_falling(settings: Settings, step: int, split: str, domain: str) -> float:
    """Validation is best at step 20, test at the end; the last step is 30."""
    if split == "test":
        return {10: 50, 20: 60, 30: 70}[step]
    return {10: 80, 20: 90, 30: 85}[step]


def test_each_selection_rule_has_a_table() -> None:
    study = studied(small(), rising_and_falling)
    assert cell(study, "erm", "art", selection="last") == "70.0 ± 0.0"
    assert cell(study, "erm", "art", selection="training-domain validation") == "60.0 ± 0.0"
    # the oracle scores 4000 of 5000 pictures at the last step: 3500 - 850 correct
    assert cell(study, "erm", "art", selection="oracle") == f"{100 * 2650 / 4000:.1f} ± 0.0"
    side_by_side = summary_table(study)
    assert side_by_side.head == ["method", "last", "training-domain validation", "oracle"]
    assert side_by_side.rows[0] == ["erm", "70.0 ± 0.0", "60.0 ± 0.0", "66.2 ± 0.0"]
    for rule in study.recipe.selections:
        assert f"Selection: {rule}" in " ".join(accuracy_table(study, rule).caption)


def by_rate(settings: Settings, step: int, split: str, domain: str) -> float:
    """The small rate validates better, the large one tests better."""
    small_rate = settings.lr == 0.01
    return (40 if small_rate else 60) if split == "test" else (90 if small_rate else 80)


def test_last_lists_a_grid_and_other_rules_choose() -> None:
    study = studied(small(grid={"lr": (0.1, 0.01)}, methods=["erm"]), by_rate)
    assert numbers(study, "last").rows == ["erm, lr 0.1", "erm, lr 0.01"]
    assert cell(study, "erm", "art", selection="training-domain validation") == "40.0 ± 0.0"
    less = without(study, 0)  # a selection rule needs all candidate runs
    assert cell(less, "erm", "art", selection="training-domain validation") == "40.0 (2 of 3)"


tuned = partial(small, methods=["erm"], scores=("training-domain validation",), selections=("last",), seeds=(0,))


def test_settings_are_chosen_without_the_test_domains() -> None:
    study = studied(tuned(grid={"lr": (0.1, 0.01)}), by_rate)
    assert best_row(study) == "Highest training-domain validation: erm, lr 0.01 (90.00). Chosen: erm, lr 0.01."
    assert best_row(study) in tables(study)[0].caption
    assert "No row is chosen" in best_row(without(study, 0))


@pytest.mark.parametrize(("behind", "chosen"), [(0.4, "0.001"), (0.6, "0.01")], ids=["within", "outside"])
@pytest.mark.parametrize(("seeds", "best"), [((0, 1), "90.50 ± 0.50, standard error"), ((0,), "90.00")], ids=["two", "one"])
def test_the_smallest_equally_good_rate_is_chosen(behind: float, chosen: str, seeds: tuple[int, ...], best: str) -> None:
    """Seeds one point apart have a standard error of half a point, which is also the tolerance for a single seed."""

    def accuracy(settings: Settings, step: int, split: str, domain: str) -> float:
        return 90 + settings.seed - {0.1: 5, 0.01: 0, 0.001: behind}[settings.lr]

    sentence = best_row(studied(tuned(grid={"lr": (0.1, 0.01, 0.001)}, seeds=seeds), accuracy))
    assert sentence.startswith(f"Highest training-domain validation: erm, lr 0.01 ({best}).")
    assert f"Chosen: erm, lr {chosen}" in sentence


@pytest.mark.parametrize(("behind", "chosen"), [(0.3, "lr 0.01, iterations 5"), (0.6, "lr 0.1, iterations 30")])
def test_the_shortest_equally_good_schedule_is_chosen(behind: float, chosen: str) -> None:
    """At equal length, the better learning rate is chosen."""

    def accuracy(settings: Settings, step: int, split: str, domain: str) -> float:
        return 90 - (settings.iterations == 5) * (behind + 0.2 * (settings.lr == 0.1)) - 0.1 * (settings.lr == 0.01)

    recipe = tuned(grid={"lr": (0.1, 0.01), "iterations": (5, 30)})
    assert f"Chosen: erm, {chosen}" in best_row(studied(recipe, accuracy))


def of_pairs(settings: Settings, step: int, split: str, domain: str) -> float:
    """Runs without two domains are best early, runs without one are best at the end."""
    return {10: 90, 20: 80, 30: 70}[step] if len(settings.test_domains) == 2 else {10: 40, 20: 50, 30: 60}[step]


def test_cross_validation_needs_every_pair() -> None:
    rule = "leave-one-domain-out cross-validation"
    recipe = small(protocol="domainbed", selections=(rule, "oracle"), methods=["erm"], seeds=(0,))
    study = studied(recipe, of_pairs)
    assert len(study.plan) == 10
    assert cell(study, "erm", "art", selection=rule) == "40.0"
    assert cell(study, "erm", "art", selection="oracle") == "60.0"
    assert "batch 96" in " ".join(accuracy_table(study, "oracle").caption)  # batches of the pairs are smaller
    art_and_photo = next(i for i, p in enumerate(study.plan) if p.cell.test == ("art", "photo"))
    less = without(study, art_and_photo)
    assert cell(less, "erm", "art", selection=rule) == "0 of 1 seed"
    assert cell(less, "erm", "cartoon", selection=rule) == "40.0"
    assert cell(less, "erm", "art", selection="oracle") == "60.0"


def test_published_numbers_follow_ours() -> None:
    lines = (
        Published("erm", "ResNet-18", "paper", {"art": (77.0, 0.6), "average": (79.5, None)}),
        Published("erm", "ResNet-50", "elsewhere", {"average": (86.7, None)}, "oracle"),
    )
    study = studied(small(published=lines), steady)
    table = accuracy_table(study)
    assert [r[:2] for r in table.rows] == [["erm", "here"], ["erm", "ResNet-18, paper"], ["efdmix", "here"]]
    assert table.rows[1][3:] == ["77.0 ± 0.6", "-", "-", "-", "79.5"]
    assert "another backbone (ResNet-18)" in " ".join(table.caption)
    assert "ResNet-50" in accuracy_table(study, "oracle").rows[1][1]
    part = replace(study, domains=["photo", "sketch"], plan=[p for p in study.plan if p.cell.test == ("photo",)])
    assert accuracy_table(part).rows[1][3:] == ["-", "-", "-"]  # the published average covers other columns
    same = studied(small(published=lines, settings={**SHORT, "backbone": "resnet18.tv_in1k"}), steady)
    assert "same backbone" in " ".join(accuracy_table(same).caption)


def test_comparisons() -> None:
    recipe = small(orders=(("erm", "efdmix"),), contrasts=(("efdmix", "erm"),))
    table = comparison_table(studied(recipe, steady))
    assert table.rows[0][:2] == ["efdmix - erm", "+3.00"]
    caption = " ".join(table.caption)
    assert "Order erm < efdmix: supported." in caption
    assert "corrected for the 2 comparisons" in caption
    verdict = table.head.index("verdict")
    assert [row[verdict] for row in table.rows] == ["significant", "significant"]
    assert table.rows[0][verdict - 2 : verdict] == ["< 0.001", "< 0.001"]
    less = comparison_table(without(studied(recipe, steady), 0))
    assert less.rows[0][:2] == ["efdmix - erm", "11 of 12 pairs"]
    assert less.rows[0][less.head.index("verdict")] == "incomplete"


def test_orders_skip_rows_that_were_not_selected() -> None:
    methods = ["erm", "mixstyle", "efdmix"]
    recipe = small(methods=methods, orders=(tuple(methods),), separate_contrasts=(("erm", "mixstyle"),))
    study = studied(recipe, steady)
    selected = replace(study, plan=[planned for planned in study.plan if planned.row != "mixstyle"])
    made = [table for table in tables(selected) if "comparisons" in table.title]
    assert not any("separate" in table.title for table in made)
    assert [row[:2] for row in made[0].rows] == [["efdmix - erm", "+3.00"]]
    caption = " ".join(made[0].caption)
    assert "Order" not in caption
    assert "rows are missing: mixstyle" in caption


def test_separate_contrasts_do_not_weaken_the_claims() -> None:
    def noisy(settings: Settings, step: int, split: str, domain: str) -> float:
        return 60 + {"erm": 0, "mixstyle": 1 + 0.4 * settings.seed, "efdmix": 2}[settings.method]

    recipe = small(methods=["erm", "mixstyle", "efdmix"], orders=(("erm", "mixstyle"),))
    more = replace(recipe, separate_contrasts=(("erm", "efdmix"), ("mixstyle", "efdmix")))
    before, after = (
        [table for table in tables(studied(each, noisy)) if "comparisons" in table.title] for each in (recipe, more)
    )
    assert [table.title for table in after] == [before[0].title, before[1].title, "small: separate comparisons, last"]
    assert after[0].rows == before[0].rows
    assert len(after[-1].rows) == 2
    assert "corrected for the 2 comparisons" in " ".join(after[-1].caption)


def test_missing_rows_are_named() -> None:
    """One row and one column of a recipe."""
    study = studied(small(methods=["erm", "efdmix"], orders=(("erm", "efdmix"),)), steady)
    part = replace(study, plan=[p for p in study.plan if p.row == "erm" and p.cell.test == ("photo",)])
    *others, table = tables(part)
    assert [other.title for other in others] == [f"small: {rule}" for rule in part.recipe.selections]
    assert table.rows == []
    assert table.caption[0].endswith("rows are missing: efdmix.")
    for form in ("text", "markdown"):
        assert "second - first" not in render(table, form)
        assert "rows are missing" in render(table, form)
    assert tables(study)[-1].title == "small: selection rules"


def test_rules_with_comparisons() -> None:
    def titles(**more: Any) -> list[str]:
        made = tables(studied(small(orders=(("erm", "efdmix"),), **more), steady))
        return [table.title for table in made if "comparisons" in table.title]

    last, chosen, best = (f"small: comparisons, {rule}" for rule in ("last", "training-domain validation", "oracle"))
    assert titles() == [last, chosen]
    assert titles(selections=("last", "oracle")) == [last]
    assert titles(selections=("oracle",)) == [best]
    assert titles(grid={"lr": (0.1, 0.01)}) == [chosen, best]  # "last" does not choose among hyperparameters


@pytest.mark.parametrize("grid", [{}, {"lr": (0.1, 0.01, 0.3)}], ids=["one setting", "a grid of equals"])
def test_order_of_records_does_not_matter(grid: dict[str, Any]) -> None:
    recipe = small(orders=(("erm", "efdmix"),), grid=grid)
    study = studied(recipe, steady)
    turned = replace(study, plan=list(reversed(study.plan)), runs=dict(reversed(study.runs.items())))
    for form in FORMATS:
        assert [render(t, form) for t in tables(study)] == [render(t, form) for t in tables(turned)]


def test_csv_cells_are_numbers_or_empty() -> None:
    line = Published("erm", "ResNet-18", "paper", {"art": (77.0, 0.6), "average": (79.5, None)})
    study = without(studied(small(published=(line,)), steady), 0)
    table = accuracy_table(study)
    ours, theirs, _ = csv.DictReader(io.StringIO(render(table, "csv")))
    assert list(ours)[:5] == ["method", "source", "seeds", "art mean", "art population std"]
    assert (ours["seeds"], float(ours["cartoon mean"])) == ("3", 72)
    assert float(ours["cartoon population std"]) == pytest.approx(statistics.pstdev([70, 72, 74]), abs=1e-4)
    assert ours["art mean"] == ours["art population std"] == ours["average mean"] == ""  # a seed is missing
    names = ("seeds", "art mean", "art population std", "photo mean", "average mean", "average population std")
    assert [theirs[name] for name in names] == ["", "77.0000", "0.6000", "", "79.5000", ""]
    ours, theirs, _ = csv.DictReader(io.StringIO(render(accuracy_table(study, std="error"), "csv")))
    assert float(ours["cartoon standard error"]) == pytest.approx(2 / 3**0.5, abs=1e-4)
    assert theirs["art standard error"] == ""  # published as a population standard deviation


def test_latex() -> None:
    table = replace(accuracy_table(studied(small(), steady)), rows=[["a_b & 100 %", "61.0 ± 0.8", *["-"] * 6]])
    *comments, begin, head, line, row, end = render(table, "latex").splitlines()
    assert all(comment.startswith("% ") for comment in comments)
    assert (begin, line, end) == (r"\begin{tabular}{lrrrrrrr}", r"\hline", r"\end{tabular}")
    assert head.startswith("method & source & seeds & art ")
    assert row.startswith(r"a\_b \& 100 \% & 61.0 $\pm$ 0.8 & - ")
    assert row.endswith(r"- \\")


def test_formats() -> None:
    table = accuracy_table(studied(small(), steady))
    markdown = render(table, "markdown").splitlines()
    assert len({line.count("|") for line in markdown if line.startswith("|")}) == 1
    text = render(table).splitlines()
    assert text[2].split()[:4] == ["method", "source", "seeds", "art"]
    with pytest.raises(ValueError, match="form='html'"):
        render(table, "html")
