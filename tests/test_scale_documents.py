"""The figures of the guide to large jobs and of the guide to exports follow from the records."""

from pictures_report import speed
from records import read_record
from test_documents import words_of


def test_100_million_pictures() -> None:
    text = words_of("docs/guide/scale.md")
    rows = {row["stage"]: row for row in read_record("bulk-cpu.json")["rows"]}
    gpu = speed()["cuda"]["small", "efdm", "prepared", 1]["pictures_per_second"]
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
        times = f"{row['cpu_seconds']:.2f} s | {row['torch_cpu_seconds']:.2f} s | {255 * row['difference']:.3f}/255 |"
        assert f"| `{row['part']}` | {row['megabytes']:.1f} MB | {times}" in text, times
