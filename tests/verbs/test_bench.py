"""What is measured, that both ways compute the same, and how two measurements compare."""

import copy
import io
import itertools
import json
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

import wessl
from wessl import matrix_products
from wessl.bench import loading
from wessl.bench.baseline import Baseline
from wessl.bench.loading import measure_loading
from wessl.bench.memory import peak_bytes
from wessl.bench.pictures import pictures
from wessl.bench.record import compare, differences, made, read
from wessl.bench.steps import (
    HEADS,
    Subject,
    batch_shape,
    build_trainer,
    drawings,
    ours,
    photographs,
    plain_step,
    quick_on_gpu,
    transformer,
    transformer_on_gpu,
    views_of,
)
from wessl.bench.table import cells, compared_lines, in_short, measured_lines
from wessl.bench.turns import Measured, in_turns
from wessl.config import Options
from wessl.devices import busy_cores, has_bf16
from wessl.errors import Failure, UserError
from wessl.settings import override

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "new" / "found.json"
    said: list[str] = []
    found = wessl.bench(device="cpu", json=path, quick=True, say=said.append)
    assert said
    return path, found


def rows_of(found, section):
    return [row for row in found["rows"] if row["section"] == section]


def scale(row, factor):
    row["seconds"] *= factor
    row["rounds"] = [factor * seconds for seconds in row["rounds"]]


def test_every_part_stands_beside_the_plain_way(measured):
    _, found = measured
    precisions = ("fp32", "bf16") if has_bf16(CPU) else ("fp32",)
    for m, precision in itertools.product(HEADS, precisions):
        sizes = f"{precision}, batch"
        alike = [
            row
            for row in rows_of(found, "step")
            if sizes in row["subject"] and row["subject"].endswith(f"m = {m}")
        ]
        assert [row["way"] for row in alike] == 3 * ["wessl", "plain step"]
        assert all(row["facts"]["bytes"] > 0 for row in alike)
    assert {row["way"] for row in rows_of(found, "views")} == {"wessl"}  # no kernels on a CPU
    assert {row["way"] for row in rows_of(found, "loader")} == {"wessl", "PIL, one process"}
    assert {row["way"] for row in rows_of(found, "few-shot")} == {"wessl", "scikit-learn"}


def test_every_number_is_the_median_of_its_rounds(measured):
    _, found = measured
    for row in found["rows"]:
        assert len(row["rounds"]) >= 2
        assert min(row["rounds"]) <= row["seconds"] <= max(row["rounds"])
        assert row["items"] > 0


def test_the_few_shot_solvers_reach_the_same_optimum(measured):
    _, found = measured
    for row in rows_of(found, "few-shot"):
        assert row["facts"]["excess"] < 1e-3, row["way"]


def test_the_file_holds_what_was_returned_and_says_where_it_was_measured(measured):
    path, found = measured
    assert json.loads(path.read_text()) == found
    assert found["machine"]["device"] == "CPU"
    assert found["machine"]["cores"] >= 1
    assert found["versions"]["torch"] == torch.__version__
    assert found["settings"]["quick"] is True
    assert date.fromisoformat(found["made"]["day"]) <= datetime.now(UTC).date()
    assert [child.name for child in path.parent.iterdir()] == ["found.json"]


def test_a_record_says_by_what_and_of_which_code_it_was_made(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/bin/wessl", "bench", "--json", "a file.json"])
    told = made()
    assert told["command"] == "wessl bench --json 'a file.json'"
    if not (ROOT / ".git").exists():
        assert told["commit"] is None
        return
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=ROOT)
    short = told["commit"].removesuffix("-dirty")
    assert len(short) >= 7
    assert head.stdout.startswith(short)


