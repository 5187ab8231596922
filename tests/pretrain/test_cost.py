import dataclasses

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from wessl.config import Config, EncoderConfig, HeadsConfig
from wessl.data.batch import Batch
from wessl.data.views.config import dino_views, drawing_views
from wessl.pretrain import cost
from wessl.pretrain.batch import mask, prepare
from wessl.pretrain.model import build_model, teacher_of
from wessl.recipes import names, recipe
from wessl.settings import override

SMALL = [
    Config(
        encoder=EncoderConfig(size="T", patch_size=8, image_size=32, dim=96, drop_path=0.0),
        heads=HeadsConfig(count=4, hidden_dim=64, codes=128),
        views=dino_views(32, 16, 3),
    ),
    Config(
        encoder=EncoderConfig(kind="conv", drop_path=0.0),
        heads=HeadsConfig(count=4, hidden_dim=64, codes=128),
        views=drawing_views(16),
        channels=1,
    ),
]


@pytest.mark.parametrize("config", SMALL, ids=["vit", "conv"])
def test_operations_are_those_a_counter_sees(config):
    student = build_model(config)
    teacher = teacher_of(student)
    n, sizes = 2, [(crop.size, crop.count) for crop in config.views.crops]
    views = [torch.randn(count * n, config.channels, size, size) for size, count in sizes]
    of_teacher = sum(crop.role != "local" for crop in config.views.crops)
    with FlopCounterMode(display=False) as counter:
        student.score(student.represent(views), n).sum().backward()
        with torch.no_grad():
            teacher.score(teacher.represent(views[:of_teacher]), n)
    assert cost.flops_per_image(config) == pytest.approx(counter.get_total_flops() / n, rel=0.15)


WIDE = {"encoder.dim": 60, "encoder.depth": 3, "encoder.heads": 3, "channels": 5}
ORIGINAL = {"heads.batch_norm": True, "heads.code_length": "free"}


@pytest.mark.parametrize("name", ["vit", "conv"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"channels": 3, "heads.count": 1},
        {"encoder.size": "S", "encoder.patch_size": 16, "encoder.widths": (16, 16, 40)},
        WIDE | {"encoder.widths": (8, 12, 12, 64, 20), "encoder.image_size": 60},
        {"heads.share": "projection", "heads.depth": 1},
        {"heads.share": "codebook", "heads.depth": 4} | ORIGINAL,
        ORIGINAL | {"heads.share": "projection", "heads.code_length": "fixed"},
    ],
)
def test_as_many_parameters_are_counted_as_the_model_has(name, changes):
    config = override(SMALL[name == "conv"], changes)
    exact = sum(p.numel() for p in build_model(config).parameters())
    assert cost.parameters(config) == exact


@pytest.mark.parametrize("name", names())
def test_the_parameters_of_recipes_are_counted(name):
    with torch.device("meta"):
        model = build_model(recipe(name))
    assert cost.parameters(recipe(name)) == sum(p.numel() for p in model.parameters())


def test_an_image_of_the_papers_recipe_costs_what_was_counted():
    assert cost.flops_per_image(recipe("dino-star/vits16")) == pytest.approx(122e9, rel=0.03)


def test_masks_spare_what_the_student_does_not_see():
    config = recipe("msn-star/vits16")
    seen = dataclasses.replace(config, loss=dataclasses.replace(config.loss, mask=0.0))
    spared = 1 - cost.flops_per_image(config) / cost.flops_per_image(seen)
    assert spared == pytest.approx(0.09, abs=0.01)  # 2 x 40 of 764 tokens, and the teacher's 394
    assert cost.peak_bytes(config) < 0.95 * cost.peak_bytes(seen)


@pytest.mark.parametrize(
    ("name", "changes", "measured"),
    [
        ("dino-star-ent", {}, 27.5),
        ("dino-star-ent", {"heads.count": 1}, 26.7),
        ("dino-star-ent", {"heads.count": 64}, 31.3),
        ("dino", {}, 27.7),
        ("msn-star-ent", {}, 24.5),
        ("msn-star-ent", {"loss.mask": 0.0}, 27.2),
        ("dino-star-ent", {"encoder.size": "B", "optim.batch_size": 128}, 28.2),
    ],
)
def test_memory_is_near_the_peaks_measured_on_a_gpu(name, changes, measured):
    """GiB: S/16, 2x224 + 10x96, batch 256, bf16, compiled."""
    asked = {"optim.batch_size": 256, "precision": "bf16", **changes}
    config = override(recipe(f"{name}/vits16"), asked)
    assert cost.peak_bytes(config) / 2**30 == pytest.approx(measured, rel=0.04)


OF_SIZE_224 = {"views": dino_views(224, 96, 6)}
OF_SIZE_96 = {"encoder.patch_size": 8, "encoder.image_size": 96, "views": dino_views(96, 48, 6)}


