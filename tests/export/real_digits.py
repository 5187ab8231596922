"""Features of scikit-learn's digits by an untrained encoder."""

import torch

from wessl.data.sources.open import open_source
from wessl.encoder.conv import ConvNet
from wessl.evaluate.protocol import Labelled


def digits() -> tuple[Labelled, Labelled]:
    torch.manual_seed(0)
    encoder = ConvNet((16, 32), 1).eval()
    sides = []
    for part in ("train", "test"):
        source = open_source(f"builtin://digits/{part}")
        pixels = torch.tensor(source.images).movedim(3, 1) / 255
        with torch.no_grad():
            sides.append(Labelled(encoder.cls(pixels), torch.tensor(source.labels)))
    return sides[0], sides[1]
