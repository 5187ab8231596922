"""What a run is made of, as plain dataclasses: no torch here, so flags and recipes stay quick.

``Config`` holds everything that changes the result; a run refuses to resume when any of it differs.
``Options`` holds what does not: where to run, how often to save, what to print.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

from wessl.data.views.config import Views, dino_views

# By name and not from the ensemble, which imports torch.
WEIGHTINGS = (
    "unif", "unif-all", "prob", "prob-te", "prob-max", "prob-max-te", "ent", "ent-st", "kl", "var",
)  # fmt: skip
TEACH_ALL_ALIKE = {"unif", "unif-all", "prob-te", "prob-max-te", "var"}
"""Weightings that do not tell one student's head from another."""
NOT_IN_NATS = {name for name in WEIGHTINGS if name.startswith(("unif", "prob"))}
"""Whose score is a probability, or nothing."""


@dataclass(frozen=True)
class EncoderConfig:
    """Which encoder is trained."""

    kind: Literal["vit", "conv"] = "vit"
    """A vision transformer, or the small residual network for small pictures."""
    size: Literal["T", "S", "B", "L"] = "S"
    """The transformer's size."""
    patch_size: int = 16
    """Side of a patch in pixels."""
    image_size: int = 224
    """Side of the pictures the position embeddings are made for: the global crops', which follow
    it with automatic sizes."""
    dim: int | None = None
    """Width, where it differs from the size's."""
    depth: int | None = None
    """Number of blocks, where it differs from the size's."""
    heads: int | None = None
    """Number of attention heads, where it differs from the size's."""
    drop_path: float = 0.1
    """Stochastic depth of the last block; earlier ones less, linearly."""
    start: Literal["random", "mimetic"] = "random"
    """How a transformer starts: mimetic has attention that looks trained, for few pictures."""
    widths: tuple[int, ...] = (24, 48, 96)
    """Widths of the convolutional encoder's blocks."""


@dataclass(frozen=True)
class HeadsConfig:
    """The ensemble: projection heads and codebooks."""

    count: int = 1
    """Number of heads m."""
    hidden_dim: int = 1024
    depth: int = 3
    embed_dim: int = 256
    codes: int = 4096
    """Number of codes c of each codebook."""
    share: Literal["projection", "codebook"] | None = None
    """The part all heads have in common; None, the paper's best: each has its own."""
    batch_norm: bool = False
    """Batch norm after each hidden layer (original MSN)."""
    code_length: Literal["one", "free", "fixed"] = "one"
    """Length of the codes: one; free (weight norm, original DINO S/16); fixed at one (its B)."""
    follow_codebook: bool = False
    """The teacher uses the student's codebook itself instead of its average (original MSN)."""


@dataclass(frozen=True)
class LossConfig:
    """Targets, weights and temperatures."""

    weighting: str = "ent"
    """A weighting's name; unused with one head."""
    gamma: float | None = None
    """Weighting temperature: in units of ln c for entropy-like weightings, as it is for prob*."""
    gamma_start: float = 0.5
    """Where gamma starts; it falls linearly. Unused with prob*, and where gamma is larger."""
    gamma_epochs: float = 30
    student_temperature: float = 0.1
    teacher_temperature: float = 0.025
    teacher_temperature_start: float = 0.05
    teacher_temperature_epochs: float = 30
    stepwise_temperature: bool = False
    """Change the teacher temperature once an epoch (original DINO) instead of every step."""
    target: Literal["sinkhorn", "centering", "none"] = "sinkhorn"
    """How teacher predictions are re-normalised against collapse."""
    center_momentum: float = 0.9
    me_max: float = 0.0
    """Weight of mean-entropy maximisation (MSN*)."""
    me_max_heads: Literal["weighted", "alike"] = "weighted"
    """Of several heads: each one's counts as much as its part of the loss, or as the others'."""
    mask: float = 0.0
    """Share of patches dropped from the student's global views (MSN*)."""

    @property
    def gamma_in_nats(self) -> bool:
        """Whether gamma is a share of ln c, which falls to it: unif has none, prob* one as it is.

        >>> LossConfig("ent-st").gamma_in_nats, LossConfig("prob-te").gamma_in_nats
        (True, False)
        """
        return self.weighting not in NOT_IN_NATS

    def weighs_me_max(self, heads: int) -> bool:
        """Whether ME-MAX of some heads counts more than that of others."""
        uneven = heads > 1 and self.weighting not in TEACH_ALL_ALIKE
        return self.me_max > 0 and uneven and self.me_max_heads == "weighted"

    @property
    def settled_gamma(self) -> float:
        """Where gamma arrives: as set, or the paper's."""
        return self.gamma if self.gamma is not None else 0.05 if self.gamma_in_nats else 1.0

    def patches_kept(self, patches: int) -> int:
        """Of a global view's patches, how many the student sees.

        >>> LossConfig(mask=0.9).patches_kept(20)
        2
        """
        return math.floor(patches * (1 - self.mask) + 1e-9)  # 20 (1 - 0.9) is 1.99... in floats


