"""The two steps against a plain loop over views, heads, pictures and codes in float64."""

import copy
import itertools
import math

import pytest
import torch
from tiny import VIT, build_trainer, small_views, tiny_config
from torch import Tensor

from wessl.config import Config
from wessl.data.views.config import msn_views
from wessl.pretrain.batch import shares_views
from wessl.pretrain.model import Model
from wessl.pretrain.step import Views, student_step, teacher_logits, teacher_targets
from wessl.pretrain.trainer import Trainer

TEMPERATURE, GAMMA = 0.05, 0.4
STILL_VIT = {"encoder": VIT, "drop_path": 0.0}
"""Without drop-path, so that a view is the same picture by picture."""


def targets_of(teacher, views, loss, temperature=TEMPERATURE, centering=None):
    _, cosines = teacher_logits(teacher, views.teacher, views.n)
    return teacher_targets(cosines, loss, temperature, centering)


def ready(pictures, **changes) -> tuple[Trainer, Views]:
    """A trainer whose teacher is not its student, and its first batch."""
    trainer = build_trainer(pictures, tiny_config(**changes))
    generator = torch.Generator().manual_seed(1)
    for parameter in trainer.student.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    if trainer.centering is not None:
        trainer.centering.center.normal_(generator=generator).mul_(0.1)
    batches = trainer.loader.batches(0)
    views = trainer.prepare(*next(batches))
    batches.close()
    return trainer, views


def pictures_of(tensors: list[Tensor], n: int) -> list[Tensor]:
    """The views one by one, each (n, ch, h, w)."""
    return [view for tensor in tensors for view in tensor.split(n)]


def plain_cosines(model: Model, views: list[Tensor], keep: list[Tensor | None]) -> list[Tensor]:
    """``[view] -> (m, n, c)``, a view, a head and a layer at a time."""
    heads, found = model.heads, []
    for images, kept in zip(views, keep, strict=True):
        if kept is None:
            x = model.encoder(images.double())[:, 0]
        else:
            x = model.encoder(images.double(), kept)[:, 0]
        of_heads = []
        for j in range(heads.num_heads):
            e = x
            for layer in heads.projection:
                is_linear = hasattr(layer, "weight")
                e = e @ layer.weight[j] + layer.bias[j] if is_linear else layer(e)
            codes = heads.codebook[j]
            lengths = e.norm(dim=1)[:, None] * codes.norm(dim=1)[None]
            of_heads.append(e @ codes.T / lengths)
        found.append(torch.stack(of_heads))
    return found


def plain_targets(
    cosines: list[Tensor], kind: str, temperature: float, center: Tensor | None
) -> list[Tensor]:
    """All views of a head are re-normalised together."""
    m, n = cosines[0].shape[:2]
    targets = [torch.zeros_like(view) for view in cosines]
    for j in range(m):
        rows = torch.cat([view[j] for view in cosines])
        if kind == "sinkhorn":
            q = (rows / temperature).exp()
            for _ in range(3):
                q = q / q.sum(0, keepdim=True)
                q = q / q.sum(1, keepdim=True)
        else:
            moved = rows - center[j, 0].double() if kind == "centering" else rows
            q = (moved / temperature).softmax(1)
        for u, part in enumerate(q.split(n)):
            targets[u][j] = part
    return targets


