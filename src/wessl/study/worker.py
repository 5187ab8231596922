"""A process that carries out runs of a study: jobs on its standard input, answers on its output.

The study holds the other end of the input. When that closes, however the study ended, the run
under way is told to save and stop, so that nothing trains on behind the user's back.
"""

import json
import os
import queue
import shlex
import signal
import sys
import threading
from typing import Any

from wessl.allocator import keep_memory

Jobs = queue.Queue[dict[str, Any] | None]


def main() -> None:
    keep_memory()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what others print must not be taken for an answer
    jobs: Jobs = queue.Queue()
    busy = threading.Event()
    threading.Thread(target=listen, args=(jobs, busy), daemon=True).start()
    from wessl.study.measure import carry_out
    from wessl.study.record import in_words

    for job in iter(jobs.get, None):
        busy.set()
        sys.argv[:] = shlex.split(job["command"])  # runs record what the user typed
        answer = None
        try:
            carry_out(job)
        except Exception as error:
            answer = in_words(error)
        busy.clear()
        print(json.dumps(dict(error=answer)), file=answers, flush=True)


def listen(jobs: Jobs, busy: threading.Event) -> None:
    for line in sys.stdin:
        jobs.put(json.loads(line))
    jobs.put(None)
    if busy.is_set():
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
