"""How many threads a step on a CPU gets."""

import pytest
import torch

from wessl.bench.steps import drawings, photographs
from wessl.pretrain.threads import suitable_threads
from wessl.settings import override

CPU = torch.device("cpu")


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def in_half(subject, **changes):
    return override(subject.config, {"precision": "bf16", **changes})


def threads_of(config):
    with suitable_threads(config, CPU):
        inside = torch.get_num_threads()
    assert torch.get_num_threads() == 2
    return inside


@pytest.mark.usefixtures("two_threads")
def test_a_small_step_of_half_precision_convolutions_gets_one_thread():
    assert threads_of(in_half(drawings(quick=False))) == 1


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    "config",
    [
        drawings(quick=False).config,
        in_half(drawings(quick=False), **{"optim.batch_size": 512}),
        in_half(photographs(quick=False)),
    ],
    ids=["fp32", "large", "transformer"],
)
def test_other_steps_get_all_of_them(config):
    assert threads_of(config) == 2


@pytest.mark.usefixtures("two_threads")
def test_the_users_own_number_stands(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert threads_of(in_half(drawings(quick=False))) == 2
