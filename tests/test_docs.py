"""The documentation keeps its word: its code runs, its links lead somewhere, its fences close."""

import re
import textwrap
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r"^\s*(?P<ticks>`{3,}|~{3,})\s*(?P<language>[\w+-]*)(?P<rest>.*)$")
INLINE_CODE = re.compile(r"(`+).+?\1")
TARGETS = (
    re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)"),  # [text](target "title") and ![alt](target)
    re.compile(r"^\s*\[[^\]]+\]:\s*<?([^\s>]+)>?"),  # [name]: target
    re.compile(r"\b(?:src|href)\s*=\s*[\"']([^\"']+)[\"']"),  # <img src="target">
)


class Block(NamedTuple):
    language: str
    line: int  # of its first line of code, from 1
    code: str


class Page(NamedTuple):
    blocks: list[Block]
    prose: list[tuple[int, str]]  # numbered lines outside the fences
    open_fence: int | None  # the line of a fence that never closes


def read(path: Path) -> Page:
    blocks, prose = [], []
    ticks, language, start, code = "", "", 0, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        if not ticks:
            if fence and "`" not in fence["rest"]:
                ticks, language, start, code = fence["ticks"], fence["language"], number, []
            else:
                prose.append((number, line))
        elif fence and fence["ticks"].startswith(ticks) and not fence["language"] + fence["rest"]:
            blocks.append(Block(language, start + 1, textwrap.dedent("\n".join(code))))
            ticks = ""
        else:
            code.append(line)
    return Page(blocks, prose, start if ticks else None)


def run(path: Path) -> None:
    """All Python blocks of a page in one namespace, with the page's own lines in a traceback."""
    namespace = {"__name__": "__main__"}
    for block in read(path).blocks:
        if block.language == "python":
            padded = "\n" * (block.line - 1) + block.code
            exec(compile(padded, str(path), "exec"), namespace)


def broken_targets(path: Path) -> list[str]:
    broken = []
    for number, line in read(path).prose:
        plain = INLINE_CODE.sub("code", line)
        for target in (match[1] for pattern in TARGETS for match in pattern.finditer(plain)):
            local = unquote(target.split("#")[0].split("?")[0])
            is_address = re.match(r"[a-zA-Z][\w+.-]*:|//", target)
            if local and not is_address and not (path.parent / local).exists():
                broken.append(f"{path}:{number}: {target}")
    return broken


every_page = pytest.mark.parametrize("path", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())


@every_page
def test_every_python_block_runs_in_order(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WESSL_CACHE", str(tmp_path / "cache"))
    run(path)


@every_page
def test_every_relative_link_and_picture_exists(path):
    assert broken_targets(path) == []


@every_page
def test_every_fence_is_closed(path):
    unclosed = read(path).open_fence
    assert unclosed is None, f"{path}:{unclosed}: this fence never closes"


def test_a_failing_block_is_named_by_page_and_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```bash\nfalse\n```\n\n```python\nx = 1\nassert x == 2\n```\n")
    with pytest.raises(AssertionError) as failure:
        run(page)
    last = failure.traceback[-1]
    assert (str(last.path), last.lineno + 1) == (str(page), 9)


def test_broken_links_and_open_fences_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "[here](page.md#top) [web](https://example.org) [gone](gone.md)\n"
        '<img src="gone.png">\n`[code](not-a-link.md)`\n```text\n[fenced](not-a-link.md)\n'
    )
    assert broken_targets(page) == [f"{page}:1: gone.md", f"{page}:2: gone.png"]
    assert read(page).open_fence == 4


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_placeholder_is_left(page):
    left = [text for _, text in read(page).prose if re.fullmatch(r"[A-Z]+_[A-Z_]+", text.strip())]
    assert left == []
