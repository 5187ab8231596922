"""A folder of a data set's parts, given where one of the parts is meant."""

from pathlib import Path

from wessl.data.sources.files import TO_LEARN_FROM, TO_TEST_ON, is_parts
from wessl.data.sources.open import FileSource, Source
from wessl.errors import UserError

PARTS = {"--train": TO_LEARN_FROM, "--test": TO_TEST_ON}


def refuse_parts(source: Source, data: str, flag: str) -> None:
    """Stops at folders like ``photos/test/cat/1.jpg`` given as ``photos``, and names the one meant.

    ``test/1.jpg`` may be a class called test, and is let pass.
    """
    if not isinstance(source, FileSource) or not Path(source.location).is_dir():
        return
    tops = {name.partition("/")[0] for name in source.names}
    if not is_parts(tops) or not all(name.count("/") > 1 for name in source.names):
        return
    lower = {top.lower(): top for top in sorted(tops)}
    meant = next((lower[name] for name in PARTS[flag] if name in lower), None)
    there = " and ".join(f"{top}/" for top in sorted(tops))
    kind = "a part of a data set and not a class" if len(tops) == 1 else "parts of a data set"
    if meant is None:
        wanted = "to learn from" if flag == "--train" else "to be tested on"
        advice = f"give {flag} a folder with the class folders of the pictures {wanted}"
    else:
        advice = f"give {flag} {Path(data) / meant}"
    raise UserError(f"{flag} {data} holds {there}, {kind}; {advice}")
