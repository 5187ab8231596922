"""What many H200s would do: the tables of docs/scale.md, from the model in scale_model.py.

python benchmarks/scale.py
"""

from collections.abc import Sequence

from scale_check import check
from scale_model import JPEG, MEASURED, Cluster, Network

GPUS = (8, 64, 512)
NETWORKS = [Network(size) for size in "SBL"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def networks() -> str:
    rows = []
    for n in NETWORKS:
        batch = MEASURED.get(n.size, MEASURED["B"])[0]
        rows.append([
            f"{n.size}/16", f"{n.parameters / 1e6:.1f}", f"{n.flops / 1e9:,.0f}",
            f"{batch / n.compute(batch):,.0f}" + ("" if n.size in MEASURED else " (by FLOPs)"),
            f"{n.too_small}", f"{n.gradients / 1e6:,.0f}", f"{n.checkpoint / 1e9:.2f}",
            f"{2 * n.checkpoint / n.cluster.disk:.1f}",
        ])  # fmt: skip
    head = (
        "", "parameters, M", "GFLOP a picture", "one GPU, img/s", "too small below, pictures a GPU",
        "gradients, MB", "checkpoint, GB", "to save, s",
    )  # fmt: skip
    return table(head, rows)


def messages() -> str:
    codes, heads = NETWORKS[0].codes, NETWORKS[0].config.heads.count
    rows = [
        ("Sinkhorn (DINO\\*): MAX and SUM of `(m, 1, c)`, 3 iterations", 6, codes, 1.0),
        ("ME-MAX (MSN\\*): SUM of `(m, c)`, forward and backward", 2, codes, 1.0),
        ("ME-MAX: the number of pictures", 1, 4.0, 1.0),
        ("ME-MAX: each head's share of the loss, `(m,)`", 1, 4.0 * heads, 1.0),
        ("mean of the losses, for the log and the finite check", 1, 12.0, 1.0),
        *((f"gradients of {n.size}/16, DDP", 1, n.gradients, 1.0) for n in NETWORKS),
    ]
    times, size = NETWORKS[-1].sharded
    # A gather or a scatter is half an all-reduce.
    rows.append(("L/16, FSDP: gathers and scatters", times, size / times, 0.5))
    return table(
        ["", "times", "bytes each", *(f"{g} GPUs, ms in all" for g in GPUS)],
        [
            [what, str(times), f"{size:,.0f}", *(in_all(times * part, size, g) for g in GPUS)]
            for what, times, size, part in rows
        ],
    )


def in_all(times: float, size: float, gpus: int) -> str:
    return f"{1e3 * times * Cluster().all_reduce(size, gpus):.2f}"


def steps() -> str:
    rows = []
    for n in NETWORKS:
        for gpus in GPUS:
            for batch in sorted({1024, 8192, 128 * gpus}):
                each = batch // gpus
                if each > 128:
                    continue
                seconds = n.step(each, gpus)
                basis = MEASURED.get(n.size, MEASURED["B"])[0]
                ideal = gpus * basis / n.compute(basis)
                numbers = (n.compute(each), n.exposed(each, gpus), n.small(gpus), seconds)
                rows.append([
                    f"{n.size}/16", str(gpus), f"{batch:,}", str(each),
                    *(f"{1e3 * x:.1f}" for x in numbers),
                    f"{batch / seconds:,.0f}", f"{100 * batch / seconds / ideal:.0f} %",
                ])  # fmt: skip
    head = (
        "", "GPUs", "batch", "a GPU", "compute, ms", "gradients not hidden, ms",
        "Sinkhorn and losses, ms", "step, ms", "img/s", "of one GPU's rate",
    )  # fmt: skip
    return table(head, rows)


def pictures() -> str:
    rows = []
    decoded = 1.4 * NETWORKS[0].config.short_side ** 2 * 3
    for n in NETWORKS:
        rate = n.cluster.node * 128 / n.step(128, 64)
        files = [f"{rate * size / 1e6:,.0f}" for size, _ in JPEG.values()]
        cores = [f"{rate / speed:.0f}" for _, speed in JPEG.values()]
        rows.append([
            f"{n.size}/16", f"{rate:,.0f}", *files, *cores, f"{rate * decoded / 1e9:.1f}",
            f"{rate / 4096:.1f}",
        ])  # fmt: skip
    sizes = list(JPEG)
    head = (
        "", "img/s a node", *(f"JPEG {s}, MB/s" for s in sizes), *(f"cores for {s}" for s in sizes),
        "decoded, GB/s", "shards of 4,096 a second",
    )  # fmt: skip
    return table(head, rows)


def memory() -> str:
    rows = []
    for n in NETWORKS:
        for batch in (32, 128):
            ways = [n.memory(batch), *(n.memory(batch, gpus) for gpus in GPUS)]
            rows.append([f"{n.size}/16", str(batch), *(f"{x / 2**30:.1f}" for x in ways)])
    return table(["", "pictures a GPU", "DDP, GiB", *(f"FSDP on {g}, GiB" for g in GPUS)], rows)


TABLES = {
    "The networks": networks,
    "What is sent in a step": messages,
    "The step": steps,
    "The pictures": pictures,
    "Memory": memory,
    "How the form was checked": check,
}

if __name__ == "__main__":
    for title, make in TABLES.items():
        print(f"## {title}\n\n{make()}\n")