@dataclass(frozen=True)
class OptimConfig:
    """AdamW and its schedules."""

    epochs: float = 100
    batch_size: int = 1024
    """Pictures per optimiser step, over all processes and accumulated parts."""
    lr: float = 2e-3
    """Peak learning rate, as used (already scaled for the batch)."""
    lr_start: float = 0.0
    min_lr: float = 1e-5
    warmup_epochs: float = 10
    weight_decay: float = 0.04
    weight_decay_end: float = 0.4
    decay_codes: bool = True
    """Whether weight decay reaches the codebooks (not in original MSN)."""
    clip: float | None = 3.0
    """Largest gradient norm; None switches clipping off."""
    clip_each: bool = False
    """Clip every tensor on its own (original DINO) instead of all together."""
    clip_codes: bool = True
    """Whether clipping reaches the codebooks (not in original MSN)."""
    momentum: float = 0.996
    """The teacher's averaging momentum at the start."""
    momentum_end: float = 1.0
    momentum_shape: Literal["cosine", "linear"] = "cosine"
    schedule_stretch: float = 1.0
    """Learning rate, weight decay and momentum run as if the run were this many times as long, and
    are cut off before their end (1.25 in original MSN)."""
    freeze_codes_epochs: float = 0
    """Epochs during which the codebook does not move (original DINO)."""
    accumulate: int = 1
    """Parts a batch is split into, to save memory. Sinkhorn and centring still see the whole batch;
    mean-entropy maximisation and batch norm see a part."""


@dataclass(frozen=True)
class Config:
    """Everything that changes the result of a run."""

    recipe: str = "dino-star"
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    heads: HeadsConfig = field(default_factory=HeadsConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    views: Views = field(default_factory=dino_views)
    short_side: int = 256
    """Pictures are decoded once to this short side, never enlarged."""
    channels: int = 3
    """Channels of the pictures: 1 for grey, 3 for colour, or more."""
    seed: int = 0
    """Seed of every random draw."""
    precision: Literal["fp32", "bf16"] = "fp32"


@dataclass(frozen=True)
class Options:
    """What does not change the result."""

    device: str = "auto"
    """cpu, cuda, cuda:1 ...; auto takes a GPU when there is one."""
    devices: int | Literal["auto"] = 1
    """Processes to train with on this machine, each with a GPU of its own; auto: one a GPU."""
    parallel: Literal["auto", "ddp", "fsdp"] = "auto"
    """Of many processes each holds a copy of the networks (ddp) or a shard (fsdp); auto by size."""
    restarts: int = 3
    """How often --devices starts again from the last checkpoint when a process is lost."""
    timeout: float = 600.0
    """Seconds a process waits for the others in a step before it gives them up."""
    compile: Literal["auto", "on", "off"] = "auto"
    """torch.compile of the two steps; auto: on CUDA."""
    decode: Literal["auto", "once", "stream"] = "auto"
    """Decode all pictures once, into the cache, or again whenever one is wanted (stream), which is
    slower and takes no disk; auto: once, if the disk has room for it. The result is the same."""
    jpeg: Literal["cpu", "gpu"] = "cpu"
    """Who decodes JPEGs; gpu: nvJPEG, through torchvision. Its pixels differ a little, so that a
    run must go on as it was begun."""
    workers: int | None = None
    """Processes that decode pictures, one a core; with --jpeg gpu threads that read them, one."""
    cache: str | None = None
    """Folder of the decoded-picture cache; default $WESSL_CACHE or ~/.cache/wessl."""
    max_bad: float = 0.05
    """Pictures that may fail to decode before the run stops: a share, or above 1 a number."""
    save_every: float | None = None
    """Seconds between checkpoints; default: a tenth of the run or 300, whichever is less, but
    after the first so far apart that saving costs about 2 % of the time."""
    keep: int | None = None
    """How many checkpoints are kept; default: 2, and the last alone once the run is done."""
    log_every: int | None = None
    """Steps between lines of metrics; default: a fiftieth of the run, 50 at most."""
    probe: str | None = None
    """Labelled pictures for k-NN during training; default: DATA itself when it has labels."""
    probe_every: float | None = None
    """Epochs between k-NN probes; default: about twenty in the run."""
    max_nonfinite: int = 20
    """Steps with NaN or infinite loss or gradients that are skipped before the run stops."""
    init: str | None = None
    """Encoder weights to start from."""
    track: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """Trackers that hear of every row of metrics; without this flag nobody does."""
