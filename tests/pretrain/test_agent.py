"""Of several processes that ended, the one that the others ended of."""

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from wessl.verbs.launching.agent import describe
from wessl.verbs.launching.launched import ERROR_FILE, leave_word


@pytest.fixture
def ended(tmp_path, monkeypatch):
    def end(rank, exit_code, *words, **how):
        path = tmp_path / f"{rank}.json"
        if words:
            monkeypatch.setenv(ERROR_FILE, str(path))
            leave_word(*words, **how)
        return ProcessFailure(rank, 1000 + rank, exit_code, str(path))

    return end


def test_a_death_comes_before_those_who_lost_touch_however_their_clocks_stand(ended):
    bereft = ended(0, 1, "lost the others", final=False, bereft=True)
    killed = ended(1, -9)
    killed.timestamp = bereft.timestamp + 1
    assert describe({0: bereft, 1: killed}, 2).words == "process 1 of 2 was killed by SIGKILL"
    lost = ended(2, 1, "no pictures", final=False)
    assert describe({0: bereft, 2: lost}, 3).words == "process 2 of 3 ended: no pictures"


def test_what_no_restart_mends_comes_first_with_the_code_that_was_meant(ended):
    mistaken = ended(1, -6, "a mistake", final=True, code=2)  # aborted on its way out
    cause = describe({0: ended(0, -15), 1: mistaken}, 2)
    assert (cause.words, cause.code, cause.final) == ("a mistake", 2, True)
