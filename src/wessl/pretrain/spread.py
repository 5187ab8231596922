"""Student and teacher over a team's processes: a copy in each, or a shard in each.

DDP and FSDP2 hook into a module's ``forward``, so the two steps become modules of their own. Both
average gradients over processes while backward still runs; what is left to us is the rest of the
batch's statistics, and that checkpoints hold whole tensors however they lie in memory.
"""

import contextlib
import inspect
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from wessl.config import Config, LossConfig, Options
from wessl.encoder.vit import ViT
from wessl.ensemble.batch_norm import use_group_statistics
from wessl.ensemble.collective import Group
from wessl.errors import UserError
from wessl.pretrain.model import Model
from wessl.pretrain.parallel import Team
from wessl.pretrain.step import Views, student_step, teacher_logits

Way = Literal["ddp", "fsdp"]


class StudentStep(nn.Module):
    """``student_step`` as a forward."""

    def __init__(self, student: Model):
        super().__init__()
        self.student = student

    def forward(
        self,
        views: Views,
        targets_umnc: Tensor,
        loss: LossConfig,
        gamma: Tensor,
        same_views: bool,
        group: Group,
    ) -> tuple[Tensor, Tensor]:
        return student_step(self.student, views, targets_umnc, loss, gamma, same_views, group)


class TeacherStep(nn.Module):
    """``teacher_logits`` as a forward."""

    def __init__(self, teacher: Model):
        super().__init__()
        self.teacher = teacher

    def forward(self, views: list[Tensor], n: int) -> tuple[Tensor, Tensor]:
        return teacher_logits(self.teacher, views, n)


def choose_way(config: Config, options: Options) -> Way:
    """Copies of S and B fit everywhere; from L on a process holds a shard."""
    if options.parallel != "auto":
        return options.parallel
    large = config.encoder.kind == "vit" and config.encoder.size == "L"
    return "fsdp" if large and config.encoder.dim is None else "ddp"


def describe_team(config: Config, options: Options, team: Team) -> str:
    copies = choose_way(config, options) == "ddp"
    held = "a copy of the networks in each (ddp)" if copies else "a shard in each (fsdp)"
    each = config.optim.batch_size // team.world
    return f"processes: {team.world}, {held}, {each} pictures of every batch for each"


def spread(
    student: Model, teacher: Model, way: Way, compiled: bool, team: Team, device: torch.device
) -> tuple[nn.Module, nn.Module]:
    """The two steps of a team; both models change in place, and their names stay."""
    assert team.group is not None
    for model in (student, teacher):
        use_group_statistics(model, team.group)
    steps = StudentStep(student), TeacherStep(teacher)
    if way == "ddp":
        # Buffers are of the whole batch already, hence alike. Backward through a collective of our
        # own comes in the same order in all processes, because their graphs are alike.
        known = inspect.signature(DistributedDataParallel).parameters
        name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        buffers: dict[str, Any] = {name: False}
        copies = DistributedDataParallel(
            steps[0], process_group=team.group, gradient_as_bucket_view=True, **buffers
        )
        if not compiled:
            return copies, steps[1]
        of_student, of_teacher = (torch.compile(s, dynamic=False) for s in (copies, steps[1]))
        return of_student, of_teacher  # type: ignore[return-value]
    if compiled:
        raise UserError(
            "--parallel fsdp does not compile its steps: leave --compile at auto or off"
        )
    shard(student, steps[0], team, device, keep=True)
    shard(teacher, steps[1], team, device, keep=False)
    return steps


def shard(model: Model, step: nn.Module, team: Team, device: torch.device, keep: bool) -> None:
    """Each block on its own, the rest together; ``keep`` the rest whole until backward is done."""
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(device.type, (team.world,))
    if isinstance(model.encoder, ViT):
        model.encoder.chain = False
        for block in model.encoder.blocks:
            fully_shard(block, mesh=mesh)
            register_fsdp_forward_method(block, "of_cls")
    fully_shard(step, mesh=mesh, reshard_after_forward=not keep)


def syncing(step: Any, last: bool) -> contextlib.AbstractContextManager[None]:
    """Of a batch in parts only the last part's backward need carry gradients to the others."""
    copies = isinstance(getattr(step, "_orig_mod", step), DistributedDataParallel)
    return step.no_sync() if copies and not last else contextlib.nullcontext()


def is_sharded(x: Any) -> bool:
    return hasattr(x, "full_tensor")


def whole(tree: Any, keep: bool) -> Any:
    """A state with every shard made whole, in the processes that ``keep`` it."""
    if isinstance(tree, dict):
        return {key: whole(value, keep) for key, value in tree.items()}
    if isinstance(tree, list):
        return [whole(value, keep) for value in tree]
    if is_sharded(tree):
        full = tree.full_tensor()
        return full.cpu() if keep else None
    return tree


def sharded_like(full: Tensor, model: Tensor) -> Tensor:
    """This process's shard of a whole tensor, where ``model`` is a shard."""
    from torch.distributed.tensor import distribute_tensor

    if not is_sharded(model) or full.dim() == 0:
        return full
    return distribute_tensor(full.to(model.device), model.device_mesh, model.placements)  # type: ignore[attr-defined]


def load_whole(model: nn.Module, state: dict[str, Tensor]) -> None:
    own = model.state_dict()
    fitting = own.keys() == state.keys()  # what does not fit, the loading itself says best
    parts = {name: sharded_like(x, own[name]) for name, x in state.items()} if fitting else state
    model.load_state_dict(parts)
