"""The page in a real Chromium: silent, alone, whole on a phone, and answering the pointer."""

import browser
import pytest
import runs
from PIL import Image

from wessl.report.page import page
from wessl.report.story import read

pytestmark = pytest.mark.skipif(
    browser.find() is None, reason="no Chromium here; on Debian: apt-get install chromium"
)
EVIL = "<script>document.title = 'taken over'</script>"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
VISIBLE = "[...document.querySelectorAll('.tip')].filter(t => !t.hidden).map(t => t.innerText)"


@pytest.fixture(scope="module")
def chromium():
    with browser.Browser(browser.find()) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A full page of one run, one of several runs, and one of a run that has nothing yet."""
    home = tmp_path_factory.mktemp("pages")
    long_name = "a-name-without-any-space-in-it-" * 4
    one = runs.make_run(home / "one", results=runs.everything(label=EVIL))
    two = runs.make_run(home / long_name, results=runs.everything(label=long_name), seed=1)
    bare = runs.make_run(home / "bare", rows=[], finished=False)
    written = {"one": [one], "several": [one, two, bare], "bare": [bare]}
    for name, paths in written.items():
        (home / f"{name}.html").write_text(page(read(paths)))
    return {name: home / f"{name}.html" for name in written}


@pytest.mark.parametrize("name", ["one", "several", "bare"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_it_opens_silently_asks_for_nothing_and_fits(chromium, pages, name, dark, width):
    chromium.open(pages[name], width=width, dark=dark)
    assert chromium.complaints == []
    assert chromium.requests == [pages[name].as_uri()]
    assert chromium.ask("document.title").endswith("· wessl")
    assert chromium.ask("window.innerWidth") == width
    assert chromium.ask(OVERFLOW) == 0
    background = chromium.ask("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in background[4:-1].split(",")) / 3
    assert (brightness < 60) == dark


def test_it_fits_a_phone_with_everything_unfolded(chromium, pages):
    for name in ("one", "several"):
        chromium.open(pages[name], width=390)
        chromium.ask("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert chromium.ask(OVERFLOW) == 0


def test_on_a_phone_all_sections_are_in_sight_and_a_wide_table_shows_that_it_goes_on(
    chromium, tmp_path
):
    found = runs.evaluation([0.5, 0.6])
    found["columns"] = [f"{n}-shot" for n in (1, 2, 5, 10, 20, 50)]
    usual = dict(accuracy=0.5, interval=[0.45, 0.55])
    found["rows"][0]["results"] = dict.fromkeys(found["columns"], usual)
    many = [dict(true="dog", predicted="cat", share=0.1)] * 12
    found["per_class"]["confused"] = many
    results = runs.everything() | dict(evaluation=found)
    written = tmp_path / "page.html"
    written.write_text(page(read([runs.make_run(tmp_path / "run", results=results)])))
    chromium.open(written, width=390)
    assert chromium.ask(
        "[...document.querySelectorAll('nav a')].every(a => a.getBoundingClientRect().right <= 390)"
    )
    # Without a shadow at its edge the table would seem to end there.
    wide = "#accuracy .scroll:has(.scores)"
    assert chromium.ask(f"(e => e.scrollWidth - e.clientWidth)(document.querySelector('{wide}'))")
    edge = tmp_path / "edge.png"
    chromium.screenshot(edge)
    box = chromium.ask(
        f"(b => [b.right, b.bottom + scrollY])"
        f"(document.querySelector('{wide}').getBoundingClientRect())"
    )
    with Image.open(edge) as seen:
        y = round(box[1]) - 6  # beneath the last row, where there is nothing but background
        dark, plain = (seen.convert("L").getpixel((round(box[0]) - x, y)) for x in (2, 60))
    assert dark < plain - 20
    # The number of an item in the list stands left of it, within the page.
    inset = "parseFloat(getComputedStyle(document.querySelector('.confused ol')).paddingLeft)"
    font = "parseFloat(getComputedStyle(document.querySelector('.confused ol')).fontSize)"
    assert chromium.ask(f"{inset} / {font}") >= 2  # two figures, a full stop and a blank


def test_small_matrices_name_their_rows_and_columns_and_all_have_a_scale(chromium, pages):
    chromium.open(pages["one"])
    words = "[...document.querySelectorAll('{} span')].map(s => s.textContent)"
    place = "#accuracy .matrix"
    for side in (".beside", ".beneath"):
        assert chromium.ask(words.format(f"{place} {side}")) == [EVIL, "dog"]
    first = "#heads .charts .matrix:nth-of-type(2)"
    for side in (".beside", ".beneath"):
        assert chromium.ask(words.format(f"{first} {side}")) == ["0", "1", "2", "3"]
    scales = chromium.ask("document.querySelectorAll('.matrix .scale').length")
    assert scales == chromium.ask("document.querySelectorAll('.matrix').length") == 5
    # Each name stands at the middle of its row, and of its column.
    for side, start, length in ((".beside", "top", "height"), (".beneath", "left", "width")):
        middles = chromium.ask(
            f"(() => {{ const b = document.querySelector('{first} img').getBoundingClientRect();"
            f"return [...document.querySelectorAll('{first} {side} span')].map(s => {{"
            "const r = s.getBoundingClientRect();"
            f"return (r.{start} + r.{length} / 2 - b.{start}) / b.{length}; }}); }})()"
        )
        assert middles == pytest.approx([0.125, 0.375, 0.625, 0.875], abs=0.02)


def test_charts_matrices_and_pictures_are_there(chromium, pages):
    chromium.open(pages["one"])
    assert chromium.ask("document.querySelectorAll('figure.chart').length") == 7
    assert chromium.ask("document.querySelectorAll('figure.matrix').length") == 5
    assert chromium.ask("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
    drawn = "[...document.querySelectorAll('.chart path')].every(p => p.getTotalLength() > 20)"
    assert chromium.ask(drawn)


def test_the_pointer_reads_a_chart(chromium, pages):
    chromium.open(pages["one"])
    assert chromium.ask(VISIBLE) == []
    chromium.point_at("#training .chart svg", x=0.97)
    assert chromium.ask(VISIBLE) == ["epoch 10.00\n3.000"]
    chromium.point_at("#training .chart svg", x=0.2)
    assert chromium.ask(VISIBLE) == ["epoch 1.00\n3.900"]
    chromium.point_at("h1")
    assert chromium.ask(VISIBLE) == []


def test_the_pointer_reads_all_runs_of_a_chart(chromium, pages):
    chromium.open(pages["several"])
    chromium.point_at("#training .chart svg", x=0.97)
    (shown,) = chromium.ask(VISIBLE)
    assert shown.startswith("epoch 10.00\none: 3.000\na-name-without")


def test_the_keyboard_reads_a_chart(chromium, pages):
    chromium.open(pages["one"])
    chromium.ask("document.querySelector('#training .chart svg').focus()")
    for key in ("ArrowRight", "ArrowRight"):
        chromium.press(key)
    assert chromium.ask(VISIBLE) == ["epoch 2.00\n3.800"]
    chromium.press("End")
    assert chromium.ask(VISIBLE) == ["epoch 10.00\n3.000"]
    chromium.press("Escape")
    assert chromium.ask(VISIBLE) == []


def test_what_a_finger_touched_stays_until_the_next_touch(chromium, pages):
    chromium.open(pages["one"], width=390)
    chromium.tap("#training .chart svg", x=0.97)
    assert chromium.ask(VISIBLE) == ["epoch 10.00\n3.000"]
    chromium.tap("#training .chart figcaption")
    assert chromium.ask(VISIBLE) == []


def test_the_pointer_and_the_keyboard_read_a_matrix(chromium, pages):
    chromium.open(pages["one"])
    place = "#accuracy .matrix img"
    chromium.point_at(place, x=0.75, y=0.25)
    assert chromium.ask(VISIBLE) == [f"0.25\ntrue {EVIL}\npredicted dog"]
    chromium.ask(f"document.querySelector({place!r}).focus()")
    chromium.press("ArrowDown")
    assert chromium.ask(VISIBLE) == ["0.50\ntrue dog\npredicted dog"]


def test_every_chart_and_matrix_has_its_table(chromium, pages):
    chromium.open(pages["one"])
    chromium.ask("document.querySelectorAll('details.data').forEach(d => { d.open = true; })")
    figures = "[...document.querySelectorAll('.chart, .matrix')]"
    filled = f"{figures}.map(f => f.querySelectorAll('td').length)"
    # A toggle is told to the page after the script that caused it.
    counts = chromium.ask(f"new Promise(r => setTimeout(() => r({filled}), 200))")
    assert min(counts) >= 2
    assert counts.count(16 * 16) == 2  # the two similarity matrices of 16 codes


def test_printed_it_is_light_and_without_controls(chromium, pages):
    chromium.open(pages["one"], dark=True, media="print")
    assert chromium.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert chromium.ask("getComputedStyle(document.querySelector('nav')).display") == "none"


def test_no_script_but_its_own_can_run(chromium, pages, tmp_path):
    """Even were some text not escaped, the page's own policy would stop it."""
    tampered = tmp_path / "tampered.html"
    tampered.write_text(pages["one"].read_text().replace("</h1>", f"</h1>{EVIL}"))
    chromium.open(tampered)
    assert chromium.ask("document.title") == "Run one · wessl"
    assert any("Content Security Policy" in words for words in chromium.complaints)


def test_the_checks_would_notice(chromium, tmp_path):
    wrong = tmp_path / "wrong.html"
    wrong.write_text(
        "<!doctype html><meta name=viewport content='width=device-width'>"
        "<div style='width: 900px'>wide</div><img src='http://example.org/x.png'>"
        "<script>console.error('said'); nowhere();</script>"
    )
    chromium.open(wrong, width=390)
    assert chromium.ask(OVERFLOW) > 0
    assert "http://example.org/x.png" in chromium.requests
    assert len(chromium.complaints) >= 2
