"""What one builds from timm, lightly and torchvision: steps for ``speed.py``, views beside ours.

    python benchmarks/peers.py [--batch 32] [--seconds 4] [--device cuda]

The steps are DINO's with 65,536 codes under bf16 autocast, around timm's ViT. ``TimmDino`` is plain
PyTorch: a pass for every resolution, a loss for every pair of views, a running centre, AdamW and a
moving average. ``LightlyDino`` takes head, loss and moving average from lightly and a pass for
every view, as its examples do. Views are torchvision's transforms, picture by picture, on the
device; this command measures them and ours in turns. GiB: what making them needs.
"""

import argparse
import copy
import importlib.util
import statistics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wessl.bench.memory import peak_bytes
from wessl.bench.pictures import pictures
from wessl.bench.steps import batch_shape
from wessl.bench.turns import Work, in_turns
from wessl.bench.views import views_of
from wessl.config import Config
from wessl.settings import override


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


def timm_vit(size: str) -> nn.Module:
    import timm

    return timm.create_model(
        f"vit_{size}_patch16_224", num_classes=0, dynamic_img_size=True, drop_path_rate=0.1
    )


class TimmDino:
    """Student, teacher, centre and optimiser; ``step`` learns from views ``(views n, 3, h, w)``."""

    def __init__(self, device: torch.device, size: str = "small", codes: int = 65_536):
        encoder = timm_vit(size)
        head = Head(encoder.num_features, codes)
        self.student = nn.Sequential(encoder, head).to(device).train()
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


class LightlyDino:
    """The same of lightly's parts."""

    def __init__(self, device: torch.device, size: str = "small", codes: int = 65_536):
        from lightly.loss import DINOLoss
        from lightly.models.modules import DINOProjectionHead
        from lightly.models.utils import update_momentum

        encoder = timm_vit(size)
        # Two heads, because one with weight norm cannot be copied.
        heads = [DINOProjectionHead(encoder.num_features, output_dim=codes) for _ in range(2)]
        self.student = nn.Sequential(encoder, heads[0]).to(device).train()
        self.teacher = nn.Sequential(copy.deepcopy(encoder), heads[1]).to(device)
        self.teacher.requires_grad_(False).eval()
        self.loss = DINOLoss(codes).to(device)
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=5e-4, fused=True)
        self.update_momentum = update_momentum
        self.type = device.type

    def compile(self) -> None:
        for part in (*self.student, self.teacher):
            part.compile()

    def step(self, views: list[Tensor], n: int) -> Tensor:
        with torch.autocast(self.type, torch.bfloat16):
            with torch.no_grad():
                taught = [self.teacher(view) for view in views[0].split(n)]
            learnt = [self.student(view) for same in views for view in same.split(n)]
        loss = self.loss([x.float() for x in taught], [x.float() for x in learnt])
        loss.backward()
        nn.utils.clip_grad_norm_(self.student.parameters(), 3.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.update_momentum(self.student, self.teacher, m=0.996)
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


def installed(package: str) -> bool:
    found = importlib.util.find_spec(package) is not None
    if not found:
        print(f"{package} is not installed: left out")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=4.0, help="of measurement")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    config = override(Config(precision="bf16"), {"optim.batch_size": args.batch})
    batch = pictures(*batch_shape(config), device)
    works: dict[str, Work] = {"wessl": lambda: views_of(batch, config.views)}
    if installed("torchvision"):
        sizes = tuple(crop.size for crop in config.views.crops for _ in range(crop.count))
        works["torchvision"] = lambda: torchvision_views(batch.pixels, sizes)
    memory = {}
    for name, work in works.items():
        work()  # its kernels compiled
        memory[name] = peak_bytes(work, device) / 2**30
    times = in_turns(works, device, args.seconds, most=9)
    print(f"{f'views of {args.batch} pictures':40}{'ms':>10}{'img/s':>8}{'ratio':>7}{'GiB':>7}")
    ours = statistics.median(times["wessl"])
    for name, found in times.items():
        middle = statistics.median(found)
        print(f"{name:40}{middle * 1e3:10.1f}{args.batch / middle:8.0f}{middle / ours:7.2f}"
              f"{memory[name]:7.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
