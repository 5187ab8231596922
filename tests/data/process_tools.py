"""Other processes, as /proc shows them."""

from pathlib import Path


def children(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for path in tasks for child in path.read_text().split()}


def descendants(pid: int) -> set[int]:
    below = children(pid)
    return below.union(*(descendants(child) for child in below))


def cpu_ticks(pid: int) -> int:
    spent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(int(ticks) for ticks in spent)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
