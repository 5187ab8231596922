"""When a teacher that only ME-MAX holds collapses: MSN*'s loss on made-up features, on a CPU.

    python benchmarks/collapse.py [--me-max 4] [--temperature 0.025 0.035] [--codes 256] \\
        [--momentum 0.9] [--batch 128] [--heads 1] [--steps 1500]

Points around 200 centres, seen through noise, stand in for pictures and their views; a small
network, heads, loss, ME-MAX and teacher are as in training. Every combination of the values given
is trained, a minute or two each. A line tells, at six moments, the loss, the teacher's entropy and
how many codes won a view since the last; at the end how often the five nearest points have a
point's own centre in their majority. ``wessl.ensemble.balance`` has the law behind it.
"""

import argparse
import copy
import itertools
import math

import torch
from torch import Tensor, nn

from wessl import EnsembleHeads, head_shares, me_max, multiview_loss, sharpen
from wessl.ensemble.balance import excess_that_wins

CENTRES, SIZE, VIEWS, STUDENT = 200, 64, 6, 0.1
SPECTRUM = torch.arange(1, SIZE + 1).pow(-0.7)
"""Few directions hold most of what differs, as in pictures."""


class World:
    """Points that all have much in common, as pictures have for an untrained encoder."""

    def __init__(self) -> None:
        self.common = 1.5 * torch.randn(SIZE)
        self.centres = torch.randn(CENTRES, SIZE) * SPECTRUM

    def points(self, labels: Tensor) -> Tensor:
        return self.centres[labels] + 0.5 * torch.randn(len(labels), SIZE) * SPECTRUM

    def view(self, points: Tensor, noise: float) -> Tensor:
        return self.common + points + noise * torch.randn_like(points) * SPECTRUM


def train(
    weight: float, temperature: float, codes: int, momentum: float, n: int, m: int, steps: int
) -> str:
    torch.manual_seed(0)
    world = World()
    encoder = nn.Sequential(
        nn.Linear(SIZE, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 128),
        nn.LayerNorm(128),
    )  # fmt: skip
    heads = EnsembleHeads(128, num_heads=m, hidden_dim=256, num_codes=codes)
    student = nn.Sequential(encoder, heads)
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), weight_decay=0.04)
    told, used = [], torch.zeros(codes, dtype=torch.bool)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 2.5e-4 * min(1, (step + 1) / 250)
        sharp = 0.05 + (temperature - 0.05) * min(1, step / 400)
        points = world.points(torch.randint(CENTRES, (n,)))
        x = torch.cat([world.view(points, 0.7 if v < 2 else 1.2) for v in range(VIEWS)])
        seen = teacher(x[: 2 * n])
        targets = sharpen(seen, sharp)
        logits = student(x) / STUDENT
        lesson = by_view(logits, VIEWS), by_view(targets, 2), "ent" if m > 1 else "unif"
        held = me_max(logits.softmax(-1), weights=head_shares(*lesson))
        total = multiview_loss(*lesson) + weight * held
        optimizer.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        share = (1 - momentum) * (1 + math.cos(math.pi * step / steps)) / 2
        with torch.no_grad():
            for mine, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
                mine.lerp_(theirs, share)
        used[seen[0].argmax(-1)] = True
        if (step + 1) % max(1, steps // 6) == 0:
            entropy = torch.special.entr(targets).sum(-1).mean().item()
            told.append(f"{total.item():.2f} {entropy:.2f} {int(used.sum())}")
            used.zero_()
    return f"{' | '.join(told)} | {100 * right(world, teacher[0]):.1f} %"


def by_view(x: Tensor, views: int) -> Tensor:
    return x.unflatten(1, (views, -1)).transpose(0, 1)


@torch.no_grad()
def right(world: World, encoder: nn.Module) -> float:
    labels = torch.arange(CENTRES).repeat(20)
    features = nn.functional.normalize(encoder(world.view(world.points(labels), 0.7)), dim=-1)
    alike = (features @ features.T).fill_diagonal_(-2)
    votes = labels[alike.topk(5).indices].mode(1).values
    return float((votes == labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--me-max", type=float, nargs="+", default=[4.0])
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.025, 0.035])
    parser.add_argument("--codes", type=int, nargs="+", default=[256])
    parser.add_argument("--momentum", type=float, nargs="+", default=[0.9])
    parser.add_argument("--batch", type=int, nargs="+", default=[128])
    parser.add_argument("--heads", type=int, nargs="+", default=[1])
    parser.add_argument("--steps", type=int, default=1500)
    asked = vars(parser.parse_args())
    steps = asked.pop("steps")
    print("me-max, temperature, codes, momentum, batch, heads (edge): loss, entropy, codes in use")
    for values in itertools.product(*asked.values()):
        edge = excess_that_wins(values[0], STUDENT / values[1], values[2])
        words = ", ".join(f"{value:g}" for value in values)
        print(f"{words} ({edge:.2f}): {train(*values, steps)}", flush=True)


if __name__ == "__main__":
    main()