def test_whoever_stops_a_measurement_keeps_what_was_measured(tmp_path, monkeypatch, capsys):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("wessl.bench.suite.measure_views", stop)
    (tmp_path / "found.json").write_text("what was found before")
    with pytest.raises(KeyboardInterrupt):
        wessl.bench(device="cpu", json=tmp_path / "found.json", quick=True)
    found = read(tmp_path / "found.json.part")
    assert {row["section"] for row in found["rows"]} == {"step"}
    assert (tmp_path / "found.json").read_text() == "what was found before"
    printed = capsys.readouterr().out
    assert "m = 16" in printed
    assert "what was measured so far is in" in printed


def test_parts_are_measured_by_name_and_compared_with_all_of_then(measured, capsys):
    path, whole = measured
    found = wessl.bench(device="cpu", quick=True, only=["VIEWS", "few-shot"], compare=path)
    sections = [row["section"] for row in whole["rows"] if row["section"] in ("views", "few-shot")]
    assert [row["section"] for row in found["rows"]] == sections
    of_these = len([row for row in found["rows"] if row["way"].startswith("wessl")])
    assert f"of our {of_these} numbers are worse" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"--only 'view ' is in no part.*; loader: pictures from"):
        wessl.bench(device="cpu", quick=True, only=["views", "view "])


def test_ways_that_did_different_amounts_are_compared_by_the_item():
    many, few = (Measured("loader", "files", way, [2.0], n) for way, n in (("a", 800), ("b", 200)))
    assert cells(many, few)[2] == "4.00x"
    loader = dict(section="loader", subject="files", way="a", facts={})
    then, now = (
        [dict(loader, seconds=s, rounds=[s], items=n)] for s, n in ((80.0, 8192), (5.0, 512))
    )
    (change,) = compare(dict(rows=then), dict(rows=now))
    assert change.ratio == 1


def test_a_step_tells_its_share_of_what_the_device_can_do(measured):
    _, found = measured
    work: dict[str, list[float]] = {}
    for row in rows_of(found, "step"):
        known = row["facts"].get("mfu") or row["facts"]["of_products"]
        assert known > 0
        work.setdefault(row["subject"], []).append(known * row["seconds"])
    for ours_and_plain in work.values():  # as many operations, whoever takes how long for them
        assert ours_and_plain == pytest.approx([ours_and_plain[0]] * 2)
    heads = [subject for subject in work if ", fp32," in subject and "ViT" in subject]
    assert sorted(heads, key=lambda s: work[s][0]) == sorted(
        heads, key=lambda s: int(s.split()[-1])
    )


def test_a_measurement_compared_with_itself_has_no_change(measured):
    path, found = measured
    changes = compare(read(path), found)
    of_steps = len(rows_of(found, "step"))
    assert len(changes) == len(found["rows"]) + of_steps  # time, and of steps memory too
    assert all(change.ratio == 1 and not change.worse for change in changes)
    assert differences(read(path), found) == []


def test_what_got_more_than_five_percent_worse_is_marked(measured):
    _, old = measured
    new = copy.deepcopy(old)
    old = copy.deepcopy(old)
    for row in old["rows"]:
        row["rounds"] = [row["seconds"]] * 3
    own = [row for row in new["rows"] if row["way"].startswith("wessl")]
    slow, bearable, quick, large = own[:4]
    for row in new["rows"]:
        row["rounds"] = [row["seconds"]] * 3
    scale(slow, 1.06)
    scale(bearable, 1.04)
    scale(quick, 0.5)
    large["facts"]["bytes"] *= 2
    worse = [(c.subject, c.way, c.what) for c in compare(old, new) if c.worse]
    assert worse == [
        (slow["subject"], slow["way"], "time"),
        (large["subject"], large["way"], "memory"),
    ]
    ratios = {(c.subject, c.way): c.ratio for c in compare(old, new) if c.what == "time"}
    assert ratios[quick["subject"], quick["way"]] == pytest.approx(0.5)


def test_a_time_within_three_quarters_of_the_rounds_of_then_is_not_marked(measured):
    _, old = measured
    old = copy.deepcopy(old)
    for row in old["rows"]:
        row["rounds"] = [row["seconds"]] * 5
    scattered = (0.9, 0.9, 1.0, 1.3, 9.0)
    old["rows"][0]["rounds"] = [times * old["rows"][0]["seconds"] for times in scattered]
    for times, marked in ((1.2, False), (1.4, True)):
        new = copy.deepcopy(old)
        scale(new["rows"][0], times)
        change = compare(old, new)[0]
        assert (change.worse, change.what) == (marked, "time")