def plain_loss(
    config: Config,
    student: Model,
    teacher: Model,
    views: Views,
    center: Tensor | None = None,
    temperature: float = TEMPERATURE,
    gamma: float = GAMMA,
) -> Tensor:
    """The whole of a step in float64; differentiable in ``student``."""
    n, shared = views.n, config.views.roles[0] == "global"
    masks = views.keep or [None] * len(views.student)
    keep = [
        None if mask is None else part
        for tensor, mask in zip(views.student, masks, strict=True)
        for part in (tensor if mask is None else mask).split(n)
    ]
    s = plain_cosines(student, pictures_of(views.student, n), keep)
    seen = pictures_of(views.teacher, n)
    with torch.no_grad():
        cosines = plain_cosines(teacher, seen, [None] * len(seen))
        t = plain_targets(cosines, config.loss.target, temperature, center)
    m, c = len(s[0]), s[0].shape[2]
    log_s = [(view / config.loss.student_temperature).log_softmax(-1) for view in s]

    pairs = [(u, v) for u in range(len(t)) for v in range(len(s)) if not shared or u != v]
    total = torch.zeros((), dtype=torch.float64)
    taught = torch.zeros(m, dtype=torch.float64)
    for (u, v), k in itertools.product(pairs, range(n)):
        entropies = [-(t[u][j, k] * t[u][j, k].log()).sum() for j in range(m)]
        if config.loss.weighting == "prob":
            powers = torch.stack([(log_s[v][j, k] / gamma).exp() for j in range(m)]).mean(0)
            mean_target = sum(t[u][j, k] for j in range(m)) / m
            total = total - (mean_target * gamma * powers.log()).sum()
            learners = torch.stack([(log_s[v][j, k].detach() / gamma).exp() for j in range(m)])
            taught += (mean_target * learners / learners.sum(0)).sum(1)
            continue
        e = [1.0 if config.loss.weighting == "unif" else math.exp(-h / gamma) for h in entropies]
        for j in range(m):
            total = total - e[j] / sum(e) * (t[u][j, k] * log_s[v][j, k]).sum()
            taught[j] += e[j] / sum(e) * t[u][j, k].sum()
    loss = total / (len(pairs) * n)
    share = taught / taught.sum() if config.loss.me_max_heads == "weighted" else [1 / m] * m
    for j in range(m):
        rows = [log_s[v][j, k].exp() for v in range(len(s)) for k in range(n)]
        mean = sum(rows) / len(rows)
        entropy = -(mean * mean.log()).sum()
        loss = loss + config.loss.me_max * (math.log(c) - entropy) * share[j]
    return loss


def double(model: Model) -> Model:
    return copy.deepcopy(model).double()


def the_step(trainer: Trainer, views: Views) -> tuple[Tensor, Tensor]:
    config = trainer.config
    center = None if trainer.centering is None else trainer.centering.center.clone()
    targets = targets_of(trainer.teacher, views, config.loss, TEMPERATURE, trainer.centering)
    loss, _ = student_step(
        trainer.student, views, targets, config.loss, GAMMA, shares_views(config)
    )
    plain_student = double(trainer.student)
    plain = plain_loss(config, plain_student, double(trainer.teacher), views, center)
    loss.backward()
    plain.backward()
    named = zip(trainer.student.named_parameters(), plain_student.parameters(), strict=True)
    for (name, ours), theirs in named:
        scale = float(theirs.grad.abs().max()) + 1e-6
        torch.testing.assert_close(
            ours.grad.double() / scale, theirs.grad / scale, atol=2e-4, rtol=0, msg=name
        )
    return loss, plain


@pytest.mark.parametrize("target", ["sinkhorn", "centering", "none"])
@pytest.mark.parametrize("weighting", ["ent", "prob", "unif"])
def test_loss_and_gradients_equal_the_plain_loop(pictures, target, weighting):
    trainer, views = ready(pictures, target=target, weighting=weighting, batch_size=5)
    loss, plain = the_step(trainer, views)
    torch.testing.assert_close(loss.double(), plain, rtol=1e-5, atol=0)


@pytest.mark.parametrize("heads", ["weighted", "alike"])
@pytest.mark.parametrize("weighting", ["ent", "prob", "unif"])
def test_me_max_is_each_heads_over_all_views_and_pictures(pictures, weighting, heads):
    changes = {**STILL_VIT, "target": "none", "me_max": 4.0, "mask": 0.3, "batch_size": 5}
    changes |= {"weighting": weighting, "me_max_heads": heads}
    trainer, views = ready(pictures, **changes)
    loss, plain = the_step(trainer, views)
    torch.testing.assert_close(loss.double(), plain, rtol=1e-5, atol=0)


@pytest.mark.parametrize("local_count", [0, 3])
def test_msns_target_view_teaches_every_anchor_and_is_none_itself(pictures, local_count):
    changes = {**STILL_VIT, "views": msn_views(8, 4, local_count), "me_max": 1.0, "mask": 0.25}
    trainer, views = ready(pictures, batch_size=5, **changes)
    assert not shares_views(trainer.config)
    assert len(pictures_of(views.teacher, 5)) == 1
    assert len(pictures_of(views.student, 5)) == 1 + local_count
    loss, plain = the_step(trainer, views)
    torch.testing.assert_close(loss.double(), plain, rtol=1e-5, atol=0)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("views", [small_views(), msn_views(8, 4, 2)], ids=["dino", "msn"])
