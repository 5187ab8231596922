"""The plan past one machine: its messages are the code's, its tables are the page's."""

import io
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from wessl.ensemble.loss import head_shares
from wessl.ensemble.targets import me_max, sinkhorn
from wessl.pretrain import cost
from wessl.pretrain.model import build_model, teacher_of
from wessl.recipes import recipe
from wessl.settings import override
from wessl.verbs.completion import flags_of

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "scale.md").read_text()


@pytest.fixture
def model(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import scale_model

    return scale_model


class AllReduces(TorchDispatchMode):
    """The bytes of every all-reduce, as torch sees them."""

    def __init__(self):
        super().__init__()
        self.bytes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "allreduce" in str(func):
            self.bytes += [x.numel() * x.element_size() for x in args[0]]
        return func(*args, **(kwargs or {}))


@pytest.fixture
def group():
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_sinkhorn_sends_what_the_plan_counts(model, group):
    heads = model.Network("S").config.heads
    with AllReduces() as sent:
        sinkhorn(torch.randn(heads.count, 4, heads.codes), temperature=0.05, group=group)
    assert sent.bytes == [model.Network("S").codes] * 6


def test_me_max_sends_what_the_plan_counts(model, group):
    heads = model.Network("S").config.heads
    logits = torch.randn(heads.count, 4, heads.codes, requires_grad=True)
    with AllReduces() as sent:
        shares = head_shares(logits[None], logits[None].softmax(-1), same_views=False, group=group)
        me_max(logits.softmax(-1), group=group, weights=shares).backward()
    codes = model.Network("S").codes
    assert sorted(sent.bytes) == [4, 4 * heads.count, codes, codes]


@pytest.mark.parametrize("size", "SBL")
def test_parameters_agree_with_the_estimate_users_see(model, size):
    network = model.Network(size)
    assert network.parameters == pytest.approx(cost.parameters(network.config), rel=0.01)


def test_a_checkpoint_takes_sixteen_bytes_a_parameter():
    config = override(
        recipe("dino-star-ent/vits16"), {"encoder.size": "T", "encoder.depth": 2, "heads.count": 2}
    )
    student = build_model(config)
    optimizer = torch.optim.AdamW(student.parameters())
    for parameter in student.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    file = io.BytesIO()
    parts = (student.state_dict(), teacher_of(student).state_dict(), optimizer.state_dict())
    torch.save(parts, file)
    count = sum(p.numel() for p in student.parameters())
    assert file.getbuffer().nbytes == pytest.approx(16 * count, rel=0.01)


def test_the_model_goes_through_the_points_it_is_fitted_to(model):
    for size, (batch, rate) in model.MEASURED.items():
        assert batch / model.Network(size).compute(batch) == pytest.approx(rate)
    small = model.Network("S")
    pictures, as_graph, launched = model.SMALL_BATCH
    assert small.fixed + pictures * small.each == pytest.approx(as_graph)
    assert small.compute(pictures) == pytest.approx(launched)


def test_the_form_foretells_the_step_of_two_processes_that_was_measured(model):
    import scale_check

    numbers = sum(p.numel() for p in build_model(scale_check.CONFIG).parameters())
    heads = scale_check.CONFIG.heads
    sent = 4 * numbers + 6 * 4 * heads.count * heads.codes + 12
    by_hand = 1.435 / 2 + 8 * 529e-6 + sent / 1.39e9
    *_, (_, foretold), (_, measured) = scale_check.rows()
    assert foretold == pytest.approx(by_hand)
    assert foretold == pytest.approx(measured, rel=0.1)


def test_a_large_all_reduce_takes_a_rings_time_and_a_small_one_the_latency(model):
    cluster = model.Cluster(efficiency=1.0)
    moved_by_each = 2 * 7 / 8 * 1e12
    assert cluster.all_reduce(1e12, 8) == pytest.approx(moved_by_each / cluster.inside, rel=1e-3)
    assert cluster.all_reduce(4, 512) == pytest.approx(cluster.latency(512), rel=1e-3)
    times = [cluster.all_reduce(1e8, gpus) for gpus in (2, 8, 64, 512)]
    assert times == sorted(times)
    between = cluster.all_reduce(1e12, 512) - cluster.all_reduce(1e12, 8)
    assert between == pytest.approx(2 * 63 / 64 * 1e12 / 8 / cluster.outside, rel=1e-3)


def test_gradients_that_backward_cannot_hide_are_waited_for(model):
    slow = model.Network("L", model.Cluster(inside=1e9, outside=1e9))
    hidden = slow.backward * slow.compute(8)
    whole = slow.cluster.all_reduce(slow.gradients, 64)
    assert slow.exposed(8, 64) == pytest.approx(whole - hidden)
    assert 0.5 < slow.backward < 2 / 3


def test_the_page_shows_what_the_script_prints(model):
    import scale

    for title, make in scale.TABLES.items():
        assert f"## {title}\n" in PAGE
        assert make() in PAGE, f"docs/scale.md, {title}: run python benchmarks/scale.py"


def shell_blocks():
    return re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)


def test_the_examples_are_shell_and_their_flags_exist():
    known, seen = set(flags_of("pretrain")), 0
    for block in shell_blocks():
        done = subprocess.run(["bash", "-n"], input=block, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        for line in block.replace("\\\n", " ").splitlines():
            _, found, words = line.partition("wessl pretrain ")
            if found:
                flags = {w for w in shlex.split(words, comments=True) if w.startswith("--")}
                assert flags <= known
                seen += 1
    assert seen >= 3


@pytest.mark.parametrize("size", ["S", "B", "L"])
@pytest.mark.parametrize("batch", [32, 128])
def test_unsharded_memory_is_what_a_run_is_told_it_will_take(model, size, batch):
    network = model.Network(size)
    config = override(network.config, {"optim.batch_size": batch, "optim.accumulate": 1})
    assert network.memory(batch) == pytest.approx(cost.peak_bytes(config), rel=1e-9)
