"""What a step sees of its pictures depends on seed, step and picture, and on nothing else."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from tiny import MEAN_STD, VIT, build_trainer, small_views, tiny_config

from wessl.config import Config, EncoderConfig
from wessl.data.cache.build import build_cache
from wessl.data.sources.open import open_source
from wessl.data.views.config import Crop, Views, dino_views, msn_views
from wessl.errors import UserError
from wessl.pretrain.batch import mask, merge_pictures, prepare, split
from wessl.pretrain.model import Model, build_model
from wessl.pretrain.step import teacher_logits

MASKED = {"encoder": VIT, "mask": 0.3, "views": small_views(local_count=3)}


@pytest.fixture(scope="module")
def config() -> Config:
    return tiny_config(**MASKED)


@pytest.fixture(scope="module")
def student(config) -> Model:
    return build_model(config)


def prepared(pictures, indices, config, student, step=7):
    indices = torch.tensor(indices)
    return prepare(pictures.batch(indices), indices, config, student, step, *MEAN_STD)


def of_picture(views, at: int) -> list[torch.Tensor]:
    """All that belongs to one picture of a batch: its views, kept patches and draws."""
    tensors = [*views.teacher, *views.student, *(views.keep or []), *(views.drop or [])]
    return [x.unflatten(0, (-1, views.n))[:, at] for x in tensors if x is not None]


def all_equal(some, others) -> bool:
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


@pytest.mark.parametrize("views", [small_views(local_count=3), msn_views(8, 4, 3)])
def test_a_picture_gets_the_same_in_any_batch(pictures, student, views):
    config = tiny_config(**{**MASKED, "views": views})
    many = prepared(pictures, [3, 14, 15, 9, 2, 6], config, student)
    alone = prepared(pictures, [9], config, student)
    other = prepared(pictures, [40, 9, 41], config, student)
    assert all_equal(of_picture(many, 3), of_picture(alone, 0))
    assert all_equal(of_picture(many, 3), of_picture(other, 1))


def test_local_views_as_large_as_the_global_ones_are_not_masked(pictures, student):
    config = tiny_config(**{**MASKED, "views": dino_views(8, 8, 3)})
    views = prepared(pictures, [3, 14], config, student)
    assert [len(x) for x in views.student] == [2 * 2, 3 * 2]
    assert [x is None for x in views.keep] == [False, True]
    assert len(views.keep[0]) == 2 * 2
    assert [len(x) for x in views.teacher] == [2 * 2]


def test_anchors_of_one_size_are_all_masked_as_in_msns_code(pictures, student):
    views = prepared(
        pictures, [3, 14], tiny_config(**{**MASKED, "views": msn_views(8, 8, 3)}), student
    )
    assert [len(x) for x in views.student] == [4 * 2]
    assert [len(x) for x in views.keep] == [4 * 2]
    views = prepared(
        pictures, [3, 14], tiny_config(**{**MASKED, "views": msn_views(8, 4, 3)}), student
    )
    assert [x is None for x in views.keep] == [False, True]
    assert len(views.keep[0]) == 1 * 2


def test_another_step_or_seed_gives_other_views_masks_and_draws(pictures, config, student):
    here = prepared(pictures, [9], config, student)
    there = prepared(pictures, [9], config, student, step=8)
    other_seed = prepared(pictures, [9], tiny_config(seed=1, **MASKED), student)
    for other in (there, other_seed):
        pairs = zip(of_picture(here, 0), of_picture(other, 0), strict=True)
        same = [torch.equal(a, b) for a, b in pairs]
        # Of 4 patches two views may well keep the same ones; views and draws never agree.
        assert sum(same) <= 1


@pytest.mark.parametrize(
    ("side", "ratio"),
    [(8, "0.15"), (8, "0.2"), (40, "0.9"), (40, "0.7"), (56, "0.15"), (224, "0.2"), (224, "0.15")],
)
def test_the_floor_of_the_remaining_patches_is_kept(side, ratio):
    """In exact arithmetic: 100 patches at a ratio of 0.9 leave 10, though 1 - 0.9 is below 0.1."""
    config = tiny_config(encoder=VIT, mask=float(ratio))
    vit = build_model(config).encoder
    images = torch.zeros(2 * 3, 1, side, side)
    kept = mask(torch.arange(3), config, vit, 0, images)
    patches = (side // 4) ** 2
    assert kept.shape == (6, math.floor(patches * (1 - Fraction(ratio))))
    assert all(len(set(row)) == len(row) and row == sorted(row) for row in kept.tolist())
    assert kept.min() >= 0
    assert kept.max() < patches


def test_every_patch_is_kept_equally_often():
    config = tiny_config(encoder=VIT, mask=0.25)
    vit = build_model(config).encoder
    kept = mask(torch.arange(4000), config, vit, 0, torch.zeros(8000, 1, 8, 8))
    shares = kept.flatten().bincount(minlength=4) / 8000
    torch.testing.assert_close(shares, torch.full((4,), 0.75), atol=0.02, rtol=0)
    first, second = kept.split(4000)
    assert 0.2 < (first == second).all(1).float().mean() < 0.3  # one of 4 choices, independently


def test_only_the_first_tensor_is_masked_and_every_tensor_has_its_draws(pictures, config, student):
    views = prepared(pictures, [1, 2, 3], config, student)
    assert [None if k is None else tuple(k.shape) for k in views.keep] == [(6, 2), None]
    assert [tuple(d.shape) for d in views.drop] == [(6, 2, 2), (9, 2, 2)]


def test_without_mask_or_drop_path_nothing_is_drawn_for_them(pictures):
    config = tiny_config(encoder=VIT, drop_path=0.0)
    views = prepared(pictures, [1, 2], config, build_model(config))
    assert views.keep is None
    assert views.drop is None


@pytest.mark.parametrize("parts", [1, 2, 3, 6])
def test_the_parts_of_a_batch_are_the_batches_of_its_pictures(pictures, config, student, parts):
    indices = [3, 14, 15, 9, 2, 6]
    whole = prepared(pictures, indices, config, student)
    pieces = split(whole, parts)
    assert [piece.n for piece in pieces] == [6 // parts] * parts
    for k, piece in enumerate(pieces):
        start = k * piece.n
        alone = prepared(pictures, indices[start : start + piece.n], config, student)
        assert len(piece.student) == len(alone.student)
        for at in range(piece.n):
            assert all_equal(of_picture(piece, at), of_picture(alone, at))
            assert all_equal(of_picture(piece, at), of_picture(whole, start + at))


def test_parts_merge_into_the_whole(pictures, config, student):
    whole = prepared(pictures, [3, 14, 15, 9], config, student)
    parts = [teacher_logits(student.eval(), p.teacher, p.n)[1] for p in split(whole, 2)]
    torch.testing.assert_close(
        merge_pictures(parts), teacher_logits(student, whole.teacher, whole.n)[1]
    )


def test_a_batch_that_does_not_divide_is_refused(pictures, config, student):
    with pytest.raises(UserError, match=r"--optim.accumulate 4 .* batch of 6"):
        split(prepared(pictures, range(6), config, student), 4)


def test_a_mask_needs_a_transformer_and_must_leave_a_patch(pictures):
    config = tiny_config(mask=0.2)
    with pytest.raises(UserError, match=r"--encoder.kind vit"):
        prepared(pictures, [1], config, build_model(config))
    config = tiny_config(encoder=VIT, mask=0.8)
    with pytest.raises(UserError, match=r"--loss.mask 0.8 leaves no patch of 4"):
        prepared(pictures, [1], config, build_model(config))


def test_a_teacher_with_views_of_two_sizes_or_roles_is_refused(pictures):
    crop, small = Crop(8, 1, (0.5, 1.0)), Crop(4, 1, (0.5, 1.0))
    target = Crop(8, 1, (0.5, 1.0), role="target")
    for crops in ((crop, small), (crop, target)):
        with pytest.raises(UserError, match="of one role and size"):
            build_trainer(pictures, tiny_config(views=Views(crops)))


def test_target_and_anchor_may_differ_in_size(pictures):
    target = Crop(8, 1, (0.5, 1.0), role="target")
    anchors = Crop(4, 2, (0.5, 1.0), role="local")
    config = tiny_config(views=Views((target, anchors)))
    views = prepared(pictures, [1, 2], config, build_model(config))
    assert [tuple(x.shape) for x in views.teacher] == [(2, 1, 8, 8)]
    assert [tuple(x.shape) for x in views.student] == [(4, 1, 4, 4)]


def test_views_of_any_channel_number_go_through(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (6, 9, 9, 5), dtype=np.uint8)
    np.savez(tmp_path / "five.npz", images=images)
    cache = build_cache(open_source(tmp_path / "five.npz"), None, tmp_path, workers=0)
    config = tiny_config(channels=5, encoder=EncoderConfig(kind="conv", widths=(4, 8)))
    indices = torch.arange(3)
    views = prepare(
        cache.batch(indices), indices, config, build_model(config), 0, [0.5] * 5, [0.5] * 5
    )
    assert views.student[0].shape == (6, 5, 8, 8)
