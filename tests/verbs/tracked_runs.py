"""Reads back what trackers wrote: TensorBoard with its own reader, the others by their formats."""

import json
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

Told = dict[str, list[tuple[int, float]]]


class Written(NamedTuple):
    scalars: Told
    """By name: step and value, in the order written."""
    messages: list[str]
    config: dict[str, Any]
    final: dict[str, float]


def read_tensorboard(run: Path, home: Path) -> Written:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), {"scalars": 0, "tensors": 0})
    events.Reload()
    told = {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }

    def texts(name: str) -> list[str]:
        tag = f"{name}/text_summary"
        found = events.Tensors(tag) if tag in events.Tags()["tensors"] else []
        return [event.tensor_proto.string_val[0].decode() for event in found]

    (config,) = texts("config")
    final = {name: points[-1][1] for name, points in told.items() if name.startswith("final/")}
    scalars = {name: points for name, points in told.items() if name not in final}
    return Written(scalars, texts("message"), json.loads(config.strip("`\njson")), final)


def read_wandb(run: Path, home: Path) -> Written:
    from wandb.proto.wandb_internal_pb2 import Record

    written = Written({}, [], {}, {})
    for path in sorted((run / "wandb").glob("offline-run-*/*.wandb")):
        for data in leveldb_records(path):
            record = Record.FromString(data)
            for item in record.run.config.update:
                written.config[item.key] = json.loads(item.value_json)
            for item in record.summary.update:
                if item.key.startswith("final/"):
                    written.final[item.key] = json.loads(item.value_json)
            if record.HasField("history"):
                row = {i.nested_key[0]: json.loads(i.value_json) for i in record.history.item}
                for name in [name for name in row if not name.startswith("_")]:
                    if name == "message":
                        written.messages.extend(row[name].splitlines())
                    else:
                        written.scalars.setdefault(name, []).append((row["_step"], row[name]))
    return written


def leveldb_records(path: Path) -> list[bytes]:
    """LevelDB's log after wandb's seven bytes: blocks of 32 KiB, parts with CRC, size, kind."""
    data, position, parts, records = path.read_bytes(), 7, b"", []
    assert data[:4] == b":W&B"
    while position + 7 <= len(data):
        left = 2**15 - position % 2**15
        if left < 7:
            position += left
            continue
        size, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        parts += data[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # whole, or the last part
            records.append(parts)
            parts = b""
    return records


def read_trackio(run: Path, home: Path) -> Written:
    written = Written({}, [], {}, {})
    with sqlite3.connect(home / "wessl.db") as database:
        rows = database.execute("SELECT step, metrics FROM metrics ORDER BY id").fetchall()
        alerts = database.execute("SELECT text FROM alerts ORDER BY id").fetchall()
        ((config,),) = database.execute("SELECT config FROM configs").fetchall()
    for step, metrics in rows:
        for name, value in json.loads(metrics).items():
            if name.startswith("final/"):
                written.final[name] = value
            else:
                written.scalars.setdefault(name, []).append((step, value))
    written.messages.extend(text for (text,) in alerts)
    written.config.update(json.loads(config))
    return written


READERS = {"tensorboard": read_tensorboard, "wandb": read_wandb, "trackio": read_trackio}
