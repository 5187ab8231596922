import json
import subprocess
import sys
from dataclasses import replace

import pytest

import wessl
from wessl.cli import VERBS, main
from wessl.commands import evaluate
from wessl.commands.paths import refuse_missing_data
from wessl.commands.pretrain import parse
from wessl.config import Config
from wessl.data.views.config import drawing_views
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
        ["pretrain", "builtin://digits", "--out", "run", "--budget", "5x"],
        ["pretrain", "builtin://digits", "--out", "run", "--epochs", "0"],
        ["pretrain", "builtin://digits", "--out", "run", "--keep", "0"],
        ["pretrain", "builtin://digits", "--out", "run", "--heads.count", "0"],
        ["pretrain", "builtin://digits", "--out", "/"],
        ["evaluate", "/nowhere", "--train", "builtin://digits"],
        ["evaluate", ".", "--train", "/nowhere"],
        ["evaluate", ".", "--train", "builtin://digits", "--protocols", "one-shot"],
        ["embed", "/nowhere", "builtin://digits", "-o", "x.npz"],
        ["classify", "/nowhere", "builtin://digits", "--labels", "x.csv", "-o", "y.csv"],
        ["classify", ".", "builtin://digits", "--labels", "/nowhere.csv", "-o", "y.csv"],
        ["embed", ".", "builtin://digits", "-o", "x.txt"],
        ["embed", ".", "builtin://digits", "-o", "x.npz", "--neighbours", "-1"],
        ["export", ".", "--to", "timm", "-o", "/"],
        ["pack", "builtin://digits", "-o", "/"],
        ["pack", "builtin://digits", "-o", "x", "--quality", "0"],
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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("pretrain X --out Y --epochs three", "--epochs must be a number, not 'three'"),
        ("pretrain X --out Y --heads.count x", "--heads.count must be a whole number, not 'x'"),
        ("pretrain X --out Y --devices all", "--devices must be a whole number or auto, not 'all'"),
        ("pretrain X --out Y --views.small-count 2", "unknown flag --views.small-count; wessl pr"),
        ("pretrain X Z --out Y", "Z is one word too many: wessl pretrain takes one DATA"),
        ("pretrain X", "pretrain needs --out; wessl pretrain --help explains"),
        ("pretrain X --out", "--out needs a value\n"),
        ("pretrain X --out Y --seed", "--seed needs a value, a whole number"),
        (
            "pretrain X --out Y --track wandb wandbb",
            "--track must be tensorboard, wandb or trackio, not 'wandbb'; did you mean wandb?",
        ),
        ("study where-how --budget 5m", "unknown flag --budget; wessl study --help lists them"),
        ("study where-how --seeds 1 two", "--seeds must be whole numbers or a range as 1..4, not"),
        ("doctor --jsn", "unknown flag --jsn; did you mean --json? wessl doctor --help lists"),
        ("doctor Z", "Z is one word too many: wessl doctor takes flags alone"),
        ("embed X Y Z -o z.npz", "Z is one word too many: wessl embed takes one RUN and one DATA"),
        ("export X --to=keras", "--to must be timm, hf or onnx, not 'keras'"),
        ("export X", "export needs --to (timm, hf or onnx); wessl export --help explains"),
        ("completion tcsh", "the word after completion must be bash, zsh or fish, not 'tcsh'"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(words, said, capfd):
    with pytest.raises(SystemExit) as end:
        main(words.replace("X", "builtin://digits").split())
    assert end.value.code == 2
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"wessl: {said}")
    assert told.err.count("\n") == 1


def test_a_view_that_this_run_does_not_have_is_told_once_its_views_are_known():
    asked = parse(["builtin://digits", "--out", "run", "--views.crops.2.size", "16"])
    drawings = replace(Config(), views=drawing_views(16))
    with pytest.raises(UserError, match=r"unknown flag --views.crops.2.size; .*--help-all lists"):
        asked.change(drawings)
    assert asked.change(Config()).views.crops[2].size == 16


def test_a_folder_without_pictures_is_told_at_once_and_one_with_a_picture_far_below_is_not(
    tmp_path,
):
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (below / "notes.txt").touch()
    (below / ".hidden.png").touch()
    (below / "loop").symlink_to(tmp_path)
    with pytest.raises(UserError, match=r"a holds no pictures .* at any depth and no \.tar"):
        refuse_missing_data(str(tmp_path / "a"))
    with pytest.raises(UserError, match=r"^--test .* holds no pictures"):
        refuse_missing_data(None, test=str(tmp_path))
    (below / "one.JPG").touch()
    refuse_missing_data(str(tmp_path / "a"), test=str(tmp_path))
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "0.tar").touch()
    refuse_missing_data(str(tmp_path / "shards"))


def test_a_folder_that_holds_something_else_is_refused_as_out(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UserError, match=r"--out .* holds thesis.tex and is no run of wessl"):
        parse(["builtin://digits", "--out", str(tmp_path)])


def test_a_path_that_is_not_there_is_told_with_its_flag():
    with pytest.raises(UserError, match="--test tset does not exist; give a folder"):
        evaluate.parse([".", "--train", "builtin://digits", "--test", "tset"])
    with pytest.raises(UserError, match="--train file:///tset does not exist; give a folder"):
        evaluate.parse([".", "--train", "file:///tset"])


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


def test_a_reader_that_has_read_enough_is_no_fault():
    line = f"{sys.executable} -m wessl pretrain --help-all | head -n 1"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: wessl pretrain")
    assert done.stderr == ""


def test_another_broken_pipe_is_told_as_the_fault_it_is():
    code = (
        "import wessl.commands.report as commands\n"
        "def parse(words): raise BrokenPipeError('of a process inside')\n"
        "commands.parse = parse\n"
        "from wessl.cli import main\n"
        "main(['report'])"
    )
    done = python(code)
    assert done.returncode == 1
    assert "BrokenPipeError: of a process inside" in done.stderr
