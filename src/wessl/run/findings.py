"""What a run's own examination said of its health, read back from its log."""

import re
from dataclasses import dataclass
from pathlib import Path

AT = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  "
HEALTH = re.compile(AT + r"health: (.*)$", re.M)
OVER = re.compile(r"([\w-]+) is over")
KINDS = {
    "one-code": re.compile(r"collapse: "),
    "uniform": re.compile(r"no learning: "),
    "one-head": re.compile(r"head \d+ has \d+% of the weight"),
    "dead-heads": re.compile(r"heads? [\d, ]+ (has|have) hardly any weight"),
    "rank": re.compile(r"representations shrink: "),
    "nonfinite": re.compile(r"\d+ steps had NaN"),
    "waiting": re.compile(r"\d+% of the time goes into waiting"),
}
"""How the log words each kind of finding; the line that ends one names only its kind."""


@dataclass(frozen=True)
class Finding:
    """Something the run's own examination said in its log."""

    kind: str | None
    words: str
    over: bool

    @property
    def spoils(self) -> bool:
        """Whether it still stood at the end, and the encoder suffers; waiting only takes longer."""
        return not self.over and self.kind != "waiting"


def read_log(folder: Path) -> str:
    path = folder / "train.log"
    return path.read_text(errors="replace") if path.exists() else ""


def findings(log: str) -> list[Finding]:
    """What the log says of the run's health; a finding stands until a line says it is over."""
    found: list[Finding] = []
    for words in HEALTH.findall(log):
        ended = OVER.fullmatch(words.strip())
        if ended:
            found = [
                Finding(one.kind, one.words, one.over or one.kind == ended[1]) for one in found
            ]
        else:
            kind = next((kind for kind, start in KINDS.items() if start.match(words)), None)
            found.append(Finding(kind, words.strip(), over=False))
    return found
