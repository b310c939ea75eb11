from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from neural_flow.export._base import render_bytes
from neural_flow.theme import contrast


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
        assert tag not in ("iframe", "object")
        assert tag != "link" or attributes["href"] == "data:,"  # without it browsers ask servers for an icon
        assert "src" not in attributes
        assert all(not name.startswith("on") for name in attributes), (tag, attributes)


def test_all_ids_are_unique_over_pages(picture, scene):
    text = render_bytes(replace(picture, scenes=(scene, scene)), ".html").decode()
    ids = [attributes["id"] for _, attributes in tags_of(text) if attributes.get("id")]
    assert len(ids) == len(set(ids))
    assert {"stage-1", "p1-stage-1"} <= set(ids)
    tabs = [attributes["aria-pressed"] for _, attributes in tags_of(text) if attributes.get("class") == "nf-tab"]
    assert tabs == ["true", "false"]
    pages = [attributes for tag, attributes in tags_of(text) if tag == "section"]
    assert ["hidden" in page for page in pages] == [False, True]
    assert [page["aria-label"] for page in pages] == ["folded", "opened"]


def test_one_page_needs_no_button(picture):
    found = [attributes for _, attributes in tags_of(render_bytes(picture, ".html").decode())]
    assert "nf-tab" not in {attributes.get("class") for attributes in found}
    assert {"nf-search", "nf-fit", "nf-facts"} <= {attributes.get("id") for attributes in found}


def test_controls_come_first_and_all_have_names(picture):
    tags = tags_of(render_bytes(picture, ".html").decode())
    controls = [index for index, (tag, _) in enumerate(tags) if tag in ("button", "input", "summary")]
    cards = [index for index, (_, attributes) in enumerate(tags) if attributes.get("tabindex") == "0"]
    assert max(controls) < min(cards)
    for index in controls:
        _, attributes = tags[index]
        assert attributes.get("aria-label") or attributes["id"] == "nf-fit"  # whose text is its name
    assert all(tags[index][1]["role"] == "img" and tags[index + 1][0] == "title" for index in cards)
    assert next(attributes for tag, attributes in tags if tag == "svg")["role"] == "group"


def test_a_dark_figure_makes_a_dark_page(picture, scene):
    dark = render_bytes(replace(picture, scenes=(replace(scene, background="#0F161C"),)), ".html").decode()
    assert "color-scheme: dark; --paper: #0F161C;" in dark
    light = render_bytes(picture, ".html").decode()
    assert "color-scheme: light; --paper: #FFFFFF;" in light
    for text in (dark, light):
        colors = dict(re.findall("--([a-z]+): (#[0-9A-F]{6})", text))
        assert contrast(colors["ink"], colors["paper"]) > 7
        assert contrast(colors["sub"], colors["paper"]) > 4.5
        assert contrast(colors["accent"], colors["paper"]) > 3


def test_the_title_is_escaped(picture):
    assert "<title>Tiny &lt;1&gt;</title>" in render_bytes(picture, ".html").decode()


@pytest.mark.skipif(shutil.which("node") is None, reason="checks the syntax of the script with node")
def test_the_script_parses(picture, tmp_path):
    script = re.search(r"<script>(.*)</script>", render_bytes(picture, ".html").decode(), re.DOTALL)
    file = tmp_path / "viewer.js"
    file.write_text(script.group(1))
    subprocess.run(["node", "--check", str(file)], check=True)
