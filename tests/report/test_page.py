"""The page as text: what it says, what it leaves out, and that text from outside stays text."""

import json
import os
import re
from html.parser import HTMLParser

import pytest
import runs
from scipy import stats

from wessl.errors import UserError
from wessl.report.collect import collect, transferred
from wessl.report.page import page
from wessl.report.story import read
from wessl.report.words import heads_words

EVIL = '<script>alert("1")</script><img src=x onerror=alert(2)>'


class Reader(HTMLParser):
    """Elements with their attributes, and the text a person sees."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.words, self.inside = [], [], []
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in ("img", "meta"):
            self.inside.append(tag)

    def handle_endtag(self, tag):
        assert self.inside.pop() == tag

    def handle_data(self, data):
        if self.inside and self.inside[-1] not in ("script", "style"):
            self.words.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def report(*paths):
    return Reader(page(read(paths)))


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (None, "16 heads of 128 codes each, weighted “ent”"),
        ("codebook", "16 heads with one codebook of 128 codes in common, weighted “ent”"),
        ("projection", "16 codebooks of 128 codes over one projection, weighted “ent”"),
    ],
)
def test_what_heads_have_in_common_is_told(share, words):
    heads = dict(count=16, codes=128, share=share)
    assert heads_words(heads, dict(weighting="ent")).startswith(words)
    assert "common" not in heads_words(heads | dict(count=1), {})


def test_a_run_is_told_in_words(tmp_path):
    run = runs.make_run(tmp_path / "run", results=runs.everything())
    text = report(run).text
    assert "k-NN accuracy rose from 50.0 % after 1 epoch to 75.0 % after 10 epochs." in text
    assert re.search(r"1-shot accuracy on the test pictures is 60\.\d %, against 40.0 % for", text)
    assert "ViT-Small/16" in text
    assert "4 heads of 64 codes each, weighted “ent”" in text
    assert "500 colour pictures of photos" in text
    assert "2 pictures could not be read" in text
    assert "wessl pretrain photos --out run" in text
    assert "The heads differ." in text


@pytest.mark.parametrize(
    ("right", "pictures", "words"),
    [
        (
            (22, 25),
            48,
            "went from 45.8 % after 1 epoch to 52.1 % after 10 epochs, which may be chance",
        ),
        ((22, 40), 48, "rose from 45.8 % after 1 epoch to 83.3 % after 10 epochs"),
        ((1042, 916), 2000, "fell from 52.1 % after 1 epoch to 45.8 % after 10 epochs"),
        (
            (0, 1),
            1,
            "went from 0.0 % after 1 epoch to 100.0 % after 10 epochs, which may be chance",
        ),
    ],
)
def test_accuracy_rose_or_fell_only_beyond_chance(tmp_path, right, pictures, words):
    shares = [n / pictures for n in right]
    probes = [runs.probe(at, a, pictures=pictures) for at, a in zip((10, 100), shares, strict=True)]
    text = report(runs.make_run(tmp_path / "run", [runs.row(10), *probes, runs.row(100)])).text
    of = f"of {pictures:,} picture" + "s" * (pictures > 1)
    assert f"k-NN accuracy {of} {words}." in text
    assert f"k-NN while training {of}" in text


def test_runs_whose_probes_differ_by_chance_are_said_to(tmp_path):
    paths = [
        runs.make_run(tmp_path / name, [runs.row(100), runs.probe(100, n / 48, pictures=48)])
        for name, n in (("one", 22), ("two", 26), ("three", 6))
    ]
    words = "k-NN accuracy of 48 pictures at the end is highest for two, 54.2 %: "
    assert words + "8.3 points more than for one, within chance." in report(*paths[:2]).text
    assert words + "41.7 points more than for three." in report(*paths[1:]).text


def test_every_tag_closes_and_nothing_points_outside(tmp_path):
    found = report(runs.make_run(tmp_path / "run", results=runs.everything()))
    assert found.inside == []
    for _, attributes in found.elements:
        for name in ("src", "href", "action", "srcset", "data"):
            assert attributes.get(name, "#").startswith(("data:image/", "#"))
        assert "url(" not in attributes.get("style", "")


def test_text_from_names_labels_and_commands_stays_text(tmp_path):
    results = runs.everything(label=EVIL)
    results["diversity"]["gallery"]["7"]["name"] = EVIL
    results["diversity"]["summary"] = EVIL
    results["evaluation"]["rows"][0]["name"] = EVIL
    results["evaluation"]["columns"][0] = EVIL
    path = runs.make_run(tmp_path / "a <script>alert(3)<", results=results, log=[f"health: {EVIL}"])
    header = json.loads((path / "config.json").read_text())
    header["command"] = header["data"]["location"] = header["config"]["recipe"] = EVIL
    header["choices"][0] |= dict(setting=EVIL, value=EVIL, reason=EVIL)
    header["versions"] = {EVIL: EVIL}
    (path / "config.json").write_text(json.dumps(header))
    for found in (report(path), report(path, runs.make_run(tmp_path / "other"))):
        assert len(found.all("script")) == 1
        assert not any("onerror" in attributes for _, attributes in found.elements)
        assert EVIL in found.text
    policy = next(m["content"] for m in found.all("meta") if "content" in m)
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy


def test_a_picture_that_is_none_is_left_out(tmp_path):
    results = runs.everything()
    for one in results["gallery"]["samples"]:
        one["thumbnail"] = "https://example.org/spy.png"
    results["gallery"]["attention"]["samples"][0]["mean"] = "javascript:alert(1)"
    results["diversity"]["gallery"]["7"]["thumbnail"] = 'data:image/png;base64,x" onload="alert(1)'
    found = report(runs.make_run(tmp_path / "run", results=results))
    assert all(image["src"].startswith("data:image/png;base64,") for image in found.all("img"))
    assert not any("onload" in image for image in found.all("img"))


def test_absent_parts_name_the_command_that_makes_them(tmp_path):
    folder = tmp_path / "my run"
    text = report(runs.make_run(folder, rows=[runs.row(10)])).text
    assert f"wessl evaluate '{folder}' --train DIR --test DIR" in text
    assert f"wessl diversity '{folder}' photos" in text
    assert "--probe DIR" in text


def test_a_run_that_has_just_begun_has_a_page(tmp_path):
    text = report(runs.make_run(tmp_path / "run", rows=[], finished=False)).text
    assert "This run has recorded nothing yet." in text
    assert "No metrics yet" in text


def test_only_without_an_evaluation_nothing_says_how_good_the_features_are(tmp_path):
    unknown = "nothing here says yet how good the features are"
    bare = runs.make_run(tmp_path / "bare", rows=[runs.row(100)])
    assert unknown in report(bare).text
    tested = runs.make_run(tmp_path / "run", rows=[runs.row(100)], results=runs.everything())
    assert unknown not in report(tested).text


def test_an_unfinished_run_says_so(tmp_path):
    text = report(runs.make_run(tmp_path / "run", rows=[runs.row(40)], finished=False)).text
    assert "Unfinished: 40 % of the steps are done." in text
    assert "40 of 100 steps" in text
    assert "Where training is" in text


def test_the_speed_told_is_the_usual_one_not_the_last(tmp_path):
    """The last row of a run may hold the wait for a checkpoint."""
    speeds = dict(zip((10, 20, 30, 40, 50), (14, 19, 18, 20, 6), strict=True))
    rows = [runs.row(step, images_per_second=float(speed)) for step, speed in speeds.items()]
    text = report(runs.make_run(tmp_path / "run", rows=rows)).text
    assert "18 pictures a second" in text


def test_missing_and_impossible_numbers_are_drawn_as_gaps(tmp_path):
    nothing = dict.fromkeys(("loss", "teacher_entropy", "rank", "images_per_second", "ms"))
    rows = [runs.row(10), runs.row(20, **nothing), runs.row(30, loss=float("nan"), rank=1e300)]
    rows += [{"step": 40, "loss": 2.0, "codes_used": "?"}, runs.probe(40, None)]
    path = runs.make_run(tmp_path / "run", rows=rows)
    found = report(path)
    assert all("nan" not in path["d"] for path in found.all("path"))
    drawn = [a["aria-label"].split(".")[0] for a in found.all("svg") if "aria-label" in a]
    assert drawn == ["Loss", "Teacher entropy", "Effective rank", "Speed", "Waiting for data"]
    assert not re.search("(nan|inf|None)<", page(read([path])))


def test_strange_results_are_passed_over(tmp_path):
    strange = {
        "demo": {"1-shot": {"accuracy": 0.5}},
        "other": {"kind": "of another age", "rows": 3},
        "gallery": {"kind": "gallery", "samples": None, "attention": []},
        "diversity": {
            "kind": "diversity",
            "curves": None,
            "per_head": None,
            "scores": [[1], [2, 3]],
        },
        "evaluation": {"kind": "evaluation", "columns": None, "rows": None, "per_class": None},
    }
    path = runs.make_run(tmp_path / "run", results=strange)
    (path / "results" / "broken.json").write_text('{"kind": "gall')
    (path / "results" / "list.json").write_text("[1, 2]")
    text = report(path).text
    assert "Result not shown: broken.json" in text


def test_one_head_has_nothing_to_compare(tmp_path):
    results = runs.everything()
    results["diversity"] |= dict(score=None, curves=None, shown=[], agreement=None, disagreed=[])
    text = report(runs.make_run(tmp_path / "run", results=results, **{"heads.count": 1})).text
    assert "one head of 64 codes, so no weighting" in text
    assert "Decay of similarity" not in text
    assert "Pictures each head is surest of" in text


def test_several_runs_share_their_charts_and_tables(tmp_path):
    one = runs.make_run(tmp_path / "one", results={"evaluation": runs.evaluation([0.5, 0.6, 0.7])})
    two = runs.make_run(
        tmp_path / "two", results={"evaluation": runs.evaluation([0.6, 0.65, 0.85])}, seed=5
    )
    found = report(one, two)
    assert "2 runs compared" in found.text
    assert (
        "1-shot accuracy on the test pictures is highest for two, 70.0 %: 10.0 points" in found.text
    )
    assert "Points more than one" in found.text
    assert "1 setting differs one two seed 0 5" in found.text
    loss = next(a for a in found.all("svg") if a.get("aria-label", "").startswith("Loss"))
    assert "one: from" in loss["aria-label"]
    assert "two: from" in loss["aria-label"]


def test_of_views_only_what_differs_is_shown(tmp_path):
    paths = [runs.make_run(tmp_path / f"of{size}") for size in (224, 96)]
    config = json.loads((paths[1] / "config.json").read_text())
    config["config"]["views"]["crops"][0]["size"] = 96
    (paths[1] / "config.json").write_text(json.dumps(config))
    assert "1 setting differs of224 of96 views.crops.0.size 224 96" in report(*paths).text


def test_numbers_of_other_pictures_stand_in_another_table(tmp_path):
    here = runs.evaluation([0.5, 0.6], digest="here")
    there = runs.evaluation([0.9, 0.9], digest="there")
    one = runs.make_run(tmp_path / "one", results={"evaluation": here})
    two = runs.make_run(tmp_path / "two", results={"evaluation": there})
    text = report(one, two).text
    assert "Points more than" not in text
    assert text.count("Labels from") == 2


def test_a_run_no_better_than_pixels_is_told_so(tmp_path):
    results = {"evaluation": runs.evaluation([0.6, 0.6], pixels=0.7)}
    text = report(runs.make_run(tmp_path / "run", results=results)).text
    assert "against 70.0 % for raw pixels: not better than raw pixels." in text


def test_a_run_that_may_be_no_better_than_pixels_is_told_so(tmp_path):
    found = runs.evaluation([0.6, 0.6], pixels=0.5)
    gain = {"1-shot": dict(difference=-0.1, interval=[-0.25, 0.05])}
    found["differences"] = [dict(name="raw pixels", role="pixels", weights=None, results=gain)]
    text = report(runs.make_run(tmp_path / "run", results={"evaluation": found})).text
    assert "against 50.0 % for raw pixels: not surely better than raw pixels." in text
    gain["1-shot"]["interval"] = [-0.15, -0.05]
    text = report(runs.make_run(tmp_path / "sure", results={"evaluation": found})).text
    assert "against 50.0 % for raw pixels. " in text


def test_what_a_run_that_went_wrong_is_worth_is_told_beside_it(tmp_path):
    results = {"evaluation": runs.evaluation([0.6, 0.6], pixels=0.7)}
    log = ["health: collapse: one code takes all"]
    text = report(runs.make_run(tmp_path / "run", log=log, results=results)).text
    assert "Something is wrong: collapse" in text
    assert "not better than raw pixels." in text


def test_the_pictures_of_many_runs_stay_in_their_own_pages(tmp_path):
    paths = [
        runs.make_run(tmp_path / f"run{i}", results=runs.everything(), lr=10.0**-i)
        for i in range(7)
    ]
    text = report(*paths).text
    assert f"wessl report {paths[4]}" in text
    assert f"wessl report {paths[3]}" not in text
    assert "4 more in words" in text


def test_a_long_run_makes_a_small_page_and_keeps_its_spikes(tmp_path):
    rows = [runs.row(step, steps=6_000) for step in range(1, 6_001)]
    rows[4_321] = rows[4_321] | dict(loss=77.125)
    path = runs.make_run(tmp_path / "run", rows=rows)
    text = page(read([path]))
    assert len(text) < 300_000
    assert "77.1" in Reader(text).text


def test_a_folder_that_is_no_run_is_a_users_mistake(tmp_path):
    with pytest.raises(UserError, match="no run folder; train one first"):
        read([tmp_path])
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UserError, match="does not describe a run"):
        read([tmp_path])


def test_runs_that_differ_in_their_seed_alone_are_averaged(tmp_path):
    scores = {("one", 0): 0.50, ("one", 1): 0.60, ("two", 0): 0.58, ("two", 1): 0.66}
    paths = [
        runs.make_run(
            tmp_path / f"{name}-seed{seed}",
            results={"evaluation": runs.evaluation([score, score], pixels=0.61)},
            seed=seed,
            **{"heads.count": 1 if name == "one" else 16},
        )
        for (name, seed), score in scores.items()
    ]
    text = report(*paths).text
    gains = [scores["two", seed] - scores["one", seed] for seed in (0, 1)]
    error = f"{100 * stats.sem(gains):.1f}"
    assert (
        f"highest for two, 62.0 %: 7.0 points more than for one (± {error}, a standard error over"
        in text
    )
    assert "no more than" not in text
    assert f"two, more than one +7.0 ± {error}" in text
    assert f"one 2 seeds 55.0 ± {100 * stats.sem([0.5, 0.6]):.1f}" in text
    assert "Run by run" in text
    legend = re.findall(r'class="legend">(.*?)</ul>', page(read(paths)))[0]
    assert re.sub("<.*?>", " ", legend).split() == ["one", "two"]


def networks(teacher=None, student=None):
    """A run's evaluations: its teacher's, its student's or both, on the same pictures."""
    found = {}
    for name, accuracy in (("teacher", teacher), ("student", student)):
        if accuracy is not None:
            found[f"evaluation-{name}"] = one = runs.evaluation([accuracy] * 2)
            called = "this run" + " (student)" * (name == "student")
            one["rows"][0] |= dict(name=called, network=name, weights=f"{name} of {accuracy}")
    return found


