"""The numbers in the documents on style transfer, large jobs and exports follow from the records."""

from pathlib import Path

import pictures_report
from pictures_report import cell
from records import read_record
from test_documents import ROOT, words_of

from efdm.models.weights import WEIGHTS
from efdm.style.evaluate import read_records
from efdm.style.report import groups, mean_and_error


def test_the_comparison_of_methods() -> None:
    words = words_of("docs/guide/train-style.md")
    sweeps = pictures_report.method_sweeps()
    ours, adain = (sweeps[m][-1] for m in ("efdm", "adain"))
    pairs = [[(r["content"], r["style"]) for r in g.records] for g in (ours, adain)]
    assert pairs[0] == pairs[1]
    assert len(set(pairs[0])) == 60

    def lead(measure: str) -> tuple[float, float]:
        return mean_and_error([a - b for a, b in zip(ours.values(measure), adain.values(measure), strict=True)])

    mean, error = lead("style_distance")
    assert f"its difference from AdaIN is smaller than the standard error ({mean:.3f} ± {error:.3f} over pairs)" in words
    assert abs(mean) < error
    assert min(sweeps, key=lambda m: mean_and_error(sweeps[m][-1].values("style_distance"))[0]) == "efdm"
    for lpips in pictures_report.EQUAL_CONTENT:
        at = {m: pictures_report.style_at(s, lpips) for m, s in sweeps.items()}
        reached = sorted((v, m) for m, v in at.items() if v is not None)
        assert at["adain"] < at["efdm"]
        assert reached[0][1] == ("adain" if at["adamean"] is None else "adamean")
    less = []
    for measure in ("skewness_error", "kurtosis_error", "infinity_norm_error"):
        mean, error = lead(measure)
        assert mean < -4 * error
        less.append(f"{-100 * mean / mean_and_error(adain.values(measure))[0]:.0f} %")
    assert "{} lower for skewness, {} for kurtosis and {} for the infinity norm".format(*less) in words
    weakest = [mean_and_error(s[0].values("lpips"))[0] for s in sweeps.values()]
    assert f"at strength 0.25 LPIPS is still {min(weakest):.2f} to {max(weakest):.2f}" in words
    light = next(g for g in groups(read_records(ROOT / "results/style/style-weight")) if g.label == "w2 efdm 1")
    both = [f"{mean_and_error(g.values(m))[0]:.3f}" for g in (light, adain) for m in ("lpips", "style_distance")]
    assert "has {} and {}, below AdaIN's {} and {} in both".format(*both) in words


def test_the_model_cards() -> None:
    found = pictures_report.quality()
    for label, name in (("small efdm 1", "small.md"), ("vgg16 efdm 1", "vgg16-efdm.md")):
        group = found[label]
        assert WEIGHTS[Path(name).stem].sha256.startswith(str(group.candidate["weights"])), "another file was measured"
        quality = f"content LPIPS {cell(group, 'lpips')}, style distance {cell(group, 'style_distance')}"
        assert quality in words_of(f"docs/models/{name}")
    card = words_of("docs/models/small.md")
    before = {g.label: g for g in groups(read_records(ROOT / "results/style/small-start"))}["small efdm 1"]
    changes = {"content LPIPS": "lpips", "edge SSIM": "edge_ssim", "style distance": "style_distance"}
    for words, measure in changes.items():
        was, now = (mean_and_error(g.values(measure))[0] for g in (before, found["small efdm 1"]))
        assert f"{words} from {was:.3f} to {now:.3f}" in card
    (itself,) = (g for g in groups(read_records(ROOT / "results/style/identity")) if g.candidate["kind"] == "network")
    assert WEIGHTS["small"].sha256.startswith(str(itself.candidate["weights"]))
    assert all(r["content"] == r["style"] for r in itself.records)
    assert f"is reproduced with an LPIPS of {cell(itself, 'lpips')} ({len(itself.records)} photographs" in card
    assert mean_and_error(itself.values("lpips"))[0] <= 0.25


def test_hard_pairs() -> None:
    means = read_record("hard-pairs.json")["means"]
    adain, exact, default, stroke = (means[setting] for setting in ("adain", "exact", "default", "stroke 2"))
    ratios = [f"{row['flat_variance'] / adain['flat_variance']:.1f}" for row in (default, exact)]
    assert float(ratios[0]) <= 2
    assert default["content_lpips"] <= 0.60
    card = words_of("docs/models/small.md")
    assert "inside flat blocks is {} times that of AdaIN instead of {} times".format(*ratios) in card
    assert f"{default['content_lpips']:.3f} instead of {exact['content_lpips']:.3f}" in card
    assert f"grows from {default['wavelength']:.1f} to {stroke['wavelength']:.1f} pixels" in card


