"""Diversity as a user asks for it: on a trained run, by command and by call."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import wessl
from wessl.cli import main
from wessl.config import Config
from wessl.data.cache.build import build_cache
from wessl.data.sources.open import open_source
from wessl.data.views.make import centre_crop
from wessl.errors import UserError
from wessl.pretrain.model import build_model
from wessl.settings import from_dict

DIGITS = "builtin://digits/test"
SMALL = {"heads.count": 3, "codes": 16, "hidden_dim": 32, "epochs": 1, "quiet": True}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diversity")
    return wessl.pretrain(DIGITS, folder / "run", "dino-star-ent", device="cpu", **SMALL)


@pytest.fixture
def run(trained, tmp_path):
    """The trained run, free to be written to."""
    return wessl.Run(shutil.copytree(trained.path, tmp_path / "run"))


def command(capsys, *words):
    """Exit code and what was printed, out and err."""
    with pytest.raises(SystemExit) as left:
        main(["diversity", *map(str, words)])
    return left.value.code, *capsys.readouterr()


def test_the_command_prints_a_table_and_a_sentence_and_keeps_all_of_it(run, capsys):
    code, printed, _ = command(capsys, run.path, DIGITS, "--device", "cpu")
    assert code == 0
    for words in ("3 heads of 16 codes, 500 pictures", "mutual", "diversity 0.", "in common"):
        assert words in " ".join(printed.split())
    result = dict(run.read_results())["diversity"]
    assert (result["format"], result["kind"]) == (1, "diversity")
    assert (result["heads"], result["codes"], result["pictures"]) == (3, 16, 500)
    assert result["data"]["location"] == DIGITS
    assert len(result["data"]["digest"]) == 64
    assert 0 < result["score"] <= result["score_before"] <= 1
    assert np.shape(result["mutual_information"]) == (3, 3)
    assert "area under the decay curve" in result["definitions"]["score"]
    assert sum(head["most_confident"] for head in result["per_head"]) == pytest.approx(1, abs=1e-3)


def test_every_listed_picture_is_in_the_gallery_with_its_name(run):
    wessl.diversity(run, DIGITS, device="cpu")
    result = dict(run.read_results())["diversity"]
    lists = [result["disagreed"], *(head["sure"] for head in result["per_head"])]
    assert all(len(entries) == 8 for entries in lists)
    numbers = {str(entry["index"]) for entries in lists for entry in entries}
    assert numbers == result["gallery"].keys()
    for number, picture in result["gallery"].items():
        assert picture["name"] == f"{DIGITS}[{number}]"
        assert picture["thumbnail"].startswith("data:image/png;base64,")


def test_the_runs_page_is_made_anew_and_shows_the_pictures(run, tmp_path, capsys):
    page = run.path / "report.html"
    page.write_text("old")
    _, printed, _ = command(capsys, run.path, DIGITS, "--device", "cpu")
    assert f"report: {page}" in "".join(printed.splitlines())
    text = page.read_text()
    for heading in ("Pictures each head is surest of", "Pictures the heads disagree about most"):
        pictures = re.search(f"<h3>{heading}</h3>.*?</ul>", text)[0]
        assert pictures.count("<img") == (3 * 8 if "surest" in heading else 8)
    elsewhere = tmp_path / "elsewhere"
    _, printed, _ = command(capsys, run.path, DIGITS, "--out", elsewhere, "--device", "cpu")
    assert "report:" not in printed  # a folder of results alone is no run
    assert [path.name for path in elsewhere.iterdir()] == ["results"]


def test_the_teacher_is_the_checkpoints_at_its_final_temperature_on_centre_crops(run):
    found = wessl.diversity(run.path, DIGITS, device="cpu", batch_size=60)
    header, state = run.read_config(), run.load_checkpoint()
    config = from_dict(Config, header["config"])
    model = build_model(config).eval()
    model.load_state_dict(state["teacher"])
    cache = build_cache(open_source(DIGITS), config.short_side)
    d = json.loads((run.path / "encoder.json").read_text())
    batch = cache.batch(torch.arange(len(cache)))
    images = centre_crop(batch, d["resize"], d["image_size"], d["mean"], d["std"])
    with torch.no_grad():
        cosines = model.heads(model.encoder.cls(images)).double()
    p_mnc = (cosines / config.loss.teacher_temperature).softmax(-1)
    expected = -(p_mnc * p_mnc.log()).sum(-1)
    torch.testing.assert_close(found.entropy_mn.double(), expected, atol=1e-3, rtol=1e-3)
    assert (found.code_mn == p_mnc.argmax(-1)).double().mean() > 0.999


def test_a_sample_is_the_same_each_time_and_knows_its_pictures(run, tmp_path):
    own = run.results.joinpath("diversity.json").read_bytes()  # as training left it
    found = wessl.diversity(run, DIGITS, pictures=100, device="cpu", out=tmp_path / "first")
    again = wessl.diversity(run, DIGITS, pictures=100, device="cpu", out=tmp_path / "second")
    assert torch.equal(found.index_n, again.index_n)
    assert len(found.index_n.unique()) == 100
    assert found.index_n.max() > 400
    assert found.score == again.score
    whole = wessl.diversity(run, DIGITS, device="cpu", out=tmp_path / "whole")
    torch.testing.assert_close(
        whole.entropy_mn[:, found.index_n], found.entropy_mn, atol=1e-4, rtol=1e-4
    )
    assert run.results.joinpath("diversity.json").read_bytes() == own
    first, second = (
        (tmp_path / name / "results" / "diversity.json").read_text() for name in ("first", "second")
    )
    assert first == second


def test_only_the_sample_is_decoded_unless_all_are(run, tmp_path):
    rng = np.random.default_rng(0)
    for i in range(40):
        place = tmp_path / "many" / f"{i:02}.png"
        place.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8)).save(place)
    whole, some = tmp_path / "whole", tmp_path / "some"
    short = from_dict(Config, run.read_config()["config"]).short_side
    build_cache(open_source(tmp_path / "many", 1), short, whole)
    found = [
        wessl.diversity(run, tmp_path / "many", 10, "cpu", cache=str(place))
        for place in (whole, some)
    ]
    sizes = [
        sum(file.stat().st_size for file in place.rglob("pixels.bin")) for place in (whole, some)
    ]
    assert sizes[1] < sizes[0] / 3
    assert torch.equal(found[0].index_n, found[1].index_n)
    assert torch.equal(found[0].code_mn, found[1].code_mn)
    kept = dict(run.read_results())["diversity"]
    assert kept["data"]["pictures"] == 40
    assert kept["data"]["sampled"] == kept["pictures"] == 10
    for number, picture in kept["gallery"].items():
        assert picture["name"].endswith(f"{int(number):02}.png")


def test_pictures_of_the_sample_that_cannot_be_read_are_left_out(run, tmp_path):
    for i in range(12):
        place = tmp_path / "few" / f"{i:02}.png"
        place.parent.mkdir(exist_ok=True)
        Image.new("L", (8, 8), 20 * i).save(place)
    (tmp_path / "few" / "03.png").write_bytes(b"no picture")
    for cache in ("one", "two"):
        found = wessl.diversity(
            run, tmp_path / "few", 12 if cache == "one" else 11, "cpu", cache=str(tmp_path / cache)
        )
        numbers = found.index_n.tolist()
        assert 3 not in numbers
        assert len(numbers) >= 10
        assert numbers == sorted(set(numbers))


def test_other_pictures_than_the_runs_own_will_do(run, tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(12):  # coloured and larger, where the run saw grey 8 x 8
        pixels = rng.integers(0, 255, (90, 70 + i, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:02}.png")
    found = wessl.diversity(run, folder, device="cpu")
    assert found.code_mn.shape == (3, 12)
    names = {
        picture["name"] for picture in dict(run.read_results())["diversity"]["gallery"].values()
    }
    assert names <= {f"{i:02}.png" for i in range(12)}


def test_one_head_is_described_and_not_compared(tmp_path, capsys):
    settings = SMALL | {"heads.count": 1, "epochs": 0.2}
    one = wessl.pretrain(DIGITS, tmp_path / "one", "dino-star", device="cpu", **settings)
    code, printed, _ = command(capsys, one.path, DIGITS, "--device", "cpu")
    assert code == 0
    assert "One head: nothing to compare it with" in printed
    assert dict(one.read_results())["diversity"]["score"] is None


def test_what_is_missing_is_named(run, tmp_path, capsys):
    with pytest.raises(UserError, match="is no run folder; train one first"):
        wessl.diversity(tmp_path, DIGITS)
    with pytest.raises(UserError, match="--pictures 1: at least 2"):
        wessl.diversity(run, DIGITS, pictures=1)
    with pytest.raises(UserError, match="does not exist"):
        wessl.diversity(run, tmp_path / "nothing")
    shutil.rmtree(run.checkpoints)
    code, _, complaint = command(capsys, run.path, DIGITS, "--device", "cpu")
    assert code == 2
    assert "has no whole checkpoint, and the heads are kept nowhere else" in complaint
