"""Every study at every size: configs that can be trained, and that differ by what is studied."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from wessl.auto import DataFacts
from wessl.config import Config, Options
from wessl.errors import UserError
from wessl.pretrain.model import build_model
from wessl.settings import differences, override, to_dict
from wessl.study.asked import Asked, head_parameters, make_items, make_key
from wessl.study.cell import Cell
from wessl.study.data import Data
from wessl.study.sizes import SIZES, resolve
from wessl.study.studies import STUDIES
from wessl.verbs.pretraining import checks

DIGITS = DataFacts(1297, 8, 8, channels=1, device="cpu", memory_bytes=8 << 30)
TINY_IMAGENET = DataFacts(16_000, 64, 64, channels=3, device="cuda", memory_bytes=139 << 30)
IMAGENET = DataFacts(1_281_167, 375, 500, channels=3, device="cuda", memory_bytes=139 << 30)
FACTS = {"smoke": (DIGITS, TINY_IMAGENET), "small": (TINY_IMAGENET, DIGITS), "paper": (IMAGENET,)}


@cache
def configs(study, size, facts):
    cells = STUDIES[study].cells(SIZES[size])
    common = STUDIES[study].common
    return {c.name: resolve(c, SIZES[size], facts, {}, common=common) for c in cells}


@pytest.fixture(scope="module")
def tried():
    """Configs that passed: studies share many."""
    return set()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("study", STUDIES)
def test_every_cell_is_a_config_that_can_be_trained(study, size, tried):
    for facts in FACTS[size]:
        for config in configs(study, size, facts).values():
            if config not in tried:
                checks.check(config, Options(), facts.pictures)
                tried.add(config)


@pytest.mark.parametrize("size", SIZES.values(), ids=lambda size: size.name)
@pytest.mark.parametrize("study", STUDIES.values(), ids=lambda study: study.name)
def test_names_are_unique_and_bases_are_there(study, size):
    cells = study.cells(size)
    names = [cell.name for cell in cells]
    assert len(set(names)) == len(names)
    assert all(cell.base in (None, *names) for cell in cells)
    assert study.line
    assert study.axis is None or any(cell.x is not None for cell in cells)


def changed(study, a, b, size="small", facts=TINY_IMAGENET):
    found = configs(study, size, facts)
    pairs = differences(to_dict(found[a]), to_dict(found[b]))
    return {name: value for name, _, value in pairs if name != "recipe"}


def test_cells_differ_from_the_base_by_what_they_say_alone():
    ensemble = {"heads.count": 16, "loss.weighting": "ent", "loss.gamma": 0.05}
    schedule = {"loss.gamma_epochs": 15.0}
    assert changed("where-how", "base", "ent, both") == ensemble | schedule
    assert changed("where-how", "ent, both", "ent, projection") == {"heads.share": "codebook"}
    assert changed("where-how", "ent, both", "ent, codebook") == {"heads.share": "projection"}
    assert changed("where-how", "ent, both", "ent-st, both") == {"loss.weighting": "ent-st"}
    prob = {"loss.weighting": "prob", "loss.gamma": 1.0}
    assert changed("where-how", "ent, both", "prob, both") == prob
    gammas = changed("gamma", "DINO*, gamma = 0.05 ln c", "DINO*, gamma = 0.2 ln c")
    assert gammas == {"loss.gamma": 0.2}
    assert changed("heads", "DINO*, m = 2", "DINO*, m = 32") == {"heads.count": 32}


def test_a_users_gamma_reaches_every_weighting_and_a_recipes_only_its_own():
    cells = {cell.name: cell for cell in STUDIES["weightings"].cells(SIZES["small"])}

    def gamma(name, settings):
        return resolve(cells[name], SIZES["small"], TINY_IMAGENET, settings).loss.gamma

    assert [gamma(name, {}) for name in ("ent", "kl", "prob", "unif")] == [0.05, 0.05, 1.0, None]
    for asked in ({"loss.gamma": 0.3}, {"gamma": 0.3}):
        assert [gamma(name, asked) for name in ("ent", "kl", "prob")] == [0.3, 0.3, 0.3]


def test_a_weighting_asked_for_leaves_the_schedules_of_cells_with_their_own_alone():
    cells = {cell.name: cell for cell in STUDIES["where-how"].cells(SIZES["small"])}

    def config(settings):
        return resolve(cells["ent, both"], SIZES["small"], TINY_IMAGENET, settings)

    assert config({"weighting": "unif"}) == config({"loss.weighting": "prob"}) == config({})


def test_the_paper_size_is_the_published_recipe_for_300_epochs():
    found = configs("where-how", "paper", IMAGENET)
    base, ent = found["base"], found["ent, both"]
    assert (base.optim.epochs, base.heads.codes, ent.heads.codes) == (300, 4096, 1024)
    assert (ent.encoder.size, ent.encoder.patch_size, ent.optim.batch_size) == ("S", 16, 1024)
    assert ent.views.count == 12
    main = configs("methods", "paper", IMAGENET)
    assert main["MSN*-ent ({m}), vitb16"].loss.gamma == 0.005
    assert main["DINO, vits16"].heads.codes == 65_536
    assert {main["DINO*, vits16"].optim.epochs, main["DINO*, vitb16"].optim.epochs} == {800, 400}


@pytest.mark.parametrize(("size", "facts"), [("smoke", DIGITS), ("small", TINY_IMAGENET)])
def test_equal_cells_of_different_studies_are_one_run(size, facts):
    def key(study, name):
        return make_key(configs(study, size, facts)[name], "data", timed=False)

    assert key("where-how", "base") == key("weightings", "base") == key("prob-variants", "base")
    assert key("where-how", "unif, both") == key("weightings", "unif")
    assert key("where-how", "prob, both") == key("prob-variants", "prob")
    assert key("where-how", "ent, both") == key("weightings", "ent")
    assert key("where-how", "ent, both") == key("gamma", "DINO*, gamma = 0.05 ln c")
    assert key("where-how", "base") == key("heads", "DINO*, m = 1")
    assert key("methods", "DINO*") == key("transfer", "DINO*")
    config = configs("where-how", size, facts)["base"]
    assert make_key(config, "other data", False) != make_key(config, "data", False)
    longer = replace(config, optim=replace(config.optim, epochs=7))
    assert make_key(longer, "data", False) != make_key(config, "data", False)
    same = replace(config, optim=replace(config.optim, epochs=7.0), recipe="another name", seed=5)
    assert make_key(same, "data", False) == make_key(longer, "data", False)


def test_an_original_method_keeps_its_own_ideas_in_the_starred_ones_sizes():
    found = configs("methods", "small", TINY_IMAGENET)
    dino, star, msn = found["DINO"], found["DINO*"], found["MSN"]
    assert (dino.loss.target, dino.heads.hidden_dim, dino.heads.code_length) == (
        "centering", 2048, "free",
    )  # fmt: skip
    assert dino.heads.codes == 16 * star.heads.codes
    assert (dino.encoder, dino.optim.batch_size) == (star.encoder, star.optim.batch_size)
    assert dino.optim.lr == star.optim.lr
    assert msn.views.roles[0] == "target"
    assert msn.heads.batch_norm
    assert msn.loss.mask == 0.15


def test_more_settings_reach_every_cell_but_not_what_it_studies():
    size, facts = SIZES["small"], TINY_IMAGENET
    asked = {"encoder.size": "S", "heads.count": 8}
    base = Cell("base", "dino-star", {"heads.count": 1})
    ent = Cell("ent", "dino-star-ent")
    one, many = (resolve(cell, size, facts, asked) for cell in (base, ent))
    assert (one.encoder.size, many.encoder.size) == ("S", "S")
    assert (one.heads.count, many.heads.count) == (1, 8)


@cache
def network(config):
    """Its heads as they are built, whatever their settings are called, and all other settings."""
    with torch.device("meta"):
        heads = build_model(config).heads
    built = [(name, tuple(value.shape)) for name, value in heads.state_dict().items()]
    others = {"recipe": "", "heads": replace(config.heads, hidden_dim=1, depth=1, batch_norm=False)}
    return repr((built, replace(config, **others)))


@pytest.mark.parametrize("facts", [DIGITS, TINY_IMAGENET], ids=["drawings", "photographs"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("study", STUDIES)
def test_no_two_cells_of_a_study_train_the_same_network(study, size, facts):
    cells = dict(configs(study, size, facts))
    if study == "projection" and cells["base"].heads.depth == 3 and size != "smoke":
        # The published head is a point of two of the figure's lines, and one run.
        assert cells.pop("3 layers of 1024") == cells["base"]
    alike = {}
    for name, config in cells.items():
        alike.setdefault(network(config), []).append(name)
    assert [names for names in alike.values() if len(names) > 1] == []


@pytest.mark.parametrize("size", ["smoke", "small"])
def test_the_head_of_the_originals_has_a_width_where_other_heads_are_linear(size):
    found = configs("methods", size, DIGITS)
    dino, step, star = (found[name] for name in ("DINO", "DINO, Sinkhorn, fewer codes", "DINO*"))
    assert star.heads.depth == 1
    for wide in (dino, step, found["MSN"], *configs("collapse", size, DIGITS).values()):
        assert (wide.heads.depth, wide.heads.hidden_dim) == (2, 2048)
    assert changed("methods", "DINO*", "DINO, Sinkhorn, fewer codes", size, DIGITS) == {
        "heads.depth": 2, "heads.hidden_dim": 2048,
    }  # fmt: skip
    assert found["MSN"].heads.batch_norm


def test_linear_heads_are_one_run_whatever_their_width_is_said_to_be():
    asked = [{"heads.hidden_dim": width, "heads.batch_norm": width > 99} for width in (32, 512)]
    one, other = (resolve(Cell("base", "dino-star"), SIZES["small"], DIGITS, s) for s in asked)
    assert one.heads.depth == 1
    assert make_key(one, "data", False) == make_key(other, "data", False)
    deep = [resolve(Cell("base", "dino-star"), SIZES["small"], TINY_IMAGENET, s) for s in asked]
    assert len({make_key(config, "data", False) for config in deep}) == 2


@pytest.mark.parametrize("size", ["smoke", "small"])
def test_methods_with_masks_and_without_have_one_encoder_on_a_cpu_too(size):
    found = configs("methods", size, replace(TINY_IMAGENET, device="cpu"))
    assert {config.loss.mask > 0 for config in found.values()} == {True, False}
    assert {(c.encoder.kind, c.encoder.size, c.encoder.patch_size) for c in found.values()} == {
        ("vit", "T", 8)
    }


def test_memory_free_today_changes_nothing():
    little = DataFacts(16_000, 64, 64, channels=3, device="cuda", memory_bytes=1 << 30)
    for cell in STUDIES["heads"].cells(SIZES["small"]):
        here, there = (resolve(cell, SIZES["small"], f, {}) for f in (TINY_IMAGENET, little))
        assert here == there


def test_head_parameters_by_hand():
    config = configs("where-how", "paper", IMAGENET)["ent, both"]
    one = 384 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 256 + 256 + 1024 * 256
    assert head_parameters(config) == 16 * one


@pytest.mark.parametrize("facts", [DIGITS, TINY_IMAGENET], ids=["drawings", "photographs"])
def test_the_ensemble_beside_teacher_temperatures_has_its_bases_temperature(facts):
    found = configs("teacher-temperature", "small", facts)
    (ent,) = [config for name, config in found.items() if name.startswith("ent")]
    base = found["1 head, τ = 0.025"]
    assert ent.loss.teacher_temperature == base.loss.teacher_temperature == 0.025
    assert ent.loss.teacher_temperature_start == base.loss.teacher_temperature_start == 0.05


@pytest.mark.parametrize("name", ["optim.batch_size", "batch_size"])
def test_an_overhead_has_its_steps_whatever_the_batch_and_however_it_is_named(name):
    def items(batch):
        known = dict(settings={name: batch})
        data = Data("builtin://digits", None)
        asked = Asked(STUDIES["overhead"], SIZES["smoke"], data, Path("nowhere"), (0,), **known)
        return make_items(asked, DIGITS, torch.device("cpu"), "data")

    for batch in (16, 64):
        for config in (item.config for item in items(batch)):
            assert config.optim.batch_size == batch
            assert round(config.optim.epochs * (1297 // batch)) == SIZES["smoke"].overhead_steps
    with pytest.raises(UserError, match="a batch of 4096 cannot be drawn from 1297 pictures"):
        items(4096)


def test_a_cell_compared_with_a_stranger_is_refused_before_anything_runs():
    cells = [Cell("one", "dino-star"), Cell("two", "dino-star-ent", base="base")]
    study = replace(STUDIES["where-how"], cells=lambda _: cells)
    asked = Asked(study, SIZES["smoke"], Data("builtin://digits", None), Path("nowhere"), (0,))
    with pytest.raises(ValueError, match="compares 'two' with 'base', which it does not have"):
        make_items(asked, DIGITS, torch.device("cpu"), "data")


@pytest.mark.parametrize(
    ("changes", "matters"),
    [
        ({"loss.me_max": 4.0, "heads.count": 8}, True),
        ({"loss.me_max": 4.0, "heads.count": 8, "loss.weighting": "unif"}, False),
        ({"loss.me_max": 4.0, "heads.count": 8, "loss.weighting": "var"}, False),
        ({"loss.me_max": 4.0}, False),
        ({"heads.count": 8}, False),
    ],
)
def test_how_me_max_is_weighted_makes_another_run_only_where_it_matters(changes, matters):
    weighted = override(Config(), changes)
    alike = override(weighted, {"loss.me_max_heads": "alike"})
    keys = {make_key(config, "data", False) for config in (weighted, alike)}
    assert len(keys) == (2 if matters else 1)
