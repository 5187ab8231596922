"""What a study says it will take, against what its parts should come to."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from wessl.auto import DataFacts
from wessl.auto.length import FLOPS_PER_SECOND
from wessl.pretrain.model import build_model
from wessl.study.asked import Asked, make_items
from wessl.study.cost import WORKER_SECONDS, Measuring, seconds, total
from wessl.study.data import Data
from wessl.study.sizes import SIZES, resolve
from wessl.study.studies import STUDIES

IMAGENET = DataFacts(1_281_167, 375, 500, channels=3, device="cuda", memory_bytes=139 << 30)
DIGITS = DataFacts(1297, 8, 8, channels=1, device="cpu", memory_bytes=8 << 30)


def config(study, name, size, facts):
    (cell,) = [cell for cell in STUDIES[study].cells(SIZES[size]) if cell.name == name]
    return resolve(cell, SIZES[size], facts, {})


def test_a_look_at_a_picture_costs_what_vit_s_16_is_known_to():
    small = config("where-how", "base", "paper", IMAGENET)
    alone, both = (Measuring(elsewhere=n).seconds(small, IMAGENET) for n in (0, 10**9))
    flops = (both - alone) * FLOPS_PER_SECOND["cuda"] / 10**9
    assert flops == pytest.approx(2 * 4.6e9, rel=0.1)  # timm gives 4.6 billion products at 224


def test_the_linear_protocol_looks_a_hundred_times_and_the_fast_one_once():
    small = config("where-how", "base", "paper", IMAGENET)
    usual = Measuring(("linear-fast",), tested=50_000, classes=1000)
    fast, full = (
        replace(usual, protocols=(name,)).seconds(small, IMAGENET)
        for name in ("linear-fast", "linear")
    )
    training = seconds(small, IMAGENET)
    assert 10 * fast < full < training
    assert full > 0.02 * training  # worth telling


def test_more_labels_draws_and_heads_cost_more():
    small = config("where-how", "ent, both", "smoke", DIGITS)
    usual = Measuring(("5-shot",), tested=500, classes=10, draws=10)
    first = usual.seconds(small, DIGITS)
    for more in (
        replace(usual, protocols=("50%",)),
        replace(usual, draws=30),
        replace(usual, protocols=("5-shot", "k-NN")),
        replace(usual, diversity=True),
    ):
        assert more.seconds(small, DIGITS) > first


def test_the_whole_is_the_sum_over_runs_shared_by_the_devices():
    small = config("where-how", "base", "smoke", DIGITS)
    measuring = Measuring(("k-NN",), tested=500, classes=10)
    each = seconds(small, DIGITS) + measuring.seconds(small, DIGITS)
    start = WORKER_SECONDS["cpu"]  # of all workers at once
    assert total([small] * 4, DIGITS, 2, measuring)[0] == pytest.approx(start + 2 * each)
    assert total([small] * 5, DIGITS, 4, measuring)[0] == pytest.approx(start + 2 * each)
    assert total([small], DIGITS, 8, measuring)[0] == pytest.approx(start + each)
    assert total([small], DIGITS, 1, None)[0] == pytest.approx(start + seconds(small, DIGITS))


def test_runs_side_by_side_on_one_gpu_share_its_arithmetic_but_not_their_waiting():
    one_gpu = replace(DIGITS, device="cuda")
    small = config("where-how", "base", "smoke", one_gpu)
    alone, eight = (total([small] * 8, one_gpu, n, None, 1, fresh=True)[0] for n in (1, 8))
    assert eight == pytest.approx(alone / 8)
    assert total([small] * 8, one_gpu, 8, None, 1, compiled=False)[0] < eight
    large = config("where-how", "base", "paper", IMAGENET)
    alone, eight = (total([large] * 8, IMAGENET, n, None, devices=1)[0] for n in (1, 8))
    assert eight > 0.9 * alone


def test_of_a_slim_run_the_encoder_stays_and_of_another_its_checkpoint_too():
    for cell, size, facts in (("base", "paper", IMAGENET), ("ent, both", "small", DIGITS)):
        one = config("where-how", cell, size, facts)
        with torch.device("meta"):
            model = build_model(one)
        encoder, every = (
            sum(parameter.numel() for parameter in part.parameters())
            for part in (model.encoder, model)
        )
        slim, whole = (total([one] * 3, facts, 1, None, slim=slim)[1] for slim in (True, False))
        assert slim == pytest.approx(3 * 4 * encoder)
        assert whole - slim == pytest.approx(3 * 16 * every)


def test_a_process_for_every_run_starts_as_often_as_there_are_runs():
    small = config("where-how", "base", "smoke", DIGITS)
    kept, fresh = (total([small] * 6, DIGITS, 2, None, fresh=each)[0] for each in (False, True))
    assert fresh - kept == pytest.approx(2 * WORKER_SECONDS["cpu"])


def planned(study, size, facts, seeds, **more):
    data = Data("builtin://digits/train", "builtin://digits/test")
    asked = Asked(STUDIES[study], SIZES[size], data, Path("nowhere"), tuple(range(seeds)), **more)
    items = make_items(asked, facts, torch.device("cpu"), "digits")
    return [item.config for item in items] * seeds


def test_fifteen_runs_eight_side_by_side_on_one_h200_took_100_seconds():
    on_gpu = replace(DIGITS, device="cuda", memory_bytes=139 << 30)
    configs = planned("prob-variants", "small", on_gpu, seeds=3)
    assert len(configs) == 15
    measuring = Measuring(SIZES["small"].protocols, tested=500, classes=10)
    said = total(configs, on_gpu, 8, measuring, devices=1, compiled=False, fresh=True)[0]
    assert 100 / 2 < said < 100 * 2


def test_six_short_runs_of_overhead_took_39_seconds_of_a_core():
    few = replace(DIGITS, pictures=500)
    settings = {"encoder.widths": [8, 16], "optim.batch_size": 16}
    configs = planned("overhead", "smoke", few, seeds=2, settings=settings)
    assert len(configs) == 6
    assert 39 / 2 < total(configs, few, 1, None, fresh=True)[0] < 39 * 2
