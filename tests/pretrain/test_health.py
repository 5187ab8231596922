"""Findings from constructed rows and from real runs, healthy, collapsed and with NaNs."""

import math
import time

import pytest
import torch
from tiny import RECIPES, VIT, advance, build_trainer, tiny_config

from wessl.data.views.config import drawing_views
from wessl.errors import UserError
from wessl.pretrain.health import RULES, examine, rhythm
from wessl.pretrain.loop import train
from wessl.run import Run

NAN = float("nan")


def row(step: int, **changes):
    healthy = dict(
        step=step,
        steps=1000,
        epoch=1 + step / 100,
        loss=2.0,
        cross_entropy=2.0,
        teacher_entropy=1.5,
        teacher_temperature=0.025,
        codes=128,
        codes_used=[100, 120],
        pictures_seen=6400,
        head_shares=[0.4, 0.6],
        rank=20.0,
        skipped_steps=0,
        data_wait=0.0,
    )
    return healthy | changes


def rows(*changes):
    return [row(10 * (i + 1), **change) for i, change in enumerate(changes)]


LN_C = math.log(128)
BAD = {
    "one-code": dict(codes_used=[1, 2]),
    "uniform": dict(cross_entropy=LN_C, teacher_entropy=0.999 * LN_C),
    "one-head": dict(head_shares=[0.7, 0.1, 0.1, 0.1], codes_used=[7, 90, 90, 90]),
    "dead-heads": dict(head_shares=[0.01, 0.99]),
    "rank": dict(rank=1.2),
    "waiting": dict(data_wait=0.06),
}


def kinds(history) -> list[str]:
    return [finding.kind for finding in examine(history)]


def test_healthy_rows_and_no_rows_have_no_finding():
    assert examine([]) == []
    assert examine(rows(*[{}] * 10)) == []


@pytest.mark.parametrize("kind", BAD)
def test_a_finding_needs_three_rows_in_a_row_and_says_since_when(kind):
    bad = BAD[kind]
    assert kinds(rows({}, bad, bad)) == []
    assert kinds(rows(bad, bad, {}, bad)) == []
    (finding,) = examine(rows({}, bad, {}, bad, bad, bad, bad))
    assert finding.kind == kind
    assert finding.since == 40
    assert "(since step 40). Try: " in str(finding)
    assert "--" in finding.remedy or "crops" in finding.remedy


@pytest.mark.parametrize("kind", BAD)
def test_a_finding_is_over_with_the_first_good_row(kind):
    assert kinds(rows(*[BAD[kind]] * 5, {})) == []


def test_a_collapse_behind_sinkhorn_is_told_beside_its_uniform_targets():
    """Sinkhorn spreads even a constant encoder's predictions over all codes."""
    assert kinds(rows(*[BAD["one-code"] | BAD["uniform"]] * 3)) == ["one-code", "uniform"]