@pytest.mark.parametrize(
    ("changes", "batch", "parts", "in_fp32", "in_bf16"),
    [
        (OF_SIZE_224, 16, 1, 1.36, 1.28),
        (OF_SIZE_224, 32, 1, 2.22, 1.96),
        (OF_SIZE_224, 32, 4, 1.27, None),
        (OF_SIZE_96, 64, 1, 3.04, 2.51),
    ],
)
def test_memory_is_near_what_a_process_took_on_a_cpu(changes, batch, parts, in_fp32, in_bf16):
    """GiB by which its resident set grew in two steps: ViT-T of 6 blocks, 16 heads of 512 codes."""
    small = {"encoder.size": "T", "encoder.depth": 6, "heads.codes": 512}
    split = {"optim.batch_size": batch, "optim.accumulate": parts}
    config = override(recipe("dino-star-ent/vits16"), small | split | changes)
    for precision, measured in (("fp32", in_fp32), ("bf16", in_bf16)):
        estimate = cost.peak_bytes(override(config, {"precision": precision}), "cpu") / 2**30
        assert measured is None or estimate == pytest.approx(measured, rel=0.2)


def test_a_view_the_student_does_not_see_is_not_kept_for_backward():
    """The original MSN's target: with two of them the student keeps as much."""
    config = recipe("msn/vits16")
    target, *of_student = config.views.crops
    assert target.role == "target"
    crops = (dataclasses.replace(target, count=2), *of_student)
    two = dataclasses.replace(config, views=dataclasses.replace(config.views, crops=crops))
    assert cost.bytes_per_image(two) == cost.bytes_per_image(config)
    assert cost.flops_per_image(two) > cost.flops_per_image(config)


@pytest.mark.parametrize("ratio", [0.1, 0.15, 0.3, 0.45, 0.7, 0.9])
def test_masks_keep_as_many_patches_as_the_step_does(ratio):
    config = override(SMALL[0], {"loss.mask": ratio, "encoder.patch_size": 1, "channels": 1})
    config = override(config, {"views": dino_views(10, 5, 1), "encoder.image_size": 10})
    vit = build_model(config).encoder
    kept = mask(torch.arange(2), config, vit, 0, torch.zeros(4, 1, 10, 10))
    assert kept.shape == (4, round(100 * (1 - ratio)))
    assert config.loss.patches_kept(100) == kept.shape[1]
    plain = override(config, {"loss.mask": 0.0})
    ours, all_of_it = cost.bytes_per_image(config), cost.bytes_per_image(plain)
    of_a_token = cost.KEPT["cpu", "fp32"] * 96 * 12 * 4
    assert all_of_it - ours == pytest.approx(2 * of_a_token * (100 - kept.shape[1]))


def test_the_batch_that_fits_does():
    config = recipe("dino-star-ent/vits16")
    batch = cost.batch_that_fits(config, 24 * 2**30)
    assert 64 <= batch <= 256
    assert batch & (batch - 1) == 0
    fitting = dataclasses.replace(config, optim=dataclasses.replace(config.optim, batch_size=batch))
    assert cost.peak_bytes(fitting) <= 24 * 2**30


def test_known_gpus_have_a_rate():
    assert cost.peak_flops("NVIDIA H200") == 989e12
    assert cost.peak_flops("Some other card") is None
    assert cost.peak_flops("NVIDIA T400 4GB") is None
    assert cost.peak_flops("Tesla T4") == 65e12
    assert cost.peak_flops("NVIDIA A10G") < cost.peak_flops("NVIDIA A10")


def test_what_a_batch_holds_is_counted():
    """Its views as they are made, and the teacher's cosines and targets; one copy of views more."""
    for config in SMALL:
        model, n = build_model(config), 3
        side = config.short_side
        pixels = torch.zeros(n, side, round(1.4 * side), config.channels, dtype=torch.uint8)
        sides = [torch.full((n,), s, dtype=torch.int32) for s in pixels.shape[1:3]]
        mean_std = [0.5] * config.channels, [0.25] * config.channels
        batch = Batch(pixels, *sides)
        views = prepare(batch, torch.arange(n), config, model, 0, *mean_std)
        with torch.no_grad():
            cosines = model.score(model.represent(views.teacher), n)
        held = pixels.nbytes + 2 * sum(x.nbytes for x in views.student) + 2 * cosines.nbytes
        assert cost.batch_bytes(config) * n == pytest.approx(held, rel=0.01)


def test_parts_save_activations_but_not_what_the_batch_holds():
    config = recipe("dino-star-ent/vits16")
    parts = [
        dataclasses.replace(config, optim=dataclasses.replace(config.optim, accumulate=a))
        for a in (1, 2, 1024)
    ]
    batch = config.optim.batch_size
    whole, half, least = (
        cost.peak_bytes(one) - cost.logits_bytes(one, batch / one.optim.accumulate) for one in parts
    )
    fixed = least - cost.bytes_per_image(config)
    assert fixed > 1024 * cost.batch_bytes(config)
    assert whole - fixed == pytest.approx(2 * (half - fixed), rel=1e-6)


def test_the_logits_of_a_few_views_are_counted():
    config = recipe("dino-star-ent/vits16")
    of_view = 4 * 16 * 1024 * 256
    assert cost.logits_bytes(config, 256) == 3 * 4 * of_view  # of twelve, four make a part
    assert cost.logits_bytes(config, 16) == 3 * 12 * of_view / 16
    assert cost.logits_bytes(recipe("dino/vits16"), 1024) == 3 * 4 * 65_536 * 1024
    assert cost.logits_bytes(recipe("msn-star-ent/vits16"), 256) == 0
