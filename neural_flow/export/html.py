"""HTML: one file without network access that zooms, searches and shows what belongs together."""

from __future__ import annotations

from importlib.resources import files

from neural_flow.drawing import ExportOptions, Picture, Scene
from neural_flow.export._base import EXPORTERS, first_scene
from neural_flow.export._lowering import number
from neural_flow.export.svg import clean, quoted, svg_text
from neural_flow.theme import get_theme, luminance

_WORDS = ("folded", "opened")
# Nothing may be loaded from anywhere: what a page shows is in the page.
_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'"
)
_KEYS = "".join(
    f"<dt>{keys}</dt><dd>{what}</dd>"
    for keys, what in (
        ("← →", "along the trunk"),
        ("Home End", "first, last stage"),
        ("Tab", "next stage"),
        ("↑ ↓ Shift ← →", "move the picture"),
        ("+ − 0", "zoom in, out, show everything"),
        ("/", "search; Enter goes from hit to hit"),
        ("Esc", "let go"),
        ("wheel, pinch, drag", "zoom and move"),
        ("click", "keep a stage lit"),
    )
)


@EXPORTERS.register(".html")
def export_html(picture: Picture, options: ExportOptions) -> bytes:
    """Return ``picture`` as one HTML page; with several scenes, a button leads from one to the next."""
    first = first_scene(picture, ".html")
    pages = [_page(scene, index, options) for index, scene in enumerate(picture.scenes)]
    theme = get_theme("dark" if _is_dark(first) else "light")
    colors = {
        "paper": _paper(first), "ink": theme.ink, "sub": theme.sub, "line": theme.plate_edge,
        "wash": theme.group_edge, "raised": theme.group_fill, "accent": theme.skip,
    }  # fmt: skip
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{clean(first.title)}</title>
<style>
:root {{ color-scheme: {theme.name}; {"; ".join(f"--{name}: {color}" for name, color in colors.items())}; }}
{_resource("viewer.css")}</style>
</head>
<body>
<nav aria-label="Figure">
{_tabs(len(pages))}<output id="nf-found"></output>
<input id="nf-search" type="search" placeholder="Find a stage" aria-label="Find a stage"
 autocomplete="off" spellcheck="false">
<button id="nf-out" type="button" aria-label="Zoom out" title="Zoom out (−)">−</button>
<button id="nf-in" type="button" aria-label="Zoom in" title="Zoom in (+)">+</button>
<button id="nf-fit" type="button" title="Show everything (0)">fit</button>
<details><summary aria-label="Keys" title="Keys">?</summary><dl>{_KEYS}</dl></details>
</nav>
<main id="nf-pages">
{chr(10).join(pages)}
</main>
<aside id="nf-facts" aria-label="Facts" hidden></aside>
<script>
{_resource("viewer.js")}</script>
</body>
</html>
""".encode()


def _word(index: int) -> str:
    return _WORDS[index] if index < len(_WORDS) else f"page {index + 1}"


def _tabs(count: int) -> str:
    if count < 2:
        return ""
    tabs = [
        f'<button class="nf-tab" type="button" aria-pressed="{"false" if index else "true"}">{_word(index)}</button>'
        for index in range(count)
    ]
    return f'<span class="nf-tabs" role="group" aria-label="Repeats">{"".join(tabs)}</span>\n'


def _page(scene: Scene, index: int, options: ExportOptions) -> str:
    prefix = f"p{index}-" if index else ""
    hidden = " hidden" if index else ""
    size = f'data-width="{number(scene.width)}" data-height="{number(scene.height)}"'
    head = f'<section class="nf-page" data-prefix={quoted(prefix)} aria-label={quoted(_word(index))} {size}{hidden}>'
    return f"{head}\n{svg_text(scene, options, prefix, is_explored=True)}\n</section>"


def _paper(scene: Scene) -> str:
    return scene.background or "#FFFFFF"


def _is_dark(scene: Scene) -> bool:
    return luminance(_paper(scene)) < 0.18


def _resource(name: str) -> str:
    return (files("neural_flow.export") / name).read_text(encoding="utf-8")
