import itertools
import pickle
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from efdm.data.samplers import Batches, domain_batches, identity_batches, uniform_batches
from efdm.errors import SettingError

POOLS = {"art": torch.arange(0, 40), "photo": torch.arange(100, 130), "sketch": torch.arange(200, 290)}


def whole(batches: Batches) -> list[Tensor]:
    expected = len(batches)
    out = list(batches)
    assert len(out) == expected
    assert all(rows.dtype == torch.int64 for rows in out)
    return out


def per_domain(indices: Tensor) -> dict[str, int]:
    return {name: int(torch.isin(indices, pool).sum()) for name, pool in POOLS.items() if torch.isin(indices, pool).any()}


PEOPLE = torch.arange(7).repeat_interleave(torch.tensor([1, 2, 5, 9, 20, 30, 33]))  # of 100 pictures

# epochs of 11, 10, 4 and 8 iterations
SAMPLERS = {
    "uniform": lambda **options: uniform_batches(torch.arange(50, 140), 8, **options),
    "two_of_three_domains": lambda **options: domain_batches(POOLS, 16, domains=2, **options),
    "all_domains": lambda **options: domain_batches(POOLS, 36, domains="all", **options),
    "people": lambda **options: identity_batches(torch.arange(100), PEOPLE, 12, instances=4, **options),
}
samplers = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)


@samplers
def test_a_resumed_run_continues_exactly(sampler) -> None:
    run = sampler(epochs=3, seed=5)
    once = whole(run)
    for start in (0, 1, run.per_epoch - 1, run.per_epoch, run.per_epoch + 3, 3 * run.per_epoch):
        resumed = replace(run, start=start)
        rest = whole(resumed)
        assert len(rest) == len(once) - start
        assert all(torch.equal(a, b) for a, b in zip(rest, once[start:], strict=True))
    assert whole(resumed) == []  # finished


@samplers
def test_an_endless_run_starts_like_a_finite_one(sampler) -> None:
    finite = sampler(epochs=2, seed=1)
    endless = sampler(epochs="endless", seed=1)
    assert all(torch.equal(a, b) for a, b in zip(finite, endless, strict=False))
    assert len(list(itertools.islice(endless, 3 * finite.per_epoch))) == 3 * finite.per_epoch
    with pytest.raises(TypeError, match="endless"):
        len(endless)


