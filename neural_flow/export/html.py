"""HTML: one file without network access that zooms, searches and shows what belongs together."""

from __future__ import annotations

from importlib.resources import files

from neural_flow.drawing import ExportOptions, Picture, Scene
from neural_flow.export._base import EXPORTERS, first_scene
from neural_flow.export._lowering import number
from neural_flow.export.svg import clean, quoted, svg_text

_WORDS = ("folded", "opened")
# Nothing may be loaded from anywhere: what a page shows is in the page.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


@EXPORTERS.register(".html")
def export_html(picture: Picture, options: ExportOptions) -> bytes:
    """Return ``picture`` as one HTML page; with several scenes, a button leads from one to the next."""
    first = first_scene(picture, ".html")
    pages = [_page(scene, index, options) for index, scene in enumerate(picture.scenes)]
    names = "" if len(pages) < 2 else f'<button id="nf-next" type="button">{_WORDS[1]}</button>'
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{clean(first.title)}</title>
<style>
:root {{ --paper: {_paper(first)}; color-scheme: {"dark" if _is_dark(first) else "light"}; }}
{_resource("viewer.css")}</style>
</head>
<body>
<main id="nf-pages">
{chr(10).join(pages)}
</main>
<nav aria-label="Figure">
<input id="nf-search" type="search" placeholder="Find a stage" aria-label="Find a stage" autocomplete="off">
<output id="nf-found" aria-live="polite"></output>
{names}<button id="nf-fit" type="button" title="Show everything (0)">fit</button>
</nav>
<aside id="nf-facts" aria-live="polite" hidden></aside>
<script>
{_resource("viewer.js")}</script>
</body>
</html>
""".encode()


def _page(scene: Scene, index: int, options: ExportOptions) -> str:
    prefix = f"p{index}-" if index else ""
    word = _WORDS[index] if index < len(_WORDS) else f"page {index + 1}"
    hidden = " hidden" if index else ""
    size = f'data-width="{number(scene.width)}" data-height="{number(scene.height)}"'
    head = f'<section class="nf-page" data-prefix={quoted(prefix)} data-name={quoted(word)} {size}{hidden}>'
    return f"{head}\n{svg_text(scene, options, prefix)}\n</section>"


def _paper(scene: Scene) -> str:
    return scene.background or "#FFFFFF"


def _is_dark(scene: Scene) -> bool:
    color = _paper(scene)
    return sum(int(color[start : start + 2], 16) for start in (1, 3, 5)) < 3 * 110


def _resource(name: str) -> str:
    return (files("neural_flow.export") / name).read_text(encoding="utf-8")
