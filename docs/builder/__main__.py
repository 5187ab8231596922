"""``python -m docs.builder FOLDER``: every page, the files they link, and an index to search."""

import html
import json
import os
import re
import shutil
import sys
from pathlib import Path
from string import Template
from urllib.parse import unquote

from docs.builder import api
from docs.builder.render import Rendered, code, render
from pygments.formatters import HtmlFormatter

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SECTIONS = {
    "Start": ("docs/index.md", "README.md", "docs/folder.md", "docs/labels.md"),
    "Understand": (
        *("docs/results.md", "docs/ablations.md", "docs/losses.md", "docs/evaluate.md"),
        *("docs/diversity.md", "docs/studies.md"),
    ),
    "Do": tuple(
        f"docs/{name}.md"
        for name in (
            *("reproduce", "extend", "export", "embed", "shards", "track"),
            *("parallel", "scale"),
        )
    ),
    "Parts": tuple(
        f"docs/parts/{name}.md"
        for name in (
            *("index", "heads", "loss", "sinkhorn", "views", "knn", "few-shot"),
            *("dino", "lightly"),
        )
    ),
    "Look up": ("docs/api.md", "docs/faq.md", "docs/speed.md", "docs/LOG.md"),
    "Project": ("CONTRIBUTING.md", "CHANGELOG.md"),
}
"""The order of the menu; pages that are not named follow in their folder's section or the last."""

TITLES = {
    "README.md": "Overview",
    "docs/studies.md": "Studies",
    "docs/export.md": "Export",
    "docs/embed.md": "Features in a file",
    "docs/scale.md": "Many GPUs",
    "docs/shards.md": "Shards, URLs, the hub",
    "docs/parts/sinkhorn.md": "Targets: Sinkhorn, centring",
    "docs/parts/dino.md": "Inside DINO's training",
    "docs/parts/lightly.md": "Inside lightly's training",
}
"""Where the menu wants fewer words than the page's first heading, or others."""


class BrokenLink(Exception):
    """Links that lead nowhere, each as page and target."""


def sections() -> dict[str, list[str]]:
    """The menu: every page of ``docs/`` is in it once."""
    every = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    menu = {title: [p for p in named if (ROOT / p).exists()] for title, named in SECTIONS.items()}
    known = {page for pages in menu.values() for page in pages}
    for page in (page for page in every if page not in known):
        menu["Parts" if page.startswith("docs/parts/") else "Project"].append(page)
    return menu


def address(path: str) -> str:
    """Where a file of the repository lies on the site.

    >>> address("docs/parts/index.md"), address("README.md"), address("src/wessl/cli.py")
    ('parts/index.html', 'readme.html', 'source/src/wessl/cli.py.html')
    """
    if path.endswith(".md"):
        inside = path.removeprefix("docs/")
        inside = inside if path.startswith("docs/") else inside.lower()
        return inside.removesuffix(".md") + ".html"
    return f"source/{path}.html" if path.endswith((".py", ".toml", ".txt")) else f"files/{path}"


class Site:
    def __init__(self) -> None:
        self.menu = sections()
        self.order = [page for pages in self.menu.values() for page in pages]
        self.files: set[str] = set()
        self.pages = {path: self.read(path) for path in self.order}

    def read(self, path: str) -> Rendered:
        text = api.page() if path == "docs/api.md" else (ROOT / path).read_text(encoding="utf-8")
        return render(text, lambda target: self.relink(path, target))

    def relink(self, page: str, target: str) -> str:
        """A page's own link, as the site needs it."""
        file, _, anchor = target.partition("#")
        if not file or is_address(target):
            return target
        path = resolve(page, file)
        path = f"{path}/index.md" if f"{path}/index.md" in self.order else path
        if (ROOT / path).is_file() and path not in self.order:
            self.files.add(path)
        to = os.path.relpath(address(path), os.path.dirname(address(page)) or ".")
        return f"{to}#{anchor}" if anchor else to

    def broken(self) -> list[str]:
        """Every link to a file or a heading that is not there."""
        found = []
        for page, rendered in self.pages.items():
            for target in (t for t in rendered.links if not is_address(t)):
                file, _, anchor = target.partition("#")
                path = resolve(page, file) if file else page
                there = (ROOT / path).exists()
                if not there or (anchor and anchor not in self.anchors(path)):
                    found.append(f"{page}: {target}")
        return found

    def anchors(self, path: str) -> set[str]:
        return self.pages[path].anchors if path in self.pages else set()

    def write(self, out: Path) -> None:
        if broken := self.broken():
            raise BrokenLink("\n".join(broken))
        out.mkdir(parents=True, exist_ok=True)
        for path, rendered in self.pages.items():
            self.put(out, path, rendered.title, rendered.html, contents(rendered))
        for path in sorted(self.files):
            if address(path).startswith("source/"):
                text = code((ROOT / path).read_text(encoding="utf-8"), _language(path), "")
                self.put(out, path, path, f"<h1>{path}</h1>{text}", "")
            else:
                place = out / address(path)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / path, place)
        for name in ("style.css", "search.js"):
            shutil.copyfile(HERE / name, out / name)
        (out / "code.css").write_text(colours())
        (out / "words.js").write_text(f"const WORDS = {json.dumps(self.words())};\n")

    def put(self, out: Path, path: str, title: str, body: str, toc: str) -> None:
        place = out / address(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        root = os.path.relpath(".", os.path.dirname(address(path)) or ".")
        page = Template((HERE / "page.html").read_text()).substitute(
            title=html.escape(title), root=root, menu=self.links(path), body=body, toc=toc
        )
        place.write_text(page, encoding="utf-8")

    def links(self, here: str) -> str:
        """The menu, seen from a page."""
        said = []
        for title, pages in self.menu.items():
            said.append(f"<h2>{title}</h2><ul>")
            for page in pages:
                to = os.path.relpath(address(page), os.path.dirname(address(here)) or ".")
                mark = ' aria-current="page"' if page == here else ""
                words = html.escape(TITLES.get(page, self.pages[page].title))
                said.append(f'<li><a href="{to}"{mark}>{words}</a></li>')
            said.append("</ul>")
        return "".join(said)

    def words(self) -> list[dict[str, str]]:
        """What the search looks through: each heading with the text below it."""
        return [
            dict(to=f"{address(path)}#{anchor}", page=page.title, title=title, text=text)
            for path, page in self.pages.items()
            for (_, anchor, title), (_, text) in zip(page.headings, page.words, strict=True)
        ]


def resolve(page: str, file: str) -> str:
    """The repository's path of a link in a page."""
    return os.path.normpath(os.path.join(os.path.dirname(page), unquote(file)))


def is_address(target: str) -> bool:
    return re.match(r"[a-zA-Z][\w+.-]*:|//", target) is not None


def contents(page: Rendered) -> str:
    links = "".join(
        f'<li class="h{level}"><a href="#{anchor}">{html.escape(words)}</a></li>'
        for level, anchor, words in page.headings
        if level in (2, 3)
    )
    return f"<ul>{links}</ul>" if links.count("<li") > 1 else ""


def colours() -> str:
    light = HtmlFormatter(style="default").get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".highlight")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def _language(path: str) -> str:
    return {"py": "python", "toml": "toml"}.get(path.rpartition(".")[2], "text")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m docs.builder FOLDER")
    site, out = Site(), Path(sys.argv[1])
    try:
        site.write(out)
    except BrokenLink as error:
        sys.exit(f"links that lead nowhere, nothing was written:\n{error}")
    print(f"{len(site.pages)} pages: open {out / 'index.html'}")


if __name__ == "__main__":
    main()
