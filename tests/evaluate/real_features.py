"""Features of real data that scikit-learn ships, for tests against its own classifiers."""

from functools import cache

import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split

from wessl.encoder.conv import ConvNet
from wessl.evaluate.protocol import Labelled

SETS = ("digits", "encoded digits", "wine", "breast cancer", "iris")


@cache
def features(name: str) -> tuple[Labelled, Labelled]:
    """Training and test features; of measurements in many units, each standardised."""
    load = {"wine": load_wine, "breast cancer": load_breast_cancer, "iris": load_iris}
    data = load.get(name, load_digits)()
    x = torch.tensor(data.data, dtype=torch.float32)
    if name == "digits":
        x = x / 16
    elif name == "encoded digits":
        torch.manual_seed(0)
        encoder = ConvNet((16, 32), 1).eval()
        with torch.no_grad():
            x = encoder.cls(x.view(-1, 1, 8, 8) / 16)
    else:
        x = (x - x.mean(0)) / x.std(0)
    y = torch.tensor(data.target)
    rows = train_test_split(torch.arange(len(y)), test_size=0.4, random_state=0, stratify=y)
    names = [str(name) for name in data.target_names]
    train, test = (Labelled(x[r], y[r], names) for r in rows)
    return train, test
