"""Few-shot logistic regression and k-NN against scikit-learn, side by side in one run.

    python benchmarks/few_shot.py --threads 2

The sweep is 11 strengths x 3 draws x {1, 2, 5} shots. scikit-learn runs it with its default
tolerance, which stops above the optimum for small strengths, and with two that come closer to it.
"excess" is the largest relative distance of an objective, in float64, above the lowest one found.
Threads of two busy programs wait for each other: on a shared machine, read `--threads 1`.
"""

import argparse
from collections.abc import Callable

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from wessl.bench.few_shot import clustered, ours, task, theirs
from wessl.bench.turns import in_turns
from wessl.evaluate.classifiers.knn import knn
from wessl.evaluate.classifiers.logistic import FEW_SHOT_STRENGTHS, logistic


def few_shot(args: argparse.Namespace) -> None:
    print(f"Few-shot: {len(FEW_SHOT_STRENGTHS)} strengths x {args.draws} draws,", end=" ")
    print(f"{args.classes} classes, {args.features} features")
    print(f"{'shots':>5}  {'solver':<24}{'seconds':>9}{'ratio':>8}{'excess':>10}{'accuracy':>10}")
    totals: dict[str, float] = {}
    for shots in (1, 2, 5):
        work = task(args.classes, args.features, args.draws, shots)
        # The libraries' first call is not the solver's time.
        logistic(work.x, work.y, FEW_SHOT_STRENGTHS[-1:])
        rows = {"wessl": ours(work)}
        for tol in args.tolerances:
            rows[f"scikit-learn, tol {tol:g}"] = theirs(work, tol)
        lowest = np.min([sweep.objectives for sweep in rows.values()], axis=0)
        for name, sweep in rows.items():
            totals[name] = totals.get(name, 0.0) + sweep.seconds
            ratio = sweep.seconds / rows["wessl"].seconds
            excess = (sweep.objectives / lowest - 1).max()
            right = 100 * (sweep.predictions == work.truth.numpy()).mean(axis=(0, 2)).max()
            print(
                f"{shots:>5}  {name:<24}{sweep.seconds:>9.2f}{ratio:>8.1f}{excess:>10.1e}"
                f"{right:>10.2f}"
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
    cpu = torch.device("cpu")
    rounds = in_turns(works, cpu, seconds=0, least=args.repeats, most=args.repeats, warm=0)
    seconds = {name: min(times) for name, times in rounds.items()}
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
    torch.set_num_threads(args.threads)
    with threadpool_limits(args.threads):
        few_shot(args)
        neighbours(args)


if __name__ == "__main__":
    main()