def test_a_student_is_called_one_and_not_compared_with_teachers(tmp_path):
    one = runs.make_run(tmp_path / "one", results=networks(0.5, 0.9))
    two = runs.make_run(tmp_path / "two", results=networks(0.6, 0.7), lr=2.0)
    text = report(one, two).text
    assert (
        "1-shot accuracy on the test pictures is highest for two, 60.0 %: 10.0 points more than "
        "for one (± 0.0, a standard error over the draws)." in text
    )
    rows = (
        r"1-shot k-NN one 50\.0 .*? one \(student\) 90\.0 .*? two 60\.0 .*? two \(student\) 70\.0"
    )
    assert re.search(rows, text)
    assert "Points more than one 1-shot k-NN one (student) +40.0" in text


def test_students_are_compared_where_not_all_teachers_were_measured(tmp_path):
    one = runs.make_run(tmp_path / "one", results=networks(0.5, 0.6))
    two = runs.make_run(tmp_path / "two", results=networks(None, 0.7), lr=2.0)
    words = "highest for two (student), 70.0 %: 10.0 points more than for one (student)"
    assert words in report(one, two).text


def test_two_networks_of_one_run_do_not_stand_for_two_runs(tmp_path):
    one = runs.make_run(tmp_path / "one", results=networks(0.5, 0.6))
    two = runs.make_run(tmp_path / "two", lr=2.0)
    assert "k-NN accuracy at the end is the same for one and two" in report(one, two).text