@pytest.mark.parametrize("target", ["sinkhorn", "centering"])
def test_the_trainers_step_takes_this_loss_at_its_schedules_values(
    pictures, views, target, accumulate
):
    changes = {**STILL_VIT, "views": views, "target": target, "accumulate": accumulate}
    trainer, batch = ready(pictures, batch_size=6, mask=0.25, **changes)
    now, center = trainer.now(), None
    if trainer.centering is not None:
        center = trainer.centering.center.clone()
    models = double(trainer.student), double(trainer.teacher)
    plain = plain_loss(trainer.config, *models, batch, center, now.teacher_temperature, now.gamma)
    plain.backward()
    norm = torch.stack([p.grad.norm() for p in models[0].parameters()]).norm()
    trainer.train_step(batch)
    ours = trainer.meter.sums[2:].double()
    torch.testing.assert_close(ours, torch.stack([plain.detach(), norm]), rtol=1e-4, atol=0)


def test_dinos_student_sees_the_teachers_views_first(pictures):
    trainer, views = ready(pictures, views=small_views(local_count=3))
    assert shares_views(trainer.config)
    ours, theirs = pictures_of(views.student, views.n), pictures_of(views.teacher, views.n)
    assert len(theirs) == 2
    assert len(ours) == 5
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=False))


def test_the_reported_parts_add_up_to_the_loss(pictures):
    trainer, views = ready(pictures, me_max=2.5)
    config = trainer.config.loss
    targets = targets_of(trainer.teacher, views, config)
    loss, (cross_entropy, me_max) = student_step(trainer.student, views, targets, config, GAMMA)
    assert float(me_max) > 0
    torch.testing.assert_close(loss.detach(), cross_entropy + 2.5 * me_max)


def test_all_of_the_student_learns_and_nothing_of_the_teacher(pictures):
    trainer, views = ready(pictures, encoder=VIT, mask=0.2)
    targets = targets_of(trainer.teacher, views, trainer.config.loss)
    assert not targets.requires_grad
    loss, _ = student_step(trainer.student, views, targets, trainer.config.loss, GAMMA)
    loss.backward()
    assert all(p.grad is not None for p in trainer.student.parameters())
    assert all(p.grad is None and not p.requires_grad for p in trainer.teacher.parameters())


def test_masked_views_really_lose_their_tokens_and_only_the_students_do(pictures):
    trainer, views = ready(pictures, encoder=VIT, mask=0.3, views=small_views(local_count=2))
    tokens: dict[str, list[int]] = {"student": [], "teacher": []}
    for who, model in (("student", trainer.student), ("teacher", trainer.teacher)):
        model.encoder.blocks[0].register_forward_pre_hook(
            lambda _, inputs, who=who: tokens[who].append(inputs[0].shape[1])
        )
    targets = targets_of(trainer.teacher, views, trainer.config.loss)
    student_step(trainer.student, views, targets, trainer.config.loss, GAMMA)
    # 2 x 2 patches of the 8-pixel global views, of which floor(4 x 0.7) stay; 1 of the local ones.
    assert tokens == {"teacher": [1 + 4], "student": [1 + 2, 1 + 1]}


def test_the_teacher_does_not_drop_paths(pictures):
    trainer, views = ready(pictures, encoder=VIT)
    assert views.drop is not None
    some, others = (teacher_logits(trainer.teacher, views.teacher, views.n)[1] for _ in range(2))
    assert torch.equal(some, others)
    kept = trainer.student.represent(views.student, drop=views.drop)
    other = [1 - draws for draws in views.drop]
    assert not torch.equal(kept, trainer.student.represent(views.student, drop=other))


def test_centring_moves_its_centre_towards_the_mean_of_both_views_after_use(pictures):
    trainer, views = ready(pictures, target="centering")
    config, centering = trainer.config.loss, trainer.centering
    before = centering.center.clone()
    _, cosines = teacher_logits(trainer.teacher, views.teacher, views.n)
    used = teacher_targets(cosines, config, TEMPERATURE, centering)
    expected = ((cosines - before[:, None].squeeze(2)[None]) / TEMPERATURE).softmax(-1)
    torch.testing.assert_close(used, expected)
    mean = torch.stack([cosines[:, j].flatten(0, 1).mean(0) for j in range(2)])
    torch.testing.assert_close(centering.center[:, 0], 0.9 * before[:, 0] + 0.1 * mean)
