"""How long a run is: its epochs in a time, the schedules that follow, and both in words."""

import math

from wessl.auto.choice import Choice, DataFacts
from wessl.config import Config
from wessl.errors import UserError
from wessl.pretrain.cost import flops_per_image

LONGEST = 800
"""Epochs: the paper's longest run, and the most a budget can buy."""
FLOPS_PER_SECOND = {"cuda": 3e14, "cpu": 5e10}
"""Effective: bf16 on one H200 (2,200 images/s of dino-star-ent/vits16); fp32 on a server's core,
where steps without their views make 8e10 to 1e11 (``benchmarks/records``)."""
MATRIX_RATE = 7.8e14
"""Operations a second of that H200 in products of large matrices; other GPUs are taken to train as
much slower as they multiply."""
COUNTED_CORES = 2
"""Two are 1.4 to 1.8 times as fast as one; more were not measured, and are not relied on."""
HALF_ON_A_CPU = 2.0
"""How many times as fast bf16 is taken to be on a CPU that has it: 1.2 to 2.6 measured."""
USED = 0.9
"""Of a budget, for training; the rest is for saving and k-NN on the way."""
SECONDS_PER_STEP = {"cuda": 0.01, "cpu": 0.02}
"""What a step costs however small it is; measured on the CPU, supposed on the GPU."""
START_SECONDS = {"cuda": 90.0, "cpu": 0.0}
"""Until a first step that is compiled, with nothing in torch's cache: about that on an H200."""
FEW_STEPS = 100
"""Below it an encoder hardly differs from a random one."""


def speed_beside_known(rate: float) -> float:
    """Of a GPU that multiplies large matrices at ``rate``, in steps of a fifth or so.

    So the same GPU is found as fast another time, and ``--budget`` buys as many epochs.

    >>> speed_beside_known(7.4e14), speed_beside_known(8e14), round(speed_beside_known(1e14), 3)
    (1.0, 1.0, 0.125)
    """
    steps: int = round(4 * math.log2(rate / MATRIX_RATE))
    return 2.0 ** (steps / 4)


def flops_per_second(facts: DataFacts) -> float:
    """In fp32 on a CPU, all cores that count together; in what it trains in on a GPU."""
    many = facts.speed if facts.device == "cuda" else min(facts.cores, COUNTED_CORES)
    return FLOPS_PER_SECOND[facts.device] * many


def seconds_per_image(config: Config, facts: DataFacts) -> float:
    """A crude estimate of training time: operations over a rate, and a price for every step."""
    of_steps = SECONDS_PER_STEP[facts.device] / config.optim.batch_size
    half = facts.device == "cpu" and config.precision == "bf16"
    rate = flops_per_second(facts) * (HALF_ON_A_CPU if half else 1)
    return flops_per_image(config) / rate + of_steps


def choose_epochs(config: Config, facts: DataFacts, budget: float | None) -> Choice:
    n = facts.pictures
    epoch = n * seconds_per_image(config, facts)
    if budget is None:
        epochs = 200 if n <= 20_000 else 100 if n <= 200_000 else max(30, 20_000_000 // n)
        epochs = 50 if facts.grey_drawings else epochs
        reason = (
            f"for {n:,} pictures; roughly {duration(epochs * epoch)}, which --budget can change"
        )
        return Choice("optim.epochs", epochs, reason)
    least = budget_for(1, config, facts)
    of_epoch = n // config.optim.batch_size
    if not budget >= least:
        fewer = "; or give fewer pictures" if of_epoch > FEW_STEPS else ""
        raise UserError(
            f"--budget of {duration(budget)} is less than one epoch of {n:,} pictures takes; to "
            f"learn something, {enough_budget(config, facts)}{fewer}"
        )
    epochs = int(min(LONGEST, 1 + USED * (budget - least) / epoch))
    reason = f"fit into {duration(budget)} at roughly {duration(epoch)} an epoch"
    if epochs == LONGEST:
        reason = (
            f"the paper's longest, roughly {duration(epochs * epoch)} of the {duration(budget)}"
        )
    return Choice("optim.epochs", epochs, reason, warning=epochs * of_epoch < FEW_STEPS)


def budget_for(epochs: float, config: Config, facts: DataFacts) -> float:
    """Seconds that so many epochs need, by the estimate that turns a budget into epochs."""
    epoch = facts.pictures * seconds_per_image(config, facts)
    return START_SECONDS[facts.device] + epochs * epoch / USED


def enough_budget(config: Config, facts: DataFacts) -> str:
    """What to ask for instead of a budget that is too small to learn anything in.

    >>> enough_budget(Config(), DataFacts(10_000, 256, 256, 3, "cuda", 80 << 30))
    'allow --budget 3m or more: 12 epochs, 108 steps'
    """
    steps = max(1, facts.pictures // config.optim.batch_size)
    epochs = math.ceil(FEW_STEPS / steps)
    budget = as_budget(budget_for(epochs, config, facts))
    counted = f"{epochs} epoch{'s' * (epochs != 1)}, {epochs * steps:,} steps"
    return f"allow --budget {budget} or more: {counted}"


def choose_schedules(config: Config, facts: DataFacts) -> list[Choice]:
    epochs, loss = config.optim.epochs, config.loss
    choices = [Choice("optim.warmup_epochs", epochs / 10, "the rate climbs for a tenth of the run")]
    steps = epochs * (facts.pictures // config.optim.batch_size)
    if facts.grey_drawings:
        falls, share = round(0.3 * epochs, 2), "three tenths of the run"
        back = min(100.0, max(50.0, steps / 10))
        end = "; on digits 50 were better in short runs, and no better than 100 in longer ones"
        mild = "between the paper's first and last: best of three on digits"
        choices.append(Choice("loss.teacher_temperature", 0.035, mild))
        same = "the same from the start: the run is short"
        choices.append(Choice("loss.teacher_temperature_start", 0.035, same))
    else:
        falls, share = min(30.0, round(0.15 * epochs, 2)), "the paper's 30 epochs, but 15 % at most"
        back = min(250.0, max(10.0, steps / 300))
        end = ": as many as in the paper" if back == 250 else "; a slower one holds short runs back"
    # On drawings, so that another temperature than the constant one arrives when asked for.
    choices.append(Choice("loss.teacher_temperature_epochs", falls, share))
    if loss.gamma_in_nats:
        choices.append(Choice("loss.gamma_epochs", falls, share))
    why = f"the teacher averages the student over its last {back:.0f} steps or so{end}"
    return [*choices, Choice("optim.momentum", round(1 - 1 / back, 4), why)]


def duration(seconds: float) -> str:
    """In the unit a person would use.

    >>> duration(5400)
    '1.5 h'
    """
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 1.4 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{max(1.0, seconds):.0f} s"


def as_budget(seconds: float) -> str:
    """At least so long, as ``--budget`` takes it.

    >>> as_budget(2.2), as_budget(100), as_budget(601), as_budget(86_400)
    ('3s', '100s', '11m', '24h')
    """
    length, unit = (1, "s") if seconds <= 120 else (60, "m") if seconds <= 7200 else (3600, "h")
    return f"{math.ceil(seconds / length)}{unit}"
