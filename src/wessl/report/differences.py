"""Runs against the first of them: points more or less, and how sure that is."""

from wessl.report.columns import head_row
from wessl.report.markup import Markup, join, number, signed, tag
from wessl.report.measured import Measured, Row, paired_error

TOGETHER = (
    "Beneath each, its 95 % interval over other test pictures and, where labels were drawn, other "
    "labels, the same for both runs; bold where it excludes 0."
)
APART = (
    "± is the standard error over the draws of labelled pictures, the same draws for both: these "
    "runs were measured apart, and one wessl evaluate of all of them gives intervals."
)
SEED = "This does not hold what another seed of training would change."


def differences(measured: Measured) -> Markup | None:
    """Every run against the first one."""
    base, *others = measured.runs or [Row("", "", {})]
    if not others:
        return None
    shared = [c for c in measured.columns if _known(base, c) and any(_known(r, c) for r in others)]
    if not shared:
        return tag("p", f"Nothing was measured alike for {base.name} and another run, so nothing "
                   "is compared.", class_="note")  # fmt: skip
    body = [
        tag("tr", tag("th", row.name, scope="row"),
            [_cell(row, base, column, measured) for column in shared])
        for row in others
    ]  # fmt: skip
    head = head_row(shared, bool(measured.too_good))
    caption = tag("caption", "Points more than ", tag("b", base.name))
    inside = tag("table", caption, tag("thead", head), tag("tbody", body), class_="numbers scores")
    return join([tag("div", inside, class_="scroll"), _note(measured, base, others, shared)])


def _known(row: Row, column: str) -> bool:
    return row.accuracy(column) is not None


def _note(measured: Measured, base: Row, others: list[Row], columns: list[str]) -> Markup:
    cells = [(row, base, column) for row in others for column in columns]
    apart = [(row.of(c), base.of(c)) for row, _, c in cells if not measured.gain(row, base, c)]
    words = [TOGETHER] if len(apart) < len(cells) else []
    words += [APART] if any(paired_error(*pair) is not None for pair in apart) else []
    return tag("p", " ".join([*words, SEED]), class_="note")


def _cell(row: Row, base: Row, column: str, measured: Measured) -> Markup:
    a, b = row.accuracy(column), base.accuracy(column)
    if a is None or b is None:
        return tag("td", number(None))
    words = signed(a - b)
    if ends := measured.gain(row, base, column):
        low, high = ends
        between = f"{signed(low)} to {signed(high)}"
        return tag("td", words if low <= 0 <= high else tag("b", words), tag("small", between))
    error = paired_error(row.of(column), base.of(column))
    return tag("td", words, tag("small", f"± {100 * error:.1f}") if error is not None else None)
