"""Everything a run holds in memory, and the one step that moves it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from wessl.config import Config, Options
from wessl.data.batch import Batch
from wessl.data.loading.loader import Loader
from wessl.ensemble.targets import Centering
from wessl.errors import UserError
from wessl.pretrain import optim
from wessl.pretrain.batch import check_roles, merge_pictures, prepare, shares_views, split
from wessl.pretrain.meter import Meter
from wessl.pretrain.model import build_model, load_strictly, teacher_of
from wessl.pretrain.parallel import ALONE, Team
from wessl.pretrain.schedules import Now, schedule
from wessl.pretrain.spread import choose_way, load_whole, sharded_like, spread, syncing, whole
from wessl.pretrain.step import (
    Views,
    chosen_codes,
    student_step,
    teacher_logits,
    teacher_targets,
)

Normalisation = tuple[list[float], list[float]]

GRAPH_PICTURES = 128
"""Pictures up to which a step is a CUDA graph: the host launches its kernels more slowly than they
run. With more the device is busy anyway, and a graph keeps its memory to itself."""


class Trainer:
    """Student, teacher, optimiser and where they are: ``step`` is the next step to do."""

    def __init__(
        self,
        config: Config,
        options: Options,
        loader: Loader,
        normalisation: Normalisation,
        init: dict[str, Tensor] | None = None,
        team: Team = ALONE,
    ):
        check_roles(config)
        self.config, self.options, self.loader, self.team = config, options, loader, team
        self.mean, self.std = normalisation
        self.device = loader.device
        if self.device.type == "cuda":  # TF32 for what autocast leaves in fp32: cosines within 1e-4
            torch.set_float32_matmul_precision("high")
        self.steps_per_epoch = loader.steps_per_epoch
        self.steps = max(1, round(config.optim.epochs * self.steps_per_epoch))
        student = build_model(config)
        if init is not None:
            load_strictly(student.encoder, init)
        self.student = student.to(self.device).train()
        self.teacher = teacher_of(self.student)
        self.centering = (
            Centering(config.heads.count, config.heads.codes, config.loss.center_momentum)
            if config.loss.target == "centering"
            else None
        )
        if self.centering is not None:
            self.centering.to(self.device)
        self._choose_steps()
        self.optimizer = optim.build_optimizer(self.student, config.optim)
        self.trained = [p for p in self.student.parameters() if p.requires_grad]
        heads = self.student.heads
        self.codes = [p for p in (heads.codebook, heads.code_length) if p is not None]
        self.unclipped = [] if config.optim.clip_codes else self.codes
        modules = [self.student, self.teacher, *([self.centering] if self.centering else [])]
        self.running = [buffer for module in modules for buffer in module.buffers()]
        self.meter = Meter(config, self.device)
        self.step, self.seconds, self.skipped = 0, 0.0, 0

    def _choose_steps(self) -> None:
        """Plain functions of the models, compiled, or spread over the team's processes."""
        config, options, team = self.config, self.options, self.team
        cuda = self.device.type == "cuda"
        self.way = choose_way(config, options) if team.group is not None else None
        self.compiled = options.compile == "on" or (
            options.compile == "auto" and cuda and self.way != "fsdp"
        )
        # Accumulated parts would write their gradients into the same graph's memory, and processes
        # meet in the middle of a step.
        self.graphs = (
            self.compiled
            and cuda
            and config.optim.batch_size <= GRAPH_PICTURES
            and config.optim.accumulate == 1
            and self.way is None
        )
        self.student_step: Callable[..., tuple[Tensor, Tensor]]
        self.teacher_logits: Callable[..., tuple[Tensor, Tensor]]
        self.teacher_targets = teacher_targets
        if self.way is not None:
            self.student_step, self.teacher_logits = spread(
                self.student, self.teacher, self.way, self.compiled, team, self.device
            )
            return
        of_student, of_teacher = student_step, teacher_logits
        if self.compiled:
            mode = "reduce-overhead" if self.graphs else None
            of_student = torch.compile(student_step, mode=mode, dynamic=False)
            of_teacher = torch.compile(teacher_logits, mode=mode, dynamic=False)
            if self.centering is None:  # whose mean must outlive the step
                self.teacher_targets = torch.compile(teacher_targets, mode=mode, dynamic=False)
        self.student_step = partial(of_student, self.student)
        self.teacher_logits = partial(of_teacher, self.teacher)

    def now(self) -> Now:
        return schedule(
            self.step,
            self.steps,
            self.steps_per_epoch,
            self.config.optim,
            self.config.loss,
            self.config.heads.codes,
        )

    def train_step(self, views: Views) -> tuple[Tensor, Tensor]:
        """One optimiser step; returns the targets, and the teacher's representations of a part."""
        if self.graphs:
            torch.compiler.cudagraph_mark_step_begin()
        config, now, group = self.config, self.now(), self.team.group
        gamma = self._scalar(now.gamma)
        parts = split(views, config.optim.accumulate)
        running = [buffer.clone() for buffer in self.running]
        targets, chosen, representations = self._teach(parts, now)
        losses = []
        for part, target in zip(parts, targets.chunk(len(parts), 2), strict=True):
            with syncing(self.student_step, last=part is parts[-1]):
                with self.autocast():
                    loss, terms = self.student_step(
                        part, target, config.loss, gamma, shares_views(config), group
                    )
                (loss / len(parts)).backward()
            losses.append(torch.cat([terms, loss.detach()[None]]))
        mean = self.team.mean(torch.stack(losses).mean(0))
        if now.codes_frozen:
            for parameter in self.codes:
                parameter.grad = None
        norm = optim.clip_gradients(
            self.trained,
            config.optim.clip,
            config.optim.clip_each,
            self.unclipped,
            group if self.way == "fsdp" else None,
        )
        finite = mean.isfinite().all() & norm.isfinite()
        optim.set_schedule(self.optimizer, now)
        optim.optimizer_step(self.optimizer, finite)
        optim.undo_unless(finite, self.running, running)
        optim.update_teacher(self.teacher, self.student, now.momentum, config.heads.follow_codebook)
        self.meter.add(self.step, mean[:2], mean[2], norm, finite, targets, chosen)
        self.step += 1
        return targets, representations

    def _teach(self, parts: list[Views], now: Now) -> tuple[Tensor, Tensor, Tensor]:
        """Targets, the codes they are of, and the representations of the last part.

        Cosines, as large as targets, are gone before the student needs memory.
        """
        loss, group = self.config.loss, self.team.group
        temperature = self._scalar(now.teacher_temperature)
        with self.autocast():
            taught = [self.teacher_logits(part.teacher, part.n) for part in parts]
            cosines = merge_pictures([c for _, c in taught])
            # Over the whole batch, however many parts and processes it is computed in.
            targets = self.teacher_targets(cosines, loss, temperature, self.centering, group)
        return targets, chosen_codes(loss, cosines, targets), taught[-1][0]

    def prepare(self, indices: Tensor, batch: Batch) -> Views:
        return prepare(batch, indices, self.config, self.student, self.step, self.mean, self.std)

    def autocast(self) -> torch.autocast:
        enabled = self.config.precision == "bf16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled)

    def _scalar(self, value: float) -> Tensor:
        # A tensor, so that a compiled step does not take a schedule's value for a constant; filled
        # on the device, because a copy from the host would wait for it.
        return torch.full((), value, device=self.device)

    def taught_encoder(self) -> nn.Module:
        """The teacher's encoder, whole in every process: what the run is for."""
        if self.way != "fsdp":
            return self.teacher.encoder
        with torch.device(self.device):
            encoder = build_model(self.config).encoder.eval()
        encoder.load_state_dict(whole(self.teacher.encoder.state_dict(), keep=True))
        return encoder

    @property
    def state_bytes(self) -> int:
        """Of a checkpoint, about: the student, the teacher, and two moments of what is trained."""
        moments = 2 * sum(p.numel() for p in self.trained)
        return 4 * (2 * sum(p.numel() for p in self.student.parameters()) + moments)

    def state(self) -> dict[str, Any]:
        """The same whatever the team: whole tensors, in the first process at least."""
        state = dict(
            step=self.step,
            seconds=self.seconds,
            skipped=self.skipped,
            student=self.student.state_dict(),
            teacher=self.teacher.state_dict(),
            centering=None if self.centering is None else self.centering.state_dict(),
            optimizer=self.optimizer.state_dict(),
            meter=self.meter.state(self.team),
        )
        return whole(state, self.team.first) if self.way == "fsdp" else state

    def load_state(self, state: dict[str, Any]) -> None:
        self.step, self.seconds, self.skipped = state["step"], state["seconds"], state["skipped"]
        try:
            load_whole(self.student, state["student"])
            load_whole(self.teacher, state["teacher"])
        except RuntimeError as error:
            raise UserError(
                "the checkpoint was written by another version of wessl and does not fit this one "
                f"({error}); go on with that version, or choose a new --out"
            ) from error
        if self.centering is not None:
            self.centering.load_state_dict(state["centering"])
        moments = dict(state["optimizer"]["state"])
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        for i, of_parameter in moments.items():
            like = parameters[i]
            moments[i] = {name: sharded_like(x, like) for name, x in of_parameter.items()}
        self.optimizer.load_state_dict(state["optimizer"] | {"state": moments})
        if "meter" in state:  # not in the first checkpoints there were
            self.meter.load_state(state["meter"])
