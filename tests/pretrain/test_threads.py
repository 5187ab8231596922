"""How many threads a step on a CPU gets."""

import json

import pytest
import torch

import wessl
from wessl.bench.steps import drawings, photographs
from wessl.errors import UserError
from wessl.pretrain import threads
from wessl.pretrain.threads import suitable_threads
from wessl.settings import override
from wessl.verbs import pretrain

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "usable_cores", lambda: 2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def in_half(subject, **changes):
    return override(subject.config, {"precision": "bf16", **changes})


def threads_of(config, processes=1):
    with suitable_threads(config, CPU, processes):
        inside = torch.get_num_threads()
    assert torch.get_num_threads() == 2
    return inside


LARGE = {"optim.batch_size": 512}


def test_a_small_step_of_half_precision_convolutions_gets_one_thread():
    assert threads_of(in_half(drawings(quick=False))) == 1


def test_a_large_one_in_small_parts_too():
    assert threads_of(in_half(drawings(quick=False), **LARGE, **{"optim.accumulate": 8})) == 1
    assert threads_of(in_half(drawings(quick=False), **LARGE), processes=8) == 1


@pytest.mark.parametrize(
    "config",
    [
        drawings(quick=False).config,
        in_half(drawings(quick=False), **LARGE),
        in_half(photographs(quick=False)),
    ],
    ids=["fp32", "large", "transformer"],
)
def test_other_steps_get_all_of_them(config):
    assert threads_of(config) == 2


def test_what_was_not_tried_on_many_cores_is_not_done_there(monkeypatch):
    monkeypatch.setattr(threads, "usable_cores", lambda: 16)
    assert threads_of(in_half(drawings(quick=False))) == 2


def test_the_users_own_number_stands(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert threads_of(in_half(drawings(quick=False))) == 2


@pytest.mark.parametrize("breaks", [False, True])
def test_a_run_has_one_says_so_and_gives_the_others_back(tmp_path, monkeypatch, breaks):
    seen = []

    def train(*_):
        seen.append(torch.get_num_threads())
        raise UserError("broken")

    if breaks:
        monkeypatch.setattr(pretrain, "train", train)
        with pytest.raises(UserError, match="broken"):
            short_run(tmp_path)
        assert seen == [1]
    else:
        short_run(tmp_path)
    assert torch.get_num_threads() == 2
    choices = json.loads((tmp_path / "config.json").read_text())["choices"]
    assert [c["value"] for c in choices if c["setting"] == "threads"] == [1]


def short_run(out):
    wessl.pretrain(
        "builtin://digits/test", out, epochs=1, quiet=True, device="cpu", precision="bf16"
    )
