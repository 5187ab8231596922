"""From pictures on the device to the views, masks and drop-path draws of one step."""

from dataclasses import replace

import torch
from torch import Tensor

from wessl.config import Config
from wessl.data.batch import Batch
from wessl.data.draws import uniform
from wessl.data.views.make import make_views
from wessl.encoder.vit import ViT
from wessl.errors import UserError
from wessl.pretrain.model import Model
from wessl.pretrain.step import Views


def prepare(
    batch: Batch,
    indices: Tensor,
    config: Config,
    student: Model,
    step: int,
    mean: list[float],
    std: list[float],
) -> Views:
    """All a step sees of ``n`` pictures; a pure function of seed, step and pictures."""
    n = len(indices)
    indices = indices.to(batch.pixels.device, non_blocking=True)  # or each use of them would wait
    # A transformer's first layer would round them to bf16 just the same.
    half = config.precision == "bf16" and isinstance(student.encoder, ViT)
    dtype = torch.bfloat16 if half else torch.float32
    tensors = make_views(batch, indices, config.views, config.seed, step, mean, std, dtype)
    seen = list(zip(tensors, (role for _, role, _ in config.views.tensors), strict=True))
    of_student = [images for images, role in seen if role != "target"]
    views = Views(n, [images for images, role in seen if role != "local"], of_student)
    if isinstance(student.encoder, ViT):
        keep = mask(indices, config, student.encoder, step, of_student[0])
        views.keep = None if keep is None else [keep, *[None] * (len(of_student) - 1)]
        views.drop = drop_path_draws(indices, config, student.encoder, step, of_student)
    elif config.loss.mask > 0:
        raise UserError("--loss.mask drops patches, which only --encoder.kind vit has; set it to 0")
    return views


def check_roles(config: Config) -> None:
    """The teacher sees one tensor, the student shares all of it or none, and has more to learn."""
    kinds = {(crop.role, crop.size) for crop in config.views.crops if crop.role != "local"}
    if len(kinds) > 1:
        found = ", ".join(f"{role} {size}" for role, size in sorted(kinds))
        raise UserError(f"--views: the teacher's views must be of one role and size, got {found}")
    roles = config.views.roles
    if roles == ("global",) or set(roles) == {"target"}:
        raise UserError(
            f"--views: with {len(roles)} of role {roles[0]} alone the student has no view to learn "
            "the teacher's from; add a local one" + ", or a second" * (roles[0] == "global")
        )


def shares_views(config: Config) -> bool:
    """Whether the student sees the teacher's views too (all but the original MSN)."""
    return config.views.roles[0] == "global"


def mask(indices: Tensor, config: Config, vit: ViT, step: int, images: Tensor) -> Tensor | None:
    """Patches kept of each global view, ``(views n, k)``: a random ``floor(N (1 - ratio))``."""
    if config.loss.mask == 0:
        return None
    p = vit.patch_size
    patches = (images.shape[2] // p) * (images.shape[3] // p)
    kept = config.loss.patches_kept(patches)
    if kept < 1:
        raise UserError(f"--loss.mask {config.loss.mask} leaves no patch of {patches}")
    count = len(images) // len(indices)
    draws = uniform(config.seed, step, indices, "mask", count * patches)
    draws = draws.unflatten(1, (count, patches)).transpose(0, 1).flatten(0, 1)
    return draws.argsort(1)[:, :kept].sort(1).values


def drop_path_draws(
    indices: Tensor, config: Config, vit: ViT, step: int, tensors: list[Tensor]
) -> list[Tensor | None] | None:
    """Uniform draws ``(views n, depth, 2)`` for each of the student's tensors."""
    if config.encoder.drop_path == 0:
        return None
    draws: list[Tensor | None] = []
    for k, images in enumerate(tensors):
        count = len(images) // len(indices)
        flat = uniform(config.seed, step, indices, f"drop-path {k}", count * vit.depth * 2)
        draws.append(flat.unflatten(1, (count, vit.depth, 2)).transpose(0, 1).flatten(0, 1))
    return draws


def split(views: Views, parts: int) -> list[Views]:
    """The batch in ``parts`` of equally many pictures, for gradient accumulation."""
    if parts == 1:
        return [views]
    if views.n % parts:
        raise UserError(f"--optim.accumulate {parts} does not divide the batch of {views.n}")

    def cut(tensors: list[Tensor], part: int) -> list[Tensor]:
        return [x.unflatten(0, (-1, views.n)).chunk(parts, 1)[part].flatten(0, 1) for x in tensors]

    def cut_optional(tensors: list[Tensor | None] | None, part: int) -> list[Tensor | None] | None:
        if tensors is None:
            return None
        return [None if x is None else cut([x], part)[0] for x in tensors]

    return [
        replace(
            views,
            n=views.n // parts,
            teacher=cut(views.teacher, part),
            student=cut(views.student, part),
            keep=cut_optional(views.keep, part),
            drop=cut_optional(views.drop, part),
        )
        for part in range(parts)
    ]


def merge_pictures(parts_umnc: list[Tensor]) -> Tensor:
    return parts_umnc[0] if len(parts_umnc) == 1 else torch.cat(parts_umnc, 2)
