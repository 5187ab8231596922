"""For every test: one quiet thread a process, and no trace in the user's cache."""

import os
import shutil
import tempfile

# The models here are tiny, and threads that spin while they wait starve whoever else is running.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Workers of xdist have one each, inside that of the process which started them and clears up.
os.environ["WESSL_CACHE"] = tempfile.mkdtemp(
    prefix="wessl-tests-",
    dir=os.environ["WESSL_CACHE"] if "PYTEST_XDIST_WORKER" in os.environ else None,
)

from hypothesis import settings

settings.register_profile("shared machine", deadline=None)  # time says nothing about a law
settings.load_profile("shared machine")


def pytest_unconfigure() -> None:
    shutil.rmtree(os.environ["WESSL_CACHE"], ignore_errors=True)
