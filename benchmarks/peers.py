"""Our step and views beside those one builds from timm and torchvision, in one run.

    python benchmarks/peers.py [--batch 256] [--compile auto] [--seconds 4] [--device cuda]
                               [--no-steps] [--no-views]

The peer's step is DINO's, in plain PyTorch under bf16 autocast: timm's ViT-S/16, a pass for every
resolution, a projection head with 65,536 codes of free length, a loss for every pair of views, a
running centre, AdamW and a moving average. Ours are the same recipe, and the paper's DINO*-ent with
16 heads. The peer's views are torchvision's transforms, picture by picture, on the device. What is
not installed is left out, and that is said. GiB: what a step needs beside networks and optimiser.
"""

import argparse
import copy
import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wessl.bench.memory import peak_bytes
from wessl.bench.pictures import pictures
from wessl.bench.steps import Subject, batch_shape, build_trainer
from wessl.bench.turns import in_turns
from wessl.bench.views import views_of
from wessl.config import Config, Options
from wessl.recipes import recipe
from wessl.settings import override

Row = tuple[str, Callable[[], Any]]


class Head(nn.Module):
    """Representations ``(n, dim)`` to logits ``(n, codes)``: an MLP, a unit vector, its cosines."""

    def __init__(self, dim: int, codes: int, hidden: int = 2048, embed: int = 256):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(dim, hidden), nn.GELU(),
            nn.Linear(hidden, hidden), nn.GELU(),
            nn.Linear(hidden, embed),
        )  # fmt: skip
        self.codes = nn.utils.parametrizations.weight_norm(nn.Linear(embed, codes, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        return self.codes(F.normalize(self.mlp(x), dim=-1))


class TimmDino:
    """Student, teacher, centre and optimiser; ``step`` learns from views ``(views n, 3, h, w)``."""

    def __init__(self, device: torch.device, codes: int = 65_536):
        import timm

        encoder = timm.create_model(
            "vit_small_patch16_224", num_classes=0, dynamic_img_size=True, drop_path_rate=0.1
        )
        self.student = nn.Sequential(encoder, Head(384, codes)).to(device).train()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False).eval()
        self.center = torch.zeros(codes, device=device)
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=5e-4, fused=True)
        self.type = device.type

    def compile(self) -> None:
        for network in (*self.student, self.teacher):
            network.compile()

    def step(self, views: list[Tensor], n: int) -> Tensor:
        with torch.autocast(self.type, torch.bfloat16):
            with torch.no_grad():
                taught = self.teacher(views[0]).float()
            encoder, head = self.student[0], self.student[1]
            logits = head(torch.cat([encoder(view) for view in views])).float() / 0.1
        targets = ((taught - self.center) / 0.04).softmax(-1).split(n)
        students = [z.log_softmax(-1) for z in logits.split(n)]
        losses = [
            -(target * student).sum(-1).mean()
            for u, target in enumerate(targets)
            for v, student in enumerate(students)
            if u != v
        ]
        loss = torch.stack(losses).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self.student.parameters(), 3.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        with torch.no_grad():
            self.center.lerp_(taught.mean(0), 0.1)
            for old, new in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                old.lerp_(new, 0.004)
        return loss.detach()


def torchvision_views(pixels: Tensor, sizes: tuple[int, ...]) -> list[Tensor]:
    """Views of uint8 pictures ``(n, h, w, 3)``, each through its own transforms."""
    from torchvision.transforms import v2

    def transforms(size: int) -> v2.Compose:
        area = (0.25, 1.0) if size == max(sizes) else (0.05, 0.25)
        return v2.Compose(
            [
                v2.RandomResizedCrop(size, area, interpolation=v2.InterpolationMode.BICUBIC),
                v2.RandomHorizontalFlip(),
                v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8),
                v2.RandomGrayscale(0.2),
                v2.RandomApply([v2.GaussianBlur(9, (0.1, 2.0))], 0.5),
                v2.RandomSolarize(128, 0.1),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    chains = [transforms(size) for size in sizes]
    return [torch.stack([chain(p) for p in pixels.permute(0, 3, 1, 2)]) for chain in chains]


def steps(n: int, compile: str, device: torch.device) -> list[Row]:
    rows: list[Row] = []
    views = None
    for name in ("dino/vits16", "dino-star-ent/vits16"):
        config = override(recipe(name), {"optim.batch_size": n, "precision": "bf16"})
        options = Options(device=str(device), compile=compile)  # type: ignore[arg-type]
        trainer = build_trainer(Subject(name, config, options), device)
        views = trainer.prepare(torch.arange(n), pictures(*batch_shape(config), device))
        rows.append((f"wessl, {name}", partial(trainer.train_step, views)))
    if views is not None and installed("timm"):
        peer = partial(TimmDino(device).step, views.student, n)
        rows.append(("timm's ViT-S/16, DINO in plain PyTorch", peer))
    return rows


def installed(package: str) -> bool:
    found = importlib.util.find_spec(package) is not None
    if not found:
        print(f"{package} is not installed: left out")
    return found


def report(title: str, rows: list[Row], n: int, device: torch.device, seconds: float) -> None:
    print(f"{title:40}{'ms':>10}{'img/s':>8}{'ratio':>7}{'GiB':>7}")
    memory = {}
    for name, work in rows:
        work(), work()  # compiled, with the optimiser's moments
        memory[name] = peak_bytes(work, device) / 2**30
    times = in_turns(dict(rows), device, seconds, most=9)
    middle = {name: sorted(found)[len(found) // 2] for name, found in times.items()}
    for name, median in middle.items():
        print(f"{name:40}{median * 1e3:10.1f}{n / median:8.0f}{median / middle[rows[0][0]]:7.2f}"
              f"{memory[name]:7.1f}", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--compile", default="auto", choices=("auto", "on", "off"))
    parser.add_argument("--seconds", type=float, default=4.0, help="of measurement")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--views", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    device = torch.device(args.device)
    config = override(Config(precision="bf16"), {"optim.batch_size": args.batch})
    batch = pictures(*batch_shape(config), device)
    if args.steps:
        rows = steps(args.batch, args.compile, device)
        report(f"step, batch {args.batch}, 2x224 + 10x96", rows, args.batch, device, args.seconds)
    if not args.views:
        return
    rows = [("wessl", lambda: views_of(batch, config.views))]
    if installed("torchvision"):
        sizes = tuple(crop.size for crop in config.views.crops for _ in range(crop.count))
        rows.append(("torchvision", lambda: torchvision_views(batch.pixels, sizes)))
    report(f"views of {args.batch} pictures", rows, args.batch, device, args.seconds)


if __name__ == "__main__":
    main()
