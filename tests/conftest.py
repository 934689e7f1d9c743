import math
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

# Small pictures gain nothing from a second thread, and on a busy machine two threads that wait for each other are many times
# slower than one. Set before torch is imported, and inherited by the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

from efdm.models import allow_torchvision

# Background jobs of a shell, and the processes they start, ignore Ctrl-C, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)
allow_torchvision()


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def style_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with four contents, three styles and a VGG with random weights, to train style transfer."""
    from training import noise_pictures, vgg_file

    folder = tmp_path_factory.mktemp("training")
    noise_pictures(folder / "content", 4, seed=1)
    noise_pictures(folder / "style", 3, seed=2)
    vgg_file(folder)
    return folder


@pytest.fixture(scope="module")
def quickly() -> Iterator[None]:
    """Draw few iterations at a time, so that a run has several blocks; disable TensorBoard and reports by the clock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("efdm.recognition.training.BLOCK", 4)
        patch.setattr("efdm.style.training.BLOCK", 2)
        patch.setattr("efdm.style.training.SECONDS", math.inf)
        patch.setitem(sys.modules, "torch.utils.tensorboard", None)
        yield


@pytest.fixture(scope="module")
def narrow_vgg() -> Iterator[None]:
    """Compute the losses of small style networks in the features of a VGG with few channels."""
    from training import slim_vgg

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("efdm.style.training.SLICED_CHANNELS", (8, 8))
        patch.setattr("efdm.style.objective.load_encoder", lambda *_, **__: slim_vgg(until="relu4_3"))
        yield


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)
