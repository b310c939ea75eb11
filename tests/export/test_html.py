from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from neural_flow.export._base import render_bytes


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def tags_of(text: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(text)
    return parser.tags


def test_nothing_is_loaded_from_anywhere(picture):
    text = render_bytes(picture, ".html").decode()
    assert set(re.findall(r"https?://[^\"' <]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in text
    for tag, attributes in tags_of(text):
        assert tag not in ("link", "iframe", "object")
        assert "src" not in attributes
        assert all(not name.startswith("on") for name in attributes), (tag, attributes)


def test_all_ids_are_unique_over_pages(picture, scene):
    text = render_bytes(replace(picture, scenes=(scene, scene)), ".html").decode()
    ids = [attributes["id"] for _, attributes in tags_of(text) if attributes.get("id")]
    assert len(ids) == len(set(ids))
    assert {"stage-1", "p1-stage-1", "nf-next"} <= set(ids)
    pages = [attributes for tag, attributes in tags_of(text) if tag == "section"]
    assert ["hidden" in page for page in pages] == [False, True]
    assert [page["data-name"] for page in pages] == ["folded", "opened"]


def test_one_page_needs_no_button(picture):
    ids = [attributes.get("id") for _, attributes in tags_of(render_bytes(picture, ".html").decode())]
    assert "nf-next" not in ids
    assert {"nf-search", "nf-fit", "nf-facts"} <= set(ids)


def test_a_dark_figure_makes_a_dark_page(picture, scene):
    dark = render_bytes(replace(picture, scenes=(replace(scene, background="#0F161C"),)), ".html").decode()
    assert "--paper: #0F161C; color-scheme: dark" in dark
    assert "color-scheme: light" in render_bytes(picture, ".html").decode()


def test_the_title_is_escaped(picture):
    assert "<title>Tiny &lt;1&gt;</title>" in render_bytes(picture, ".html").decode()


@pytest.mark.skipif(shutil.which("node") is None, reason="checks the syntax of the script with node")
def test_the_script_parses(picture, tmp_path):
    script = re.search(r"<script>(.*)</script>", render_bytes(picture, ".html").decode(), re.DOTALL)
    file = tmp_path / "viewer.js"
    file.write_text(script.group(1))
    subprocess.run(["node", "--check", str(file)], check=True)
