"""What `wessl classify` says of itself, against the truth: accuracy, confidence, what to label.

    python benchmarks/classify.py RUN [--draws 30] [--rounds 12] [--sets 100]

RUN is a run folder that saw the built-in digits, of `wessl demo` for instance. Labels are drawn
from the training digits; the truth is the share of the 500 test digits that is named rightly.
"""

import argparse
import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.model_selection import train_test_split
from torch import Tensor

from intervals import digits, encoded
from wessl.data.labelled.splits import few_shot_draws
from wessl.encoder.conv import ConvNet
from wessl.evaluate.protocol import Labelled
from wessl.evaluate.protocols.few_shot import few_shot
from wessl.evaluate.statistics.bootstrap import accuracy_interval
from wessl.export.classify import WIDER, Classifier, fit, unit
from wessl.export.worth import margins, typical, undecided

STRETCHED = (1.0, 1.25, 1.5, 2.0)
Sides = tuple[Labelled, Labelled]


def learnt(train: Labelled, rows: Tensor) -> Classifier:
    return fit(train.features[rows], train.labels[rows])


def truth(found: Classifier, test: Labelled) -> float:
    guess = found.probabilities(test.features).argmax(1)
    return float((guess == test.labels).double().mean())


def of_estimates(train: Labelled, test: Labelled, draws: int) -> None:
    print("\nlabels a class | evaluate | classify | its own estimate, mean")
    for shots in (1, 2, 5):
        rows = few_shot_draws(train.labels, shots, draws)
        every = [learnt(train, row) for row in rows]
        right = np.mean([truth(one, test) for one in every])
        own = [one.estimate.accuracy for one in every if one.estimate is not None]
        measured = few_shot(train, test, shots, draws)["accuracy"]
        said = f"{100 * np.mean(own):.1f}" if own else "none"
        print(f"{shots} | {100 * measured:.1f} | {100 * right:.1f} | {said}")


def of_confidence(train: Labelled, test: Labelled, draws: int) -> None:
    print("\nlabels a class | before | calibrated, mean | worst draw | mean confidence | right")
    for shots in (1, 2, 5, 10):
        every = [learnt(train, row) for row in few_shot_draws(train.labels, shots, draws)]
        before = [gap(dataclasses.replace(one, temperature=1.0), test)[0] for one in every]
        after, sure = zip(*(gap(one, test) for one in every), strict=True)
        right = np.mean([truth(one, test) for one in every])
        calibrated = f"{100 * np.mean(after):.1f}" if every[0].calibration else "not calibrated"
        print(
            f"{shots} | {100 * np.mean(before):.1f} | {calibrated} | {100 * max(after):.1f} | "
            f"{100 * np.mean(sure):.0f} % | {100 * right:.1f} %"
        )


def of_worth(train: Labelled, test: Labelled, draws: int) -> None:
    """Expected and right, of the surer half and the rest: as it says itself, and on test digits."""
    print("\nlabels a class | held out: surer half | rest | test: surer half | rest | called wrong")
    for shots in (2, 5, 10):
        cells, wrong = [], 0
        for row in few_shot_draws(train.labels, shots, draws):
            found = learnt(train, row)
            assert found.calibration is not None
            own = (found.calibration.surer, found.calibration.rest)
            wrong += any(half.too_sure for half in own)
            sure, guess = found.probabilities(test.features).double().max(1)
            right = (guess == test.labels).double()
            halves = sure.argsort(descending=True).tensor_split(2)
            cells.append(
                [share for half in own for share in (half.expected, half.right)]
                + [float(share[half].mean()) for half in halves for share in (sure, right)]
            )
        means = (100 * np.mean(cells, axis=0)).reshape(4, 2)
        said = " | ".join(f"{expected:.1f} / {right:.1f}" for expected, right in means)
        print(f"{shots} | {said} | {wrong}")


def gap(found: Classifier, test: Labelled) -> tuple[float, float]:
    """The expected calibration error over ten bins, and the mean confidence."""
    sure, guess = found.probabilities(test.features).double().max(1)
    right = (guess == test.labels).double()
    number = (sure * 10).long().clamp(max=9)
    off = [abs(float((sure - right)[number == i].sum())) for i in range(10)]
    return sum(off) / len(sure), float(sure.mean())


