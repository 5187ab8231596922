"""The progress line at all widths, in a terminal and without one."""

import io
import re
import time

import pytest
from rich.console import Console as Terminal
from rich.text import Text

from wessl.pretrain.console import Console
from wessl.pretrain.progress import duration, line

ROW = dict(
    step=1200, steps=12000, epoch=12.0, loss=5.1234, lr=1.9e-3, teacher_entropy=3.21, codes=1024,
    codes_used=[900, 1000], head_shares=[0.4, 0.6], heads_effective=1.9, rank=45.31,
    images_per_second=2217.4, ms=115.4, mfu=0.351, data_wait=0.012, eta=4980.0, knn=0.434,
)  # fmt: skip
WHOLE = (
    "step 1200/12000  epoch 12.0  loss 5.123  lr 1.9e-03  entropy 3.21/6.93  codes 900-1000/1024  "
    "heads 1.9/2 of 40-60 %  rank 45.3  2217 img/s  115 ms  MFU 35 %  data wait 1 %  ETA 1:23:00  "
    "k-NN 43.4 %"
)
LONG = ROW | dict(step=987654, steps=1000000, epoch=789.9, eta=9e5, images_per_second=12345.0)


def test_the_line_says_all_that_matters():
    assert line(ROW) == line(ROW, 200) == WHOLE
    without = {key: value for key, value in ROW.items() if key not in ("mfu", "knn")}
    one_head = dict(head_shares=[1.0], codes_used=[950])
    assert line(without | one_head) == (
        "step 1200/12000  epoch 12.0  loss 5.123  lr 1.9e-03  entropy 3.21/6.93  codes 950/1024  "
        "rank 45.3  2217 img/s  115 ms  data wait 1 %  ETA 1:23:00"
    )


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (60, "step 1200/12000  epoch 12.0  loss 5.123  ETA 1:23:00"),
        (80, "step 1200/12000  epoch 12.0  loss 5.123  2217 img/s  ETA 1:23:00  k-NN 43.4 %"),
        (
            120,
            "step 1200/12000  epoch 12.0  loss 5.123  entropy 3.21/6.93  codes 900-1000/1024  "
            "2217 img/s  ETA 1:23:00  k-NN 43.4 %",
        ),
        (200, WHOLE),
    ],
)
def test_a_narrow_line_loses_the_least_important_first(width, said):
    assert line(ROW, width) == said


@pytest.mark.parametrize("row", [ROW, LONG])
def test_no_width_is_exceeded_and_none_is_wasted(row):
    lengths = [len(line(row, width)) for width in range(26, 250)]
    assert all(length <= width for length, width in zip(lengths, range(26, 250), strict=True))
    assert lengths == sorted(lengths)


def drawn(width: int, act) -> str:
    """All that a terminal of that width receives."""
    file = io.StringIO()
    terminal = Terminal(width=width, file=file, force_terminal=True, color_system=None)
    console = Console(terminal=terminal)
    act(console)
    console.close()
    return file.getvalue()


@pytest.mark.parametrize("width", [20, 60, 80, 120, 200])
@pytest.mark.parametrize("row", [ROW, LONG])
def test_a_terminal_gets_one_line_that_never_wraps(width, row):
    def act(console):
        for step in (row["step"], row["step"] + 100, row["steps"]):
            console.printed = 0.0  # as if time had passed
            console(row | dict(step=step))

    received = drawn(width, act)
    lines = Text.from_ansi(received.replace("\r", "\n")).plain.splitlines()
    lines = list(dict.fromkeys(words.rstrip() for words in lines if words.strip()))
    assert len(lines) == 3
    assert all(len(words) <= width for words in lines)
    assert lines[-1].startswith(f"step {row['steps']}/{row['steps']}"[:width])
    assert received.count("\n") == 1  # the end of the last line alone
    assert received.endswith("\x1b[?25h") or "\x1b[?25h" in received.rpartition("\n")[2]


def test_messages_come_above_the_line_and_probes_stay_in_it():
    def act(console):
        console(ROW | dict(knn=None))
        console(dict(step=5, epoch=0.5, probe=dict(knn=0.5)))
        console.printed = 0.0
        console(ROW)

    received = drawn(200, act)
    assert "step 5  epoch 0.5  k-NN 50.0 %\n" in received
    assert received.rstrip("\n").count("k-NN 50.0 %") >= 2


def test_between_rows_the_step_moves_on():
    def act(console):
        console.printed = 0.0
        console(ROW)
        console.printed = 0.0
        console.tick(1207, 12000, 12.07, 256)
        console.tick(1208, 12000, 12.08, 256)  # too soon to be seen

    received = drawn(200, act)
    assert "step 1207/12000  epoch 12.1  loss 5.123" in received
    assert "1208" not in received


def test_before_the_first_row_the_step_is_shown_alone():
    def act(console):
        console.printed = 0.0
        console.tick(3, 12000, 0.03, 256)

    assert re.search(r"step 3/12000  epoch 0.0 *\n", drawn(80, act))


def test_from_the_third_step_on_speed_and_time_left_are_told():
    def act(console):
        for step in (1, 2, 3):
            console.printed = 0.0
            console.tick(step, 12000, 0.0, 256)
            if step == 1:
                time.sleep(0.02)

    received = drawn(80, act)
    assert re.search(r"step 2/12000  epoch 0.0 *[\r\n\x1b]", received)
    found = re.search(r"step 3/12000  epoch 0.0  (\d+) img/s  ETA (\d+):(\d+)", received)
    assert found is not None
    speed, minutes, seconds = map(int, found.groups())
    assert speed <= 2 * 256 / 0.02
    assert 60 * minutes + seconds == pytest.approx((12000 - 3) * 256 / speed, abs=1.5)


def test_the_last_line_has_no_k_nn_of_an_earlier_encoder(capsys):
    console = Console()
    console(dict(step=5, epoch=0.5, probe=dict(knn=0.434)))
    console(ROW | dict(step=ROW["steps"]))
    assert "k-NN" not in capsys.readouterr().err.splitlines()[-1]


def test_markup_in_words_is_left_alone():
    assert "[/red] :smile: [bold]" in drawn(80, lambda c: c.say("[/red] :smile: [bold]"))


def test_durations_read_like_a_clock():
    found = [duration(s) for s in (5, 75, 4000, 200_000, float("nan"))]
    assert found == ["0:05", "1:15", "1:06:40", "2d 7:33:20", "?"]


def test_without_a_terminal_a_plain_line_comes_now_and_then(capsys):
    console = Console(every=3600)
    console(ROW)
    console(ROW | dict(step=12000))  # the last line always
    console(dict(step=5, epoch=0.5, probe=dict(knn=0.434)))
    console(dict(message="health: all is well"))
    console.tick(3, 5, 0.1, 8)
    console.close()
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 3
    assert printed[0].startswith("step 12000/12000")
    assert printed[0].endswith("ETA 1:23:00")  # whole, however long
    assert printed[1:] == ["step 5  epoch 0.5  k-NN 43.4 %", "health: all is well"]


def test_a_quiet_console_says_nothing(capsys):
    console = Console(quiet=True)
    console(ROW | dict(step=12000))
    console.say("hello")
    console.doing("something")
    console.decoding(1, 2)
    assert capsys.readouterr().err == ""