def test_what_a_busy_machine_does_to_both_ways_alike_is_not_marked(measured):
    _, old = measured
    old = copy.deepcopy(old)
    new = copy.deepcopy(old)
    ours, plain = rows_of(new, "few-shot")[:2]
    for row in (ours, plain):
        scale(row, 100)
    found = {c.way: c for c in compare(old, new) if c.subject == ours["subject"]}
    assert found["wessl"].ratio == pytest.approx(100)
    assert found["wessl"].beside == pytest.approx(1)
    assert not any(change.worse for change in found.values())


def test_load_is_seen_in_what_has_no_plain_way_by_the_one_measured_before_it(measured):
    _, old = measured
    old = copy.deepcopy(old)
    for row in old["rows"]:
        row["rounds"] = [row["seconds"]] * 3
    new = copy.deepcopy(old)
    views = rows_of(new, "views")[0]
    before = new["rows"][: new["rows"].index(views)]
    plain = [row for row in before if not row["way"].startswith("wessl")][-1]
    scale(views, 2)
    (alone,) = [c for c in compare(old, new) if c.subject == views["subject"]]
    assert (alone.beside, alone.worse) == (pytest.approx(2), True)
    scale(plain, 2)
    (loaded,) = [c for c in compare(old, new) if c.subject == views["subject"]]
    assert (loaded.ratio, loaded.beside) == (pytest.approx(2), pytest.approx(1))
    assert not loaded.worse


def test_every_line_fits_a_narrow_terminal(measured):
    _, found = measured
    rows = [Measured(**{k: v for k, v in row.items() if k != "seconds"}) for row in found["rows"]]
    terminal = Console(width=80, file=io.StringIO(), markup=False)
    terminal.print(*measured_lines(rows), sep="\n")
    slower = copy.deepcopy(found)
    for row in rows_of(slower, "step")[::2]:
        scale(row, 3)
    terminal.print(*compared_lines(compare(found, slower)), sep="\n")
    assert "\N{HORIZONTAL ELLIPSIS}" not in terminal.file.getvalue()
    assert "excess" in terminal.file.getvalue()
    assert "(3.00)" in terminal.file.getvalue()


def test_a_comparison_shows_what_has_changed_and_counts_the_rest(measured):
    _, old = measured
    assert len(list(compared_lines(compare(old, old)))) == 1
    new = copy.deepcopy(old)
    for row in new["rows"]:
        row["rounds"] = [row["seconds"]] * len(row["rounds"])
    scale(rows_of(new, "views")[0], 2)
    changes = compare(old, new)
    title, _, counted = compared_lines(changes)
    assert str(title) == f"views: {rows_of(new, 'views')[0]['subject']}"
    assert counted == f"{len(changes) - 1} of {len(changes)} numbers have changed by less than 5 %"


def step(precision, way, seconds):
    return Measured("step", f"net, {precision}, batch 4, m = 1", way, [seconds] * 3, 4)


def test_in_short_ours_stands_beside_the_plain_step_of_either_precision():
    rows = [
        step("fp32", "wessl", 2.0),
        step("fp32", "plain step", 4.0),
        step("bf16", "wessl", 1.0),
        step("bf16", "plain step", 1.5),
    ]
    assert set(in_short(rows)) == {
        "in fp32 2.00 times as fast as a plain step in fp32",
        "in bf16 4.00 times as fast as a plain step in fp32",
        "in bf16 1.50 times as fast as a plain step in bf16",
    }
    assert list(in_short(rows[2:])) == ["in bf16 1.50 times as fast as a plain step in bf16"]


