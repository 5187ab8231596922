"""The trainer: every recipe takes steps, in parts as in one, and its averages are what they say."""

import dataclasses
import math
import shutil

import pytest
import torch
from tiny import RECIPES, VIT, advance, build_trainer, clone, tiny_config, unequal

from wessl.data.views.config import drawing_views
from wessl.ensemble.weighting import SCHEMES, ensemble_weights
from wessl.errors import UserError
from wessl.pretrain.meter import effective_rank, head_weights


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_takes_steps_with_a_finite_loss(pictures, name):
    trainer = build_trainer(pictures, tiny_config(**RECIPES[name]))
    before = clone(trainer.student.state_dict())
    losses = advance(trainer, 3)
    assert all(math.isfinite(loss) and loss > 0 for loss in losses)
    assert int(trainer.meter.skipped) == 0
    assert unequal(before, trainer.student.state_dict())
    finite = [x.isfinite().all() for x in trainer.student.state_dict().values()]
    assert all(finite)


@pytest.mark.parametrize("name", ["dino-star", "dino-star-ent", "dino-star-prob", "msn-star-ent"])
def test_the_loss_falls(digits, name):
    views = {} if "msn" in name else {"views": drawing_views(8)}
    sizes = {"batch_size": 32, "lr": 1e-2, "warmup_epochs": 0.1, "codes": 16}
    trainer = build_trainer(digits, tiny_config(**{**RECIPES[name], **views, **sizes}))
    losses = advance(trainer, 30)
    assert sum(losses[-10:]) < 0.9 * sum(losses[:10])


def test_many_heads_learn_too(digits):
    sizes = {"batch_size": 32, "lr": 1e-2, "warmup_epochs": 0.1, "codes": 16, "heads.count": 64}
    losses = advance(build_trainer(digits, tiny_config(views=drawing_views(8), **sizes)), 30)
    assert sum(losses[-10:]) < 0.9 * sum(losses[:10])


def test_a_run_is_a_function_of_its_config_alone(pictures):
    some, others = (build_trainer(pictures, tiny_config(**RECIPES["msn"])) for _ in range(2))
    torch.manual_seed(1)
    first = advance(some, 3)
    torch.manual_seed(2)
    assert advance(others, 3) == first
    assert not unequal(some.state(), others.state())
    another_seed = build_trainer(pictures, tiny_config(seed=1, **RECIPES["msn"]))
    assert advance(another_seed, 3) != first


@pytest.mark.parametrize("target", ["sinkhorn", "centering", "none"])
@pytest.mark.parametrize("encoder", ["conv", "vit"])
def test_a_batch_in_parts_trains_as_the_whole_batch(pictures, target, encoder):
    """Re-normalisation is over the whole batch, however many parts it is computed in."""
    changes = {"encoder": VIT, "mask": 0.2} if encoder == "vit" else {}
    changes |= {"target": target, "lr": 1e-3}
    whole = build_trainer(pictures, tiny_config(**changes))
    parts = build_trainer(pictures, tiny_config(accumulate=4, **changes))
    losses, in_parts = advance(whole, 5), advance(parts, 5)
    torch.testing.assert_close(torch.tensor(in_parts), torch.tensor(losses), rtol=1e-4, atol=2e-6)
    for part in ("student", "teacher", "centering"):
        for name, tensor in (whole.state()[part] or {}).items():
            # Adam divides by the root of the squared gradient, so rounding shows where it is small.
            torch.testing.assert_close(parts.state()[part][name], tensor, rtol=1e-3, atol=2e-5)


def test_me_max_of_a_batch_in_parts_is_the_mean_of_the_parts_own(pictures):
    changes = {"target": "none", "me_max": 4.0}
    whole = build_trainer(pictures, tiny_config(**changes))
    parts = build_trainer(pictures, tiny_config(accumulate=4, **changes))
    advance(whole, 1)
    advance(parts, 1)
    cross_entropy, me_max, loss, _ = parts.meter.sums.tolist()
    assert whole.meter.sums[0].item() == pytest.approx(cross_entropy, rel=1e-5)
    # Entropy is concave: the mean of the parts' entropies is at most the whole batch's.
    assert me_max > whole.meter.sums[1].item()
    assert loss == pytest.approx(cross_entropy + 4.0 * me_max, rel=1e-5)


