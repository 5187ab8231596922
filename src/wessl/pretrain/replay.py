"""A step done again, to find where it went wrong: its draws depend on its number alone."""

from collections.abc import Iterator
from contextlib import closing

from torch import Tensor

from wessl.errors import Diverged
from wessl.files import write_tensors
from wessl.pretrain.batch import merge_pictures, shares_views, split
from wessl.pretrain.step import student_step, teacher_logits, teacher_targets
from wessl.pretrain.trainer import Trainer
from wessl.run import Run


def give_up_on_nonfinite(trainer: Trainer, run: Run) -> None:
    never_learnt = trainer.step == trainer.steps == trainer.skipped
    if trainer.skipped <= trainer.options.max_nonfinite and not never_learnt:
        return
    step = int(trainer.meter.last_bad)
    where = find_nonfinite(trainer, run, step)
    raise Diverged(
        f"{trainer.skipped} steps had NaN or infinite numbers, the last of them step {step}: "
        f"{where}. Try a lower --optim.lr, --optim.clip 1 or --precision fp32"
    )


def find_nonfinite(trainer: Trainer, run: Run, step: int) -> str:
    """In words, where the step goes wrong when it is done again; each process tries its part."""
    if trainer.way == "fsdp" or (trainer.way and trainer.config.heads.batch_norm):
        return "it was not done again, because no process can do its part without the others"
    name, tensor = first_nonfinite(trainer, step)
    found = [(rank, other) for rank, other in enumerate(trainer.team.gather(name)) if other]
    if not found:
        return "not seen again when the step was redone"
    rank, first = found[0]
    words = f"first seen in {first}" + (f" of process {rank}" if trainer.team.world > 1 else "")
    if name is None:
        return words
    state = dict(step=step, name=name, tensor=tensor, student=trainer.student.state_dict())
    path = run.checkpoints / f"nonfinite-step-{step:09d}.pt"
    if trainer.team.rank == rank:
        try:
            write_tensors(path, state)
        except OSError as error:
            return f"{words} ({error})"
    return f"{words}, which is in {path} with the student"


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
