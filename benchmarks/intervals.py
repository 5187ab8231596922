"""How often the intervals of an evaluation hold a truth that is known.

    python benchmarks/intervals.py [--repeats 400] [--pools 60] [RUN ...]

Simulated answers, where some pictures and some draws of labels are harder than others, and the
built-in digits, of which few are labelled. Of each RUN, a run folder whose test digits it has not
seen, the price of choosing the strength without test labels.
"""

import argparse
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import wessl
from wessl.data.labelled.splits import few_shot_draws
from wessl.data.sources.open import open_source
from wessl.evaluate.protocol import Labelled
from wessl.evaluate.protocols.few_shot import few_shot
from wessl.evaluate.statistics.bootstrap import (
    Interval,
    accuracy_interval,
    class_mean_interval,
)

Answers = NDArray[np.bool_]
VARY = {1: ((0.0, 0.0), (0.0, 2.0)), 3: ((0.5, 1.0), (1.0, 2.0)), 30: ((0.5, 1.0), (1.0, 2.0))}
"""By the number of draws, how much these and pictures vary; one draw tells nothing of others."""
PICTURES, RIGHT = (20, 100, 500), (0.5, 0.9, 0.98)


def answers(
    rng: np.random.Generator, g: int, n: int, right: float, spread: float, hard: float
) -> Answers:
    """``(g, n)``; how easy a draw or a picture is varies by these deviations of its logit."""
    easy = np.log(right / (1 - right)) + spread * rng.normal(size=(g, 1))
    easy = easy + hard * rng.normal(size=(1, n))
    return rng.random((g, n)) < 1 / (1 + np.exp(-easy))


def resampled(correct_gn: Answers, rng: np.random.Generator) -> Interval:
    """What most evaluations do: draws and pictures with replacement, and nothing added."""
    g, n = correct_gn.shape
    draws = rng.multinomial(g, np.full(g, 1 / g), 1000)
    pictures = rng.multinomial(n, np.full(n, 1 / n), 1000)
    means = ((draws @ correct_gn) * pictures).sum(1) / (g * n)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def on_simulated(repeats: int) -> None:
    held: dict[str, dict[tuple[Any, ...], float]] = {"ours": {}, "plain resampling": {}}
    several_draws = [(g, *vary) for g, both in VARY.items() for vary in both]
    for (g, *vary), n, right in itertools.product(several_draws, PICTURES, RIGHT):
        setting = g, n, right, *vary
        rng = np.random.default_rng(0)
        truth = answers(rng, 2000, 2000, right, *vary).mean()
        ends: dict[str, list[Interval]] = {name: [] for name in held}
        for i in range(repeats):
            found = answers(rng, g, n, right, *vary)
            ends["ours"].append(accuracy_interval(torch.from_numpy(found), i))
            ends["plain resampling"].append(resampled(found, rng))
        for name, several in ends.items():
            held[name][setting] = share(several, truth)
    print(f"{len(held['ours'])} settings, {repeats} repetitions each:")
    for name, shares in held.items():
        worst = min(shares, key=shares.__getitem__)
        print(f"  {name}: {span(shares.values())}; least at {worst}")


def on_classes(repeats: int) -> None:
    sizes: dict[str, Callable[[int], NDArray[np.int64]]] = {
        "1 to 40": lambda c: 1 + np.arange(c) * 7 % 40,
        "5 to 9": lambda c: 5 + np.arange(c) % 5,
    }
    shares = []
    for count, right, size in itertools.product((10, 30, 100), (0.5, 0.8, 0.97), sizes.values()):
        rng = np.random.default_rng(0)
        labels = np.repeat(np.arange(count), size(count))
        easy = rng.beta(20 * right, 20 * (1 - right), count)
        ends = []
        for i in range(repeats):
            correct = torch.from_numpy(rng.random(len(labels)) < easy[labels])
            ends.append(class_mean_interval(correct, torch.from_numpy(labels), i))
        shares.append(share(ends, easy.mean()))
    print(f"mean over classes, {len(shares)} settings, {repeats} test sets each: {span(shares)}")


def on_pools(pools: int) -> None:
    """Two labels a class, 30 draws of them, from the three a class that somebody has."""
    train, test = digits()
    truth = few_shot(train, test, 2, draws=200)["accuracy"]
    ends: dict[str, list[Interval]] = {"widened by the share drawn": [], "not widened": []}
    for pool, rows in enumerate(few_shot_draws(train.labels, 3, pools, seed=1)):
        known = Labelled(train.features[rows], train.labels[rows])
        correct = few_shot(known, test, 2, draws=30, seed=pool)["predicted"] == test.labels
        for (_, several), taken in zip(ends.items(), (2 / 3, 0.0), strict=True):
            several.append(accuracy_interval(correct, pool, taken))
    for name, several in ends.items():
        held = round(share(several, truth) * len(several))
        print(f"two labels a class of three, {name}: {held} of {len(several)} pools")


def of_choice(path: str) -> None:
    """What it costs to choose a strength without test labels, in points of accuracy."""
    sides = encoded(path)
    for shots in (1, 2, 5, 13):
        val, best = (few_shot(*sides, shots, select=s)["accuracy"] for s in ("val", "test"))
        print(f"{path}, {shots}-shot: {100 * val:.1f}, {100 * (best - val):.2f} below the best")


def digits() -> tuple[Labelled, Labelled]:
    """Raw pixels."""
    sides = []
    for part in ("train", "test"):
        source = open_source(f"builtin://digits/{part}")
        images = np.stack([source.read(i) for i in range(len(source))])
        assert source.labels is not None
        pixels = torch.from_numpy(images).flatten(1).float() / 255
        sides.append(Labelled(pixels, torch.from_numpy(source.labels)))
    return sides[0], sides[1]


def encoded(path: str) -> tuple[Labelled, Labelled]:
    """The digits as a run's encoder sees them."""
    encoder = wessl.load(path, "cpu")
    return tuple(  # type: ignore[return-value]
        Labelled(features_of(encoder, f"builtin://digits/{part}"), side.labels)
        for part, side in zip(("train", "test"), digits(), strict=True)
    )


def features_of(encoder: Any, data: str) -> Tensor:
    from wessl.data.cache.build import build_cache
    from wessl.evaluate.features.trained_encoder import extract

    source = open_source(data, encoder.description["channels"])
    return extract(encoder, build_cache(source, encoder.description["resize"]))


def share(ends: list[Interval], truth: float) -> float:
    return float(np.mean([low <= truth <= high for low, high in ends]))


def span(shares: Any) -> str:
    several = list(shares)
    return f"held in {100 * min(several):.0f} to {100 * max(several):.0f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="*", metavar="RUN")
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--pools", type=int, default=60)
    asked = parser.parse_args()
    on_simulated(asked.repeats)
    on_classes(asked.repeats)
    on_pools(asked.pools)
    for path in asked.runs:
        of_choice(path)


if __name__ == "__main__":
    main()
