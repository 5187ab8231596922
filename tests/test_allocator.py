"""Large blocks of freed memory: kept for a command's life, or for a block of somebody's process."""

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    "glibc" not in platform.libc_ver(), reason="GNU's C library alone is asked"
)
ROUNDS = """
import resource
import numpy as np
from wessl.allocator import keep_memory, memory_kept
def faults(size=25_000_000):  # 200 MB
    found = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        np.full(size, 1.0)
        found.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return found[0], found[-1]
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20
"""


def told(code: str, **environment: str) -> list[int]:
    command = [sys.executable, "-c", ROUNDS + code]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | environment
    )
    return [int(word) for word in done.stdout.split()]


def test_memory_of_large_tensors_is_not_asked_of_the_system_again():
    first, later = told("keep_memory(); print(*faults())")
    assert later < first / 10


def test_within_a_block_it_is_kept_and_afterwards_given_back():
    first, later, before, kept, after = told(
        "before = resident()\n"
        "with memory_kept(): some = faults(); kept = resident()\n"
        "print(*some, before, kept, resident())"
    )
    assert later < first / 10
    assert kept > before + 150  # MiB
    assert after < before + 50


def test_a_block_within_a_command_gives_nothing_back():
    first, kept, after, later = told(
        "keep_memory()\n"
        "with memory_kept(): first, _ = faults(); kept = resident()\n"
        "print(first, kept, resident(), faults()[-1])"
    )
    assert after >= kept - 50
    assert later < first / 10


def test_a_block_that_is_not_wanted_changes_nothing():
    first, later = told("with memory_kept(False): print(*faults())")
    assert later > first / 2


def test_blocks_of_more_than_two_gigabytes_are_kept_too():
    first, later = told("keep_memory(); print(*faults(290_000_000))")
    assert later < first / 10


def test_a_block_within_a_block_gives_nothing_back():
    first, later = told(
        "with memory_kept():\n"
        "    with memory_kept(): first, _ = faults()\n"
        "    print(first, faults()[0])"
    )
    assert later < first / 10


def test_what_the_user_set_stays():
    first, later = told("keep_memory(); print(*faults())", MALLOC_MMAP_THRESHOLD_="1000000")
    assert later > first / 2