def test_original_dinos_codes_do_not_move_in_the_first_epoch(pictures):
    trainer = build_trainer(pictures, tiny_config(**RECIPES["dino"], warmup_epochs=0))
    heads, steps = trainer.student.heads, trainer.steps_per_epoch
    assert steps == 4
    codes, lengths = heads.codebook.clone(), heads.code_length.clone()
    rest = heads.projection[0].weight.clone()
    advance(trainer, steps)
    assert torch.equal(heads.codebook, codes)
    assert torch.equal(heads.code_length, lengths)
    assert torch.equal(trainer.teacher.heads.codebook, codes)
    assert not torch.equal(heads.projection[0].weight, rest)
    advance(trainer, 1)
    assert not torch.equal(heads.codebook, codes)
    assert not torch.equal(heads.code_length, lengths)


def test_codes_of_fixed_length_never_change_it(pictures):
    changes = RECIPES["dino"] | {"code_length": "fixed", "freeze_codes_epochs": 0}
    trainer = build_trainer(pictures, tiny_config(**changes, warmup_epochs=0))
    advance(trainer, 3)
    assert torch.equal(trainer.student.heads.code_length, torch.ones(1, 6))


def test_the_centre_moves_and_is_in_the_checkpoint(pictures):
    trainer = build_trainer(pictures, tiny_config(**RECIPES["dino"]))
    advance(trainer, 3)
    center = trainer.state()["centering"]["center"]
    assert center.abs().max() > 0
    other = build_trainer(pictures, tiny_config(**RECIPES["dino"]))
    other.load_state(clone(trainer.state()))
    assert torch.equal(other.centering.center, center)
    assert build_trainer(pictures, tiny_config()).state()["centering"] is None


def test_a_run_in_bf16_stays_near_the_run_in_fp32(pictures):
    exact = advance(build_trainer(pictures, tiny_config(encoder=VIT)), 3)
    rough = advance(build_trainer(pictures, tiny_config(encoder=VIT, precision="bf16")), 3)
    assert rough != exact
    torch.testing.assert_close(torch.tensor(rough), torch.tensor(exact), rtol=0.1, atol=0)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on a CPU needs g++")
def test_compiled_steps_train_as_plain_ones(pictures):
    """One graph each of student, teacher and Sinkhorn, with no schedule's value for a constant."""
    from torch._dynamo.utils import counters

    quick_to_compile = dataclasses.replace(VIT, depth=1, drop_path=0.0)
    changes = {"encoder": quick_to_compile, "views": drawing_views(8), "heads.depth": 1}
    config = tiny_config(target="sinkhorn", lr=1e-3, **changes)
    plain = build_trainer(pictures, config, compile="off")
    compiled = build_trainer(pictures, config, compile="on")
    counters.clear()
    losses = advance(plain, 5)
    assert counters["stats"]["unique_graphs"] == 0
    of_compiled = advance(compiled, 5)
    assert counters["stats"]["unique_graphs"] == 3
    torch.testing.assert_close(torch.tensor(of_compiled), torch.tensor(losses), rtol=1e-5, atol=0)
    for part in ("student", "teacher"):
        for name, tensor in plain.state()[part].items():
            torch.testing.assert_close(compiled.state()[part][name], tensor, rtol=1e-4, atol=1e-5)


def test_given_weights_start_student_and_teacher(pictures):
    donor = build_trainer(pictures, tiny_config(seed=5))
    weights = donor.student.encoder.state_dict()
    first = build_trainer(pictures, tiny_config())
    trainer = type(first)(
        first.config, first.options, first.loader, (first.mean, first.std), weights
    )
    assert not unequal(weights, trainer.student.encoder.state_dict())
    assert not unequal(weights, trainer.teacher.encoder.state_dict())
    assert unequal(weights, first.student.encoder.state_dict())