def test_seeds_are_averaged_for_teachers_and_for_students(tmp_path):
    paths = [
        runs.make_run(tmp_path / f"m-seed{i}", results=networks(0.5 + i / 10, 0.2), seed=i)
        for i in range(2)
    ]
    text = report(*paths).text
    assert "m 2 seeds 55.0 ± 5.0" in text
    assert "m (student) 2 seeds 20.0 ± 0.0" in text
    assert "accuracy on the test pictures is highest for m-seed1, 60.0 %: 10.0 points" in text
    other = runs.make_run(tmp_path / "b-seed0", results=networks(0.4, 0.8), lr=2.0)
    assert "highest for m, 55.0 %: 15.0 points more than for b" in report(*paths, other).text


@pytest.mark.parametrize("newest", ["teacher", "student"])
def test_the_first_sentence_of_a_run_is_of_its_teacher(tmp_path, newest):
    path = runs.make_run(tmp_path / "run", results=networks(0.5, 0.6))
    text = in_order(path, *sorted(("teacher", "student"), key=lambda name: name == newest))
    assert "1-shot accuracy on the test pictures is 50.0 %, against" in text
    assert "50.0 % 1-shot accuracy 60.0 % 1-shot accuracy of the student " in text
    assert "By 1-shot of the student on labelled" in text
    alone = runs.make_run(tmp_path / "alone", results=networks(None, 0.6))
    assert "1-shot accuracy of the student on the test pictures is 60.0 %" in report(alone).text