@samplers
def test_draws_depend_on_seed_and_epoch_but_not_on_the_global_generator(sampler) -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    run = sampler(epochs=1)
    copy = pickle.loads(pickle.dumps(run))
    first = whole(run)
    assert all(torch.equal(a, b) for a, b in zip(first, copy, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(7)
    assert all(torch.equal(a, b) for a, b in zip(first, sampler(epochs=1), strict=True))
    epochs = [sampler(seed=seed).epoch(number) for seed in (0, 1, 2) for number in (0, 1, 2)]
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(epochs, 2))


@samplers
def test_iterating_again_continues_with_the_next_epoch_unless_it_is_set(sampler) -> None:
    once = whole(sampler(epochs=3))
    batches = sampler(epochs="endless")
    assert len(list(itertools.islice(batches, 2))) == 2
    assert torch.equal(next(iter(batches)), once[batches.per_epoch])
    batches = sampler()
    batches.set_epoch(1, step=2)
    rest = whole(batches) + whole(batches)  # a loop over epochs
    assert all(torch.equal(a, b) for a, b in zip(rest, once[batches.per_epoch + 2 :], strict=True))
    batches.set_epoch(0)
    assert torch.equal(next(iter(batches)), once[0])
    with pytest.raises(ValueError, match=f"steps 0 to {batches.per_epoch - 1}"):
        batches.set_epoch(1, batches.per_epoch)


@samplers
def test_ranks_partition_the_global_batch(sampler) -> None:
    world = 2
    alone = whole(sampler(epochs=2))
    ranks = [whole(sampler(epochs=2, rank=rank, world=world)) for rank in range(world)]
    for together, parts in zip(alone, zip(*ranks, strict=True), strict=True):
        assert torch.equal(torch.cat(parts).sort().values, together.sort().values)
        assert len({len(part) for part in parts}) == 1


@pytest.mark.gpu
@samplers
def test_a_gpu_gets_the_same_batches(sampler) -> None:
    for here, there in zip(sampler(epochs=2), sampler(epochs=2, device="cuda"), strict=True):
        assert there.is_cuda
        assert torch.equal(here, there.cpu())


def test_an_epoch_draws_every_picture_at_most_once() -> None:
    for n in (16, 17, 23):
        pool = torch.arange(1000, 1000 + n)
        batches = whole(uniform_batches(pool, 8))
        assert [len(b) for b in batches] == [8] * (n // 8)
        taken = torch.cat(batches)
        assert len(taken.unique()) == len(taken)
        assert torch.isin(taken, pool).all()
    dropped = [set(range(9)) - set(uniform_batches(range(9), 8).epoch(e).tolist()) for e in range(60)]
    assert set.union(*dropped) == set(range(9))  # fails for less than 1 % of seeds


def test_orders_are_uniform() -> None:
    run = uniform_batches(range(4), 4, epochs=2400)
    seen = dict.fromkeys(itertools.permutations(range(4)), 0)
    for batch in run:
        seen[tuple(batch.tolist())] += 1
    assert all(60 < count < 140 for count in seen.values())  # 100 expected, deviation 10


def test_k_domains_in_equal_consecutive_parts() -> None:
    pairs: dict[tuple[str, ...], int] = {}
    for batch in whole(domain_batches(POOLS, 16, domains=2, per_epoch=300)):
        first, second = per_domain(batch[:8]), per_domain(batch[8:])
        assert [*first.values(), *second.values()] == [8, 8]
        both = (*first, *second)
        assert len(set(both)) == 2
        assert len(batch.unique()) == 16  # all pools are larger than their part
        pairs[both] = pairs.get(both, 0) + 1
    assert len(pairs) == 6
    assert all(25 < count < 75 for count in pairs.values())  # 50 expected, deviation 6


def test_every_rank_draws_the_same_domains_in_equal_parts() -> None:
    assert all(per_domain(batch) == dict.fromkeys(POOLS, 12) for batch in whole(domain_batches(POOLS, 36)))
    ranks = [whole(domain_batches(POOLS, 16, domains=2, rank=rank, world=2)) for rank in (0, 1)]
    for one, other in zip(*ranks, strict=True):
        assert per_domain(one) == per_domain(other)
        assert set(per_domain(one).values()) == {4}
        assert len(per_domain(one[:4])) == 1  # one domain per half, as pairing by halves requires


def test_pictures_of_a_domain_are_drawn_equally_often() -> None:
    taken = torch.cat(whole(domain_batches(POOLS, 36, per_epoch=2, epochs=500)))
    for pool in POOLS.values():
        times = torch.bincount(taken)[pool].float()
        expected = 1000 * 12 / len(pool)
        assert ((times - expected).abs() < 5 * expected**0.5).all()


def test_no_repetition_before_all_pictures_of_a_domain() -> None:
    taken = torch.cat(whole(domain_batches([torch.arange(20), torch.arange(100, 200)], 10, domains="all", per_epoch=8)))
    small = taken[taken < 100].reshape(2, 20)  # two rounds of four parts of 5
    assert all(len(rounds.unique()) == 20 for rounds in small)
    assert not torch.equal(small[0], small[1])


@pytest.mark.parametrize("size", [3, 1, 8, 7])
def test_a_domain_smaller_than_its_part(size: int) -> None:
    part = 8
    for batch in whole(domain_batches([torch.arange(size), torch.arange(100, 200)], 2 * part, per_epoch=20)):
        times = torch.bincount(batch[batch < 100], minlength=size)
        assert times.sum() == part
        assert times.min() == part // size
        assert times.max() == -(-part // size)


def test_length_of_an_epoch() -> None:
    for options, length in (({}, 160 // 16), ({"epochs": 3, "start": 12}, 18), ({"epochs": 3, "per_epoch": 34}, 102)):
        assert len(domain_batches(POOLS, 16, domains=2, **options)) == length
    assert len(domain_batches([[1], [2]], 64)) == 1  # fewer pictures than a batch


ERRORS = [
    (lambda: uniform_batches(range(8), 4, rank=2, world=2), "rank 2 of 2"),
    (lambda: uniform_batches(range(8), 3, world=2), "multiple of world=2, got 3"),
    (lambda: uniform_batches(range(8), 0), "batch must be .*got 0"),
    (lambda: uniform_batches(torch.empty(0, dtype=torch.int64), 4), "at least one picture"),
    (lambda: uniform_batches(torch.ones(8, dtype=torch.bool), 4), r"torch.bool \(8,\)"),
    (lambda: uniform_batches(range(5), 8), "5 pictures do not fill one batch of 8"),
    (lambda: uniform_batches(range(8), 4, start=3), "start is 3, expected an iteration of 1 x 2"),
    (lambda: uniform_batches(range(8), 4, start=-1), "start is -1"),
    (lambda: domain_batches(POOLS, 16, domains=4), "got 4 for 3 pools"),
    (lambda: domain_batches(POOLS, 0), "batch must be .*got 0"),
    (lambda: domain_batches(POOLS, 6, domains=2, world=2), "multiple of 4 .*2 domains.*got 6"),
    (lambda: domain_batches([], 16), "got all for 0 pools"),
]


def test_errors() -> None:
    for call, sentence in ERRORS:
        with pytest.raises(ValueError, match=sentence):
            call()


def test_batches_of_people_hold_equally_many_pictures_of_each() -> None:
    pool = 2 * torch.randperm(50) + 1
    people = PEOPLE + 1000
    seen = torch.zeros(100)
    for batch in identity_batches(pool, people, 12, instances=4, epochs=200):
        groups = people[batch].view(3, 4)
        assert (groups == groups[:, :1]).all()
        assert len(groups[:, 0].unique()) == 3
        for group in batch.view(3, 4):
            there = int((people[pool] == people[group[0]]).sum())
            assert len(group.unique()) == min(4, there)  # repeated only if there are fewer than four
        seen += torch.bincount(batch, minlength=100)  # with repetitions
    assert seen[pool].all()
    assert not seen[0::2].any()
    drawn = torch.stack([seen[people == person].sum() for person in people[pool].unique()])
    assert drawn.std() < 0.1 * drawn.mean()  # people are drawn equally often, whatever the number of their pictures


def test_batches_of_people_that_cannot_be_filled() -> None:
    for batch, instances, words in ((10, 4, "multiple of instances=4"), (0, 4, "got 0"), (32, 4, "7 people"), (8, 0, "=0")):
        with pytest.raises(SettingError, match=words) as error:
            identity_batches(torch.arange(100), PEOPLE, batch, instances=instances)
        assert error.value.settings == ("batch", "instances")