def test_quality_and_speed_targets() -> None:
    found = pictures_report.quality()
    for label, most_lpips, most_style in (("small efdm 1", 0.58, 0.160), ("vgg16 efdm 1", 0.65, 0.18)):
        lpips, style = (mean_and_error(found[label].values(m))[0] for m in ("lpips", "style_distance"))
        assert lpips <= most_lpips
        assert style <= most_style
    cpu, gpu = pictures_report.speed().values()
    assert cpu["small", "efdm", "prepared", 1]["seconds"] <= 0.25
    assert cpu["vgg16", "efdm", "prepared", 1]["seconds"] >= 6 * cpu["small", "efdm", "prepared", 1]["seconds"]
    assert gpu["vgg16", "efdm", "prepared", 1]["pictures_per_second"] >= 256
    assert gpu["vgg16", "efdm", "prepared", 8]["pictures_per_second"] >= 500
    for kind, most in (("vgg16", 1.05), ("small", 1.15)):  # exact; with a tolerance
        ratios = [
            row["seconds"] / times[network, "adain", style, batch]["seconds"]
            for times in (cpu, gpu)
            for (network, method, style, batch), row in times.items()
            if (network, method) == (kind, "efdm")
        ]
        assert max(ratios) <= most
        assert f"for `{kind}` {min(ratios):.2f} to {max(ratios):.2f} times" in words_of("README.md")


def test_precision() -> None:
    fp32, bf16 = read_record("precision-cpu.json")["rows"]
    ratio = bf16["pictures_per_second"] / fp32["pictures_per_second"]
    assert ratio >= 1.3
    assert f"a folder takes {ratio:.2f} times as long in `fp32`" in words_of("docs/guide/stylize.md")
    assert all(abs(bf16[measure] - fp32[measure]) < 0.001 for measure in ("content_lpips", "style_distance"))


def test_photorealistic_modes() -> None:
    """The recommendations of the guide follow from the record."""
    record = read_record("photoreal.json")
    means = record["means"]
    made = [name for name in means if name != "content"]
    assert max(made, key=lambda name: means[name]["edge_ssim"]) == "grid"
    assert min(made, key=lambda name: means[name]["lpips"]) == "grid"
    assert means["guided"]["color_distance"] < means["grid"]["color_distance"]
    assert min(made, key=lambda name: means[name]["color_distance"]) == "match"
    assert f"at {record['size']} pixels on the {record['pairs']} pairs" in words_of("docs/guide/stylize.md")


def test_100_million_pictures() -> None:
    text = words_of("docs/guide/scale.md")
    rows = {row["stage"]: row for row in read_record("bulk-cpu.json")["rows"]}
    gpu = pictures_report.speed()["cuda"]["small", "efdm", "prepared", 1]["pictures_per_second"]
    read, stylize, encode, job = (rows[stage]["cpu_seconds"] for stage in ("read", "stylize", "encode", "job"))
    beside = read + encode
    rate, count = 16 / beside, 1e8
    core_hours, machine_hours = count * job / 3600, count / rate / 3600
    for figure in (
        f"{1000 * read:.0f} ms to read a JPEG, {1000 * stylize:.0f} ms to stylize it",
        f"{1000 * encode:.0f} ms to encode a PNG; {job:.2f} s in a whole job",
        f"at most {gpu:.0f} pictures per second",
        f"takes {1000 * beside:.0f} ms of a core to read and encode",
        f"{1 / job:.1f} per core",
        f"{rate:.0f} per machine, limited by the cores; {gpu * beside:.0f} cores",
        f"{core_hours:,.0f} core hours: {core_hours / 1000:.0f} h on 1,000 cores",
        f"{machine_hours:.0f} machine hours: {machine_hours / 16:.0f} h on 16 machines",
        f"${core_hours * 0.04:,.0f} at $0.04 per core hour",
        f"${machine_hours * 4:,.0f} at $4 per machine hour",
        f"{count * rows['bytes']['read'] / 1e12:.0f} TB and {count * rows['bytes']['written'] / 1e12:.0f} TB",
        f"{rate * rows['bytes']['written'] / 1e6:.0f} MB/s written per machine",
    ):
        assert figure in text, figure


def test_the_speed_of_exported_networks() -> None:
    text = words_of("docs/guide/export.md")
    rows = read_record("export-cpu.json")["rows"]
    ratios = [row["cpu_seconds"] / row["torch_cpu_seconds"] for row in rows]
    assert f"takes {min(ratios):.1f} to {max(ratios):.1f} times as long as PyTorch" in text
    for row in rows:
        assert row["difference"] <= 2 / 255
        times = [f"{1e3 * row[entry]:.0f} ms" for entry in ("cpu_seconds", "torch_cpu_seconds")]
        cells = [f"`{row['part']}`", f"{row['megabytes']:.1f} MB", *times, f"{255 * row['difference']:.3f}/255"]
        assert " | ".join(cells) in text, cells
