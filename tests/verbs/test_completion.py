"""Completion in a real bash, and in zsh and fish where they are installed."""

import re
import shutil
import subprocess

import pytest

from wessl.cli import VERBS
from wessl.ensemble.weighting import SCHEMES
from wessl.errors import UserError
from wessl.verbs.completion import flags_of, script


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "wessl.bash"
    path.write_text(script("bash"))
    return path


@pytest.fixture
def offered(bash_script, tmp_path):
    def offered(*words):
        """What bash would offer for the last word."""
        quoted = " ".join(f"'{word}'" for word in words)
        ask = f"COMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1}; _wessl"
        done = subprocess.run(
            [
                "bash",
                "--norc",
                "-c",
                f"source {bash_script}; {ask}; printf '%s\\n' ${{COMPREPLY[@]}}",
            ],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
        )
        assert done.stderr == ""
        return done.stdout.split()

    return offered


def test_the_first_word_is_a_verb(offered):
    assert set(offered("wessl", "")) == set(VERBS)
    assert offered("wessl", "pre") == ["pretrain"]


def test_a_dash_offers_the_verbs_own_flags(offered):
    of_pretrain = offered("wessl", "pretrain", "photos/", "--")
    assert {"--out", "--budget", "--optim.lr", "--heads.count"} <= set(of_pretrain)
    assert offered("wessl", "pretrain", "photos/", "--optim.ba") == ["--optim.batch-size"]
    assert "--protocols" not in of_pretrain
    assert "--protocols" in offered("wessl", "evaluate", "--pro")
    assert "--out" in offered("wessl", "report", "runs/a", "--o")


def test_flags_with_known_values_offer_them(offered):
    assert offered("wessl", "pretrain", "x", "--decode", "s") == ["stream"]
    assert "dino-star-ent/vits16" in offered("wessl", "pretrain", "x", "--recipe", "dino-star-e")
    assert set(offered("wessl", "pretrain", "x", "--loss.weighting", "ent")) == {"ent", "ent-st"}
    assert set(offered("wessl", "pretrain", "x", "--loss.weighting", "")) == set(SCHEMES)


def test_anything_else_is_a_file_or_folder(offered, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "phone.txt").touch()
    assert set(offered("wessl", "pretrain", "pho")) == {"photos", "phone.txt"}
    assert offered("wessl", "pretrain", "photos", "--out", "photo") == ["photos"]
    assert offered("wessl", "study", "where") == ["where-how"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_tells_its_flags(verb):
    assert "--help" in flags_of(verb)


def test_zsh_and_fish_get_every_verb_and_flag_too():
    zsh, fish = script("zsh"), script("fish")
    for verb in VERBS:
        for flag in (flag for flag in flags_of(verb) if flag.startswith("--")):
            assert re.search(rf" {re.escape(flag)}(?![\w.-])", zsh)
            assert f"__fish_seen_subcommand_from {verb}' -l {flag[2:]}" in fish


@pytest.mark.parametrize(("shell", "check"), [("zsh", "-n"), ("fish", "--no-execute")])
def test_the_shell_itself_can_read_its_script(shell, check, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "script"
    path.write_text(script(shell))
    subprocess.run([shell, check, path], check=True)


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("line", "wanted"),
    [("wessl pretr", "pretrain"), ("wessl export --to t", "timm"), ("wessl embed --neigh", None)],
)
def test_fish_itself_completes(line, wanted, tmp_path):
    path = tmp_path / "script"
    path.write_text(script("fish"))
    ask = f"source {path}; complete -C '{line}'"
    done = subprocess.run(["fish", "-c", ask], capture_output=True, text=True, check=True)
    offers = [offer.split("\t")[0] for offer in done.stdout.splitlines()]
    assert offers == [wanted or "--neighbours"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_itself_completes(tmp_path):
    (tmp_path / "script").write_text(script("zsh"))
    (tmp_path / "ask").write_text(ZSH.format(script=tmp_path / "script"))
    done = subprocess.run(
        ["zsh", "-f", tmp_path / "ask"], capture_output=True, text=True, check=True, timeout=60
    )
    seen = done.stdout.replace(" \b", "")  # a space that the next letter takes back
    assert "wessl export --to timm;" in seen


# A zsh in a terminal of its own: what follows the tab is what a user would see.
ZSH = """\
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "autoload -Uz compinit; compinit -u -D; source {script}; print rea''dy"
zpty -r -m z seen '*ready*'
zpty -w -n z "wessl exp"$'\\t'"--to t"$'\\t'"; print do''ne"$'\\n'
zpty -r -m z seen '*done*'
print -r -- "$seen" | sed 's/\\x1b\\[[0-9;?]*[a-zA-Z]//g'
zpty -d z
"""


def test_an_unknown_shell_is_a_users_mistake():
    with pytest.raises(UserError, match="bash, zsh, fish"):
        script("tcsh")
