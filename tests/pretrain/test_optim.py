"""The optimiser against torch's own parts, and what a step with a NaN leaves as it was."""

import pytest
import torch
from tiny import CONV, RECIPES, VIT, advance, build_trainer, clone, tiny_config, unequal
from torch import nn

from wessl.config import OptimConfig
from wessl.pretrain.model import build_model, teacher_of
from wessl.pretrain.optim import (
    build_optimizer,
    clip_gradients,
    optimizer_step,
    set_schedule,
    update_teacher,
)
from wessl.pretrain.schedules import Now


def now(**values) -> Now:
    usual = dict(lr=0.1, weight_decay=0.3, momentum=0.9, teacher_temperature=0.05, gamma=1.0)
    return Now(**usual | dict(codes_frozen=False) | values)


def decayed(model, optimizer) -> set[str]:
    chosen = {id(p) for group in optimizer.param_groups if group["decay"] for p in group["params"]}
    return {name for name, p in model.named_parameters() if id(p) in chosen}


def matrices(model) -> set[str]:
    """The released rule, "everything but biases and 1-D tensors", on every head by itself."""
    chosen = set()
    for name, parameter in model.named_parameters():
        stacked = name.startswith("heads.") and ".norm." not in name
        one = parameter[0] if stacked else parameter
        if name == "heads.code_length":
            one = one[:, None]  # as torch's weight norm has it, and with it DINO
        if one.dim() > 1 and not name.endswith("bias"):
            chosen.add(name)
    return chosen


@pytest.mark.parametrize("encoder", [CONV, VIT])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("share", [None, "projection", "codebook"])
def test_weight_decay_reaches_all_but_biases_and_vectors_of_every_head(encoder, count, share):
    changes = {"encoder": encoder, "heads.count": count, "share": share, "batch_norm": True}
    model = build_model(tiny_config(code_length="free", **changes))
    found = decayed(model, build_optimizer(model, OptimConfig()))
    assert found == matrices(model)
    assert {"heads.projection.0.weight", "heads.codebook"} <= found
    assert not any(name.endswith("bias") or "norm" in name for name in found)
    assert "heads.code_length" in found
    if encoder is VIT:  # as in the released DINO: they are no vectors
        assert {"encoder.cls_token", "encoder.pos_embed", "encoder.patch_embed.proj.weight"} < found


def test_msns_prototypes_are_not_decayed():
    model = build_model(tiny_config(**RECIPES["msn"]))
    found = decayed(model, build_optimizer(model, OptimConfig(decay_codes=False)))
    assert found == matrices(model) - {"heads.codebook"}


def test_every_trained_parameter_is_in_exactly_one_group():
    model = build_model(tiny_config(code_length="fixed"))
    groups = build_optimizer(model, OptimConfig()).param_groups
    held = [id(p) for group in groups for p in group["params"]]
    assert sorted(held) == sorted(id(p) for p in model.parameters() if p.requires_grad)
    assert id(model.heads.code_length) not in held


def test_steps_equal_torchs_plain_adamw_with_two_groups():
    ours, theirs = (build_model(tiny_config()) for _ in range(2))
    optimizer = build_optimizer(ours, OptimConfig())
    names = matrices(theirs)
    named = list(theirs.named_parameters())
    plain = torch.optim.AdamW(
        [
            dict(params=[p for n, p in named if n in names], weight_decay=0.3),
            dict(params=[p for n, p in named if n not in names], weight_decay=0.0),
        ],
        foreach=False,
    )
    generator = torch.Generator().manual_seed(0)
    for step in range(4):
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            a.grad = torch.randn(a.shape, generator=generator)
            b.grad = a.grad.clone()
        set_schedule(optimizer, now(lr=0.01 * (step + 1)))
        for group in plain.param_groups:
            group["lr"] = 0.01 * (step + 1)
        optimizer_step(optimizer, torch.tensor(True))
        plain.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def with_gradients(scale: float) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in ((3, 4), (7,), (2, 2, 2), (5,))]
    for parameter in parameters[:3]:
        parameter.grad = scale * torch.randn(parameter.shape, generator=generator)
    return parameters  # the last has none, as frozen codes


