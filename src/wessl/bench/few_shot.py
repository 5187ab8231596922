"""The few-shot sweep against scikit-learn: every strength and draw, at an equally good optimum.

Each solver has one thread, ours beside a GPU where there is one. With more, scikit-learn's wait for
each other in such small problems: one draw took 29 s on two threads of a busy machine and 0.5 s on
one.
"""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from wessl.bench.turns import Measured, timed
from wessl.evaluate.classifiers.logistic import FEW_SHOT_STRENGTHS, logistic


@dataclass(frozen=True)
class Sweep:
    """One solver's answers for all draws and strengths."""

    seconds: float
    objectives: NDArray[np.float64]
    """``(draws, strengths)``, in float64."""
    predictions: NDArray[np.int64]
    """``(draws, strengths, test pictures)``."""


@dataclass(frozen=True)
class Task:
    """Features with labels, the draws to learn from, and features to be tested on."""

    x: Tensor
    y: Tensor
    draws: list[Tensor]
    test: Tensor
    truth: Tensor


def clustered(classes: int, per_class: int, features: int, seed: int) -> tuple[Tensor, Tensor]:
    """Pictures around class centres, with the decaying spectrum that encoders' features have."""
    generator = torch.Generator().manual_seed(seed)
    spectrum = torch.arange(1, features + 1).pow(-0.5)
    centers = torch.randn(classes, features, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(classes).repeat_interleave(per_class)
    noise = torch.randn(len(labels), features, generator=generator)
    return (centers[labels] + 1.5 * noise) * spectrum, labels


def task(classes: int, features: int, draws: int, shots: int) -> Task:
    x, y = clustered(classes, 5 * draws, features, seed=1)
    test, truth = clustered(classes, 20, features, seed=2)
    by_class = torch.arange(len(y)).view(classes, draws, 5)
    drawn = [by_class[:, i, :shots].flatten() for i in range(draws)]
    return Task(x, y, drawn, test, truth)


def measure_few_shot(
    device: torch.device, classes: int, features: int, draws: int, rounds: int
) -> list[Measured]:
    """Rows ``wessl`` and ``scikit-learn`` for 1 and 5 shots, with how far each is from the best."""
    rows = []
    for shots in (1, 5):
        work = task(classes, features, draws, shots)
        with one_thread():
            ours_on(device, work)  # the libraries' first call is not the solver's time
            turns = [(ours_on(device, work), theirs(work, tol=1e-6)) for _ in range(rounds)]
        lowest = np.minimum(*(sweep.objectives for sweep in turns[0]))
        name = (
            f"{shots}-shot, {len(FEW_SHOT_STRENGTHS)} strengths x {draws} draws, "
            f"{classes} classes, {features} features, "
            + ("one thread" if device.type == "cpu" else "a GPU beside a thread")
        )
        for way, sweeps in zip(("wessl", "scikit-learn"), zip(*turns, strict=True), strict=True):
            excess = float((sweeps[0].objectives / lowest - 1).max())
            times = [sweep.seconds for sweep in sweeps]
            fits = sweeps[0].objectives.size
            rows.append(Measured("few-shot", name, way, times, fits, {"excess": excess}))
    return rows


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def objective(logits: Tensor, labels: Tensor, weight: Tensor, strength: float) -> float:
    loss = torch.nn.functional.cross_entropy(logits, labels)
    return (loss + strength / 2 * weight.square().sum()).item()


def ours_on(device: torch.device, work: Task) -> Sweep:
    return ours(replace(work, x=work.x.to(device), y=work.y.to(device)))


def ours(work: Task) -> Sweep:
    x, y = work.x, work.y
    start = time.perf_counter()
    fit = logistic(x, y, FEW_SHOT_STRENGTHS, work.draws)
    weights, biases, center = fit.weight.cpu(), fit.bias.cpu(), fit.center.cpu()  # waits for it
    seconds = time.perf_counter() - start
    values = np.empty((len(work.draws), len(FEW_SHOT_STRENGTHS)))
    for i, draw in enumerate(work.draws):
        for j, strength in enumerate(FEW_SHOT_STRENGTHS):
            weight = weights[i, j].double()
            logits = (x[draw].cpu() - center).double() @ weight + biases[i, j].double()
            values[i, j] = objective(logits, y[draw].cpu(), weight, strength)
    return Sweep(seconds, values, fit.predict(work.test.to(x.device)).cpu().numpy())


def theirs(work: Task, tol: float) -> Sweep:
    from sklearn.linear_model import LogisticRegression

    seconds, labels = 0.0, []
    values = np.empty((len(work.draws), len(FEW_SHOT_STRENGTHS)))
    for i, draw in enumerate(work.draws):
        x, y = work.x[draw], work.y[draw]
        for j, strength in enumerate(FEW_SHOT_STRENGTHS):
            model = LogisticRegression(C=1 / (strength * len(draw)), tol=tol, max_iter=10_000)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="The number of unique classes")
                seconds += timed(lambda: model.fit(x.numpy(), y.numpy()), x.device)  # noqa: B023
            weight = torch.as_tensor(model.coef_).double().T
            logits = x.double() @ weight + torch.as_tensor(model.intercept_).double()
            values[i, j] = objective(logits, y, weight, strength)
            labels.append(model.predict(work.test.numpy()))
    return Sweep(seconds, values, np.stack(labels).reshape(*values.shape, -1))
