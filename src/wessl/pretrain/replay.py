"""A step done again, to find where it went wrong: its draws depend on its number alone."""

from collections.abc import Iterator
from contextlib import closing

from torch import Tensor

from wessl.pretrain.batch import merge_pictures, shares_views, split
from wessl.pretrain.step import student_step, teacher_logits, teacher_targets
from wessl.pretrain.trainer import Trainer


def first_nonfinite(trainer: Trainer, step: int) -> tuple[str, Tensor] | tuple[None, None]:
    """Name and value of the first tensor of a step that holds a NaN or an infinity.

    The weights are today's, not those of that step: what is over will not be found. The trainer
    stands at that step afterwards, with its gradients; only ``load_state`` makes it go on.
    """
    for name, tensor in tensors_of(trainer, step):
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            return name, tensor.detach().cpu()
    return None, None


def tensors_of(trainer: Trainer, step: int) -> Iterator[tuple[str, Tensor]]:
    """Weights, views, representations, cosines, targets, loss and gradients, as they come."""
    config, student, teacher = trainer.config, trainer.student, trainer.teacher
    yield from ((f"weight student.{name}", x) for name, x in student.state_dict().items())
    yield from ((f"weight teacher.{name}", x) for name, x in teacher.state_dict().items())
    trainer.step = step
    now = trainer.now()
    with closing(trainer.loader.batches(step)) as batches:
        views = trainer.prepare(*next(batches))
    yield from ((f"teacher views {k}", x) for k, x in enumerate(views.teacher))
    yield from ((f"student views {k}", x) for k, x in enumerate(views.student))

    parts = split(views, config.optim.accumulate)
    with trainer.autocast():
        taught = [teacher_logits(teacher, part.teacher, part.n) for part in parts]
        yield from (("teacher representations", x) for x, _ in taught)
        cosines = merge_pictures([x for _, x in taught])
        yield "teacher cosines", cosines
        targets = teacher_targets(cosines, config.loss, now.teacher_temperature, trainer.centering)
        yield "targets", targets
    for part, target in zip(parts, targets.chunk(len(parts), 2), strict=True):
        with trainer.autocast():
            representations = student.represent(part.student, part.keep, part.drop)
            yield "student representations", representations
            yield "student cosines", student.score(representations, part.n)
            loss, _ = student_step(
                student, part, target, config.loss, now.gamma, shares_views(config)
            )
        yield "loss", loss
        (loss / len(parts)).backward()
    gradients = ((name, p.grad) for name, p in student.named_parameters())
    yield from ((f"gradient of {name}", x) for name, x in gradients if x is not None)
