"""The laws of the automatic recipe, over all kinds of pictures and devices."""

import json
import math
import re
from dataclasses import replace
from functools import partial, reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wessl import auto, recipes
from wessl.auto import DataFacts
from wessl.commands.budget import seconds
from wessl.config import Config
from wessl.errors import UserError
from wessl.pretrain.schedules import schedule
from wessl.settings import differences, from_dict, override, to_dict
from wessl.verbs.pretraining import checks

START = max(auto.START_SECONDS.values())
STARRED = [family for family in recipes.FAMILIES if "star" in family]
SETTINGS = st.builds(
    DataFacts,
    pictures=st.one_of(st.integers(2, 300), st.integers(2, 5_000_000)),
    height=st.one_of(st.integers(1, 64), st.integers(1, 5000)),
    width=st.one_of(st.integers(1, 64), st.integers(1, 5000)),
    channels=st.integers(1, 8),
    device=st.sampled_from(["cpu", "cuda"]),
    memory_bytes=st.integers(2**20, 2**38),
)


def facts(pictures=1000, side=8, channels=1, device="cpu", memory=8 * 2**30):
    return DataFacts(pictures, side, side, channels, device, memory)


H200 = dict(device="cuda", memory=139 * 2**30)


@given(st.sampled_from(["auto", *STARRED]), SETTINGS)
def test_automatic_configs_are_sane(name, given_facts):
    config, _ = auto.small(name, given_facts)
    batch, optim, loss, encoder = config.optim.batch_size, config.optim, config.loss, config.encoder
    assert 2 <= batch <= given_facts.pictures
    assert batch & (batch - 1) == 0
    assert batch <= max(8, given_facts.pictures // 4)
    assert batch % optim.accumulate == 0
    assert 2 <= config.heads.codes <= 2 * batch
    assert config.heads.codes & (config.heads.codes - 1) == 0
    assert config.channels == given_facts.channels
    assert config.short_side >= 1

    assert 0 < optim.warmup_epochs < optim.epochs
    assert 0 < optim.min_lr < optim.lr <= 2e-3
    assert 0.9 <= optim.momentum <= 0.996 < optim.momentum_end
    assert 0 < optim.weight_decay < optim.weight_decay_end
    assert 0 < loss.teacher_temperature <= loss.teacher_temperature_start < loss.student_temperature
    if loss.teacher_temperature < loss.teacher_temperature_start:
        assert 0 < loss.teacher_temperature_epochs < optim.epochs
    if loss.weighting == "ent":
        assert 0 < loss.gamma < loss.gamma_start
        assert 0 < loss.gamma_epochs < optim.epochs
    assert (loss.target == "none") == (loss.me_max > 0)

    sizes = [crop.size for crop in config.views.crops]
    assert encoder.image_size == sizes[0]
    assert config.views.roles[:2] == ("global", "global")
    if encoder.kind == "vit":
        assert all(size % encoder.patch_size == 0 for size in sizes)
        assert min(sizes) >= 4 * encoder.patch_size
        assert sizes[-1] < sizes[0]
    else:
        assert loss.mask == 0
        assert min(sizes) >= 16
        assert (config.views.count == 2) == given_facts.grey_drawings


@given(st.sampled_from(STARRED), SETTINGS, st.sampled_from([None, math.inf]))
def test_every_difference_from_the_paper_is_a_choice_with_a_reason(name, given_facts, budget):
    config, choices = auto.small(name, given_facts, budget)
    settings = [choice.setting for choice in choices]
    assert len(settings) == len(set(settings))
    assert all(choice.reason for choice in choices)
    changed = differences(to_dict(recipes.recipe(name)), to_dict(config))
    assert {"views" if n.startswith("views") else n for n, _, _ in changed} <= set(settings)
    for choice in choices:
        if choice.setting != "views":
            assert reduce(getattr, choice.setting.split("."), config) == choice.value
    assert from_dict(Config, json.loads(json.dumps(to_dict(config)))) == config


def seconds_per_epoch(name, given_facts):
    config, _ = auto.small(name, given_facts)
    return given_facts.pictures * auto.seconds_per_image(config, given_facts)


@given(st.sampled_from(STARRED), SETTINGS, st.floats(1.2, 1e4))
def test_a_budget_is_kept(name, given_facts, wanted):
    budget = START + wanted * seconds_per_epoch(name, given_facts)
    config, _ = auto.small(name, given_facts, budget)
    assert 1 <= config.optim.epochs <= 800
    assert config.optim.epochs * seconds_per_epoch(name, given_facts) <= budget
    assert config.optim.epochs >= min(800, int(0.8 * wanted))
    assert 0 < config.optim.warmup_epochs < config.optim.epochs


def test_two_cores_get_through_more_epochs_and_more_are_not_relied_on():
    def epochs(cores):
        config, _ = auto.small("auto", replace(facts(2000, 375, 3), cores=cores), 1200.0)
        return config.optim.epochs

    assert 1.7 * epochs(1) < epochs(2) < 2.1 * epochs(1)
    assert epochs(16) == epochs(2)


@given(st.sampled_from(STARRED), SETTINGS, st.floats(0.01, 0.99))
def test_a_budget_below_one_epoch_is_refused(name, given_facts, share):
    with pytest.raises(UserError, match="--budget"):
        auto.small(name, given_facts, share * seconds_per_epoch(name, given_facts))


@given(st.sampled_from(STARRED), SETTINGS, st.floats(0.01, 0.99))
def test_the_budget_that_is_advised_makes_steps_enough(name, given_facts, share):
    with pytest.raises(UserError) as refused:
        auto.small(name, given_facts, share * seconds_per_epoch(name, given_facts))
    budget, epochs, steps = re.search(
        r"allow --budget (\w+) or more: (\d+) epochs?, ([\d,]+) steps", str(refused.value)
    ).groups()
    config, choices = auto.small(name, given_facts, seconds(budget))
    of_epoch = given_facts.pictures // config.optim.batch_size
    assert int(steps.replace(",", "")) == int(epochs) * of_epoch >= 100
    assert config.optim.epochs >= int(epochs)
    assert not next(c for c in choices if c.setting == "optim.epochs").warning
    if int(epochs) > 1:
        _, choices = auto.small(name, given_facts, auto.budget_for(1, config, given_facts))
        assert next(c for c in choices if c.setting == "optim.epochs").warning


@pytest.mark.parametrize(("pictures", "side", "channels"), [(1297, 8, 1), (12_800, 64, 3)])
def test_codes_that_me_max_alone_holds_are_few(pictures, side, channels):
    photographs = facts(pictures, side, channels, **H200)
    for family, share in (("msn-star", 2), ("msn-star-ent", 2), ("dino-star-ent", 0.5)):
        config, choices = auto.small(family, photographs)
        assert config.heads.codes == config.optim.batch_size / share
        (chosen,) = [choice for choice in choices if choice.setting == "heads.codes"]
        assert ("ME-MAX" in chosen.reason) == (share == 2)


@pytest.mark.parametrize("pictures", [facts(), facts(9000, 64, 3)], ids=["drawings", "photographs"])
def test_weights_of_msn_heads_are_as_sharp_as_the_papers(pictures):
    found = auto.small("msn-star-ent", pictures)[0].loss
    assert found.gamma == recipes.recipe("msn-star-ent/vits16").loss.gamma
    assert found.me_max_heads == "weighted"


@pytest.mark.parametrize("budget", [0, -5, math.nan])
def test_a_budget_that_is_no_time_is_refused(budget):
    with pytest.raises(UserError, match="--budget"):
        auto.small("auto", facts(), budget)


@pytest.mark.parametrize("pictures", [0, 1])
def test_one_picture_is_not_enough(pictures):
    with pytest.raises(UserError, match="at least 2 pictures"):
        auto.small("auto", facts(pictures))


@pytest.mark.parametrize("family", ["dino", "msn"])
def test_the_originals_are_not_resized(family):
    with pytest.raises(UserError, match=f"{family}/vits16"):
        auto.small(family, facts())


def shared(name, given_facts, **own):
    """What heads have in common, and the reason that is told."""
    change = partial(override, changes={f"{group}.{k}": v for k, (group, v) in own.items()})
    config, choices = auto.small(name, given_facts, change=change)
    reasons = [c.reason for c in choices if c.setting == "heads.share"]
    return config.heads.share, *reasons


def test_few_drawings_are_learnt_by_heads_with_one_codebook():
    share, reason = shared("auto", facts())
    assert share == "codebook"
    assert "digits" in reason
    assert "dino-star-ent" in reason


def test_few_photographs_are_too():
    share, reason = shared("auto", facts(10_000, 64, 3))
    assert share == "codebook"
    assert "64 px" in reason
    share, reason = shared("auto", facts(10_000, 160, 3, **H200))
    assert share == "codebook"
    assert "160 px" in reason


def test_elsewhere_every_head_has_a_codebook_of_its_own():
    assert shared("dino-star-ent", facts()) == (None,)
    assert shared("auto", facts(50_000)) == (None,)
    assert shared("auto", facts(50_000, 224, 3)) == (None,)
    assert shared("auto", facts(50_000, 64, 3)) == (None,)


@pytest.mark.parametrize("own", [dict(count=("heads", 1)), dict(weighting=("loss", "prob"))])
def test_that_one_head_or_other_weights_have_codebooks_of_their_own_is_said(own):
    share, reason = shared("auto", facts(), **own)
    assert share is None
    assert "ent" in reason


def test_a_thousand_small_drawings_on_a_cpu():
    config, choices = auto.small("auto", facts())
    assert config.recipe == "dino-star-ent/auto"
    assert (config.encoder.kind, config.encoder.widths) == ("conv", (24, 48, 96))
    assert [(c.size, c.count, c.flip) for c in config.views.crops] == [(16, 2, 0.0)]
    assert (config.short_side, config.channels, config.precision) == (8, 1, "fp32")
    heads, optim, loss = config.heads, config.optim, config.loss
    assert (heads.count, heads.embed_dim, heads.depth) == (16, 64, 1)
    assert (heads.codes, optim.batch_size, optim.epochs) == (128, 64, 50)
    assert (optim.lr, optim.min_lr, optim.warmup_epochs, optim.clip) == (1e-3, 1e-5, 5, 3.0)
    assert (optim.momentum, optim.weight_decay, optim.weight_decay_end) == (0.9867, 0.04, 0.1)
    assert loss.teacher_temperature == loss.teacher_temperature_start == 0.035
    assert (loss.gamma_epochs, loss.weighting, loss.gamma) == (15, "ent", 0.05)
    assert not any(choice.warning for choice in choices)


def test_how_far_the_teacher_looks_back_is_told_in_words_of_its_own_for_drawings():
    def reason(given_facts, epochs=None):
        choices = auto.small("auto", given_facts, epochs=epochs)[1]
        return next(c.reason for c in choices if c.setting == "optim.momentum")

    assert "last 75 steps or so; on digits 50 were better in short runs" in reason(facts())
    assert "a slower one holds short runs back" in reason(facts(1000, 64, 3))
    assert "last 250 steps or so: as many as in the paper" in reason(facts(10**5, 64, 3), 800)


def test_drawings_grow_to_twice_their_size_within_limits():
    sizes = {side: auto.small("auto", facts(side=side))[0] for side in (4, 8, 12, 28, 32)}
    found = {side: config.views.crops[0].size for side, config in sizes.items()}
    assert found == {4: 16, 8: 16, 12: 24, 28: 32, 32: 32}


def test_a_convolutional_encoder_cannot_mask_and_says_so():
    config, choices = auto.small("msn-star-ent", facts())
    assert (config.loss.mask, config.heads.count) == (0.0, 8)
    assert any(c.setting == "loss.mask" and c.warning for c in choices)


def test_a_hundred_thousand_photographs_on_a_large_gpu():
    config, choices = auto.small("auto", facts(100_000, 375, 3, **H200))
    assert (config.encoder.kind, config.encoder.size, config.encoder.patch_size) == ("vit", "S", 16)
    assert [(c.size, c.count) for c in config.views.crops] == [(224, 1), (224, 1), (96, 10)]
    optim, heads = config.optim, config.heads
    assert (optim.batch_size, optim.lr, optim.epochs, optim.accumulate) == (256, 5e-4, 100, 1)
    assert (heads.count, heads.codes, heads.hidden_dim, heads.embed_dim) == (16, 512, 1024, 256)
    assert (optim.warmup_epochs, optim.momentum) == (10, 0.9923)
    assert config.loss.teacher_temperature_epochs == config.loss.gamma_epochs == 15
    assert (config.short_side, config.precision, config.encoder.drop_path) == (256, "bf16", 0.1)
    (warning,) = [c for c in choices if c.warning]
    assert warning.setting == "heads.codes"
    assert "1024 wanted" in warning.reason


@pytest.mark.parametrize(
    ("side", "patch", "view", "local"),
    [
        (500, 16, 224, 96), (160, 16, 224, 96), (159, 8, 96, 48), (96, 8, 96, 48), (84, 8, 80, 40),
        (64, 8, 64, 32), (63, 4, 60, 32), (48, 4, 48, 24), (32, 4, 32, 16), (10, 4, 24, 16),
    ],
)  # fmt: skip
def test_crops_follow_the_pictures(side, patch, view, local):
    config, _ = auto.small("auto", facts(10_000, side, 3, **H200))
    sizes = [crop.size for crop in config.views.crops]
    assert (config.encoder.patch_size, sizes) == (patch, [view, view, local])


@pytest.mark.parametrize(
    ("asked", "side", "local", "short"),
    [(160, 500, 64, 256), (224, 500, 96, 256), (128, 500, 64, 256), (384, 500, 160, 439),
     (48, 500, 48, 256), (80, 64, 32, 64), (48, 64, 32, 64)],
)  # fmt: skip
def test_views_are_as_large_as_the_user_asks_for(asked, side, local, short):
    change = partial(override, changes={"encoder.image_size": asked})
    config, choices = auto.small("auto", facts(10_000, side, 3, **H200), change=change)
    assert [crop.size for crop in config.views.crops] == [asked, asked, local]
    assert config.encoder.image_size == asked
    assert config.short_side == short
    assert all(
        crop.photometric.blur_sigma[1] == round(asked / 112, 2) for crop in config.views.crops
    )
    (told,) = [c for c in choices if c.setting == "views"]
    assert told.value == f"2 x {asked} + 6 x {local}"


def test_drawings_are_too():
    change = partial(override, changes={"encoder.image_size": 24})
    config, _ = auto.small("auto", facts(), change=change)
    assert [crop.size for crop in config.views.crops] == [24]


@pytest.mark.parametrize("side", [224, 96, 64, 24])
def test_views_are_blurred_in_proportion_to_their_size(side):
    for crop in auto.small("auto", facts(10_000, side, 3, **H200))[0].views.crops:
        view = 224 if side == 224 else side
        assert crop.photometric.blur_sigma == (0.1, pytest.approx(2.0 * view / 224, abs=0.005))


@pytest.mark.parametrize(
    ("pictures", "memory", "batch"),
    [
        (3000, 2**37, 128), (19_999, 2**37, 128), (20_000, 2**37, 256), (500_000, 2**37, 256),
        (1_000_000, 2**37, 1024), (1_000_000, 2**34, 256), (100, 2**37, 16), (40, 2**37, 8),
        (20, 2**37, 8), (5, 2**37, 4), (2, 2**37, 2),
    ],
)  # fmt: skip
def test_the_batch_follows_pictures_and_memory(pictures, memory, batch):
    config, _ = auto.small("auto", facts(pictures, 224, 3, "cuda", memory))
    assert config.optim.batch_size == batch


def test_a_small_gpu_takes_the_batch_in_parts():
    config, choices = auto.small("auto", facts(30_000, 375, 3, "cuda", 12 * 10**9))
    assert (config.optim.batch_size, config.optim.accumulate) == (256, 4)
    assert any(c.setting == "optim.accumulate" and c.warning for c in choices)


@pytest.mark.parametrize(
    ("side", "view", "local", "short"),
    [(500, 64, 32, 96), (80, 64, 32, 80), (64, 64, 32, 64), (40, 40, 20, 40), (10, 24, 16, 10)],
)
def test_photographs_on_a_cpu_get_small_views_and_a_small_network(side, view, local, short):
    config, _ = auto.small("auto", facts(2000, side, 3))
    assert (config.encoder.kind, config.encoder.drop_path) == ("conv", 0.0)
    assert [(c.size, c.count) for c in config.views.crops] == [(view, 1), (view, 1), (local, 6)]
    assert (config.short_side, config.precision, config.heads.depth) == (short, "fp32", 1)
    assert (config.optim.batch_size, config.heads.codes, config.optim.lr) == (64, 128, 1e-3)


@pytest.mark.parametrize(
    "own",
    [{"encoder.kind": "vit"}, {"encoder.size": "S"}, {"encoder.size": "T"}, {"encoder.depth": 2},
     {"encoder.patch_size": 8}, {"encoder.start": "random"}, {"encoder.dim": 64},
     {"encoder.heads": 3}],
    ids=str,
)  # fmt: skip
def test_whoever_asks_for_a_transformer_on_a_cpu_gets_a_tiny_one(own):
    change = partial(override, changes=own)
    config, choices = auto.small("auto", facts(2000, 375, 3), change=change)
    chosen = {choice.setting: choice.value for choice in choices}
    assert change(config).encoder.kind == "vit"
    assert (chosen["encoder.size"], chosen["encoder.depth"]) == ("T", 6)
    assert (chosen["encoder.patch_size"], chosen["views"]) == (8, "2 x 64 + 6 x 32")
    assert math.isclose(config.optim.lr, 5e-4)


def test_large_patches_on_a_cpu_keep_the_views_they_are_made_for():
    change = partial(override, changes={"encoder.patch_size": 16})
    config, _ = auto.small("auto", facts(2000, 375, 3), change=change)
    assert [crop.size for crop in config.views.crops] == [224, 224, 96]


def test_what_only_a_convolutional_encoder_has_keeps_it():
    change = partial(override, changes={"encoder.kind": "conv", "encoder.depth": 2})
    assert auto.small("auto", facts(2000, 375, 3), change=change)[0].encoder.kind == "conv"


def test_masks_want_a_transformer_on_a_cpu_too():
    config, _ = auto.small("msn-star-ent", facts(2000, 375, 3))
    assert (config.encoder.kind, config.loss.mask) == ("vit", 0.2)


@pytest.mark.parametrize(("side", "channels"), [(64, 3), (8, 1)])
def test_a_cpu_with_bf16_trains_in_it_and_says_why(side, channels):
    has_it = replace(facts(2000, side, channels), cpu_bf16=True)
    config, choices = auto.small("auto", has_it)
    assert config.precision == "bf16"
    (reason,) = [c.reason for c in choices if c.setting == "precision"]
    assert "CPU" in reason


def test_the_estimate_meets_the_measured_speed():
    config = recipes.recipe("dino-star-ent/vits16")
    assert 1 / auto.seconds_per_image(config, facts(10**6, 375, 3, **H200)) == pytest.approx(
        2200, rel=0.15
    )


@pytest.mark.parametrize(("rate", "speed"), [(7.37e14, 1.0), (7.96e14, 1.0), (1.2e14, 0.149)])
def test_a_slower_gpu_gets_as_many_epochs_less_as_it_multiplies_slower(rate, speed):
    assert auto.speed_beside_known(rate) == pytest.approx(speed, rel=0.01)

    def epochs(given_facts):
        return auto.small("auto", given_facts, 3600.0)[0].optim.epochs

    known = facts(100_000, 375, 3, **H200)
    other = replace(known, speed=auto.speed_beside_known(rate))
    assert epochs(other) == pytest.approx(
        speed * epochs(known), abs=1 + 0.1 * speed * epochs(known)
    )


@given(st.sampled_from(STARRED), SETTINGS)
def test_more_time_never_means_fewer_epochs(name, given_facts):
    def epochs(budget):
        return auto.small(name, given_facts, budget)[0].optim.epochs

    whole = seconds_per_epoch(name, given_facts)
    budgets = [*(START + 40 + n * whole for n in (2, 20, 2000)), math.inf]
    found = [epochs(budget) for budget in budgets]
    assert found == sorted(found)
    assert found[-1] == 800


def test_the_users_epochs_take_the_schedules_along():
    config, choices = auto.small("auto", facts(), epochs=10)
    assert (config.optim.epochs, config.optim.warmup_epochs, config.loss.gamma_epochs) == (10, 1, 3)
    assert ("optim.epochs", "as asked for") in [(c.setting, c.reason) for c in choices]


@pytest.mark.parametrize("side", [8, 64])
@pytest.mark.parametrize("weighting", ["ent", "ent-st", "kl", "var"])
def test_what_a_user_asks_for_arrives_before_a_short_run_ends(side, weighting):
    asked = {"loss.weighting": weighting, "loss.teacher_temperature": 0.02, "loss.gamma": 0.1}

    def change(config):
        return override(config, asked)

    given_facts = facts(2_000, side, 1 if side == 8 else 3)
    config = change(auto.small("auto", given_facts, epochs=10, change=change)[0])
    steps = 10 * (2_000 // config.optim.batch_size)
    last = schedule(steps - 1, steps, steps // 10, config.optim, config.loss, config.heads.codes)
    assert last.teacher_temperature == 0.02
    assert last.gamma == pytest.approx(0.1 * math.log(config.heads.codes))
    assert checks.longer_than_the_run(config) is None


@pytest.mark.parametrize("side", [20, 48, 64, 97, 160, 224, 500])
def test_views_that_leave_pixels_out_are_told_and_automatic_ones_leave_none(side):
    config, _ = auto.small("auto", facts(2_000, side, 3))
    assert checks.unseen_pixels(config) is None
    odd = override(config, {"encoder.kind": "vit", "encoder.patch_size": 16})
    crops = tuple(replace(crop, size=100) for crop in odd.views.crops)
    odd = replace(odd, views=replace(odd.views, crops=crops))
    said = checks.unseen_pixels(odd)
    assert "100 pixels, of which 96 are seen" in said
    assert "multiples of 16" in said
    assert checks.unseen_pixels(override(odd, {"encoder.kind": "conv"})) is None


@given(st.integers(2, 300), st.integers(2**20, 2**34))
def test_a_batch_the_user_asked_for_is_cut_into_parts_that_divide_it(batch, memory):
    def change(config):
        return override(config, {"optim.batch_size": batch})

    config = change(auto.small("auto", facts(1000, 64, 3, memory=memory), change=change)[0])
    assert batch % config.optim.accumulate == 0


def test_what_depends_on_a_setting_follows_the_users_own():
    def few(config):
        return override(config, {"optim.batch_size": 16, "encoder.depth": 1})

    pictures = facts(2_000, 64, 3)
    usual, _ = auto.small("auto", pictures)
    config, choices = auto.small("auto", pictures, change=few)
    assert config.heads.codes == 32 < usual.heads.codes
    assert config.optim.lr == pytest.approx(0.002 * math.sqrt(16 / 1024), rel=0.01)
    (batch,) = [c for c in choices if c.setting == "optim.batch_size"]
    assert (batch.value, batch.reason) == (16, "as asked for")
    assert config.encoder.depth == 6  # the user's own come on top, later

    whole = partial(override, changes={"encoder.kind": "vit", "optim.batch_size": 16})
    longer, shorter = (auto.small("auto", pictures, 600, change=c)[0] for c in (few, whole))
    assert longer.optim.epochs > shorter.optim.epochs


def test_half_precision_on_a_cpu_that_has_it_is_reckoned_faster():
    slow = facts(2_000, 64, 3)
    fast = replace(slow, cpu_bf16=True)
    epochs = [auto.small("auto", f, 3600)[0].optim.epochs for f in (slow, fast)]
    assert 1.5 < epochs[1] / epochs[0] < 2.1