def test_in_short_the_most_heads_stand_beside_one():
    def step_of(m, seconds, mib):
        subject = f"net, fp32, batch 4, m = {m}"
        return Measured("step", subject, "wessl", [seconds] * 3, 4, dict(bytes=mib * 2**20))

    rows = [step_of(1, 2.0, 100), step_of(4, 2.1, 110), step_of(16, 3.0, 250)]
    assert list(in_short(rows)) == [
        "16 heads take 1.50 times the time and 2.50 times the memory of one"
    ]
    assert list(in_short(rows[:1])) == []


def test_no_part_of_a_row_is_cut_off_at_eighty_columns():
    facts = dict(bytes=28_091 * 2.0**20, mfu=0.43)
    row = Measured("step", "x", "PIL, one process", [12.3, 4.0], 64_000, facts)
    terminal = Console(width=80, file=io.StringIO(), markup=False)
    terminal.print(*measured_lines([row, row]), sep="\n")
    printed = " ".join(terminal.file.getvalue().split())
    for told in (row.way, *cells(row, row)[:2], "uneven, 28,091 MiB, MFU 43%"):
        assert told in printed


def test_the_plain_step_has_no_product_of_ours(monkeypatch):
    monkeypatch.setattr(matrix_products, "_quicker", lambda: True)
    monkeypatch.setattr(matrix_products, "WORTHWHILE", 0)
    subject = transformer(quick=True).with_heads(2)
    views = views_of(subject, CPU)
    for way, wanted in ((ours, True), (plain_step, False)):
        work = way(subject, CPU, views)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            work()
        names = {event.name for event in profile.events()}
        assert ("mkldnn::_linear_pointwise" in names) == wanted


def test_rounds_that_differ_and_work_that_differs_are_told():
    quick, slow = (
        Measured("step", "x", way, [1.0, 1.0, t], 4) for way, t in (("a", 1.4), ("b", 2))
    )
    assert ["uneven" in cells(row, slow)[3] for row in (quick, slow)] == [False, True]
    assert cells(quick, slow, same_work=False)[0] == ""
    assert cells(quick, slow)[0] == "1,000.0 ms"


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="only Linux tells")
def test_other_programs_are_told_before_anything_is_measured(monkeypatch, capsys):
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        busy = busy_cores(0.5)
        other.kill()
    assert busy > 0.3
    monkeypatch.setattr("wessl.verbs.bench.busy_cores", lambda: 1.5)
    monkeypatch.setattr("wessl.verbs.bench.parts", lambda *_: [])
    wessl.bench(device="cpu", quick=True)
    assert "warning: other programs keep 1.5 of" in capsys.readouterr().out


def test_other_sizes_are_not_compared_and_another_machine_is_named(measured):
    _, old = measured
    new = copy.deepcopy(old)
    new["rows"][0]["subject"] = "something else"
    new["machine"]["cores"] = 1024
    subjects = {change.subject for change in compare(old, new)}
    assert "something else" not in subjects
    (said,) = differences(old, new)
    assert "cores" in said
    assert "1024" in said


def test_a_file_that_cannot_be_compared_is_refused_before_anything_is_measured(measured, tmp_path):
    missing, broken, other = (tmp_path / name for name in ("missing", "broken", "other"))
    broken.write_text("{")
    other.write_text('{"format": 99, "rows": []}')
    broken_ones = {}
    for part, instead in (("settings", None), ("facts", None), ("rounds", None), ("rounds", [])):
        found = copy.deepcopy(measured[1])
        (found if part == "settings" else found["rows"][0])[part] = instead
        path = tmp_path / f"{part} {instead}"
        path.write_text(json.dumps(found))
        broken_ones[path] = "not a file"
    told = {missing: "does not exist", broken: "not a file", other: "format 99", **broken_ones}
    for path, words in told.items():
        with pytest.raises(UserError, match=words) as refused:
            wessl.bench(device="cpu", compare=path, say=lambda words: pytest.fail("measured"))
        assert "--compare" in str(refused.value)


