"""Two real processes over gloo hold unequal parts of one batch and must agree with one process."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from wessl import Centering, head_shares, me_max, sinkhorn

SPLIT = (5, 3)


def batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, sum(SPLIT), 6, generator=generator, dtype=torch.float64)


def targets_of(logits, group=None):
    centering = Centering(3, 6).double()
    centering(logits, 0.1, group)
    probabilities = logits.softmax(-1).requires_grad_()
    loss = me_max(probabilities, group=group)
    loss.backward()
    return {
        "sinkhorn": sinkhorn(logits, 0.05, group=group),
        "center": centering.center,
        "me_max": loss.detach(),
        "shares": head_shares(
            torch.stack([logits, -logits]), logits.softmax(-1)[None], group=group
        ),
        "gradient": probabilities.grad,
    }


def worker(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)
    part = batch().split(SPLIT, dim=1)[rank]
    torch.save(targets_of(part, dist.group.WORLD), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gloo")
    mp.spawn(worker, (str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def test_sinkhorn_over_two_processes_equals_one(parts):
    together = torch.cat([p["sinkhorn"] for p in parts], 1)
    torch.testing.assert_close(together, targets_of(batch())["sinkhorn"])


def test_the_centre_over_two_processes_equals_one(parts):
    for part in parts:
        torch.testing.assert_close(part["center"], targets_of(batch())["center"])


def test_heads_shares_over_two_processes_equal_one(parts):
    for part in parts:
        torch.testing.assert_close(part["shares"], targets_of(batch())["shares"])


def test_me_max_over_two_processes_equals_one(parts):
    for part in parts:
        torch.testing.assert_close(part["me_max"], targets_of(batch())["me_max"])


def test_me_max_gradients_averaged_over_processes_are_those_of_one(parts):
    """Data parallelism averages gradients, so each process holds the global one times two."""
    together = torch.cat([p["gradient"] for p in parts], 1) / 2
    torch.testing.assert_close(together, targets_of(batch())["gradient"])


def test_sinkhorn_needs_two_small_reductions_an_iteration_for_all_heads(monkeypatch):
    sizes = []
    monkeypatch.setattr(dist, "all_reduce", lambda x, op, group: sizes.append(x.numel()))
    sinkhorn(torch.randn(16, 32, 8), 0.05, iterations=3, group=object())
    assert sizes == [16 * 8] * 6
