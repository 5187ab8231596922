"""Studies as a user runs them: end to end, killed and resumed, shared, failed and retried."""

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from PIL import Image

import wessl
from wessl import auto
from wessl.auto import DataFacts
from wessl.commands.study import parse, read_seeds
from wessl.errors import Failure, UserError
from wessl.settings import override, to_dict
from wessl.study.record import note_failure
from wessl.study.run import as_seeds
from wessl.study.studies import STUDIES
from wessl.study.terminal import print_table
from wessl.verbs.study import command

DIGITS = DataFacts(1297, 8, 8, channels=1, device="cpu", memory_bytes=8 << 30)
TINY = {"encoder.widths": [8, 16], "optim.batch_size": 16}
QUICK = dict(
    train="builtin://digits/test",
    test="builtin://digits/train",
    settings=TINY,
    epochs=1,
    protocols=("1-shot", "k-NN"),
    draws=3,
    device="cpu",
    parallel=1,
    quiet=True,
)
UNASKED = QUICK | dict(protocols=())
WORDS = [
    *("--train", "builtin://digits/test", "--test", "builtin://digits/train"),
    *("--set", "encoder.widths=[8,16]", "optim.batch-size=16", "--epochs", "1"),
    *("--protocols", "1-shot", "k-NN", "--draws", "3", "--device", "cpu"),
]


