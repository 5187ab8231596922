"""How long a training waits for its pictures, by how they come to it.

    python benchmarks/waiting.py [--count 6000] [--steps 150] [--sizes 1] [--batch 256] \\
        [--recipe dino-star-ent/vits16] [--only stream]

JPEGs around 500 x 375 made on the spot and a ViT-S/16 in batches of 256: decoded once into the
cache, which then lies on the device; decoded anew by processes whenever one is wanted (``--decode
stream``: what a folder does that is larger than the disk); the same by the GPU (``--jpeg gpu``).
Each training in a process of its own; its first half, with compilation, is not counted.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import wessl
from wessl.bench.pictures import write_jpegs

WAYS: dict[str, dict[str, str]] = {
    "decoded once": dict(decode="once"),
    "stream": dict(decode="stream"),
    "stream, --jpeg gpu": dict(decode="stream", jpeg="gpu"),
}


def train(asked: argparse.Namespace, folder: Path) -> dict[str, float]:
    run = wessl.pretrain(
        folder / "jpegs",
        folder / asked.way.replace(" ", "-"),
        asked.recipe,
        quiet=True,
        epochs=asked.steps / (asked.count // asked.batch),
        log_every=10,
        save_every=1e6,
        **{"optim.batch_size": asked.batch},
        **WAYS[asked.way],
    )
    rows = [
        row for row in map(json.loads, (run.path / "metrics.jsonl").open()) if "data_wait" in row
    ]
    late = rows[len(rows) // 2 :]
    return dict(
        images=statistics.median(row["images_per_second"] for row in late),
        wait=statistics.mean(row["data_wait"] for row in late),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=6000)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--sizes", type=int, default=1, help="different sizes of pictures")
    parser.add_argument("--recipe", default="dino-star-ent/vits16")
    parser.add_argument("--only", nargs="*", choices=WAYS, help="some of the three ways")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.way:
        print(json.dumps(train(asked, asked.folder)))
        return
    cores = len(os.sched_getaffinity(0))
    print(f"{asked.count} JPEGs of {asked.sizes} sizes, {asked.recipe}, {cores} cores", flush=True)
    with TemporaryDirectory(prefix="wessl-waiting-") as name:
        home = Path(name)
        write_jpegs(home / "jpegs", asked.count, 375, 500, asked.sizes)
        os.environ["WESSL_CACHE"] = str(home / "cache")
        print(f"{'':22}{'img/s':>8}{'waits':>8}")
        for way in asked.only or (WAYS if torch.cuda.is_available() else list(WAYS)[:2]):
            program = [sys.executable, *sys.argv, "--way", way, "--folder", str(home)]
            found = json.loads(subprocess.run(program, check=True, stdout=subprocess.PIPE).stdout)
            print(f"{way:22}{found['images']:8.0f}{found['wait']:8.1%}", flush=True)


if __name__ == "__main__":
    main()