@pytest.mark.parametrize("scale", [0.1, 10.0])
def test_the_global_clip_is_torchs(scale):
    ours, theirs = with_gradients(scale), with_gradients(scale)
    norm = clip_gradients(ours, 3.0, each=False)
    expected = torch.nn.utils.clip_grad_norm_(theirs, 3.0)
    torch.testing.assert_close(norm, expected)
    for a, b in zip(ours[:3], theirs[:3], strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    assert ours[3].grad is None


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_the_clip_of_each_tensor_is_torchs_on_each(scale):
    ours, theirs = with_gradients(scale), with_gradients(scale)
    norm = clip_gradients(ours, 2.0, each=True)
    torch.testing.assert_close(norm, torch.nn.utils.get_total_norm([p.grad for p in theirs[:3]]))
    for a, b in zip(ours[:3], theirs[:3], strict=True):
        torch.nn.utils.clip_grad_norm_([b], 2.0)
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("each", [False, True])
def test_msns_prototypes_are_left_out_of_the_clip(each):
    ours, theirs = with_gradients(10.0), with_gradients(10.0)
    norm = clip_gradients(ours, 3.0, each, exempt=[ours[1]])
    torch.testing.assert_close(norm, torch.nn.utils.get_total_norm([p.grad for p in theirs[:3]]))
    assert torch.equal(ours[1].grad, theirs[1].grad)
    for parts in [[theirs[0]], [theirs[2]]] if each else [[theirs[0], theirs[2]]]:
        torch.nn.utils.clip_grad_norm_(parts, 3.0)
    for i in (0, 2):
        torch.testing.assert_close(ours[i].grad, theirs[i].grad)


def test_the_trainer_leaves_codes_out_of_the_clip_when_asked(pictures):
    """With a clip near nothing only the codes still have gradients: AdamW's first moments show."""
    changes = {"code_length": "free", "clip": 1e-9, "clip_codes": False}
    trainer = build_trainer(pictures, tiny_config(**changes))
    advance(trainer, 1)
    largest = {
        name: float(trainer.optimizer.state[p]["exp_avg"].abs().max())
        for name, p in trainer.student.named_parameters()
    }
    codes = {"heads.codebook", "heads.code_length"}
    assert min(largest[name] for name in codes) > 1e-7
    assert max(value for name, value in largest.items() if name not in codes) <= 1e-9


def test_without_a_clip_gradients_stay_and_their_norm_is_told():
    ours, theirs = with_gradients(10.0), with_gradients(10.0)
    norm = clip_gradients(ours, None, each=False)
    torch.testing.assert_close(norm, torch.nn.utils.get_total_norm([p.grad for p in theirs[:3]]))
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(ours[:3], theirs[:3], strict=True))


def test_a_step_that_is_not_finite_changes_neither_weights_nor_moments():
    model = build_model(tiny_config())
    optimizer = build_optimizer(model, OptimConfig())
    set_schedule(optimizer, now())
    for value, finite in ((1.0, True), (float("nan"), False), (float("inf"), False)):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, value)
        before = clone([model.state_dict(), optimizer.state_dict()])
        optimizer_step(optimizer, torch.tensor(finite))
        changed = unequal(before, clone([model.state_dict(), optimizer.state_dict()]))
        assert bool(changed) == finite
        assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("recipe", ["dino-star-ent", "dino", "msn"])
@pytest.mark.parametrize("what", ["student views", "teacher views", "gradient"])
def test_a_nan_anywhere_in_a_step_changes_nothing_but_the_count(pictures, recipe, what):
    """Also not the centre or batch norm's statistics, which would keep the NaN for ever."""
    trainer = build_trainer(pictures, tiny_config(**RECIPES[recipe]))
    advance(trainer, 5)  # past the frozen codes, so that every moment exists
    for parameter, average in zip(
        trainer.student.parameters(), trainer.teacher.parameters(), strict=True
    ):
        average.data.copy_(parameter.data)  # so that the average stands still too
    before = clone(trainer.state())
    batches = trainer.loader.batches(trainer.step)
    views = trainer.prepare(*next(batches))
    batches.close()
    if what == "gradient":
        trainer.student.heads.codebook.register_hook(lambda grad: grad * float("nan"))
    else:
        tensors = views.student if what == "student views" else views.teacher
        tensors[0] = tensors[0].clone()
        tensors[0][0, 0, 0, 0] = float("nan")
    trainer.train_step(views)
    after = clone(trainer.state())
    assert (before.pop("step"), after.pop("step")) == (5, 6)
    del before["meter"], after["meter"]
    for group in (*before["optimizer"]["param_groups"], *after["optimizer"]["param_groups"]):
        del group["lr"], group["weight_decay"]  # the schedules go on
    changed = unequal(before, after)
    assert [name for name in changed if not name.startswith("state.teacher")] == []
    for name, tensor in trainer.teacher.state_dict().items():
        torch.testing.assert_close(tensor, before["teacher"][name], msg=name)
    assert int(trainer.meter.skipped) == 1
    assert int(trainer.meter.last_bad) == 5


@pytest.mark.parametrize("momentum", [0.0, 0.9, 1.0])
def test_the_teacher_is_the_moving_average_of_the_student(momentum):
    student = build_model(tiny_config(batch_norm=True))
    teacher = teacher_of(student)
    old = clone(dict(teacher.named_parameters()))
    for parameter in student.parameters():
        parameter.data += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    for buffer in student.buffers():
        buffer += 1
    buffers = clone(dict(teacher.named_buffers()))
    update_teacher(teacher, student, momentum)
    for name, parameter in student.named_parameters():
        expected = momentum * old[name].double() + (1 - momentum) * parameter.detach().double()
        torch.testing.assert_close(teacher.get_parameter(name).double(), expected)
    assert not unequal(buffers, dict(teacher.named_buffers()))


def test_msns_teacher_uses_the_students_codebook_itself():
    student = build_model(tiny_config())
    teacher = teacher_of(student)
    for parameter in student.parameters():
        parameter.data += 1
    update_teacher(teacher, student, 0.9, follow_codebook=True)
    assert torch.equal(teacher.heads.codebook, student.heads.codebook)
    assert teacher.heads.codebook is not student.heads.codebook
    bias, of_student = (m.heads.projection[0].bias for m in (teacher, student))
    torch.testing.assert_close(bias, of_student - 0.9)
