"""k-NN on the way: who is asked, and of whom."""

import numpy as np
import pytest
import torch
from torch import nn

from wessl.data.pictures import Pictures
from wessl.data.sources.open import open_source
from wessl.verbs.pretraining import probe


@pytest.fixture
def features(monkeypatch):
    """Stand in for those of an encoder: a picture's own number."""
    monkeypatch.setattr(
        probe, "read_features", lambda encoder, pictures, chosen: (chosen, chosen[:, None].float())
    )
    monkeypatch.setattr(probe, "TrainedEncoder", lambda *_: None)


def labelled(tmp_path, labels):
    images = np.zeros((len(labels), 8, 8, 3), np.uint8)
    np.savez(tmp_path / "few.npz", images=images, labels=np.array(labels))
    return Pictures(open_source(tmp_path / "few.npz"), 8)


def test_a_fifth_of_every_class_is_asked_however_uneven_they_are(tmp_path, monkeypatch, features):
    heard = {}

    def knn_accuracy(train, known, test, asked, k):
        heard.update(known=known.bincount().tolist(), asked=asked.bincount().tolist())
        assert not set(train.flatten().tolist()) & set(test.flatten().tolist())
        return torch.zeros(k[0] + 1)

    monkeypatch.setattr(probe, "knn_accuracy", knn_accuracy)
    found = probe.make_probe(labelled(tmp_path, [0] * 50 + [1] * 20 + [2] * 5), {})(nn.Identity())
    assert heard == dict(known=[40, 16, 4], asked=[10, 4, 1])
    assert found["pictures"] == 15


def test_where_no_class_has_two_pictures_nobody_is_asked(tmp_path, features):
    assert probe.make_probe(labelled(tmp_path, [0, 1, 2]), {})(nn.Identity()) == {}