def test_what_cannot_be_compared_or_written_is_refused_before_anything_is_measured(
    measured, tmp_path
):
    _, found = measured
    before = tmp_path / "before.json"
    before.write_text(json.dumps(found))
    said: list[str] = []
    with pytest.raises(UserError, match="was measured with --quick, and this is without it"):
        wessl.bench(device="cpu", compare=before, say=said.append)
    with pytest.raises(UserError, match=r"--json .* is a folder; name a file in it"):
        wessl.bench(device="cpu", json=tmp_path, quick=True, say=said.append)
    with pytest.raises(
        UserError, match=r"--json .* cannot be written .*before.json.; name another"
    ):
        wessl.bench(device="cpu", json=before / "x.json", quick=True, say=said.append)
    of_a_gpu = tmp_path / "gpu.json"
    of_a_gpu.write_text(json.dumps(found | dict(settings=dict(device="cuda:0", quick=True))))
    with pytest.raises(UserError, match="was measured on cuda, and this is cpu"):
        wessl.bench(device="cpu", compare=of_a_gpu, quick=True, say=said.append)
    with pytest.raises(UserError, match="--device"):
        wessl.bench(device="gpu", json=tmp_path / "new" / "x.json", quick=True, say=said.append)
    assert said == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["before.json", "gpu.json"]


def test_a_refusal_leaves_what_was_measured_before_a_stop(measured, tmp_path):
    part = tmp_path / "found.json.part"
    part.write_text("half of it")
    with pytest.raises(UserError, match="does not exist"):
        wessl.bench("cpu", json=tmp_path / "found.json", compare=tmp_path / "none", quick=True)
    assert part.read_text() == "half of it"


def test_a_full_disk_is_told_before_it_is_full(monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=10_000))
    with pytest.raises(Failure, match=r"10,000 bytes free.* set TMPDIR to a folder on a larger"):
        measure_loading(CPU, 48, 16, seconds=0.1)


def test_what_is_asked_of_the_disk_is_what_is_written(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    most, build = [], loading.build_cache

    def recorded(source, side, folder):
        cache = build(source, side, folder)
        files = [p for p in tmp_path.rglob("*") if p.is_file()]
        most.append(sum(p.stat().st_size for p in files))
        return cache

    monkeypatch.setattr(loading, "build_cache", recorded)
    monkeypatch.setattr(loading, "wait_for_disk", lambda: None)
    loading.measure_loading(CPU, 48, 16, seconds=0.1)
    needed = loading.bytes_needed(48, 375, 500)
    assert 0.5 * needed < max(most) < needed


def test_out_of_memory_is_told_in_words_on_a_cpu_too(monkeypatch):
    def greedy(*_, **__):
        return torch.empty(2**46)

    monkeypatch.setattr("wessl.bench.suite.measure_steps", greedy)
    with pytest.raises(Failure, match="out of memory on cpu"):
        wessl.bench(device="cpu", quick=True)


@pytest.mark.parametrize(("free", "batch"), [(141e9, 256), (24e9, 64), (8e9, 16)])
def test_a_smaller_gpu_is_given_fewer_pictures(free, batch):
    subject = transformer_on_gpu("bf16", Options(), free)
    assert subject.config.optim.batch_size == batch
    assert subject.with_heads(4).name == f"ViT-S/16, 2x224 + 10x96, bf16, batch {batch}, m = 4"


def test_a_gpu_without_bf16_is_measured_in_fp32():
    for subject in (
        transformer_on_gpu("fp32", Options(), 16e9),
        quick_on_gpu(Options()).in_precision("fp32"),
    ):
        assert subject.config.precision == "fp32"
        assert ", fp32, batch" in subject.with_heads(1).name


def test_the_plain_step_in_bf16_computes_in_bf16():
    subject = transformer(quick=True).in_precision("bf16")
    trainer = build_trainer(subject, CPU)
    seen = set()
    baseline = Baseline(subject.config, trainer.student)
    for module in baseline.student.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda m, given, out: seen.add(out.dtype))
    batch = pictures(*batch_shape(subject.config), CPU)
    views = trainer.prepare(torch.arange(len(batch)), batch)
    theirs = baseline.train_step(views, trainer.now())
    trainer.train_step(views)
    assert seen == {torch.bfloat16}
    torch.testing.assert_close(trainer.meter.sums[2].float(), theirs, rtol=2e-3, atol=0)


