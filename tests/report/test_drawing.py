"""Scales, thinning and matrices against what they must keep."""

import base64
import io
import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy import stats

from wessl.report.charts import Series, line_chart
from wessl.report.matrices import RAMP, matrix
from wessl.report.measured import paired_error
from wessl.report.scales import axis, thin

heights = st.one_of(st.none(), st.floats(-1e6, 1e6))


@given(st.lists(heights, min_size=1, max_size=400), st.integers(11, 60))
def test_thinning_keeps_ends_extremes_order_and_gaps(ys, most):
    points = list(enumerate(ys))
    kept = thin(points, most)
    known = [y for y in ys if y is not None]
    assert len(kept) <= max(most, 1)
    assert set(kept) <= set(points)
    assert kept == sorted(kept, key=lambda point: point[0])
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    left = [y for _, y in kept if y is not None]
    if known:
        assert (min(left), max(left)) == (min(known), max(known))
    assert (None in ys) == (len(left) < len(kept))


@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=20), st.integers(2, 8))
def test_an_axis_holds_every_value_between_even_ticks(values, ticks):
    found = axis(values, ticks)
    slack = 1e-6 * (found.high - found.low)
    assert found.low - slack <= min(values) <= max(values) <= found.high + slack
    steps = [b - a for a, b in itertools.pairwise(found.ticks)]
    assert 1 <= len(steps) <= 2 * ticks + 2
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6)


def test_an_axis_has_round_numbers():
    np.testing.assert_allclose(axis([0.03, 0.97], 4).ticks, [0, 0.25, 0.5, 0.75, 1.0])
    assert axis([3.0, 3.0], 4).low < 3 < axis([3.0, 3.0], 4).high


def test_a_line_breaks_where_a_number_is_missing():
    points = [(0.0, 1.0), (1.0, 2.0), (2.0, None), (3.0, 1.0), (4.0, 2.0), (5.0, None), (6.0, 1.0)]
    chart = line_chart("Loss", [Series("run", points)])
    path = chart.split('<path d="')[1].split('"')[0]
    assert path.count("M") == 2
    assert chart.count("<circle") == 1  # the point alone at the end


def test_nothing_to_draw_is_no_chart():
    assert line_chart("Loss", [Series("run", []), Series("other", [(1.0, None)])]) is None


def test_a_matrix_is_the_picture_of_its_numbers():
    values = np.random.default_rng(0).random((5, 7))
    figure = matrix(values.tolist(), "Similarity", "row #", "column #")
    image = Image.open(io.BytesIO(_bytes(figure, 'src="data:image/png;base64,')))
    levels = np.frombuffer(_bytes(figure, 'data-values="'), np.uint8).reshape(5, 7)
    np.testing.assert_allclose(levels / 255, values, atol=0.5 / 255 + 1e-9)
    np.testing.assert_array_equal(np.array(image), levels)
    ends = [tuple(int(c[i : i + 2], 16) for i in (1, 3, 5)) for c in (RAMP[0], RAMP[-1])]
    palette = np.array(image.getpalette()).reshape(-1, 3)
    assert [tuple(palette[0]), tuple(palette[255])] == ends
    brightness = palette @ [0.299, 0.587, 0.114]
    assert (np.diff(brightness) <= 0).all()  # darker is more, in grey too


def _bytes(figure, before):
    return base64.b64decode(figure.split(before)[1].split('"')[0])


def test_what_is_no_matrix_is_not_drawn():
    for values in (None, [], [[1], [2, 3]], "text", [1, 2], [["a"]]):
        assert matrix(values, "", "", "") is None


def test_the_error_of_a_difference_is_that_of_the_paired_gains():
    a, b = np.random.default_rng(0).random((2, 30))
    protocol = dict(name="1-shot", draws=30)
    one, two = (dict(per_draw=x.tolist(), protocol=protocol) for x in (a, b))
    np.testing.assert_allclose(paired_error(one, two), stats.sem(a - b))
    assert paired_error(one, two | dict(protocol=dict(name="2-shot"))) is None
    assert paired_error(one, two | dict(per_draw=[0.5])) is None
