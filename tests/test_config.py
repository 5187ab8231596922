"""Settings by name, their differences, and the way to JSON and back."""

import dataclasses
import json

import pytest

from wessl.config import WEIGHTINGS, Config, EncoderConfig, HeadsConfig
from wessl.data.views.config import dino_views, drawing_views, msn_views
from wessl.ensemble.weighting import SCHEMES
from wessl.errors import UserError
from wessl.settings import differences, from_dict, override, to_dict

CONFIGS = [
    Config(),
    Config(views=msn_views(), encoder=EncoderConfig(kind="conv", widths=(8, 16))),
    Config(views=drawing_views(), heads=HeadsConfig(count=16, share="codebook"), precision="bf16"),
]


def through_json(config: Config):
    return json.loads(json.dumps(to_dict(config)))


def test_dotted_names_set_one_field_and_nothing_else():
    changed = override(Config(), {"optim.epochs": 5, "heads.count": 16})
    expected = dataclasses.replace(
        Config(),
        optim=dataclasses.replace(Config().optim, epochs=5),
        heads=dataclasses.replace(Config().heads, count=16),
    )
    assert changed == expected


def test_bare_names_are_found_wherever_they_are():
    changed = override(Config(), {"epochs": 5, "seed": 1, "codes": 32, "mask": 0.2, "kind": "conv"})
    assert changed.optim.epochs == 5
    assert changed.seed == 1
    assert changed.heads.codes == 32
    assert changed.loss.mask == 0.2
    assert changed.encoder.kind == "conv"


def test_a_bare_name_with_two_homes_is_refused_with_both():
    with pytest.raises(UserError, match=r"'depth' is ambiguous.*encoder.depth, heads.depth"):
        override(Config(), {"depth": 4})


def test_only_fields_count_as_homes():
    """Views have a property of this name, which cannot be set."""
    assert override(Config(), {"count": 4}).heads.count == 4


@pytest.mark.parametrize("name", ["epoch", "optim.epoch", "optimiser.lr", "seed.x", "__class__"])
def test_an_unknown_name_is_refused(name):
    with pytest.raises(UserError, match="unknown setting"):
        override(Config(), {name: 1})


@pytest.mark.parametrize(
    ("name", "meant"),
    [("encoder.dpth", "encoder.depth"), ("epoch", "epochs"), ("encodr.depth", "encoder")],
)
def test_a_misspelt_name_is_answered_with_the_one_like_it(name, meant):
    with pytest.raises(UserError, match=rf"did you mean {meant}\?"):
        override(Config(), {name: 1})


def test_a_whole_group_is_set_by_a_group_or_a_dictionary():
    heads = HeadsConfig(count=3)
    assert override(Config(), {"heads": heads}).heads == heads
    assert override(Config(), {"heads": {"count": 3}}).heads == heads
    assert override(Config(), {"views": drawing_views()}).views == drawing_views()


def test_a_number_for_a_group_is_refused_with_the_groups_fields():
    """``heads=16`` is what one types first, and ``encoder.heads`` is not what is meant."""
    with pytest.raises(UserError, match=r"heads is a group of settings: set one of heads.count"):
        override(Config(), {"heads": 16})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("target", "centring", r"loss.target must be one of 'sinkhorn', 'centering', 'none'"),
        ("precision", "fp16", r"precision must be one of 'fp32', 'bf16', got 'fp16'"),
        ("epochs", "5", r"optim.epochs must be float, got '5'"),
        ("epochs", None, r"optim.epochs must be float, got None"),
        ("batch_size", 32.5, r"optim.batch_size must be int, got 32.5"),
        ("batch_norm", 1, r"heads.batch_norm must be bool, got 1"),
        ("seed", True, r"seed must be int, got True"),
        ("clip", "off", r"optim.clip must be float, got 'off'"),
        ("share", "heads", r"heads.share must be one of 'projection', 'codebook'"),
        ("widths", 8, r"encoder.widths must be a list"),
        ("widths", (8, "16"), r"encoder.widths must be int, got '16'"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_the_right_one(name, value, words):
    """A misspelt choice would otherwise train something else without a word."""
    with pytest.raises(UserError, match=words):
        override(Config(), {name: value})


@pytest.mark.parametrize(
    ("name", "value"), [("clip", None), ("clip", 3), ("share", "codebook"), ("gamma", 0.1)]
)
def test_optional_values_and_whole_numbers_are_taken_as_they_are(name, value):
    changed = to_dict(override(Config(), {name: value}))
    assert value in [group.get(name, "?") for group in changed.values() if isinstance(group, dict)]


def test_lists_become_the_tuples_they_stand_for():
    assert override(Config(), {"widths": [8, 16]}).encoder.widths == (8, 16)


@pytest.mark.parametrize("config", CONFIGS)
def test_a_config_comes_back_from_json_as_it_was(config):
    again = from_dict(Config, through_json(config))
    assert again == config
    assert hash(again) == hash(config)


@pytest.mark.parametrize("config", CONFIGS)
def test_a_config_does_not_differ_from_its_json(config):
    assert differences(through_json(config), to_dict(config)) == []
    assert differences(to_dict(config), through_json(config)) == []


def test_fields_a_stored_config_does_not_name_have_their_defaults():
    assert from_dict(Config, {"seed": 4, "optim": {"epochs": 2}}) == override(
        Config(), {"seed": 4, "epochs": 2}
    )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"sead": 1}, "unknown field 'sead' in Config"),
        ({"optim": {"lrr": 1}}, "unknown field 'lrr' in OptimConfig"),
        ({"optim": None}, "config.optim is a group of settings"),
        ({"optim": 3}, "config.optim is a group of settings"),
        ({"seed": None}, "config.seed must be int"),
        ({"precision": "fp8"}, "config.precision must be one of"),
        ({"views": {"crops": [{"size": 8, "count": 1, "area": [0.1, 0.5, 1]}]}}, "must be a list"),
        (None, "is a group of settings"),
    ],
)
def test_a_stored_config_is_read_strictly(values, words):
    with pytest.raises(UserError, match=words):
        from_dict(Config, values)


def test_differences_name_every_leaf_with_both_values():
    old = to_dict(Config())
    new = to_dict(override(Config(), {"seed": 1, "epochs": 5, "widths": (8, 16, 32)}))
    assert differences(old, new) == [
        ("encoder.widths", (24, 48, 96), (8, 16, 32)),
        ("optim.epochs", 100, 5),
        ("seed", 0, 1),
    ]


def test_differences_of_views_point_at_the_crop():
    old, new = (to_dict(Config(views=dino_views(local_area=(low, 0.25)))) for low in (0.05, 0.08))
    assert differences(old, new) == [("views.crops.2.area", (0.05, 0.25), (0.08, 0.25))]


def test_sequences_of_other_lengths_differ_as_a_whole():
    assert differences({"widths": [8, 16]}, {"widths": (8, 16, 32)}) == [
        ("widths", [8, 16], (8, 16, 32))
    ]


def test_a_key_only_one_side_has_differs():
    assert differences({"a": 1}, {"b": 2}) == [("a", 1, None), ("b", None, 2)]


def test_the_weightings_named_here_are_those_of_the_ensemble():
    assert tuple(SCHEMES) == WEIGHTINGS