def test_a_gain_on_a_student_is_not_one_on_its_teacher(tmp_path):
    found = networks(0.5, 0.5)
    gain = dict(difference=0.1, interval=[0.04, 0.15])
    kept = dict(role="run", weights="teacher of 0.6", results={"1-shot": gain})
    found["evaluation-student"]["differences"] = [kept]
    one = runs.make_run(tmp_path / "one", results=found)
    two = runs.make_run(tmp_path / "two", results=networks(0.6), lr=2.0)
    assert "+4.0 to +15.0" not in report(one, two).text
    found["evaluation-teacher"]["differences"] = [kept]
    one = runs.make_run(tmp_path / "three", results=found)
    assert "10.0 points more than for three (95 % interval +4.0 to +15.0)" in report(one, two).text


def test_the_pictures_of_most_runs_lead_however_many_networks_were_measured(tmp_path):
    both = networks(0.5, 0.6) | {"evaluation-all": runs.evaluation([0.3] * 2, digest="all")}
    for network in ("teacher", "student"):
        both[f"evaluation-{network}-more"] = both.pop(f"evaluation-{network}")
    one = runs.make_run(tmp_path / "one", results=both)
    two = runs.make_run(tmp_path / "two", results={"e": both["evaluation-all"]}, lr=2.0)
    for path in (one / "results").glob("evaluation-*-more.json"):
        os.utime(path, (2e9, 2e9))
    found = collect(read([one, two]))
    assert [{row.name for row in each.runs} for each in found] == [
        {"one", "two"},
        {"one", "one (student)"},
    ]


def test_accuracies_on_other_datasets_have_their_table(tmp_path):
    pixels = dict(name="raw pixels", role="pixels", results={"flowers": dict(accuracy=0.3)})
    flowers = dict(accuracy=0.815, interval=[0.79, 0.835])
    found = dict(kind="transfer", results={"flowers": flowers, "<pets>": {}}, others=[pixels])
    text = report(runs.make_run(tmp_path / "run", results={"transfer": found})).text
    table = text[text.index("On other datasets") :]
    assert "flowers <pets> run 81.5 79.0\N{EN DASH}83.5 \N{EN DASH} raw pixels 30.0" in table


