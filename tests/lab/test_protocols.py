import pytest
import torch
from sweeps import DOMAINS, small_set

from efdm.lab.protocols import PROTOCOLS, Cell, hold_out


@pytest.mark.parametrize("name", PROTOCOLS)
def test_cells_partition_the_domains(name: str) -> None:
    cells = PROTOCOLS[name].cells(DOMAINS)
    assert len(cells) == len(set(cells)) == 4
    for cell in cells:
        assert not set(cell.train) & set(cell.test)
        assert sorted(cell.train + cell.test) == sorted(DOMAINS)
    assert [PROTOCOLS[name].column(cell) for cell in cells] == list(DOMAINS)


def test_training_and_test_domains_of_a_cell() -> None:
    assert PROTOCOLS["leave-one-out"].cells(DOMAINS)[1] == Cell(("art", "photo", "sketch"), ("cartoon",))
    assert PROTOCOLS["single-source"].cells(DOMAINS)[1] == Cell(("cartoon",), ("art", "photo", "sketch"))


def test_cross_validation_leaves_out_every_pair() -> None:
    pairs = PROTOCOLS["domainbed"].validation_cells(DOMAINS)
    assert len({frozenset(cell.test) for cell in pairs}) == len(pairs) == 6
    assert all(len(cell.train) == 2 for cell in pairs)
    with pytest.raises(ValueError, match="no second training domain"):
        PROTOCOLS["single-source"].validation_cells(DOMAINS)


@pytest.mark.parametrize("domains", [[], ["art"], ["art", "art", "photo"]], ids=["none", "one", "duplicate"])
def test_too_few_domains(domains: list[str]) -> None:
    with pytest.raises(ValueError, match="different domains"):
        PROTOCOLS["leave-one-out"].cells(domains)


def test_domainbed_batch_is_per_domain() -> None:
    protocol = PROTOCOLS["domainbed"]
    three, two = protocol.cells(DOMAINS)[0], protocol.validation_cells(DOMAINS)[0]
    assert (protocol.settings_for(three)["batch"], protocol.settings_for(three)["domains_per_batch"]) == (96, 3)
    assert (protocol.settings_for(two)["batch"], protocol.settings_for(two)["domains_per_batch"]) == (64, 2)
    assert (protocol.settings["iterations"], protocol.settings["evaluate_every"]) == (5001, 300)
    assert PROTOCOLS["leave-one-out"].settings_for(three) == {}


def test_held_out_pictures() -> None:
    data = small_set()
    first, again, other = (hold_out(data, seed) for seed in (0, 0, 1))
    for domain in DOMAINS:
        parts = first.splits[domain]
        every = data.select(domain)
        assert len(parts["val"]) == len(every) // 5
        assert torch.equal(torch.cat([parts["train"], parts["val"]]).sort().values, every)
        assert torch.equal(parts["test"], every)
        assert torch.equal(parts["val"], again.splits[domain]["val"])
    assert any(not torch.equal(first.splits[d]["val"], other.splits[d]["val"]) for d in DOMAINS)
    assert first.images is data.images  # not copied


def test_held_out_pictures_do_not_depend_on_file_order() -> None:
    data = small_set()
    turned = data.subset(torch.arange(len(data)).flip(0))
    names = [{s.names[i] for i in hold_out(s, 7).splits["art"]["val"].tolist()} for s in (data, turned)]
    assert names[0] == names[1]


def test_too_few_pictures_to_hold_some_out_are_refused() -> None:
    data = small_set()
    with pytest.raises(ValueError, match=r"art has only 4 pictures.*at least 5"):
        hold_out(data.subset(data.select("art")[:4]), 0)