def start(out):
    words = ["where-how", *WORDS, "--size", "smoke", "--seeds", "1", "--parallel", "2"]
    return subprocess.Popen(
        [sys.executable, "-m", "wessl", "study", *words, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(runs):
    return {path.parents[1].name for path in runs.glob("*/results/study-*.json")}


def under_way(runs):
    begun = {path.parent.name for path in runs.glob("*/config.json")}
    return begun - {path.parent.name for path in runs.glob("*/encoder.safetensors")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """`wessl study where-how --size smoke`, uninterrupted."""
    out = tmp_path_factory.mktemp("whole") / "where-how"
    process = start(out)
    said, progress = process.communicate()
    assert process.returncode == 0, progress
    return out, said, progress


def test_a_study_killed_and_started_again_gives_the_same_table(whole, tmp_path):
    out, runs = tmp_path / "where-how", tmp_path / "runs"
    first = start(out)
    while not (finished(runs) and under_way(runs)):
        assert first.poll() is None, "it ended before it could be killed"
        time.sleep(0.005)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert not out.exists()
    assert len(finished(runs)) < 9

    again = start(out)  # at once: a run that was under way may still be saving itself
    _, progress = again.communicate()
    assert again.returncode == 0, progress
    assert "finished already" in progress
    tables = [json.loads((place / "table.json").read_text()) for place in (whole[0], out)]
    assert tables[0]["rows"] == tables[1]["rows"]
    assert [row["results"]["1-shot"]["n"] for row in tables[1]["rows"]] == [1] * 9


def test_a_study_that_is_stopped_says_what_is_kept(tmp_path):
    process = start(tmp_path / "where-how")
    while not under_way(tmp_path / "runs"):
        assert process.poll() is None, "it ended before it could be stopped"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    words = (
        r"stopped by SIGINT after \d+ of 9 runs; finished runs are kept; the same command goes on"
    )
    assert re.search(words, said)


def test_a_worker_stops_and_saves_when_its_study_is_gone(tmp_path):
    """The study's end of its input closes with the study, however that ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "wessl.study.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    data = dict(train="builtin://digits/train", test="builtin://digits/test")
    config = override(auto.small("dino-star", DIGITS, epochs=10_000)[0], TINY | {"seed": 1})
    job = dict(folder=str(tmp_path / "run"), kind="accuracy", config=to_dict(config), **data)
    job |= dict(options={"device": "cpu"}, columns=["k-NN"], command="wessl study x", record="r")
    process.stdin.write((json.dumps(job) + "\n").encode())
    process.stdin.flush()
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.stdin.close()
    assert process.wait(60) != 0
    process.stdout.close()
    state = wessl.Run(tmp_path / "run").load_checkpoint()
    assert 0 < state["step"] < 10_000


def test_the_table_holds_every_cell_beside_the_papers_numbers(whole):
    out, said, progress = whole
    table = json.loads((out / "table.json").read_text())
    assert len(table["rows"]) == 9
    base, ent = table["rows"][0], table["rows"][-1]
    assert (base["name"], ent["name"], ent["base"]) == ("base", "ent, both", "base")
    assert base["results"]["1-shot"]["paper"] == dict(mean=40.6, sd=0.2)
    result = ent["results"]["1-shot"]
    assert result["paper_difference"] == 3.4
    assert result["seeds"] == {"0": result["mean"]}
    assert result["sd"] is None
    gain = result["mean"] - base["results"]["1-shot"]["mean"]
    assert result["difference"] == dict(mean=gain, low=None, high=None, n=1)
    assert ent["settings"]["heads.count"] == 4
    for name in ("table.md", "table.csv", "figure.svg", "figure.png"):
        assert (out / name).stat().st_size > 500
    assert "9 cells, 1 seed: 9 runs" in progress
    assert "of training and measuring" in progress
    assert "ent, both" in said
    assert "1 seed" in said
    told = said[said.index("Each number is of one seed") :]
    assert "below, the difference to the base; after the word paper its own" in told
    assert "±" not in said


def test_markdown_csv_and_figures_can_be_read_by_others(whole):
    out = whole[0]
    table = json.loads((out / "table.json").read_text())
    rows = list(csv.DictReader((out / "table.csv").open()))
    assert len(rows) == 9 * 2
    assert float(rows[0]["mean"]) == table["rows"][0]["results"]["1-shot"]["mean"]
    assert rows[0]["paper_imagenet_mean"] == "40.6"
    lines = (out / "table.md").read_text().splitlines()
    grid = [line for line in lines if line.startswith("|")]
    assert len(grid) == 2 + 9 + 2 + 8  # accuracies, then differences of all but the base
    assert len({line.count("|") for line in grid[:11]}) == 1
    assert any("*(44.0 ± 0.2)*" in line for line in grid)
    assert any("of one seed, so without an interval" in line for line in lines)
    ElementTree.parse(out / "figure.svg")
    assert Image.open(out / "figure.png").size[0] > 600


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Three cells of one study, to which others add."""
    folder = tmp_path_factory.mktemp("shared")
    return folder, wessl.study("memax", out=folder / "memax", **QUICK)


def test_more_seeds_and_protocols_later_run_only_what_is_new(shared, capsys):
    folder, before = shared
    weights = {p: p.stat().st_mtime_ns for p in folder.glob("runs/*/encoder.safetensors")}
    assert len(weights) == 3
    more = QUICK | dict(seeds=2, protocols=("1-shot", "2-shot"))
    table = wessl.study("memax", out=folder / "memax", **more | dict(quiet=False))
    said = capsys.readouterr().err
    assert "6 to do, 1 at a time: roughly" in said
    assert "3 of these are trained already and only to be measured" in said
    assert {path: path.stat().st_mtime_ns for path in weights} == weights
    assert len(list(folder.glob("runs/*/encoder.safetensors"))) == 6
    old, new = (t["rows"][0]["results"]["1-shot"]["seeds"] for t in (before, table))
    assert old["0"] == new["0"]
    result = table["rows"][0]["results"]["2-shot"]
    assert result["n"] == result["difference"]["n"] == 2
    assert result["difference"]["low"] <= result["difference"]["mean"]
    print_table(table)
    said = capsys.readouterr().out
    assert "Mean ± standard deviation over the seeds; below, the difference to the base" in said
    assert " with its paired 95 % interval; " in said


@pytest.mark.parametrize(
    ("words", "seeds"),
    [("2", [0, 1]), ("3..3", [3]), ("1..2", [1, 2]), ("4 0 4", [4, 0]), ("0 2..3", [0, 2, 3])],
)
def test_seeds_are_counted_or_named_one_alone_too(words, seeds):
    asked = parse(["memax", *WORDS, "--seeds", *words.split()])
    given = read_seeds(asked.seeds)
    assert list(as_seeds(given)) == seeds


def test_one_seed_that_is_named_is_run_alone(tmp_path):
    out = tmp_path / "memax"
    command(parse(["memax", *WORDS, "--seeds", "3..3", "--parallel", "1", "--out", str(out)]))
    table = json.loads((out / "table.json").read_text())
    assert table["seeds"] == [3]
    assert all(list(row["results"]["k-NN"]["seeds"]) == ["3"] for row in table["rows"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("three", "--seeds must be whole numbers or a range as 1..4, not 'three'"),
        ("1..", "--seeds must be whole numbers or a range as 1..4, not '1..'"),
        ("1...4", "--seeds must be whole numbers or a range as 1..4, not '1...4'"),
        ("1-4", "--seeds must be whole numbers or a range as 1..4, not '1-4'"),
        ("0 1.5", "--seeds must be whole numbers or a range as 1..4, not '1.5'"),
        ("4..1", "--seeds 4..1 is empty; write 1..4"),
    ],
)
def test_seeds_that_are_none_are_refused(words, said):
    with pytest.raises(UserError, match=f"^{re.escape(said)}$"):
        parse(["memax", *WORDS, "--seeds", *words.split()])


ONE = QUICK | dict(only=("weight 5",))


def test_some_cells_alone_bring_along_what_they_are_compared_with(tmp_path):
    table = wessl.study("memax", out=tmp_path / "memax", **ONE)
    assert [row["name"] for row in table["rows"]] == ["weight 3", "weight 5"]
    assert len(list(tmp_path.glob("runs/*"))) == 2


def test_some_cells_alone_cost_a_table_none_of_its_rows(shared):
    folder, before = shared
    table = wessl.study("memax", out=folder / "memax", **ONE)
    old = {row["name"]: row["results"]["1-shot"]["seeds"]["0"] for row in before["rows"]}
    new = {row["name"]: row["results"]["1-shot"]["seeds"]["0"] for row in table["rows"]}
    assert new == old


def test_a_table_of_other_settings_is_announced_and_a_strangers_never_written_over(
    shared, tmp_path, capsys
):
    folder, _ = shared
    out = folder / "copied"
    shutil.copytree(folder / "memax", out)
    wessl.study("memax", out=out, **ONE | dict(quiet=False))
    assert "will be replaced" not in capsys.readouterr().err
    other = ONE | dict(quiet=False, only=("weight 1",), settings=TINY | {"optim.lr": 2e-3})
    wessl.study("memax", out=out, **other)
    said = capsys.readouterr().err
    assert f"note: the table in {out} (memax --size smoke epochs=1 encoder.widths=[8, 16]" in said
    assert "`optim.lr=0.002`" in (out / "table.md").read_text()

    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "table.csv").write_text("mine")
    with pytest.raises(UserError, match=r"holds table\.csv, which no study wrote"):
        wessl.study("memax", out=mine, **ONE)
    assert (mine / "table.csv").read_text() == "mine"


def test_a_table_that_loses_seeds_is_announced(shared, capsys):
    folder, _ = shared
    out, aloud = folder / "seeds", ONE | dict(quiet=False)
    for seeds, lost in (([0], []), ([0, 1], []), ([1], ["seeds 0, 1"]), ([0], ["seed 1"])):
        table = wessl.study("memax", out=out, **aloud | dict(seeds=seeds))
        assert table["seeds"] == seeds
        said = capsys.readouterr().err
        assert re.findall(r"(seeds? [\d, ]+)\) will be replaced; its runs are kept", said) == lost


@pytest.mark.parametrize(
    ("study", "settings", "words"),
    [
        ("codes", {"heads.codes": 8}, "every cell of codes has its own heads.codes"),
        ("memax", {"seed": 3}, "--seeds names the seeds"),
        ("heads", {"weighting": "margin"}, "one of your own is not known to a study's runs"),
    ],
)
def test_settings_that_would_change_nothing_are_refused(tmp_path, study, settings, words):
    with pytest.raises(UserError, match=words):
        wessl.study(study, out=tmp_path / "x", **QUICK | dict(settings=TINY | settings))
    assert not (tmp_path / "x").exists()


def test_heads_are_compared_before_slim_runs_lose_them(tmp_path, capsys):
    settings = QUICK | dict(settings=TINY | {"heads.count": 2}, slim=True)
    aloud = settings | dict(quiet=False)
    first = wessl.study("diversity", out=tmp_path / "diversity", **aloud)
    said = capsys.readouterr().err
    size, unit = re.search(r"measuring; ([\d.]+) ([kM])B stay on disk\n", said).groups()
    kept = sum(path.stat().st_size for path in tmp_path.glob("runs/*/encoder.safetensors"))
    assert float(size) * {"k": 1e3, "M": 1e6}[unit] == pytest.approx(kept, rel=0.2)
    assert all(0 < row["results"]["diversity"]["mean"] < 1 for row in first["rows"])
    assert len(first["rows"][0]["curves"]["0"]["after"]) > 1
    written = (tmp_path / "diversity" / "table.md").read_text()
    assert "The paper has figures of it and no numbers" in written
    assert "In italics" not in written
    assert not list(tmp_path.glob("runs/*/checkpoints/*"))
    weights = {p: p.stat().st_mtime_ns for p in tmp_path.glob("runs/*/encoder.safetensors")}
    again = wessl.study("diversity", out=tmp_path / "again", **settings)
    assert again["rows"] == first["rows"]
    other = wessl.study("diversity", out=tmp_path / "other", **settings | dict(draws=2))
    for row, before in zip(other["rows"], first["rows"], strict=True):
        assert row["results"]["diversity"] == before["results"]["diversity"]
        assert row["results"]["k-NN"]["mean"] == before["results"]["k-NN"]["mean"]
    assert {p: p.stat().st_mtime_ns for p in tmp_path.glob("runs/*/encoder.safetensors")} == weights


def test_runs_that_diverge_are_a_result(tmp_path):
    settings = QUICK | dict(settings=TINY | {"loss.student_temperature": 1e-45})
    table = wessl.study("memax", out=tmp_path / "memax", **settings)
    assert all(row["failures"]["0"]["diverged"] for row in table["rows"])
    assert "| weight 1 | diverged *(37.6 ± 0.2)* |" in (tmp_path / "memax/table.md").read_text()


def test_what_a_user_can_mend_is_named_plainly_and_tried_again_without_asking(
    shared, tmp_path, capsys
):
    out = tmp_path / "memax"
    words = ["memax", *WORDS, "--parallel", "1", "--out", str(out)]
    in_the_way = tmp_path / "runs" / shared[1]["rows"][2]["runs"]["0"].split("/")[-1]
    in_the_way.parent.mkdir()
    in_the_way.write_text("a file where a run belongs")
    complaint = r"1 run failed; mend this first:\nweight 5, seed 0: .*is a file, not a folder"
    with pytest.raises(Failure, match=complaint) as failure:
        command(parse(words))
    said = capsys.readouterr().err
    assert "weight 5, seed 0: failed: " in said
    assert "UserError" not in said + str(failure.value)
    assert "--retry" not in said + str(failure.value)
    assert "weight 5, seed 0" in (out / "table.md").read_text().split("Failed:")[1]

    in_the_way.unlink()
    command(parse(words))
    table = json.loads((out / "table.json").read_text())
    assert [row["results"] for row in table["rows"]] == [r["results"] for r in shared[1]["rows"]]
    assert not list(tmp_path.glob("runs/*.failed.json"))


def test_a_run_that_failed_by_itself_is_left_alone_and_retried_on_request(shared, tmp_path, capsys):
    shutil.copytree(shared[0] / "runs", tmp_path / "runs")
    run = tmp_path / "runs" / shared[1]["rows"][2]["runs"]["0"].split("/")[-1]
    shutil.rmtree(run)
    note_failure(run, "its process ended with exit code -9: it said nothing")
    words = ["memax", *WORDS, "--parallel", "1", "--out", str(tmp_path / "memax")]
    complaint = r"1 run failed; --retry tries again:\nweight 5, seed 0: its process ended"
    with pytest.raises(Failure, match=complaint):
        command(parse(words))
    assert "1 failed before; --retry tries again" in capsys.readouterr().err
    assert not run.exists()
    command(parse([*words, "--retry"]))
    table = json.loads((tmp_path / "memax" / "table.json").read_text())
    assert [row["results"] for row in table["rows"]] == [r["results"] for r in shared[1]["rows"]]
    assert not list(tmp_path.glob("runs/*.failed.json"))


def test_a_run_that_another_process_trains_is_waited_for_and_said(shared, tmp_path, capsys):
    run = wessl.Run(tmp_path / "runs" / shared[1]["rows"][0]["runs"]["0"].split("/")[-1])
    found, aloud = [], QUICK | dict(quiet=False)
    with run.locked():
        assert run.busy
        study = threading.Thread(
            target=lambda: found.append(wessl.study("memax", out=tmp_path / "memax", **aloud))
        )
        study.start()
        time.sleep(8)
        assert study.is_alive()
    study.join()
    said = capsys.readouterr().err
    assert "1 of these is being trained by another process, which is waited for; this" in said
    assert re.search(r"^1/3 .* \(about .* left\)$", said, re.MULTILINE)
    assert re.search(r"^3/3 [^(]*$", said, re.MULTILINE)
    assert not run.busy
    assert found[0]["rows"] == shared[1]["rows"]


def pictures(folder, count, mixed=False):
    """Light and dark ones; half of them in the wrong folder where they are mixed."""
    rng = np.random.default_rng(len(folder.parts))
    for i in range(count):
        place = folder / ("light" if (i // 2 if mixed else i) % 2 else "dark")
        place.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 128, (8, 8)) + 127 * (i % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(place / f"{i}.png")


def test_transfer_measures_other_datasets_and_their_mean(tmp_path):
    for name in ("one", "two"):
        for part in ("train", "test"):
            pictures(tmp_path / name / part, 16)
    others = [tmp_path / "one", tmp_path / "two"]
    table = wessl.study("transfer", out=tmp_path / "t" / "transfer", transfer=others, **UNASKED)
    for row in table["rows"]:
        values = [row["results"][name]["mean"] for name in ("one", "two", "mean")]
        assert values[2] == pytest.approx((values[0] + values[1]) / 2)
        assert values[0] > 90  # bright against dark
    with pytest.raises(UserError, match="needs --transfer"):
        wessl.study("transfer", out=tmp_path / "t" / "transfer", **UNASKED)


def test_the_mean_is_of_the_datasets_asked_for_whatever_was_measured_before(tmp_path, capsys):
    for i, name in enumerate(("one", "two", "three", "other/one")):
        for part in ("train", "test"):
            pictures(tmp_path / name / part, 16, mixed=i > 1)

    def means(*names):
        found = wessl.study(
            "transfer",
            out=tmp_path / "t" / "transfer",
            **UNASKED | dict(only=["DINO*"], transfer=[tmp_path / n for n in names], quiet=False),
        )
        (row,) = (row for row in found["rows"] if row["name"] == "DINO*")
        return {name: result["mean"] for name, result in row["results"].items()}

    before = means("one", "two")
    assert f"mean {before['mean']:.1f}" in capsys.readouterr().err
    more = means("one", "two", "three")
    assert more["mean"] == pytest.approx((more["one"] + more["two"] + more["three"]) / 3)
    assert more["mean"] < before["mean"]
    capsys.readouterr()
    assert means("one", "two") == before
    assert "finished already" in capsys.readouterr().err
    assert means("one") == {"one": before["one"]}
    assert means("other/one")["one"] < before["one"]


def test_overhead_measures_time_and_memory_instead_of_accuracy(tmp_path, capsys):
    settings = UNASKED | dict(epochs=None, draws=None)
    table = wessl.study("overhead", out=tmp_path / "overhead", **settings)
    assert [row["x"] for row in table["rows"]] == [1, 4, 16]
    for row in table["rows"]:
        assert row["results"]["time"]["mean"] > 0
        assert row["results"]["memory"]["mean"] > 0
    assert table["rows"][2]["results"]["time"]["difference"] is not None
    assert (tmp_path / "overhead" / "figure.png").exists()
    print_table(table)
    said = capsys.readouterr().out
    assert len(re.findall(r"[+-]\d+\.\d+ %", said)) == 4  # of two cells, time and memory
    written = (tmp_path / "overhead" / "table.md").read_text()
    assert "at size `smoke` a small network; 16 pictures a step on one device, 32 codes" in written
    assert "In italics" not in written  # the paper measured B/16 alone


def test_the_python_side_needs_no_command_line_package():
    code = "import sys, wessl; wessl.study.run_study; assert 'tyro' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_list_explains_every_study(capsys):
    command(parse(["list"]))
    said = capsys.readouterr().out
    assert all(name in said for name in STUDIES)
    assert "--size paper" in said


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["where-hwo"], "study 'where-hwo' is unknown; did you mean 'where-how'"),
        (["where-how", "--size", "small"], "--size small needs pictures"),
        (["where-how", "/nowhere"], "/nowhere does not exist"),
        (["where-how", "--test", "builtin://digits/test"], "--test needs --train"),
        (["where-how", "flat"], "flat has no labels"),
        (["where-how", "half"], "neither test/ nor val/"),
        (["where-how", "--protocols", "0-shot"], "--protocols '0-shot' is unknown"),
        (
            ["where-how", "--only", "nobody"],
            "--only 'nobody' is no cell of the study; it has 'base'",
        ),
        (["codes", "--only", "2 heads"], "'{m} heads, {c} codes .few.*; write numbers for {m}"),
        (["codes", "--only", "7 heads, 32 codes (many)"], "has .* '4 heads, 32 codes .many.'$"),
        (["where-how", "--set", "depth"], "write NAME=VALUE"),
        (["where-how", "--set", "nonsense=3"], "unknown setting 'nonsense'"),
        (["where-how", "--set", "epochs=3"], "--epochs sets the length"),
        (["where-how", "--set", "batch_size=5000"], "a batch of 5000 cannot be drawn"),
        (["where-how", "--parallel", "0"], "--parallel must be at least 1"),
        (["overhead", "--protocols", "k-NN"], "--protocols would change nothing: .* time and memo"),
        (["overhead", "--epochs", "3", "--draws", "3"], "--epochs and --draws would change not"),
        (["transfer", "--protocols", "k-NN"], "--protocols would change nothing: .* --transfer"),
        (["where-how", "--device", "tpu9"], "--device 'tpu9' is not a device"),
    ],
)
def test_a_users_mistake_is_named_before_anything_runs(tmp_path, monkeypatch, words, complaint):
    monkeypatch.chdir(tmp_path)
    pictures(tmp_path / "half" / "train", 4)
    (tmp_path / "flat").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "flat" / "one.png")
    Image.new("L", (8, 8)).save(tmp_path / "flat" / "two.png")
    with pytest.raises(UserError, match=complaint):
        command(parse(words))
    assert not (tmp_path / "studies").exists()
