"""How long OpenMP's threads should spin while they wait for each other, on a CPU.

    python benchmarks/threads.py [--spins 0 1000 10000 usual] [--busy 1] [--turns 3]

Steps and views of ``wessl bench`` with 16 heads in a process for each way of waiting, in turns;
``usual`` is what GNU's OpenMP does unasked (300,000), and ``one`` a single thread. ``--busy N``
keeps N other processes at work beside them. Medians over all turns, in milliseconds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from functools import partial

SECONDS = 6
"""Of a turn."""


def measure() -> dict[str, list[float]]:
    import torch

    from wessl.allocator import memory_kept
    from wessl.bench.pictures import pictures
    from wessl.bench.steps import batch_shape, build_trainer, drawings, transformer
    from wessl.bench.turns import Work, in_turns
    from wessl.bench.views import views_of

    device, works = torch.device("cpu"), dict[str, Work]()
    for name, training in (("conv", drawings(quick=False)), ("ViT", transformer(quick=False))):
        batch = pictures(*batch_shape(training.config), device)
        works[f"{name}, views"] = partial(views_of, batch, training.config.views)
        for precision in ("fp32", "bf16"):
            trainer = build_trainer(training.in_precision(precision).with_heads(16), device)
            views = trainer.prepare(torch.arange(len(batch)), batch)
            works[f"{name}, {precision}"] = partial(trainer.train_step, views)
    with memory_kept():
        return in_turns(works, device, SECONDS)


def environment(spin: str) -> dict[str, str]:
    ours = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": spin}
    set_here = {"usual": {}, "one": {"OMP_NUM_THREADS": "1"}}.get(spin, ours)
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return kept | set_here


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--spins", nargs="+", default=["0", "1000", "10000", "usual", "one"])
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measure()))
        return
    spinning = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(spinning) for _ in range(asked.busy)]
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    try:
        for _ in range(asked.turns):
            for spin in asked.spins:
                words = [sys.executable, __file__, "--measure"]
                said = subprocess.check_output(words, env=environment(spin), text=True)
                for name, times in json.loads(said).items():
                    found[name][spin] += times
    finally:
        for other in others:
            other.kill()
    print(f"{'':14}" + "".join(f"{spin:>10}" for spin in asked.spins))
    for name, of_name in found.items():
        medians = (1e3 * statistics.median(of_name[spin]) for spin in asked.spins)
        print(f"{name:14}" + "".join(f"{ms:10.1f}" for ms in medians))


if __name__ == "__main__":
    main()
