"""What the machine and its containers leave, from the files in which they say it."""

from pathlib import Path

import pytest

from wessl.data.loading.memory import available_memory, left_by_limits

GB = 10**9


def group(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_a_containers_limit_counts_what_is_in_use_but_not_files_that_can_be_dropped(tmp_path):
    new = group(
        tmp_path / "new",
        memory__max=f"{8 * GB}\n",
        memory__current=f"{5 * GB}\n",
        memory__stat=f"anon {2 * GB}\ninactive_file {3 * GB}\n",
    )
    old = group(
        tmp_path / "old",
        memory__limit_in_bytes=f"{4 * GB}",
        memory__usage_in_bytes=f"{1 * GB}",
        memory__stat="total_inactive_file 0\n",
    )
    free = group(tmp_path / "free", memory__max="max\n", memory__current="1\n", memory__stat="")
    assert list(left_by_limits([new, old, free, tmp_path / "none"])) == [6 * GB, 3 * GB]


def test_a_group_over_its_limit_leaves_nothing(tmp_path):
    full = group(tmp_path / "a", memory__max="100", memory__current="200", memory__stat="")
    assert list(left_by_limits([full])) == [0]


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="needs Linux")
def test_what_is_available_is_less_than_all_there_is():
    lines = Path("/proc/meminfo").read_text().splitlines()
    total = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:"))
    assert 0 < available_memory("cpu") < total
