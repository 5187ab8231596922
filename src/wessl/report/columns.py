"""Columns by protocol: numbers that were measured differently never stand in one column."""

from collections.abc import Iterable

from wessl.report.markup import Markup, tag
from wessl.report.story import State, part

CHOSEN = ("strength_chosen", "neighbours_chosen", "selected_on")
"""Where a protocol says by which pictures its best setting was found."""
OWN = ("readings", "transform")
"""What follows from the encoder itself, and may differ in a fair comparison."""
OPTIMISTIC = " (optimistic)"
MEANING = (
    "Optimistic: the classifier's setting was chosen on the test pictures themselves, so the "
    "number is too good; without --select test it is chosen on training pictures."
)
APART = (
    "What follows a column's name tells it from one of the same name and another protocol; the "
    "two are not compared. All of each protocol is under “How each was measured”."
)


def optimistic(result: State) -> bool:
    protocol = part(result, "protocol")
    return any("the test pictures" in str(protocol.get(key, "")) for key in CHOSEN)


def head_row(columns: Iterable[str], too_good: bool = False) -> Markup:
    """The names of columns; a mark on each whose numbers know test pictures."""
    mark = tag("small", "too good") if too_good else None
    return tag("tr", tag("th", ""), [tag("th", name, mark, scope="col") for name in columns])


class Columns:
    """Names of columns, told apart wherever one name stands for several protocols."""

    def __init__(self, results: Iterable[State]) -> None:
        """From dictionaries of results by name, such as every row has."""
        self._known: dict[str, list[State]] = {}
        for found in results:
            for name in found:
                variants, protocol = self._known.setdefault(name, []), _protocol(part(found, name))
                if protocol and protocol not in variants:
                    variants.append(protocol)

    def of(self, name: str, result: State) -> str:
        """The first protocol keeps the bare name; others add the settings in which they differ."""
        variants, own = self._known.get(name, []), _protocol(result)
        own = own or (variants[0] if variants else {})
        marked = name + OPTIMISTIC * optimistic(dict(protocol=own))
        alike = [one for one in variants if _marked_as(one, own)]
        if len(alike) < 2 or own == alike[0]:
            return marked
        keys = dict.fromkeys([*alike[0], *own])
        said = [(k, own.get(k)) for k in keys if own.get(k) != alike[0].get(k)]
        words = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in said)
        return f"{marked}, {words if len(words) <= 30 else f'protocol {variants.index(own) + 1}'}"

    def renamed(self, results: State) -> State:
        return {self.of(name, part(results, name)): one for name, one in results.items()}

    @property
    def differ(self) -> bool:
        return any(len(variants) > 1 for variants in self._known.values())


def _protocol(result: State) -> State:
    return {key: value for key, value in part(result, "protocol").items() if key not in OWN}


def _marked_as(one: State, other: State) -> bool:
    return optimistic(dict(protocol=one)) == optimistic(dict(protocol=other))
