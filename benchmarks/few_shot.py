"""Few-shot logistic regression and k-NN against scikit-learn, side by side in one run.

    python benchmarks/few_shot.py --threads 2

The sweep is 11 strengths x 3 draws x {1, 2, 5} shots. scikit-learn runs it with its default
tolerance, which stops above the optimum for small strengths, and with two that come closer to it.
"excess" is the largest relative distance of an objective, in float64, above the lowest one found.
Threads of two busy programs wait for each other: on a shared machine, read `--threads 1`.
"""

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits
from torch import Tensor

from wessl.evaluate.knn import knn
from wessl.evaluate.logistic import FEW_SHOT_STRENGTHS, logistic

Sweep = tuple[float, NDArray[np.float64], NDArray[np.int64]]  # seconds, objectives, predictions


def clustered(classes: int, per_class: int, features: int, seed: int) -> tuple[Tensor, Tensor]:
    """Pictures around class centres, with the decaying spectrum that encoders' features have."""
    generator = torch.Generator().manual_seed(seed)
    spectrum = torch.arange(1, features + 1).pow(-0.5)
    centers = torch.randn(classes, features, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(classes).repeat_interleave(per_class)
    noise = torch.randn(len(labels), features, generator=generator)
    return (centers[labels] + 1.5 * noise) * spectrum, labels


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def objective(logits: Tensor, labels: Tensor, weight: Tensor, strength: float) -> float:
    loss = torch.nn.functional.cross_entropy(logits, labels)
    return (loss + strength / 2 * weight.square().sum()).item()


def ours(x: Tensor, y: Tensor, draws: list[Tensor], test: Tensor) -> Sweep:
    start = time.perf_counter()
    fit = logistic(x, y, FEW_SHOT_STRENGTHS, draws)
    seconds = time.perf_counter() - start
    values = np.empty((len(draws), len(FEW_SHOT_STRENGTHS)))
    for i, draw in enumerate(draws):
        for j, strength in enumerate(FEW_SHOT_STRENGTHS):
            weight = fit.weight[i, j].double()
            logits = (x[draw] - fit.center).double() @ weight + fit.bias[i, j].double()
            values[i, j] = objective(logits, y[draw], weight, strength)
    return seconds, values, fit.predict(test).numpy()


def theirs(x: Tensor, y: Tensor, draws: list[Tensor], test: Tensor, tol: float) -> Sweep:
    seconds, values, labels = 0.0, np.empty((len(draws), len(FEW_SHOT_STRENGTHS))), []
    for i, draw in enumerate(draws):
        a, b = x[draw].numpy(), y[draw].numpy()
        for j, strength in enumerate(FEW_SHOT_STRENGTHS):
            model = LogisticRegression(C=1 / (strength * len(draw)), tol=tol, max_iter=10_000)
            seconds += timed(lambda: model.fit(a, b))  # noqa: B023  (called at once)
            weight = torch.as_tensor(model.coef_).double().T
            logits = x[draw].double() @ weight + torch.as_tensor(model.intercept_).double()
            values[i, j] = objective(logits, y[draw], weight, strength)
            labels.append(model.predict(test.numpy()))
    return seconds, values, np.stack(labels).reshape(*values.shape, -1)


def few_shot(args: argparse.Namespace) -> None:
    x, y = clustered(args.classes, 5 * args.draws, args.features, seed=1)
    test, truth = clustered(args.classes, 20, args.features, seed=2)
    by_class = torch.arange(len(y)).view(args.classes, args.draws, 5)
    logistic(x, y, FEW_SHOT_STRENGTHS[-1:])  # the libraries' first call is not the solver's time
    print(f"Few-shot: {len(FEW_SHOT_STRENGTHS)} strengths x {args.draws} draws,", end=" ")
    print(f"{args.classes} classes, {args.features} features")
    print(f"{'shots':>5}  {'solver':<24}{'seconds':>9}{'ratio':>8}{'excess':>10}{'accuracy':>10}")
    totals: dict[str, float] = {}
    for shots in (1, 2, 5):
        draws = [by_class[:, i, :shots].flatten() for i in range(args.draws)]
        rows = {"wessl": ours(x, y, draws, test)}
        for tol in args.tolerances:
            rows[f"scikit-learn, tol {tol:g}"] = theirs(x, y, draws, test, tol)
        lowest = np.min([values for _, values, _ in rows.values()], axis=0)
        for name, (seconds, values, labels) in rows.items():
            totals[name] = totals.get(name, 0.0) + seconds
            ratio, excess = seconds / rows["wessl"][0], (values / lowest - 1).max()
            right = 100 * (labels == truth.numpy()).mean(axis=(0, 2)).max()
            print(
                f"{shots:>5}  {name:<24}{seconds:>9.2f}{ratio:>8.1f}{excess:>10.1e}{right:>10.2f}"
            )
    for name, seconds in totals.items():
        print(f"{'all':>5}  {name:<24}{seconds:>9.2f}{seconds / totals['wessl']:>8.1f}")


def neighbours(args: argparse.Namespace) -> None:
    n, t = args.train, args.test
    x, y = clustered(args.classes, -(-n // args.classes), args.features, seed=1)
    test, _ = clustered(args.classes, -(-t // args.classes), args.features, seed=2)
    x, y, test = x[:n], y[:n], test[:t]
    index = NearestNeighbors(n_neighbors=100, metric="cosine", algorithm="brute").fit(x.numpy())
    works: dict[str, Callable[[], object]] = {
        "wessl, votes included": lambda: knn(x, y, test),
        "scikit-learn brute": lambda: index.kneighbors(test.numpy()),
        "bare matmul + top-k": lambda: [(rows @ x.T).topk(100) for rows in test.split(1024)],
    }
    print(f"\nk-NN: {n} x {args.features} train, {t} test, 100 neighbours")
    # In turns, so that whatever else the machine does falls on all of them alike.
    rounds = [{name: timed(work) for name, work in works.items()} for _ in range(args.repeats)]
    seconds = {name: min(turn[name] for turn in rounds) for name in works}
    for name, s in seconds.items():
        print(f"       {name:<24}{s:>9.2f}{s / seconds['wessl, votes included']:>8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--features", type=int, default=384)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--tolerances", type=float, nargs="*", default=[1e-4, 1e-5, 1e-6])
    parser.add_argument("--train", type=int, default=50_000)
    parser.add_argument("--test", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3, help="k-NN runs; the fastest counts")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message="The number of unique classes")  # 1-shot is meant
    torch.set_num_threads(args.threads)
    with threadpool_limits(args.threads):
        few_shot(args)
        neighbours(args)


if __name__ == "__main__":
    main()