def test_given_weights_that_do_not_fit_are_refused_with_what_differs(pictures):
    first = build_trainer(pictures, tiny_config())
    weights = dict(first.student.encoder.state_dict())
    weights["head.weight"] = weights.pop("read.weight")
    weights["stem.weight"] = weights["stem.weight"][:, :, :1]
    with pytest.raises(UserError) as error:
        type(first)(first.config, first.options, first.loader, (first.mean, first.std), weights)
    for words in ("--init", "missing ['read.weight']", "unknown ['head.weight']", "stem.weight is"):
        assert words in str(error.value)


def test_a_line_of_metrics_averages_the_good_steps_since_the_last(pictures):
    trainer = build_trainer(pictures, tiny_config(me_max=1.0))
    losses = advance(trainer, 2)
    batches = trainer.loader.batches(trainer.step)
    views = trainer.prepare(*next(batches))
    trainer.train_step(views)
    bad = trainer.prepare(*next(batches))
    for tensor in (*bad.student, *bad.teacher):
        tensor.fill_(float("nan"))
    targets, representations = trainer.train_step(bad)
    total = trainer.meter.sums[2].item()
    row = trainer.meter.read(1.0, targets, representations)
    assert row["skipped_steps"] == 1
    assert row["loss"] == pytest.approx(total / 3, rel=1e-6)
    assert row["loss"] == pytest.approx(row["cross_entropy"] + row["me_max"], rel=1e-5)
    assert row["pictures_seen"] == 3 * 12
    assert 0 < row["teacher_entropy"] < math.log(6)
    assert all(1 <= used <= 6 for used in row["codes_used"])
    assert math.isnan(row["rank"])
    assert total > sum(losses)

    targets, representations = trainer.train_step(trainer.prepare(*next(batches)))
    batches.close()
    row = trainer.meter.read(1.0, targets, representations)
    assert row["skipped_steps"] == 0
    assert row["pictures_seen"] == 12
    assert 1 <= row["rank"] <= 8
    assert sum(row["head_shares"]) == pytest.approx(1)


def test_a_line_without_a_good_step_claims_no_loss(pictures):
    trainer = build_trainer(pictures, tiny_config())
    trainer.student.heads.codebook.register_hook(lambda grad: grad * float("nan"))
    advance(trainer, 2)
    batches = trainer.loader.batches(2)
    row = trainer.meter.read(1.0, *trainer.train_step(trainer.prepare(*next(batches))))
    batches.close()
    assert row["skipped_steps"] == 3
    assert math.isnan(row["loss"])
    assert row["pictures_seen"] == 0


@pytest.mark.parametrize("weighting", SCHEMES)
def test_the_heads_shares_are_the_mean_weights_of_the_loss(weighting):
    m, n, c = 3, 5, 4
    targets = (3 * torch.randn(2, m, n, c, generator=torch.Generator().manual_seed(0))).softmax(-1)
    config = tiny_config(weighting=weighting, **{"heads.count": m, "codes": c})
    shares, effective = head_weights(config, 0.7, targets)
    log_pt = targets[0].transpose(0, 1).log()
    weights = ensemble_weights(log_pt, log_pt, weighting, 0.7).expand(n, m, m, c).mean(3)
    by_student = weighting in ("prob", "prob-max", "ent-st")
    expected = weights.sum(1 if by_student else 2)
    torch.testing.assert_close(torch.tensor(shares), expected.mean(0))
    entropies = -(expected * expected.clamp_min(1e-30).log()).sum(1)
    assert effective == pytest.approx(float(entropies.exp().mean()), rel=1e-5)
    assert 1 <= effective <= m + 1e-5


def test_the_effective_rank_counts_equal_directions():
    axes = torch.cat([torch.eye(8)[:5], -torch.eye(8)[:5]])
    assert effective_rank(axes) == pytest.approx(5, rel=1e-5)
    assert effective_rank(torch.ones(10, 8)) == pytest.approx(1)
    assert math.isnan(effective_rank(torch.full((4, 3), float("nan"))))