@pytest.mark.parametrize("m", HEADS)
@pytest.mark.parametrize(
    "subject", [drawings(quick=True), photographs(quick=True), transformer(quick=True)]
)
def test_both_ways_take_the_same_steps(subject: Subject, m):
    config = override(subject.config, {"heads.count": m, "lr_start": 1e-3, "momentum": 0.9})
    trainer = build_trainer(Subject(subject.name, config), CPU)
    baseline = Baseline(config, trainer.student)
    batch = pictures(*batch_shape(config), CPU)
    for step in range(4):
        views, now = trainer.prepare(torch.arange(len(batch)), batch), trainer.now()
        theirs = baseline.train_step(views, now)
        before = trainer.meter.sums[2].clone()
        trainer.train_step(views)
        ours = trainer.meter.sums[2] - before
        # AdamW's first steps turn rounding near 0 into whole steps.
        near = 1e-4 if step else 1e-5
        torch.testing.assert_close(ours, theirs, rtol=near, atol=0, msg=f"step {step}")
    moved = apart = 0.0
    start = build_trainer(Subject("", config), CPU).teacher.encoder.parameters()
    ours, theirs = (x.teacher.encoder.parameters() for x in (trainer, baseline))
    for first, a, b in zip(start, ours, theirs, strict=True):
        moved += float((a - first).square().sum())
        apart += float((a - b).square().sum())
    assert apart < 1e-5 * moved


@pytest.mark.parametrize(
    "training", [drawings(quick=True), photographs(quick=True), transformer(quick=True)]
)
def test_fifty_steps_in_bf16_follow_plain_ones_in_fp32(training: Subject):
    config = override(training.config, {"heads.count": 4, "lr": 3e-4, "warmup_epochs": 0.02})
    if config.encoder.kind == "vit":
        small = {"encoder.dim": 64, "encoder.heads": 2, "batch_size": 16, "codes": 64}
        config = override(config, {**small, "momentum": 0.9})
    rounded = build_trainer(Subject("", config).in_precision("bf16"), CPU)
    exact = build_trainer(Subject("", config), CPU)  # for its views and its weights
    baseline = Baseline(config, exact.student)
    pictured = pictures(*batch_shape(config), CPU)
    batch = torch.arange(len(pictured)), pictured
    plain, fast = [], []
    for step in range(50):
        exact.step = step
        plain.append(float(baseline.train_step(exact.prepare(*batch), exact.now())))
        before = rounded.meter.sums[2].clone()
        rounded.train_step(rounded.prepare(*batch))
        fast.append(float(rounded.meter.sums[2] - before))
    assert min(plain) < 0.97 * plain[0]  # something is learnt
    assert fast != plain
    assert fast == pytest.approx(plain, rel=3e-3)


def test_the_plain_step_refuses_what_it_does_not_do():
    config = override(drawings(quick=True).config, {"weighting": "prob"})
    trainer = build_trainer(Subject("", config), CPU)
    with pytest.raises(ValueError, match="DINO"):
        Baseline(config, trainer.student)


def test_works_take_turns_and_the_warm_up_does_not_count():
    order: list[str] = []
    works = {name: (lambda name=name: order.append(name)) for name in "ab"}
    times = in_turns(works, CPU, seconds=0, least=3, most=9, warm=1)
    assert "".join(order) == "abababab"
    assert [len(rounds) for rounds in times.values()] == [3, 3]


def test_peak_memory_counts_what_lives_at_a_time():
    def work():
        first = torch.zeros(1000)
        del first
        return torch.zeros(2000), torch.zeros(3000)

    assert 4 * 5000 <= peak_bytes(work, CPU) < 4 * 5500