def of_suggestions(train: Labelled, test: Labelled, rounds: int) -> None:
    print("\naccuracy in %, ± standard error over the draws")
    print("labels a class | 10 at random | smallest margins | hard, by groups | typical")
    for shots in (1, 2, 5):
        found: dict[str, list[float]] = {}
        for i, rows in enumerate(few_shot_draws(train.labels, shots, rounds)):
            known = set(rows.tolist())
            rest = torch.tensor([r for r in range(len(train)) if r not in known])
            for name, more in ten_more(train, rows, rest, i).items():
                both = torch.cat([rows, rest[torch.as_tensor(more)]])
                found.setdefault(name, []).append(truth(learnt(train, both), test))
        cells = [
            f"{100 * np.mean(v):.1f} ± {100 * np.std(v, ddof=1) / np.sqrt(len(v)):.1f}"
            for v in found.values()
        ]
        print(f"{shots} | {' | '.join(cells)}")


def ten_more(
    train: Labelled, rows: Tensor, rest: Tensor, seed: int
) -> dict[str, Sequence[int] | Tensor]:
    """Places in `rest`, by the way they are chosen."""
    margin = margins(learnt(train, rows).probabilities(train.features[rest]))
    features = unit(train.features[rest])

    def unit_of(chosen: np.ndarray) -> Tensor:
        return features[chosen]

    generator = torch.Generator().manual_seed(seed)
    return {
        "random": torch.randperm(len(rest), generator=generator)[:10],
        "margins": margin.argsort()[:10],
        "hard": undecided(unit_of, margin, 10).tolist(),
        "typical": typical(unit_of, len(rest), unit(train.features[rows]), 10).tolist(),
    }


def of_intervals(sets: dict[str, Sides], draws: int) -> None:
    """How often the truth lies in the interval, stretched by several factors."""
    held: dict[float, list[float]] = {factor: [] for factor in STRETCHED}
    for train, test in sets.values():
        most = int(train.labels.unique(return_counts=True)[1].min())
        for shots in (s for s in (2, 3, 5, 10) if s <= most):
            every = [learnt(train, row) for row in few_shot_draws(train.labels, shots, draws)]
            true = [truth(one, test) for one in every]
            for factor in STRETCHED:
                inside = [holds(one, t, factor) for one, t in zip(every, true, strict=True)]
                held[factor].append(float(np.mean(inside)))
    print(f"\nintervals on {len(sets)} sets, 2 to 10 labels a class, {draws} draws each:")
    for factor, shares in held.items():
        said = " (used)" * (factor == WIDER)
        print(
            f"  {factor} times: held in {100 * min(shares):.0f} to {100 * max(shares):.0f} %{said}"
        )


def holds(found: Classifier, true: float, factor: float) -> bool:
    assert found.estimate is not None
    right = torch.arange(found.estimate.of) < found.estimate.right
    low, high = accuracy_interval(right[None])
    own = found.estimate.accuracy
    return own - factor * (own - low) <= true <= own + factor * (high - own)


def of_first_pictures(sets: dict[str, Sides]) -> None:
    """Labels of the first pictures of each class, which one writer may have drawn, no sample."""
    print("\nlabels a class, the first in the folder | estimate | truth")
    for name, (train, test) in sets.items():
        for shots in (5, 10):
            own = [(train.labels == c).nonzero()[:shots, 0] for c in train.labels.unique()]
            found = learnt(train, torch.cat(own))
            assert found.estimate is not None
            print(f"{name}, {shots} | {found.estimate.in_words()} | {100 * truth(found, test):.1f}")


def other_sets() -> dict[str, Sides]:
    found = {}
    for load in (load_wine, load_breast_cancer, load_iris):
        data = load()
        x = (data.data - data.data.mean(0)) / data.data.std(0)
        y = torch.tensor(data.target)
        rows = train_test_split(torch.arange(len(y)), test_size=0.4, random_state=0, stratify=y)
        sides = [Labelled(torch.tensor(x[r]).float(), y[r]) for r in rows]
        found[load.__name__] = (sides[0], sides[1])
    return found


def untrained(sides: Sides) -> Sides:
    torch.manual_seed(0)
    encoder = ConvNet((16, 32), 1).eval()
    with torch.no_grad():
        seen = [Labelled(encoder.cls(s.features.view(-1, 1, 8, 8)), s.labels) for s in sides]
    return seen[0], seen[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--draws", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--sets", type=int, default=100, help="draws on each of the six sets")
    asked = parser.parse_args()
    own, raw = encoded(asked.run), digits()
    of_estimates(*own, asked.draws)
    of_confidence(*own, asked.draws)
    of_worth(*own, asked.draws)
    of_suggestions(*own, asked.rounds)
    of_first_pictures({"encoder": own, "raw pixels": raw})
    of_intervals({"run": own, "raw": raw, "untrained": untrained(raw)} | other_sets(), asked.sets)


if __name__ == "__main__":
    main()
