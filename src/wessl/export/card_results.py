"""Results of a run for its card: each number with its protocol, and of these weights alone."""

import re
from typing import Any

from wessl.evaluate.stores.features import weights_digest
from wessl.evaluate.table import explain, on_test, seen_at, with_interval
from wessl.export.markdown import plain, public, table
from wessl.export.source import Source, State


def results(source: Source) -> str:
    digest = weights_digest(source.encoder)
    blocks, left_out = [], [f"{name}: damaged" for name in source.unreadable]
    for name, result in sorted(source.results, key=lambda pair: _order(source, *pair)):
        if result.get("kind") not in ("evaluation", "transfer"):
            continue
        try:
            block = _evaluation(result, digest) if "rows" in result else _transfer(result, digest)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            left_out.append(f"{name}: of another form ({type(error).__name__})")
            continue
        if block is None:
            left_out.append(f"{name}: of other weights")
        else:
            blocks.append(block)
    if left_out:
        blocks.append(f"Left out: {plain('; '.join(left_out))}.")
    if not blocks:
        return "None yet: `wessl evaluate RUN --train DIR --test DIR` measures; then export again."
    return "\n\n".join(blocks)


def _order(source: Source, name: str, result: State) -> tuple[bool, bool, float, float]:
    """Evaluations of the encoder as it is, with the most test pictures first, of equals the
    newest."""
    test = result.get("test")
    pictures = test.get("pictures") if isinstance(test, dict) else None
    known = pictures if isinstance(pictures, int) else 0
    written = (source.path / "results" / name).stat().st_mtime
    resized = isinstance(test, dict) and "seen_at" in test
    return result.get("kind") != "evaluation", resized, -known, -written


def _evaluation(record: State, digest: str) -> str | None:
    rows = [row for row in record["rows"] if row["role"] != "run" or row["weights"] == digest]
    if not any(row["role"] == "run" for row in rows):
        return None
    rows = [row | dict(name="**this encoder**") if row["role"] == "run" else row for row in rows]
    columns = record["columns"]
    body = [
        [
            row["name"] if row["role"] == "run" else plain(public(row["name"])),
            *(_cell(row["results"].get(column)) for column in columns),
        ]
        for row in rows
    ]
    places = {
        s: record[s] | dict(location=public(record[s]["location"])) for s in ("train", "test")
    }
    named = [
        row | dict(name="this encoder" if row["role"] == "run" else public(row["name"]))
        for row in rows
    ]
    words = explain(record | places | dict(rows=named), width=1_000_000).splitlines()
    said = [*map(_without_paths, record.get("notes", ())), *words]
    listed = "\n".join(f"- {plain(line)}" for line in said)
    own = next(row["results"] for row in rows if row["role"] == "run")
    chosen = [c in own and on_test(own[c]) for c in columns]
    head = [plain(c + " (optimistic)" * on) for c, on in zip(columns, chosen, strict=True)]
    return f"Accuracy in %{seen_at(record['test'])}:\n\n{table(['', *head], body)}\n\n{listed}"


def _transfer(record: State, digest: str) -> str | None:
    if record["weights"] != digest:
        return None
    rows = [
        [plain(public(name)), _percent(one["accuracy"])] for name, one in record["results"].items()
    ]
    said = "; ".join(
        f"{plain(public(name))}: {_protocol(one.get('protocol'))}"
        for name, one in record["results"].items()
    )
    return f"{table(['Transfer to', 'accuracy in %'], rows)}\n\nProtocols: {said}."


def _protocol(protocol: Any) -> str:
    if not isinstance(protocol, dict):
        return "not recorded"
    kept = {k: v for k, v in protocol.items() if isinstance(v, (str, int, float))}
    return plain(", ".join(f"{k.replace('_', ' ')} {v}" for k, v in kept.items()))


def _without_paths(note: str) -> str:
    return re.sub(r"[^\s()]*[/\\][^\s()]*", lambda found: public(found[0]), note)


def _cell(result: State | None) -> str:
    return "" if result is None else with_interval(result["accuracy"], result["interval"])


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