def test_a_student_on_other_datasets_stands_beside_its_teacher(tmp_path):
    def found(accuracy, **more):
        return dict(kind="transfer", results={"flowers": dict(accuracy=accuracy)}, **more)

    gain = dict(difference=0.1, interval=[0.04, 0.15])
    kept = [dict(name="two (student)", role="run", weights="two", results={"flowers": gain})]
    of_one = dict(
        student=found(0.6, weights="one", network="student", differences=kept),
        teacher=found(0.5, weights="one's teacher"),  # by a version that did not tell them apart
    )
    of_two = dict(
        student=found(0.7, weights="two", network="student"),
        teacher=found(0.4, weights="two's teacher", network="teacher"),
    )
    one = runs.make_run(tmp_path / "one", results=of_one)
    two = runs.make_run(tmp_path / "two", results=of_two, lr=2.0)
    assert "flowers one 50.0 one (student) 60.0 Points more than one" in report(one).text
    (both,) = transferred(read([one, two]))
    teacher, student, _, other = both.runs
    assert [row.name for row in both.runs] == ["one", "one (student)", "two", "two (student)"]
    assert both.gain(other, student, "flowers") == (0.04, 0.15)
    assert both.gain(other, teacher, "flowers") is None


def together(tmp_path, ours, theirs, **changes):
    """Two runs measured by one command: each keeps what the other gains on it."""
    paths = []
    for own, other in ((ours, theirs), (theirs, ours)):
        found = runs.evaluation(own)
        found["rows"][0]["weights"] = f"weights of {own}"
        gain = sum(other) / len(other) - sum(own) / len(own)
        kept = dict(difference=gain, interval=[gain - 0.04, gain + 0.02]) | changes
        found["differences"] = [
            dict(name="x", role="run", weights=f"weights of {other}", results={"1-shot": kept})
        ]
        place = tmp_path / ("one" if own is ours else "two")
        paths.append(runs.make_run(place, results={"evaluation": found}, lr=len(paths) + 1.0))
    return paths


def test_runs_measured_together_are_compared_with_their_paired_interval(tmp_path):
    text = report(*together(tmp_path, [0.5, 0.6], [0.6, 0.6])).text
    assert "Points more than one 1-shot k-NN two +5.0 +1.0 to +7.0" in text
    assert "5.0 points more than for one (95 % interval +1.0 to +7.0)." in text
    assert "bold where it excludes 0" in text


def test_the_interval_is_that_of_the_same_pair_whichever_run_comes_first(tmp_path):
    one, two = together(tmp_path, [0.5, 0.6], [0.6, 0.6])
    found = json.loads((one / "results" / "evaluation.json").read_text())
    found["differences"] = []  # known to the other alone
    (one / "results" / "evaluation.json").write_text(json.dumps(found))
    assert "two +5.0 +3.0 to +9.0" in report(one, two).text


def test_a_difference_of_older_numbers_is_not_shown(tmp_path):
    text = report(*together(tmp_path, [0.5, 0.6], [0.6, 0.6], difference=0.31)).text
    assert "95 % interval +" not in text
    assert "these runs were measured apart" in text


def test_a_doubtful_difference_is_called_so(tmp_path):
    doubtful = together(tmp_path, [0.50, 0.52], [0.52, 0.52])
    assert "(95 % interval \N{MINUS SIGN}3.0 to +3.0, so not surely)" in report(*doubtful).text


def test_the_first_sentence_names_the_data_where_there_are_several(tmp_path):
    sets = {f"evaluation-{name}": runs.evaluation([0.5, 0.6], digest=name) for name in "ab"}
    for name, pictures in (("a", 500), ("b", 90)):
        place = dict(location=f"pictures-{name}", digest=name, pictures=pictures)
        sets[f"evaluation-{name}"]["test"] = place
    text = in_order(runs.make_run(tmp_path / "run", results=sets), "b", "a")
    assert "1-shot accuracy on the test pictures of pictures-a is 55.0 %" in text
    assert "1-shot accuracy on pictures-a" in text
    alone = runs.make_run(tmp_path / "alone", results={"evaluation": sets["evaluation-a"]})
    assert "1-shot accuracy on the test pictures is 55.0 %" in report(alone).text


def test_every_class_has_its_interval(tmp_path):
    found = runs.evaluation([0.5, 0.6])
    found["per_class"]["classes"][0]["interval"] = [0.41, 0.59]
    text = report(runs.make_run(tmp_path / "run", results={"evaluation": found})).text
    assert "cat 50.0 41.0\N{EN DASH}59.0 50" in text


def test_what_all_runs_are_compared_with_stands_there_once(tmp_path):
    paths = []
    for name in ("one", "two"):
        found = runs.evaluation([0.5, 0.6] if name == "one" else [0.6, 0.7])
        found["rows"][0]["weights"] = name
        pixels = found["rows"][1]["results"]
        if name == "two":  # measured by more protocols, and beside the first run's own weights
            pixels["k-NN"] = dict(accuracy=0.312)
            again = found["rows"][0] | dict(name="copy", role="also", weights="one")
            found["rows"].append(again)
        paths.append(runs.make_run(tmp_path / name, results={"evaluation": found}, lr=len(name)))
    text = report(*paths).text
    assert text.count("raw pixels 40.0") == 1
    assert "raw pixels 40.0 31.2" in text
    assert "copy" not in text


