from wessl.pretrain.console import Console, duration, line

ROW = dict(
    step=1200, steps=12000, epoch=12.0, loss=5.1234, lr=1.9e-3, teacher_entropy=3.21, codes=1024,
    codes_used=[900, 1000], head_shares=[0.4, 0.6], heads_effective=1.9, images_per_second=2217.4,
    ms=115.4, data_wait=0.012, eta=4980.0,
)  # fmt: skip


def test_the_line_says_all_that_matters():
    assert line(ROW) == (
        "step 1200/12000  epoch 12.0  loss 5.123  lr 1.9e-03  entropy 3.21/6.93  codes 950/1024  "
        "heads 1.9/2  2217 img/s  115 ms  data wait 1 %  ETA 1:23:00"
    )
    assert "MFU 35 %" in line(ROW | dict(mfu=0.35))
    assert "heads" not in line(ROW | dict(head_shares=[1.0]))


def test_durations_read_like_a_clock():
    assert [duration(s) for s in (5, 75, 4000)] == ["0:05", "1:15", "1:06:40"]


def test_without_a_terminal_a_plain_line_comes_now_and_then(capsys):
    console = Console(every=3600)
    console(ROW)
    console(ROW | dict(step=12000))  # the last line always
    console(dict(step=5, epoch=0.5, probe=dict(knn=0.434)))
    console(dict(message="health: all is well"))
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 3
    assert printed[0].startswith("step 12000/12000")
    assert printed[1:] == ["step 5  epoch 0.5  knn 43.4 %", "health: all is well"]


def test_a_quiet_console_says_nothing(capsys):
    console = Console(quiet=True)
    console(ROW | dict(step=12000))
    console.say("hello")
    assert capsys.readouterr().err == ""
