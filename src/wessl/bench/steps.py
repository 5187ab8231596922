"""A training step with 1, 4 and 16 heads, beside the same step written plainly."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from wessl.bench.baseline import Baseline
from wessl.bench.memory import peak_bytes
from wessl.bench.pictures import pictures
from wessl.bench.rate import matrix_rate
from wessl.bench.turns import Measured, Work, in_turns
from wessl.config import Config, EncoderConfig, HeadsConfig, OptimConfig, Options
from wessl.data.views.config import dino_views, drawing_views
from wessl.pretrain.cost import batch_that_fits, flops_per_image, peak_flops
from wessl.pretrain.model import build_model
from wessl.pretrain.schedules import schedule
from wessl.pretrain.step import Views
from wessl.pretrain.trainer import Trainer
from wessl.settings import override

HEADS = (1, 4, 16)


@dataclass(frozen=True)
class Subject:
    """A training to be measured with every number of heads."""

    name: str
    config: Config
    options: Options = field(default_factory=Options)

    def with_heads(self, m: int) -> "Subject":
        config = override(self.config, {"heads.count": m})
        name = f"{self.name}, {config.precision}, batch {config.optim.batch_size}, m = {m}"
        return Subject(name, config, self.options)

    def in_precision(self, precision: str) -> "Subject":
        return replace(self, config=override(self.config, {"precision": precision}))


def subjects(device: torch.device, quick: bool, half: bool) -> list[list[Subject]]:
    """Trainings; one in several precisions, which are measured in turns, is a list of them.

    ``half`` says whether the device multiplies bf16 itself.
    """
    if device.type == "cpu":
        precisions = ("fp32", "bf16") if half else ("fp32",)
        trainings = [drawings(quick), photographs(quick), transformer(quick)]
        return [[training.in_precision(p) for p in precisions] for training in trainings]
    precision, options = "bf16" if half else "fp32", Options(device=str(device))
    if quick:
        return [[quick_on_gpu(options).in_precision(precision)]]
    return [[transformer_on_gpu(precision, options, torch.cuda.mem_get_info(device)[0])]]


def drawings(quick: bool) -> Subject:
    """What ``wessl demo`` trains."""
    config = Config(
        encoder=EncoderConfig(kind="conv", image_size=16, drop_path=0.0),
        heads=HeadsConfig(depth=1, embed_dim=8, codes=128),
        optim=OptimConfig(batch_size=16 if quick else 64),
        views=drawing_views(16),
        short_side=8,
        channels=1,
    )
    return Subject("conv encoder, 2x16", config)


def photographs(quick: bool) -> Subject:
    """What photographs get on a CPU, in fewer pictures a step and with whole heads."""
    batch = 4 if quick else 16
    config = Config(
        encoder=EncoderConfig(kind="conv", image_size=64, drop_path=0.0),
        heads=HeadsConfig(depth=1, embed_dim=64, codes=2 * batch),
        optim=OptimConfig(batch_size=batch),
        views=dino_views(64, 32, 6),
        short_side=96,
    )
    return Subject("conv encoder, 2x64 + 6x32", config)


def transformer(quick: bool) -> Subject:
    """What they get by ``--encoder.kind vit``, likewise."""
    batch, depth, hidden = (4, 2, 128) if quick else (16, 6, 1024)
    config = Config(
        encoder=EncoderConfig(size="T", patch_size=8, image_size=64, depth=depth),
        heads=HeadsConfig(hidden_dim=hidden, codes=2 * batch),
        optim=OptimConfig(batch_size=batch),
        views=dino_views(64, 32, 6),
        short_side=64,
    )
    return Subject(f"ViT-T/8 of {depth} blocks, 2x64 + 6x32", config)


def transformer_on_gpu(precision: str, options: Options, free_memory: float) -> Subject:
    config = Config(heads=HeadsConfig(count=max(HEADS), codes=1024))
    config = override(config, {"precision": precision})
    # Two fifths: the plain step needs more, and both are there at once.
    batch = min(256, batch_that_fits(config, 0.4 * free_memory))
    config = override(config, {"optim.batch_size": batch})
    return Subject("ViT-S/16, 2x224 + 10x96", config, options)


def quick_on_gpu(options: Options) -> Subject:
    """Without compilation, which takes longer than all the rest."""
    config = transformer(quick=False).config
    config = override(config, {"optim.batch_size": 64, "heads.codes": 128})
    name = "ViT-T/8 of 6 blocks, 2x64 + 6x32, not compiled"
    return Subject(name, config, replace(options, compile="off"))


def measure_steps(
    trainings: list[Subject], device: torch.device, seconds: float, least: int
) -> list[Measured]:
    """Rows ``wessl`` and ``plain step`` for each number of heads, all of them in turns."""
    ways = {"wessl": ours, "plain step": plain_step}
    views = views_of(trainings[0], device)
    subject_of: dict[str, Subject] = {}
    works: dict[tuple[str, str], Work] = {}
    memory: dict[tuple[str, str], int] = {}
    for training, m, way in itertools.product(trainings, HEADS, ways):
        subject = training.with_heads(m)
        subject_of[subject.name] = subject
        build = partial(ways[way], subject, device, views)
        key = subject.name, way
        works[key], memory[key] = build_and_weigh(build, device)
    rounds = in_turns(works, device, seconds, least)
    return [
        row(subject_of[name], way, times, memory[name, way], device)
        for (name, way), times in rounds.items()
    ]


def row(
    subject: Subject, way: str, times: list[float], memory: int, device: torch.device
) -> Measured:
    """With the share of the chip's rate: the data sheet's, or else that of its large products."""
    config, batch = subject.config, subject.config.optim.batch_size
    measured = Measured("step", subject.name, way, times, batch, {"bytes": memory})
    done, half = flops_per_image(config) * batch / measured.seconds, config.precision == "bf16"
    known = half and device.type == "cuda"  # the sheet's rate is of half precision
    rate = peak_flops(torch.cuda.get_device_name(device)) if known else None
    if rate is not None:
        measured.facts["mfu"] = done / rate
    else:
        rate = matrix_rate(device, torch.bfloat16 if half else torch.float32)
        measured.facts["of_products"] = done / rate
    return measured


def ours(subject: Subject, device: torch.device, views: Views) -> Work:
    return partial(build_trainer(subject, device).train_step, views)


def plain_step(subject: Subject, device: torch.device, views: Views) -> Work:
    config = subject.config
    baseline = Baseline(config, build_model(config).to(device))
    now = schedule(500, 100_000, 1000, config.optim, config.loss, config.heads.codes)
    return lambda: baseline.train_step(views, now)


def build_and_weigh(build: Callable[[], Work], device: torch.device) -> tuple[Work, int]:
    """The work, and the memory of its networks, its optimiser and its second step."""
    works: list[Work] = []

    def begin() -> None:
        works.append(build())
        works[0]()
        works[0]()  # now the optimiser has its moments

    size = peak_bytes(begin, device)
    return works[0], size


def views_of(subject: Subject, device: torch.device) -> Views:
    """One batch of views, which all numbers of heads learn from."""
    config = subject.config
    batch = pictures(*batch_shape(config), device)
    return build_trainer(subject, device).prepare(torch.arange(len(batch)), batch)


def batch_shape(config: Config) -> tuple[int, int, int, int]:
    """Pictures, height, width (of photographs four thirds of it) and channels."""
    side = config.short_side
    width = side * 4 // 3 if config.channels == 3 else side
    return config.optim.batch_size, side, width, config.channels


def build_trainer(subject: Subject, device: torch.device) -> Trainer:
    loader: Any = SimpleNamespace(device=device, steps_per_epoch=1000)  # all it asks of a loader
    channels = subject.config.channels
    return Trainer(subject.config, subject.options, loader, ([0.5] * channels, [0.25] * channels))
