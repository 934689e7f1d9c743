"""Reading of many pictures in threads."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from efdm.data.loading import read_all
from efdm.progress import ignore


@pytest.mark.usefixtures("three_threads")
def test_workers_use_one_thread_each_and_others_keep_theirs() -> None:
    def threads(_: object = None) -> Tensor:
        return torch.tensor(torch.get_num_threads())

    found = [int(count) for _, count in read_all([Path("a"), Path("b")], threads, 2, ignore, [])]
    with ThreadPoolExecutor(1) as pool:
        afterwards = [int(threads()), int(pool.submit(threads).result())]
    assert (found, afterwards) == ([1, 1], [3, 3])