def test_one_head_beside_several_is_not_asked_for_a_comparison(tmp_path):
    one = runs.make_run(tmp_path / "one", **{"heads.count": 1})
    many = runs.make_run(tmp_path / "many", results=dict(diversity=runs.diversity()))
    assert "wessl diversity" not in report(one, many).text
    assert "wessl diversity" in report(one).text


def sets_of(**known):
    """An evaluation for each, with how many of its 500 test pictures were labelled ones."""
    sets = {}
    for name, many in known.items():
        sets[f"evaluation-{name}"] = found = runs.evaluation([0.55, 0.65], digest=name)
        found["test"] = dict(location=name, digest=name, pictures=500, in_train=many)
    return sets


def in_order(path, *names):
    for i, name in enumerate(names):
        os.utime(path / "results" / f"evaluation-{name}.json", (i, i))
    return report(path).text


def test_the_newest_evaluation_leads(tmp_path):
    path = runs.make_run(tmp_path / "run", results=sets_of(a=0, b=0))
    for order in ("ab", "ba"):
        text = in_order(path, *order)
        assert f"1-shot accuracy on the test pictures of {order[-1]} is 60.0 %, against" in text
        assert f"60.0 % 1-shot accuracy on {order[-1]} " in text
        classes = text[text.index("Class by class") :]
        assert classes.index(f"By 1-shot on {order[-1]}") < classes.index(
            f"By 1-shot on {order[0]}"
        )
        assert "too good" not in text


def test_test_pictures_of_their_own_lead_before_newer_held_out_ones(tmp_path):
    sets = sets_of(own=0, labelled=0)  # the second is where the labelled pictures are
    path = runs.make_run(tmp_path / "run", results=sets)
    for order in (("own", "labelled"), ("labelled", "own")):
        text = in_order(path, *order)
        assert "1-shot accuracy on the test pictures of own is 60.0 %, against" in text


def test_numbers_that_know_test_pictures_come_last_and_are_marked_wherever_they_stand(tmp_path):
    path = runs.make_run(tmp_path / "run", results=sets_of(honest=0, same=500))
    text = in_order(path, "honest", "same")
    assert "1-shot accuracy on the test pictures of honest is 60.0 %, against 40.0 %" in text
    assert "60.0 % 1-shot accuracy on honest " in text
    table = text[text.rindex("tested on same") : text.index("Class by class")]
    assert "1-shot too good k-NN too good this run 60.0" in table
    known = "too good: all test pictures are among the labelled ones"
    classes = text[text.index("Class by class") :]
    assert classes.index("By 1-shot on honest .") < classes.index(f"on same ({known})")


def test_the_only_number_is_marked_too_if_it_knows_test_pictures(tmp_path):
    path = runs.make_run(tmp_path / "run", results=sets_of(same=3))
    text = report(path).text
    known = "too good: 3 of 500 test pictures are among the labelled ones"
    assert f"is 60.0 % ({known}), against 40.0 %" in text
    assert f"60.0 % 1-shot accuracy ({known})" in text
    others = runs.make_run(tmp_path / "other", results=sets_of(same=3), lr=2.0)
    assert f"T{known[1:]}." in report(path, others).text


def test_guessing_is_called_so_first_and_in_health(tmp_path):
    found = runs.evaluation([0.24, 0.27], pixels=0.2, classes=("cat", "dog"))
    found["train"] = found["train"] | dict(classes=4)
    found["rows"][0]["results"]["k-NN"] = dict(accuracy=0.28, interval=[0.22, 0.34])
    path = runs.make_run(tmp_path / "run", results={"evaluation": found})
    text = report(path).text
    guess = "(25.0 % with 4 classes)"
    assert f"for raw pixels: not surely better than guessing {guess}." in text
    health = text[text.index("Health") :]
    assert "No accuracy on labelled is surely better than guessing, 25.0 % with 4 classes" in health
    assert "Nothing else suspicious was found" in health
    found["rows"][0]["results"]["k-NN"]["interval"] = [0.26, 0.34]
    (path / "results" / "evaluation.json").write_text(json.dumps(found))
    text = report(path).text
    assert f"not surely better than guessing {guess}." in text
    assert "No accuracy on" not in text
    assert "Nothing suspicious was found" in text


def test_what_the_last_start_warned_of_stands_in_health(tmp_path):
    first = ["warning: 28 steps, too few to learn much", "disk: the run keeps a checkpoint"]
    again = ["resuming", "warning: 64 codes of many", "disk: the run keeps a checkpoint"]
    path = runs.make_run(tmp_path / "one", log=first)
    text = report(path).text
    assert "The start warned: 28 steps, too few to learn much." in text
    assert "Nothing else suspicious was found, but in fewer than 150 steps" in text
    path = runs.make_run(tmp_path / "two", log=[*first, *again])
    text = report(path).text
    assert "too few to learn much" not in text
    assert "The start warned: 64 codes of many." in text


def logged(folder, said):
    """A run whose log has these words at these times of a day."""
    path = runs.make_run(folder / "run")
    log = "".join(f"2026-01-01 {time}  {words}\n" for time, words in said)
    (path / "train.log").write_text(log)
    return path