def test_a_short_run_has_more_rows_and_is_given_as_many_steps():
    for steps in (300, 500, 2499, 2500, 10**6):
        every, patience = rhythm(None, steps)
        assert every == max(1, min(50, steps // 50))
        assert 150 <= every * patience < 150 + every
    every, patience = rhythm(None, 500)
    assert examine(rows(*[BAD["rank"]] * (patience - 1)), patience) == []
    assert len(examine(rows(*[BAD["rank"]] * patience), patience)) == 1


@pytest.mark.parametrize("steps", [10, 99, 126, 299])
def test_the_shortest_runs_are_given_half_of_their_steps(steps):
    every, patience = rhythm(None, steps)
    assert every == max(1, steps // 50)
    assert 0 <= steps // 2 - every * patience <= every
    assert kinds_of(rows(*[{}] * patience, *[BAD["uniform"]] * patience), patience) == ["uniform"]
    assert kinds_of(rows(*[{}] * patience, *[BAD["uniform"]] * (patience - 1)), patience) == []


def kinds_of(history, patience):
    return [finding.kind for finding in examine(history, patience)]


def test_no_remedy_names_epochs_since_a_budget_may_have_set_the_length():
    assert [kind for kind, *_, remedy in RULES if "--epochs" in remedy] == []


def test_several_findings_are_told_together():
    assert kinds(rows(*[BAD["one-code"] | BAD["rank"]] * 3)) == ["one-code", "rank"]


def test_a_single_skipped_step_is_told_at_once():
    (finding,) = examine(rows({}, {}, dict(skipped_steps=2)))
    assert finding.since == 30
    assert "2 steps had NaN" in str(finding)


@pytest.mark.parametrize(("used", "collapsed"), [([1, 1, 90, 90], True), ([1, 90, 90, 90], False)])
def test_half_of_the_heads_make_a_collapse(used, collapsed):
    assert kinds(rows(*[dict(codes_used=used, head_shares=[0.25] * 4)] * 3)) == (
        ["one-code"] if collapsed else []
    )


@pytest.mark.parametrize(
    ("codes", "used", "collapsed"),
    [
        (256, 15, True),  # as ME-MAX leaves it beside too sharp a teacher
        (256, 30, False),
        (4096, 90, True),
        (4096, 110, False),
        (65_536, 120, True),  # of 6,400 pictures
        (65_536, 140, False),
    ],
)
def test_few_codes_of_a_small_codebook_are_more_of_it_than_of_a_large_one(codes, used, collapsed):
    found = kinds(rows(*[dict(codes=codes, codes_used=[used, used])] * 3))
    assert found == (["one-code"] if collapsed else [])


def test_a_few_pictures_or_the_first_epoch_prove_no_collapse():
    assert kinds(rows(*[dict(codes_used=[1, 1], pictures_seen=4)] * 3)) == []
    assert kinds(rows(*[dict(codes_used=[1, 1], epoch=0.5)] * 3)) == []


@pytest.mark.parametrize(("used", "collapsed"), [(95, False), (10, False), (9, True)])
def test_pictures_that_come_again_fill_no_further_codes(used, collapsed):
    found = kinds(rows(*[dict(codes=4096, codes_used=[used, used], pictures=95)] * 3))
    assert found == (["one-code"] if collapsed else [])


def test_a_student_at_ln_c_with_a_teacher_that_knows_is_only_beginning():
    assert kinds(rows(*[dict(cross_entropy=LN_C)] * 3)) == []


def test_a_head_that_teaches_more_than_all_others_is_named_with_its_codes():
    (found,) = examine(rows(*[BAD["one-head"]] * 3))
    words = "head 0 has 70% of the weight in the loss, with 7 of 128 codes in use"
    assert words in str(found)
    assert "--loss.gamma" in found.remedy
    assert kinds(rows(*[dict(head_shares=[0.5, 0.3, 0.1, 0.1])] * 3)) == []
    # Of two heads one always has half; of more, that the others have nothing is then no news.
    assert kinds(rows(*[dict(head_shares=[0.7, 0.3])] * 3)) == []
    dead = dict(head_shares=[0.97, 0.01, 0.01, 0.01], codes_used=[7, 90, 90, 90])
    assert kinds(rows(*[dead] * 3)) == ["one-head"]
    close = [dict(head_shares=[a, 0.98 - a, 0.01, 0.01]) for a in (0.53, 0.49) * 3]
    assert kinds(rows(*close)) == ["dead-heads"]


def test_waiting_is_told_with_its_share_of_the_time_and_little_of_it_is_not():
    (finding,) = examine(rows(*[dict(data_wait=0.43)] * 3))
    assert finding.words == "43% of the time goes into waiting for pictures"
    assert "--workers" in finding.remedy
    assert examine(rows(*[dict(data_wait=0.04)] * 3)) == []


def test_dead_heads_are_named():
    (one,) = examine(rows(*[dict(head_shares=[0.5, 0.01, 0.49])] * 3))
    assert "head 1 has hardly any weight" in str(one)
    (two,) = examine(rows(*[dict(head_shares=[0.01, 0.49, 0.01, 0.49])] * 3))
    assert "heads 0, 2 have hardly any weight" in str(two)
    assert kinds(rows(*[dict(head_shares=[1.0])] * 3)) == []


def test_rank_may_halve_as_a_random_encoder_learns_but_not_fall_to_a_tenth():
    assert kinds(rows(dict(rank=72.0), *[dict(rank=33.0)] * 5)) == []
    assert kinds(rows(dict(rank=72.0), *[dict(rank=7.0)] * 3)) == ["rank"]


def test_rows_without_a_good_step_speak_of_nothing_else():
    nothing = dict(loss=NAN, cross_entropy=NAN, teacher_entropy=NAN, rank=NAN)
    nothing |= dict(head_shares=[NAN, NAN], codes_used=[0, 0], pictures_seen=0, skipped_steps=10)
    assert kinds(rows({}, *[nothing] * 4)) == ["nonfinite"]
    assert kinds(rows(*[nothing] * 4, {}, {}, {})) == []


def test_a_long_history_is_examined_quickly():
    history = rows(*[{}] * 5_000, *[BAD["rank"]] * 15_000)
    began = time.process_time()  # of this process, whatever runs beside it
    assert kinds(history) == ["rank"]
    assert time.process_time() - began < 2


def watch(cache, folder, prepare=None, log_every=5, max_nonfinite=20, **changes):
    """Runs a whole training; returns its trainer, rows of metrics and messages."""
    base = {"views": drawing_views(8), "batch_size": 32, "codes": 32, "hidden_dim": 32}
    config = tiny_config(**{**base, "epochs": 2, **changes})
    trainer = build_trainer(cache, config, log_every=log_every, max_nonfinite=max_nonfinite)
    if prepare is not None:
        plain = trainer.prepare
        trainer.prepare = lambda *batch: prepare(trainer, plain(*batch))
    run, heard = Run.create(folder / "run", {}), []
    try:
        train(trainer, run, heard.append)
    finally:
        messages = [row["message"] for row in heard if "message" in row]
        log = (run.path / "train.log").read_text() if messages else ""
        assert all(message in log for message in messages)
    return trainer, [row for row in heard if "loss" in row], messages


def test_a_healthy_run_is_left_in_peace(digits, tmp_path):
    trainer, found, messages = watch(digits, tmp_path)
    assert messages == []
    assert len(found) == trainer.steps // 5
    assert {row["pictures"] for row in found} == {len(digits)}
    assert found[-1]["loss"] < 0.8 * found[0]["loss"]
    assert min(found[-1]["codes_used"]) > 16


def test_a_run_driven_into_collapse_says_so_once_and_since_when(digits, tmp_path):
    _, found, messages = watch(digits, tmp_path, target="none", lr=2e-2)
    said = [message for message in messages if "collapse: only 1 of 32 codes" in message]
    assert len(said) == 1
    assert "(since step 40)" in said[0]
    assert "--loss.target sinkhorn" in said[0]
    assert found[-1]["codes_used"] == [1, 1]


def test_a_teacher_too_warm_to_say_anything_is_told(digits, tmp_path):
    warm = dict(teacher_temperature=1.0, teacher_temperature_start=1.0)
    _, _, messages = watch(digits, tmp_path, **warm)
    assert any("no learning: predictions are uniform" in message for message in messages)


def test_heads_that_are_never_weighted_are_told(digits, tmp_path):
    sharp = {
        "gamma": 0.0005,
        "gamma_start": 0.0005,
        "heads.count": 4,
        "widths": (8, 16),
        "epochs": 3,
    }
    _, found, messages = watch(digits, tmp_path, log_every=10, **sharp)
    told = ("hardly any weight in the loss", "of the weight in the loss, with")
    assert any(words in message for message in messages for words in told)
    assert min(found[-1]["head_shares"]) < 0.01


def spoil(*steps):
    def prepare(trainer, views):
        if trainer.step in steps:
            for tensor in (*views.student, *views.teacher):
                tensor[0] = NAN
        return views

    return prepare


@pytest.mark.parametrize("recipe", ["dino-star-ent", "dino", "msn"])
def test_a_few_bad_steps_are_skipped_counted_told_and_survived(digits, tmp_path, recipe):
    views = {} if recipe == "msn" else {"views": drawing_views(8)}
    changes = RECIPES[recipe] | views | {"epochs": 0.5}
    trainer, found, messages = watch(digits, tmp_path, spoil(7, 9), **changes)
    assert trainer.skipped == 2
    assert [row["skipped_steps"] for row in found] == [0, 2, 0, 0]
    assert math.isfinite(found[1]["loss"])
    assert "2 steps had NaN or infinite" in messages[0]
    assert "(since step 10)" in messages[0]
    assert messages[1] == "health: nonfinite is over"
    assert all(x.isfinite().all() for x in trainer.teacher.state_dict().values())
    assert math.isfinite(found[-1]["loss"])


def timeless(row):
    clock = ("images_per_second", "ms", "data_wait", "eta")
    return {name: value for name, value in row.items() if name not in clock}


def test_a_run_that_goes_on_tells_of_all_steps_since_the_last_row(digits, tmp_path):
    """Skipped ones too: a run that is stopped often must not outlive their limit."""
    spoiled = dict(prepare=spoil(7), log_every=10, epochs=0.4)
    _, expected, _ = watch(digits, tmp_path / "whole", **spoiled)
    config = tiny_config(views=drawing_views(8), batch_size=32, codes=32, hidden_dim=32, epochs=0.4)
    trainers = [build_trainer(digits, config, log_every=10) for _ in range(2)]
    for trainer in trainers:
        plain = trainer.prepare
        trainer.prepare = lambda *batch, t=trainer, plain=plain: spoil(7)(t, plain(*batch))
    advance(trainers[0], 8)
    trainers[1].load_state(trainers[0].state())
    rows = []
    train(trainers[1], Run.create(tmp_path / "second", {}), rows.append)
    found = [timeless(row) for row in rows if "loss" in row]
    assert found == [timeless(row) for row in expected]
    assert found[0]["skipped_steps"] == 1
    assert trainers[1].skipped == 1


def give_up(cache, folder, **settings):
    with pytest.raises(UserError) as error:
        watch(cache, folder, log_every=2, max_nonfinite=5, **settings)
    (file,) = (folder / "run" / "checkpoints").glob("nonfinite-*.pt")
    assert str(file) in str(error.value)
    assert "--optim.lr" in str(error.value)
    saved = torch.load(file, weights_only=True)
    assert saved["step"] == 5
    assert saved["name"] in str(error.value)
    assert not saved["tensor"].isfinite().all()
    assert "encoder.stem.weight" in saved["student"] or "encoder.cls_token" in saved["student"]
    return str(error.value), saved


def test_pictures_that_are_always_bad_end_the_run_with_the_first_bad_tensor(digits, tmp_path):
    words, saved = give_up(digits, tmp_path, prepare=spoil(*range(100)))
    assert "6 steps had NaN or infinite numbers, the last of them step 5" in words
    assert saved["name"] == "teacher views 0"
    assert saved["tensor"].shape == (64, 1, 8, 8)
    assert saved["tensor"][0].isnan().all()


def test_a_bad_weight_is_named(digits, tmp_path):
    def prepare(trainer, views):
        trainer.student.encoder.blocks[1].mlp.fc1.weight.data[3, 2] = math.inf
        return views

    words, saved = give_up(digits, tmp_path, prepare=prepare, encoder=VIT)
    assert "first seen in weight student.encoder.blocks.1.mlp.fc1.weight" in words
    assert saved["tensor"][3, 2] == math.inf


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_bad_gradient_is_named(digits, tmp_path, accumulate):
    hooked = []

    def prepare(trainer, views):
        if not hooked:
            hooked.append(trainer.student.heads.codebook.register_hook(lambda grad: grad * NAN))
        return views

    words, _ = give_up(digits, tmp_path, prepare=prepare, accumulate=accumulate)
    assert "first seen in gradient of heads.codebook" in words


def test_what_is_over_when_the_step_is_redone_is_told_too(digits, tmp_path):
    def prepare(trainer, views):
        if not trainer.__dict__.setdefault("redone", False):
            views = spoil(*range(100))(trainer, views)
            trainer.redone = trainer.step == 5
        return views

    with pytest.raises(UserError, match="not seen again when the step was redone"):
        watch(digits, tmp_path, prepare, log_every=2, max_nonfinite=5)
