"""Matrix products in fp32 on a CPU: torch's usual library beside the one ``wessl`` asks on AMD.

    python benchmarks/matrix_products.py [--threads 1 2] [--seconds 0.4]

Products ``(n, k) @ (k, m)`` and their gradients, medians of calls that take turns, in GFLOP/s; the
last column is how many times as fast ours is. Here alone oneDNN is asked for all sizes and on every
CPU, so that it shows from where on, and where at all, that pays.
"""

import argparse
import statistics
from collections.abc import Callable

import torch
from torch import Tensor

from wessl import matrix_products
from wessl.bench.turns import in_turns
from wessl.devices import cpu_name

SIZES = [(64, 64, 64), (128, 128, 128), (256, 256, 256), (512, 192, 192), (1088, 192, 768),
         (1088, 768, 192), (2176, 192, 576), (1024, 1024, 1024)]  # fmt: skip
"""Those of 192 columns or rows are a small transformer's."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--seconds", type=float, default=0.4, help="of a size")
    asked = parser.parse_args()
    asks = "asks" if matrix_products._quicker() else "does not ask"
    print(f"{cpu_name()}, torch {torch.__version__}; wessl {asks} oneDNN here")
    matrix_products.WORTHWHILE, matrix_products._quicker = 0, lambda: True
    for threads in asked.threads:
        torch.set_num_threads(threads)
        print(f"{threads} thread(s):  n x k x m, millions of multiplications, usual, ours, ratio")
        for n, k, m in SIZES:
            a, b = torch.randn(n, k, requires_grad=True), torch.randn(k, m, requires_grad=True)
            ways: dict[str, Callable[[], object]] = {
                "usual": lambda a=a, b=b: learn(a @ b, a, b),
                "ours": lambda a=a, b=b: learn(matrix_products.matmul(a, b), a, b),
            }
            times = in_turns(ways, torch.device("cpu"), asked.seconds)
            medians = {way: statistics.median(rounds) for way, rounds in times.items()}
            rates = [6 * n * k * m / medians[way] / 1e9 for way in ways]
            print(
                f"{n:5} x {k:4} x {m:4} {n * k * m / 2**20:8.2f} {rates[0]:8.1f} {rates[1]:8.1f} "
                f"{medians['usual'] / medians['ours']:6.2f}"
            )


def learn(product: Tensor, *factors: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(product, factors, torch.ones_like(product))


if __name__ == "__main__":
    main()
