"""k-NN during training: a fixed fifth of every class of labelled pictures against the rest."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from wessl.config import Config, Options
from wessl.data.batch import Batch
from wessl.data.decoding.bad_pictures import BadPicture
from wessl.data.labelled.splits import held_out
from wessl.data.pictures import Pictures, choose_decode
from wessl.data.sources.open import Source, open_source
from wessl.errors import UserError
from wessl.evaluate.classifiers.knn import knn_accuracy
from wessl.evaluate.features.trained_encoder import TrainedEncoder
from wessl.evaluate.protocol import HELD_OUT
from wessl.pretrain.console import Console
from wessl.pretrain.parallel import ALONE, Team
from wessl.run import State
from wessl.verbs.pretraining.begin import decode_pictures, find_jpeg

PROBE_PICTURES = 10_000
"""It looks at this many pictures at most."""
AT_ONCE = 256


def probe_source(options: Options, channels: int) -> Source | None:
    """What ``--probe`` names, which must have labels."""
    if options.probe is None:
        return None
    source = open_source(options.probe, channels, options.cache)
    if source.labels is None:
        why = f" ({source.note})" if source.note else "; give folders named by class"
        raise UserError(f"--probe {options.probe} has no labels{why}")
    return source


def open_probe(
    source: Source | None, pictures: Pictures, config: Config, options: Options, console: Console
) -> Pictures:
    """The pictures to probe with: those of ``--probe``, or the run's own."""
    if source is None:
        return pictures
    decode = options.decode
    if decode == "auto":
        jpeg = find_jpeg(options)
        decode, _ = choose_decode(source, config.short_side, options.cache, jpeg)
    return decode_pictures(source, decode, config, options, console)


def make_probe(
    pictures: Pictures, description: State, team: Team = ALONE
) -> Callable[[nn.Module], dict[str, float]] | None:
    """None without labels. Each process of a team reads its part, and the first one scores them."""
    if pictures.source.labels is None:
        return None
    labels = torch.from_numpy(pictures.source.labels)
    order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(0))
    chosen = order[:PROBE_PICTURES]

    def probe(encoder: nn.Module) -> dict[str, float]:
        trained = TrainedEncoder(encoder, description)
        part = chosen.tensor_split(team.world)[team.rank]
        parts = team.gather(read_features(trained, pictures, part))
        if not team.first:
            return {}
        numbers, features = (torch.cat(of_parts) for of_parts in zip(*parts, strict=True))
        known = labels[numbers]
        rest, asked = held_out(known, HELD_OUT)
        if not len(asked):  # of no class there are two
            return {}
        accuracy = knn_accuracy(features[rest], known[rest], features[asked], known[asked], k=(20,))
        return {"knn": float(accuracy[20]), "pictures": len(asked)}

    return probe


@torch.no_grad()
def read_features(
    encoder: TrainedEncoder, pictures: Pictures, chosen: Tensor
) -> tuple[Tensor, Tensor]:
    """Numbers and features of those of the chosen pictures that can be read, on the CPU."""
    device = next(encoder.encoder.parameters()).device
    # Nothing goes with anything: a process may have no readable picture in its part.
    numbers, features = [torch.empty(0, dtype=torch.int64)], [torch.empty(0)]
    for of_batch, batch in batches(pictures, chosen):
        prepared = encoder.prepare(batch.map(lambda part: part.to(device)))
        numbers.append(of_batch)
        features.append(encoder.cls(prepared).float().cpu())
    return torch.cat(numbers), torch.cat(features)


def batches(pictures: Pictures, chosen: Tensor) -> Iterator[tuple[Tensor, Batch]]:
    group = []
    for number, picture in pictures.decoded(chosen.tolist()):
        if not isinstance(picture, BadPicture):
            group.append((number, picture))
        if len(group) == AT_ONCE:
            yield torch.tensor([n for n, _ in group]), Batch.collate([p for _, p in group])
            group = []
    if group:
        yield torch.tensor([n for n, _ in group]), Batch.collate([p for _, p in group])
