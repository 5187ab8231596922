"""The doctor looks at the machine the tests run on, and at broken ones."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import wessl
from wessl.verbs.diagnosis import speed
from wessl.verbs.doctor import examine, remedies, text

BROKEN = """
import sys
class Broken:
    def find_spec(self, name, *_):
        if name.split(".")[0] in {without!r}:
            raise ImportError(f"{{name}} is broken")
sys.meta_path.insert(0, Broken())
from wessl.cli import main
main(["doctor", *sys.argv[1:]])
"""


def doctor(*words, without=(), **environment):
    """The verb in a fresh interpreter where some packages cannot be imported."""
    return subprocess.run(
        [sys.executable, "-c", BROKEN.format(without=without), *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


@pytest.fixture(scope="module")
def found():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed, "SECONDS", 0.1)
        return examine(speed=True)


def test_it_tells_versions_devices_and_folders(found):
    assert found["versions"]["wessl"] == f"{wessl.__version__}, in {Path(wessl.__file__).parent}"
    assert found["torch"]["torch"] == torch.__version__
    assert found["packages"]["needed"]["numpy"] is not None
    assert found["devices"]["threads"]["torch"] == torch.get_num_threads()
    assert found["places"]["cache"] == os.environ["WESSL_CACHE"]
    assert found["places"]["free_bytes"] > 0
    cuda = [name for name in found["devices"] if name.startswith("cuda:")]
    assert len(cuda) == torch.cuda.device_count()


def test_the_speed_check_measures_four_things(found):
    assert set(found["speed"]) == {"step", "matrix product", "decode", "disk"}
    for words in found["speed"].values():
        assert not words.startswith("failed")
        assert int(words.split()[0].replace(",", "")) >= 0


def test_everything_found_is_in_the_text_and_in_the_json(found):
    said = text(found)
    for part in found:
        assert part == "remedies" or f"\n{part}\n" in f"\n{said}"
    assert "config.json" in said  # what to report
    assert json.loads(json.dumps(found)) == found


def test_every_extra_is_listed_and_a_missing_package_has_a_remedy(found):
    assert {"[hf]", "[onnx]", "[track]", "[dev]"} <= set(found["packages"])
    packages = {"needed": {"torch": "2"}, "[onnx]": {"onnx": None, "onnxruntime": "1"}}
    said = remedies(found | {"packages": packages})
    assert f"onnx missing, only for ONNX. Remedy: {sys.executable} -m pip install onnx" in said
    assert not any("onnxruntime" in words for words in said)


def test_a_missing_package_is_said_with_what_it_is_for(found):
    packages = {
        "[track]": {"tensorboard": None, "wandb": None},
        "[trackio]": {"trackio": None},
        "[parquet]": {"pyarrow": None},
        "[url]": {"fsspec": None, "aiohttp": None},
    }
    all_of_it = remedies({"packages": packages})
    said = [words.partition(". Remedy")[0] for words in all_of_it]
    assert said == [
        "tensorboard missing, only for --track tensorboard",
        "wandb missing, only for --track wandb",
        "trackio missing, only for --track trackio",
        "pyarrow missing, only for embed -o FILE.parquet",
        "fsspec, aiohttp missing, only for shards at URLs",
    ]
    other_pillow = [words for words in all_of_it if "pillow" in words]
    assert [words.split()[0] for words in other_pillow] == ["trackio"]
    assert "pip install trackio (without constraints.txt: it wants pillow<13" in other_pillow[0]


def test_the_pillow_that_trackio_wants_is_one_that_we_take_and_not_the_one_we_pin():
    """Or what is said of its installation is no longer true."""
    project = Path(__file__).parents[2]
    needs = tomllib.loads((project / "pyproject.toml").read_text())["project"]["dependencies"]
    (least,) = (need.partition(">=")[2] for need in needs if need.startswith("pillow"))
    pinned = re.search(r"^pillow==(\d+)", (project / "constraints.txt").read_text(), re.M)
    assert float(least) < 13 <= int(pinned[1])


def test_every_extra_has_a_purpose(found):
    packages = {group: dict.fromkeys(names) for group, names in found["packages"].items()}
    assert "for the extra" not in " ".join(remedies({"packages": packages}))


def test_what_is_in_the_way_is_said_with_a_remedy(found):
    places = found["places"] | {"writable": False}
    threads = found["devices"] | {"threads": {"torch": 64, "usable": 2}}
    said = " ".join(remedies(found | {"places": places, "devices": threads}))
    assert "WESSL_CACHE" in said
    assert "OMP_NUM_THREADS=2" in said


def test_a_gpu_without_triton_or_compiler_is_told_so(found):
    gpu = {"devices": found["devices"] | {"cuda:0": "a GPU"}}
    build = {"torch": found["torch"] | {"triton": None, "compiler": None}}
    said = " ".join(remedies(found | gpu | build))
    assert "no triton" in said
    assert "no C compiler" in said
    assert "no NVIDIA GPU" not in said


@pytest.mark.parametrize("broken", [("torch",), ("numpy", "PIL"), ("triton",)])
def test_a_broken_package_does_not_stop_it(broken):
    done = doctor("--no-speed", without=broken)
    assert done.returncode == 0, done.stderr
    assert "Remedy" in done.stdout or "nothing is in the way" in done.stdout
    if "torch" in broken:
        assert "devices: ImportError: torch is broken" in done.stdout


def test_json_is_one_object_on_standard_output(tmp_path):
    done = doctor("--json", "--no-speed", WESSL_CACHE=str(tmp_path / "not" / "there"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "speed" not in found
    assert found["places"]["cache"] == str(tmp_path / "not" / "there")
    assert found["places"]["size"] == "0.0 GiB"