@pytest.mark.parametrize(
    ("training", "again", "later"),
    [
        ("10:00:20", "10:00:31", "10:00:40"),  # a slow start
        ("10:00:31", "10:00:31", "10:00:31"),  # all in one second
        ("10:00:31", "10:00:20", "09:59:50"),  # a clock put back
    ],
)
@pytest.mark.parametrize("old", [(), ("warning: of long ago", "disk: a checkpoint")])
def test_warnings_of_a_start_are_those_after_its_first_line(tmp_path, old, training, again, later):
    said = [
        *((training, words) for words in old),
        (training, "start: wessl pretrain photos"),
        (training, "warning: 28 steps, too few to learn much"),
        (training, "disk: the run keeps a checkpoint"),
        (training, "warning: this will take longer than its budget"),
        (again, "start: wessl pretrain photos --keep 3"),
        (again, "warning: 64 codes of many"),
        (later, "disk: the run keeps a checkpoint"),
        (later, "warning: that is too little"),
    ]
    (story,) = read([logged(tmp_path, said)])
    assert story.warnings == ["64 codes of many", "that is too little"]


@pytest.mark.parametrize(
    ("training", "start", "disk"),
    [("10:00:20", "10:00:31", "10:00:31"), ("23:59:50", "23:59:59", "00:00:00")],
)
def test_what_training_warned_of_before_the_last_start_is_not_of_that_start(
    tmp_path, training, start, disk
):
    said = [
        ("09:00:00", "disk: the run keeps a checkpoint"),
        (training, "warning: this will take longer than its budget"),
        (start, "warning: 64 codes of many"),
        (disk, "disk: the run keeps a checkpoint"),
        (disk, "warning: that is too little"),
    ]
    path = logged(tmp_path, said)
    warned = re.findall(r"The start warned: (.*?)\.", report(path).text)
    assert warned == ["64 codes of many", "that is too little"]


def test_bold_is_only_what_is_surely_the_best(tmp_path):
    found = runs.evaluation([0.6, 0.7])
    pixels = found["rows"][1]["results"]["1-shot"]
    for interval, sure in (([0.4, 0.59], True), ([0.4, 0.61], False), (None, False)):
        pixels["interval"] = interval
        path = runs.make_run(tmp_path / f"{interval}", results={"evaluation": found})
        assert ("<b>65.0</b>" in page(read([path]))) == sure


def test_settings_have_a_column_a_method_and_seeds_are_not_told_where_all_have_the_same(tmp_path):
    paths = [
        runs.make_run(tmp_path / f"{name}-seed{seed}", seed=seed, lr=lr)
        for name, lr in (("slow", 0.5), ("fast", 2.0))
        for seed in range(3)
    ]
    assert "1 setting differs slow fast optim.lr 0.5 2.0 Health" in report(*paths).text
    assert (
        "2 settings differ slow fast optim.lr 0.5 2.0 seed 0, 1, 2 0, 1" in report(*paths[:5]).text
    )


def chosen_on_test(evaluation):
    for row in evaluation["rows"]:
        for name, result in row["results"].items():
            how = "on the test pictures, the best mean over draws (optimistic)"
            result["protocol"] = dict(name=name, strength_chosen=how)
    return evaluation


def test_numbers_chosen_on_the_test_pictures_are_not_compared_with_honest_ones(tmp_path):
    honest, flattered = runs.evaluation([0.5, 0.6]), chosen_on_test(runs.evaluation([0.8, 0.9]))
    for found in (honest, flattered):
        found["rows"][0]["results"]["k-NN"] = dict(accuracy=0.9, protocol=dict(name="k-NN"))
    one = runs.make_run(tmp_path / "one", results={"evaluation": honest})
    two = runs.make_run(tmp_path / "two", results={"evaluation": flattered}, lr=0.5)
    text = report(one, two).text
    assert "+30.0" not in text
    assert "Points more than one k-NN two +0.0" in text
    heads = "1-shot 1-shot (optimistic) k-NN"
    gap = "\N{EN DASH}"
    assert f"{heads} one 55.0 50.0{gap}60.0 {gap} 90.0 two {gap} 85.0" in text
    assert "k-NN accuracy on the test pictures is the same for one and two, 90.0 %" in text
    assert "Optimistic: the classifier's setting was chosen on the test pictures" in text
    assert "another protocol; the two are not compared" in text
    assert "raw pixels 40.0 40.0" in text


def test_runs_without_a_protocol_in_common_are_not_compared(tmp_path):
    sides = {"one": runs.evaluation([0.5, 0.6]), "two": runs.evaluation([0.8, 0.9])}
    for found in sides.values():
        found["columns"] = ["1-shot"]
        del found["rows"][0]["results"]["k-NN"]
    chosen_on_test(sides["two"])
    paths = [
        runs.make_run(tmp_path / name, rows=[runs.row(100)], results={"e": found}, lr=i + 1.0)
        for i, (name, found) in enumerate(sides.items())
    ]
    text = report(*paths).text
    assert "2 runs side by side; not all were measured alike." in text
    assert "Nothing was measured alike for one and another run" in text
    assert "Points more than" not in text


