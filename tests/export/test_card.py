"""The model card: complete, and safe whatever names the user's folders have."""

import itertools

import pytest
from exported_runs import run_folder
from markdown_it import MarkdownIt

import wessl
from wessl.export.markdown import plain, public

HEADINGS = ["How to load it", "What goes in", "Data", "Training", "Results", "Licence"]


def read(text):
    """The card without its front matter, as a reader of Markdown sees it."""
    _, front, body = text.split("---\n", 2)
    return front, MarkdownIt("commonmark").enable("table").parse(body)


def headings(tokens):
    return [b.content for a, b in itertools.pairwise(tokens) if a.type == "heading_open"]


@pytest.mark.parametrize("to", ["timm", "hf"])
def test_every_part_is_there(tmp_path, to):
    folder = wessl.export(run_folder(tmp_path / "run"), to)
    front, tokens = read((folder / "README.md").read_text())
    assert headings(tokens) == ["run: an image encoder", *HEADINGS]
    assert "# license: to be filled in" in front
    (code,) = [token.content for token in tokens if token.type == "fence"]
    compile(code, "card", "exec")


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        (dict(count=1), "1 head of 4,096 codes.\n"),
        (dict(count=16), "16 heads of 4,096 codes, weighted by `ent`."),
        (
            dict(count=16, share="codebook"),
            "16 heads of 4,096 codes, one codebook for all, weighted by `ent`.",
        ),
    ],
)
def test_the_heads_are_told(tmp_path, heads, words):
    run = run_folder(tmp_path / "run")
    header = run.read_config()
    header["config"]["heads"] |= heads
    wessl.Run.create(run.path, header)
    assert words in (wessl.export(run, "timm", tmp_path / "out") / "README.md").read_text()


def test_a_training_that_went_wrong_is_told_in_the_card(tmp_path):
    run = run_folder(tmp_path / "run")
    run.log("health: no learning: predictions are uniform (since step 9)")
    run.log("health: representations shrink: rank 2 (since step 9)")
    run.log("health: rank is over")
    card = (wessl.export(run, "timm") / "README.md").read_text()
    assert "Its training went wrong: no learning: predictions are uniform" in card
    assert "shrink" not in card


def test_names_of_others_stay_names(tmp_path):
    name = "a_b*c* <script> [x](y) `z` # |"
    run = run_folder(tmp_path / name)
    header = run.read_config()
    header["data"]["location"] = f"/data/{name}\n# Heading"
    header["config"]["recipe"] = "`evil`\n\n# more"
    wessl.Run.create(run.path, header)
    text = (wessl.export(run, "timm", tmp_path / "out") / "README.md").read_text()
    _, tokens = read(text)
    assert len(headings(tokens)) == 1 + len(HEADINGS)
    inside = [child.type for token in tokens for child in token.children or ()]
    assert "html_inline" not in inside
    assert "link_open" not in inside
    assert "/data/" not in text


@pytest.mark.parametrize("text", ["a|b", "1. one", "- x", "**b**", "<b>", "&amp;", "a\\b", "~~s~~"])
def test_escaped_text_is_shown_as_it_is(text):
    tokens = MarkdownIt("commonmark").parse(f"begin {plain(text)} end")
    (inline,) = [token for token in tokens if token.type == "inline"]
    assert {child.type for child in inline.children} <= {"text", "text_special"}
    assert "".join(child.content for child in inline.children) == f"begin {text} end"


@pytest.mark.parametrize("text", ["- x", "+ x", "1. one", "2) two", "# head", "> quote", "==="])
def test_escaped_text_begins_nothing_where_a_line_begins(text):
    tokens = MarkdownIt("commonmark").parse(f"- {plain(text)}")
    kinds = [token.type for token in tokens]
    assert kinds.count("list_item_open") == 1
    assert not {"heading_open", "blockquote_open"} & set(kinds)
    (inline,) = [token for token in tokens if token.type == "inline"]
    assert "".join(child.content for child in inline.children) == text


def test_paths_of_this_machine_are_not_told():
    assert public("/home/ann/photos/") == "photos"
    assert public("C:\\Users\\ann\\photos") == "photos"
    assert public("hf://org/name") == "hf://org/name"


def test_a_run_without_results_says_how_to_get_them(tmp_path):
    text = (wessl.export(run_folder(tmp_path / "run"), "timm") / "README.md").read_text()
    assert "None yet: `wessl evaluate RUN" in text
    assert "1,234 colour pictures" in text
    assert "2 files could not be read" in text
