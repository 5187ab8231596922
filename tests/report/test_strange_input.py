"""Results are other rooms' files, of other versions too: whatever is in them, there is a page."""

import copy
import json

import runs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wessl.report.page import page
from wessl.report.story import read

JUNK = st.sampled_from(
    [None, True, -1, 1e308, 0.5, "", "<b>", [], {}, [None], [[1, "x"]], {"a": 1}]
)
WHOLE = runs.everything() | {
    "transfer": dict(
        kind="transfer",
        notes=["run: not used: fc.weight"],
        results={
            "flowers": dict(
                accuracy=0.5, protocol=dict(metric="mean per class", unreadable=dict(train=3))
            )
        },
    )
}


def places(value, path=()):
    """Every place in a nested value, but what kind of result it is."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        if key != "kind":
            yield (*path, key)
            if isinstance(inner, (dict, list)):
                yield from places(inner, (*path, key))


def put(value, path, new):
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


often = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@often
@given(data=st.data())
def test_a_page_comes_of_any_result(tmp_path, data):
    results = copy.deepcopy(WHOLE)
    name = data.draw(st.sampled_from(sorted(results)))
    path = data.draw(st.sampled_from(sorted(places(results[name]), key=repr)))
    put(results[name], path, data.draw(JUNK))
    run = runs.make_run(tmp_path / "run", results=results)
    other = runs.make_run(tmp_path / "other", results=WHOLE, seed=1)
    for stories in (read([run]), read([run, other])):
        text = page(stories)
        assert text.endswith("</html>\n")
        assert "<b>" not in text.replace("<b>", "", text.count("</b>"))


@often
@given(data=st.data())
def test_a_page_comes_of_any_row_and_header(tmp_path, data):
    rows = [runs.row(10), runs.row(20), runs.row(30), runs.probe(10, 0.5), runs.probe(30, 0.7)]
    at = data.draw(st.integers(0, len(rows) - 1))
    path = data.draw(st.sampled_from([p for p in places(rows[at]) if p != ("step",)]))
    put(rows[at], path, data.draw(JUNK))
    (tmp_path / "run" / "metrics.jsonl").unlink(missing_ok=True)
    run = runs.make_run(tmp_path / "run", rows=rows)
    header = json.loads((run / "config.json").read_text())
    put(header, data.draw(st.sampled_from(sorted(places(header), key=repr))), data.draw(JUNK))
    (run / "config.json").write_text(json.dumps(header))
    assert page(read([run])).endswith("</html>\n")
