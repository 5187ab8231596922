import json
import subprocess
import sys

import pytest

import wessl
from wessl.cli import VERBS
from wessl.commands import evaluate
from wessl.commands.pretrain import parse
from wessl.errors import UserError

HEAVY = ("torch", "matplotlib", "scipy", "sklearn")


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def loaded_by(code):
    """Which heavy packages a fresh interpreter has imported after running the code."""
    probe = (
        f"import json, sys\n{code}\nprint(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    )
    done = python(probe)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_help_imports_nothing_heavy():
    call = "from wessl.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit: pass"
    assert loaded_by(call) == []


@pytest.mark.parametrize(
    "words",
    [
        ["pretrain", "/nowhere", "--out", "run"],
        ["pretrain", "builtin://digits", "--out", "run", "--optim.lrr", "1"],
        ["pretrain", "builtin://digits", "--out", "run", "--recipe", "dyno"],
        ["pretrain", "builtin://digits", "--out", "run", "--init", "/nowhere"],
        ["evaluate", "/nowhere", "--train", "builtin://digits"],
        ["evaluate", ".", "--train", "/nowhere"],
        ["evaluate", ".", "--train", ".", "--protocols", "one-shot"],
        ["embed", "/nowhere", "builtin://digits", "-o", "x.npz"],
        ["classify", "/nowhere", "builtin://digits", "--labels", "x.csv", "-o", "y.csv"],
        ["classify", ".", ".", "--labels", "/nowhere.csv", "-o", "y.csv"],
        ["embed", ".", ".", "-o", "x.txt"],
        ["embed", ".", ".", "-o", "x.npz", "--neighbours", "-1"],
        ["export", ".", "--to", "timm", "-o", "/"],
        ["pack", ".", "-o", "/"],
        ["pack", ".", "-o", "x", "--quality", "0"],
        ["export", ".", "--to", "tim"],
        ["diversity", ".", "/nowhere"],
        ["report", "/nowhere"],
        ["study", "where-hwo", "builtin://digits"],
        ["study", "weightings", "builtin://digits", "--only", "nobody"],
        ["study", "methods", "builtin://digits", "--only", "DINO*-ent (m)"],
        *([verb, "--bogus"] for verb in VERBS),
    ],
    ids=" ".join,
)
def test_a_mistake_is_told_before_anything_heavy_is_imported(words):
    call = (
        f"from wessl.cli import main\ntry:\n    main({words!r})\n"
        "except SystemExit as end: assert end.code == 2, end.code"
    )
    assert loaded_by(call) == []


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--epoch", "unknown flag --epoch; did you mean --epochs or --optim.epochs? "),
        ("--batch-size=9", "unknown flag --batch-size; did you mean --optim.batch-size? "),
        ("--optim.lrr", "unknown flag --optim.lrr; did you mean --optim.lr? "),
        ("--zzz", "unknown flag --zzz; wessl pretrain --help-all lists them"),
    ],
)
def test_a_misspelt_flag_of_pretrain_is_answered_with_those_like_it(flag, words):
    with pytest.raises(UserError, match="unknown flag") as error:
        parse(["builtin://digits", "--out", "run", flag, "3"])
    assert words in str(error.value)


def test_a_path_that_is_not_there_is_told_with_its_flag():
    with pytest.raises(UserError, match="--test tset does not exist; give a folder"):
        evaluate.parse([".", "--train", ".", "--test", "tset"])


def test_import_wessl_imports_no_plotting_or_science():
    assert loaded_by("import wessl; wessl.ensemble_loss; wessl.ViT") == ["torch"]


def test_every_public_name_is_there():
    assert set(wessl.__all__) == {"__version__", *wessl._HOMES, *wessl._VERBS}
    for name in wessl.__all__:
        assert getattr(wessl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        wessl.nonsense  # noqa: B018


@pytest.mark.parametrize(
    "way",
    [
        "import wessl",
        "import wessl.pretrain.loop",
        "import wessl.pretrain.loop as loop; import wessl; loop.train",
        "from wessl.pretrain import loop; import wessl; loop.train",
    ],
)
def test_the_verb_pretrain_and_the_room_of_that_name_live_together(way):
    call = "try:\n    wessl.pretrain('/nowhere', '/tmp/x')\nexcept wessl.UserError: print('ok')"
    done = python(f"{way}\n{call}")
    assert done.stdout == "ok\n", done.stderr


@pytest.mark.parametrize("command", [["-m", "wessl"], ["-m", "wessl", "--help"]])
def test_the_module_prints_help(command):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
    assert "usage: wessl VERB" in done.stdout


def test_the_version_is_the_packages():
    done = subprocess.run(
        [sys.executable, "-m", "wessl", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"wessl {wessl.__version__}\n"


def test_an_unknown_verb_is_a_users_mistake():
    done = subprocess.run(
        [sys.executable, "-m", "wessl", "pretrian"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "unknown verb 'pretrian'; did you mean pretrain?" in done.stderr
