"""What only a GPU can show of training: compiled half-precision steps, a host that never waits."""

import pytest
import torch

from wessl.bench.pictures import pictures
from wessl.bench.rate import matrix_rate
from wessl.bench.steps import Subject, batch_shape, build_trainer
from wessl.config import Config, EncoderConfig, HeadsConfig, OptimConfig, Options
from wessl.data.views.config import dino_views
from wessl.encoder import kernels
from wessl.ensemble import parts
from wessl.plan import gpu_speed
from wessl.pretrain import trainer as training
from wessl.settings import override

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
GPU = torch.device("cuda")
METHODS = {
    "dino-star-ent": {},
    "msn-star-ent": {"loss.target": "none", "loss.me_max": 4.0, "loss.mask": 0.2},
}


def small(**changes) -> Config:
    base = Config(
        encoder=EncoderConfig(size="T", patch_size=8, image_size=64, depth=3),
        heads=HeadsConfig(count=4, hidden_dim=256, codes=64),
        optim=OptimConfig(batch_size=32, lr=1e-3, warmup_epochs=0.02),
        views=dino_views(64, 32, 4),
        short_side=64,
        precision="bf16",
    )
    return override(base, changes)


def trained(config: Config, compile: str, steps: int, strict: bool = False) -> list[float]:
    """The loss of every step; ``strict`` fails where the host waits for the device in one."""
    trainer = build_trainer(Subject("step", config, Options(device=str(GPU), compile=compile)), GPU)
    if config.precision == "fp32":
        torch.set_float32_matmul_precision("highest")  # every trainer takes TF32 again
    batch, losses = pictures(*batch_shape(config), GPU), []
    views = trainer.prepare(torch.arange(len(batch)), batch)
    add = trainer.meter.add
    trainer.meter.add = lambda step, terms, loss, *rest: (
        losses.append(loss.clone()),
        add(step, terms, loss, *rest),
    )
    for _ in range(3):  # compiled, warmed up, and recorded where there is a graph
        trainer.train_step(views)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error" if strict else "default")
    try:
        for _ in range(steps - 3):
            trainer.train_step(views)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return [float(loss) for loss in losses]


@pytest.fixture(params=[*METHODS, "dino-star-ent, view by view"])
def method(request, monkeypatch):
    """Of these few pictures the logits of all views go together, where those of many do not."""
    name, _, one_by_one = request.param.partition(", ")
    if one_by_one:
        monkeypatch.setattr(parts, "PART", 0)
    return name


@pytest.mark.parametrize("graphs", [True, False])
def test_the_host_never_waits_in_a_compiled_step(monkeypatch, method, graphs):
    monkeypatch.setattr(training, "GRAPH_PICTURES", 2**30 if graphs else 0)
    losses = trained(small(**METHODS[method]), "on", steps=6, strict=True)
    assert len(losses) == 6
    assert all(torch.isfinite(torch.tensor(losses)))


def test_fifty_compiled_steps_in_half_precision_follow_plain_ones_in_full(monkeypatch, method):
    # At 1e-3 even fp32 parts from itself by up to 2 %, if weights begin a thousandth off.
    config = small(**METHODS[method], **{"optim.lr": 1e-4})
    assert kernels.in_half(torch.empty(0, device=GPU, dtype=torch.bfloat16))
    fast = trained(config, "on", steps=50)
    monkeypatch.setattr(kernels, "in_half", lambda x: False)
    monkeypatch.setattr(kernels, "stream", lambda x: x)
    plain = trained(override(config, {"precision": "fp32"}), "off", steps=50)
    assert min(plain) < 0.98 * plain[0]  # something is learnt
    assert fast == pytest.approx(plain, rel=1e-3)


def test_a_gpu_is_found_as_fast_twice():
    def speed():
        matrix_rate.cache_clear()
        return gpu_speed(GPU)

    assert speed() == pytest.approx(speed(), rel=0.2)  # a step of the scale apart, at most