def test_another_seed_of_the_labels_is_another_column(tmp_path):
    paths = []
    for seed in (0, 1):
        found = runs.evaluation([0.5 + 0.1 * seed] * 3)
        found["rows"][0]["results"]["1-shot"]["protocol"] |= dict(seed=seed)
        paths.append(runs.make_run(tmp_path / f"run{seed}", results={"e": found}, lr=seed + 1.0))
    text = report(*paths).text
    assert "1-shot 1-shot, seed 1 k-NN" in text
    assert "+10.0" not in text


def test_everything_that_names_an_optimistic_number_calls_it_so(tmp_path):
    found = chosen_on_test(runs.evaluation([0.5, 0.6]))
    shells = dict(accuracy=0.8, protocol=dict(strength_chosen="on the test pictures (so)"))
    linear = dict(accuracy=0.7, protocol=dict(selected_on="the test pictures, as in the paper"))
    found["rows"][0]["results"]["linear"] = linear
    found["columns"].append("linear")
    results = dict(evaluation=found, transfer=dict(kind="transfer", results={"shells": shells}))
    text = report(runs.make_run(tmp_path / "run", results=results)).text
    assert "1-shot (optimistic) accuracy on the test pictures is 55.0 %" in text
    assert "55.0 % 1-shot (optimistic) accuracy" in text
    assert "1-shot (optimistic) k-NN (optimistic) linear (optimistic) this run 55.0" in text
    assert "By 1-shot (optimistic)." in text
    assert "shells (optimistic) run 80.0" in text[text.index("On other datasets") :]
    assert text.count("Optimistic: the classifier's setting") == 2
    honest = runs.make_run(tmp_path / "honest", results=runs.everything())
    assert "ptimistic" not in report(honest).text


def test_what_the_measurement_warned_of_stands_above_its_numbers(tmp_path):
    warning = "warning: 11 of 500 test pictures are also among the training pictures"
    found = runs.evaluation([0.5, 0.6]) | dict(notes=[warning, EVIL, 3])
    seen = report(runs.make_run(tmp_path / "run", results={"evaluation": found}))
    assert seen.text.count(warning) == 1
    assert EVIL in seen.text
    assert seen.text.index(warning) < seen.text.index("this run 55.0")


def test_what_transfer_left_out_and_how_it_counted_stands_above_its_numbers(tmp_path):
    def result(metric, **unreadable):
        return dict(accuracy=0.815, protocol=dict(metric=metric, unreadable=unreadable))

    both, own = "run: not used: fc.weight (a classifier)", "run: bicubic was assumed"
    sets = dict(pets=result("mean per class", train=2, test=1), food=result("top-1", test=0))
    results = dict(
        evaluation=runs.evaluation([0.5, 0.6]) | dict(notes=[both]),
        transfer=dict(kind="transfer", results=sets, notes=[both, own, EVIL, 3]),
    )
    text = report(runs.make_run(tmp_path / "run", results=results)).text
    table = text.index("pets food run 81.5")
    above = text[text.index("On other datasets") : table]
    assert "For pets accuracy is the mean over classes." in above
    assert "pets: unreadable pictures are left out, 2 of train and 1 of test." in above
    assert own in above
    assert EVIL in above
    assert "food:" not in above
    assert text.count(both) == 1  # above the first numbers it is true of


def test_the_best_run_is_compared_with_the_first_not_with_the_next_best(tmp_path):
    paths = [
        runs.make_run(tmp_path / name, results={"e": runs.evaluation([score] * 2)}, lr=score)
        for name, score in (("base", 0.5), ("good", 0.6), ("best", 0.65))
    ]
    text = report(*paths).text
    assert "highest for best, 65.0 %: 15.0 points more than for base" in text
    turned = report(*reversed(paths)).text
    assert "highest for best, 65.0 %: 5.0 points more than for good" in turned


def test_runs_are_compared_on_other_datasets_too(tmp_path):
    paths = []
    for name, score in (("one", 0.5), ("two", 0.6)):
        flowers = dict(accuracy=score, protocol=dict(strength_chosen="beforehand"))
        gain = dict(difference=0.1, interval=[0.04, 0.15])
        kept = [dict(name="two", role="run", weights="two", results={"flowers": gain})]
        found = dict(kind="transfer", weights=name, results={"flowers": flowers}, differences=kept)
        paths.append(runs.make_run(tmp_path / name, results={"transfer": found}, lr=score))
    text = report(*paths).text
    assert "Points more than one flowers two +10.0 +4.0 to +15.0" in text


def test_what_was_chosen_for_whom_stands_with_the_protocol(tmp_path):
    found = runs.evaluation([0.6, 0.7])
    own, pixels = found["rows"]
    knn = dict(protocol=dict(name="k-NN", neighbours=[5, 20]), accuracy=0.9)
    own["results"]["k-NN"] = knn | dict(k=20)
    pixels["results"]["k-NN"] = knn | dict(chosen=dict(reading="cls", lr=0.16))
    text = report(runs.make_run(tmp_path / "run", results=dict(evaluation=found))).text
    told = "k = 20 (this run), cls at base learning rate 0.16 (raw pixels)"
    assert f"neighbours: 5, 20; taken: {told}" in text
