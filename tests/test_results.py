"""Published numbers are those of the raw results."""

import copy
import json
import re

import matplotlib
import pytest
from docs.builder.join import joined
from docs.builder.results import (
    MARKED,
    OF_SEVERAL,
    PAGES,
    RESULTS,
    ROOT,
    figure,
    filled,
    same_drawing,
)

from wessl.study.figure_categories import is_far_off, papers_gain


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_published_table_equals_the_raw_numbers(page):
    text = page.read_text(encoding="utf-8")
    assert filled(text) == text, f"run `make results`: {page} is not what docs/results/ holds"


def test_every_raw_result_is_published_and_drawn():
    shown = {found[2] for page in PAGES for found in MARKED.finditer(page.read_text())}
    kept = {path.stem for path in RESULTS.glob("*.json")}
    assert shown == kept | OF_SEVERAL.keys()
    assert kept
    assert {path.stem for path in RESULTS.glob("*.svg")} == kept - {"demo"}


def test_raw_results_name_data_machine_command_and_seeds_and_no_folder_of_that_machine():
    for path in RESULTS.glob("*.json"):
        table = json.loads(path.read_text())
        assert all(table[key] for key in ("train", "machine", "command", "seeds", "versions"))
        assert "/tmp/" not in path.read_text()


@pytest.mark.skipif(
    f"matplotlib=={matplotlib.__version__}" not in (ROOT / "constraints.txt").read_text().split(),
    reason="another matplotlib draws otherwise",
)
@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.svg")), ids=lambda path: path.stem)
def test_every_figure_is_what_its_numbers_draw(path, tmp_path):
    figure(json.loads(path.with_suffix(".json").read_text()), tmp_path / "figure.svg")
    assert same_drawing(tmp_path / "figure.svg", path)


def test_a_figure_is_written_anew_only_where_it_shows_something_else(tmp_path):
    table = json.loads((RESULTS / "heads-digits.json").read_text())
    figure(table, tmp_path / "figure.svg")
    kept = (tmp_path / "figure.svg").read_text()
    other_digits = re.sub(r"(\d\.\d{5})4\b", r"\g<1>6", kept)
    (tmp_path / "figure.svg").write_text(other_digits)
    figure(table, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text() == other_digits != kept
    table["line"] = "another question"
    figure(table, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text() != other_digits


def test_only_the_papers_misprint_is_told_at_the_edge_of_a_figure():
    far = set()
    for path in RESULTS.glob("*.json"):
        table = json.loads(path.read_text())
        for column in table.get("columns", []) if not table.get("axis") else []:
            for row in table["rows"]:
                printed = papers_gain(row, column)
                if printed is not None and is_far_off(printed, table, column):
                    far.add((path.stem, row["name"], column["name"]))
    studies = (f"where-how-{of}" for of in ("digits", "deep-digits", "mnist", "tiny"))
    assert far == {(study, "ent-st, both", "2-shot") for study in studies}


@pytest.mark.parametrize("name", ["where-how-digits", "heads-digits", "diversity-tiny"])
def test_a_table_taken_apart_and_joined_is_the_table(name):
    whole = json.loads((RESULTS / f"{name}.json").read_text())
    old, new = (parted(whole, seeds, rows) for seeds, rows in (({0, 1}, 99), ({1, 2, 3, 4}, 2)))
    assert new != whole != old
    together = joined(old, new)
    lacking = [row["name"] for row in whole["rows"][2:]]  # they have the first two seeds alone
    for row in whole["rows"]:
        (found,) = [other for other in together["rows"] if other["name"] == row["name"]]
        for column, result in row["results"].items():
            joint = found["results"][column]
            if row["name"] in lacking:
                assert set(joint["seeds"]) == {"0", "1"} & set(result["seeds"])
            else:
                assert joint == result
    assert together["seeds"] == whole["seeds"]
    assert [row["name"] for row in together["rows"]] == [row["name"] for row in whole["rows"]]


def test_joined_cells_stand_as_the_study_has_them():
    whole = json.loads((RESULTS / "where-how-digits.json").read_text())
    first, last = (whole | dict(rows=rows) for rows in (whole["rows"][:4], whole["rows"][3:]))
    assert joined(last, first)["rows"] == whole["rows"] == joined(first, last)["rows"]


def parted(table, seeds, rows):
    """Some seeds of the first rows, with sums that are wrong until they are made anew."""
    table = copy.deepcopy(table)
    table["seeds"] = [seed for seed in table["seeds"] if seed in seeds]
    table["rows"] = table["rows"][:rows]
    for row in table["rows"]:
        for result in row["results"].values():
            kept = {seed: x for seed, x in result["seeds"].items() if int(seed) in seeds}
            result |= dict(seeds=kept, mean=-1.0, sd=-1.0, n=-1, difference=None)
    return table


@pytest.mark.parametrize(("name", "value"), [("train", "others"), ("draws", 5), ("key", "x")])
def test_tables_of_different_pictures_or_settings_are_not_joined(name, value):
    old = json.loads((RESULTS / "heads-digits.json").read_text())
    new = copy.deepcopy(old)
    (new["rows"][0] if name == "key" else new)[name] = value
    with pytest.raises(SystemExit, match="--join: "):
        joined(old, new)


def test_the_star_of_a_methods_name_does_not_end_italics():
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    found = re.findall(r"\*In italics .*\.\*", pages)
    assert any("DINO" in words for words in found)
    assert all(re.search(r"(?<!\\)\*", words[1:-1]) is None for words in found)


NUMBER = r"[+-]?\d+\.\d"
PROSE_INTERVAL = re.compile(
    rf"({NUMBER})(?: points)?(?: worse)?(?: in \d+-shot)? \[({NUMBER}), ({NUMBER})\]"
)
RESULTS_PAGES = (ROOT / "docs" / "results.md", ROOT / "docs" / "ablations.md")


def intervals(text):
    """Each told as a gain: a loss of 2.1 [0.9, 3.3] is a gain of -2.1 [-3.3, -0.9]."""
    found = set()
    for match in PROSE_INTERVAL.finditer(text):
        mean, low, high = map(float, match.groups())
        found |= {(mean, low, high), (-mean, -high, -low)}
    return found


def parts_of(page):
    """Each section's words, and the tables that are filled into it."""
    for section in re.split(r"(?m)^(?=##+ )", page):
        tables = "".join(found[0] for found in MARKED.finditer(section))
        yield section.partition("\n")[0], MARKED.sub("", section), tables


def test_intervals_told_in_words_are_those_of_the_tables_beside_them():
    pages = "".join(path.read_text(encoding="utf-8") for path in RESULTS_PAGES)
    everywhere = intervals("".join(found[0] for found in MARKED.finditer(pages)))
    told = 0
    for title, words, tables in parts_of(pages):
        said = intervals(re.sub(r"\s+", " ", words))
        known = everywhere if title == "## In short" else intervals(tables)
        assert said <= known, f"{title}: {sorted(said - known)} is in no table of this section"
        told += len(said)
    assert told > 20


def test_a_wrong_interval_in_words_would_be_found():
    assert intervals("loses 2.1 points [0.9, 3.3]") == intervals("-2.1 [-3.3, -0.9]")
    assert not intervals("loses 2.1 [0.8, 3.3]") <= intervals("-2.1 [-3.3, -0.9]")
