"""The script of the HTML page, driven by events in a browser where the machine has one."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest

from neural_flow.drawing import MarkGroup, Path, Picture, Rect, Scene
from neural_flow.export._base import render_bytes
from neural_flow.records import Capture

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for path in map(shutil.which, NAMES) if path), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="drives the page in a browser")

HELPERS = """
window.requestAnimationFrame = (work) => setTimeout(work, 0);  // a browser without a screen may draw no frame
const frame = () => new Promise((done) => setTimeout(done, 20));
const svg = () => [...document.querySelectorAll(".nf-page")].find((page) => !page.hidden).querySelector("svg");
const view = async () => { await frame(); return svg().getAttribute("viewBox").split(" ").map(Number); };
const lit = () => [...svg().querySelectorAll(".is-lit")].map((part) => part.id).sort();
const active = () => document.activeElement.id;
const press = (key, more) => (document.activeElement ?? document.body).dispatchEvent(
  new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
const at = (id) => { const box = document.getElementById(id).getBoundingClientRect();
  return { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 }; };
const point = (name, id, more) => document.querySelector(`#${id} > rect, #${id} > path`).dispatchEvent(
  new PointerEvent(name, { bubbles: true, cancelable: true, pointerId: 1, ...at(id), ...more }));
const type = (words) => { const box = document.getElementById("nf-search"); box.value = words;
  box.dispatchEvent(new Event("input")); return document.getElementById("nf-found").textContent; };
SVGElement.prototype.setPointerCapture = () => {};  // events made by a script have no pointer to capture
"""
RUNNER = """<script>{helpers}
(async () => {{
  const seen = {{}};
  try {{ {steps} }} catch (error) {{ seen.error = String(error.stack); }}
  document.body.dataset.seen = JSON.stringify(seen);
}})();
</script></body>"""


def scene() -> Scene:
    """Return three cards in a row with a ring, and a skip over the middle one."""
    marks = [
        Rect(x=10 + 40 * index, y=20, width=20, height=20, stroke="#000000", stroke_width=1, group=name)
        for index, name in enumerate(("stage-0", "stage-1", "ring-1", "stage-2"))
    ]
    groups = [
        MarkGroup(group_id="stage-0", title="stem\nConv2d", css_class="nf-stage"),
        MarkGroup(group_id="stage-1", title="body\nLinear", css_class="nf-stage"),
        MarkGroup(group_id="ring-1", title="add", css_class="nf-ring"),
        MarkGroup(group_id="stage-2", title="head\nLinear", css_class="nf-stage"),
    ]
    ends = [("stage-0", "stage-1"), ("stage-1", "ring-1"), ("ring-1", "stage-2"), ("stage-0", "ring-1")]
    for index, (source, target) in enumerate(ends):
        kind = "skip" if index == 3 else "primary"
        y = 60.0 if index == 3 else 30.0
        line = (("M", 30 + 40.0 * (index % 3), y), ("L", 50 + 40.0 * (index % 3), y))
        marks.append(Path(commands=line, stroke="#000000", stroke_width=1, group=f"edge-{index}"))
        data = (("src", source), ("dst", target), ("kind", kind))
        groups.append(MarkGroup(group_id=f"edge-{index}", title=kind, css_class=f"nf-edge nf-{kind}", data=data))
    return Scene(width=200, height=100, marks=tuple(marks), groups=tuple(groups), title="T", background="#FFFFFF")


def seen_in_browser(folder, steps: str, num_pages: int = 1) -> dict:
    """Return what ``steps`` put into ``seen``, run inside the page."""
    picture = Picture(topology=None, capture=Capture(), scenes=(scene(),) * num_pages)
    text = render_bytes(picture, ".html").decode()
    file = folder / "page.html"
    file.write_text(text.replace("</body>", RUNNER.format(helpers=HELPERS, steps=steps)), encoding="utf-8")
    ran = subprocess.run(
        [
            BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
            "--window-size=1000,700", "--virtual-time-budget=20000", "--dump-dom", file.as_uri(),
        ],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    seen = json.loads(html.unescape(re.search(r'<body data-seen="([^"]*)"', ran.stdout).group(1)))
    assert "error" not in seen, seen["error"]
    return seen


def test_pointing_lights_what_belongs_together(tmp_path):
    seen = seen_in_browser(
        tmp_path,
        """
        point("pointermove", "stage-0"); seen.card = lit();
        seen.facts = document.getElementById("nf-facts").textContent;
        point("pointermove", "edge-2"); seen.edge = lit();
        point("pointermove", "ring-1"); seen.ring = lit();
        svg().dispatchEvent(new PointerEvent("pointerleave", { pointerId: 1 })); seen.left = lit();
        point("pointerdown", "stage-2"); point("pointerup", "stage-2"); point("click", "stage-2");
        svg().dispatchEvent(new PointerEvent("pointerleave", { pointerId: 1 })); seen.kept = lit();
        seen.active = active();
        svg().dispatchEvent(new PointerEvent("click", { bubbles: true })); seen.let_go = lit();
        """,
    )
    assert seen["card"] == ["edge-0", "edge-3", "ring-1", "stage-0", "stage-1"]
    assert seen["facts"] == "stem\nConv2d"
    assert seen["edge"] == ["edge-2", "ring-1", "stage-2"]
    assert seen["ring"] == ["edge-1", "edge-2", "edge-3", "ring-1", "stage-0", "stage-1", "stage-2"]
    assert seen["left"] == seen["let_go"] == []
    assert seen["kept"] == ["edge-2", "ring-1", "stage-2"]
    assert seen["active"] == "stage-2"


def test_the_wheel_zooms_where_it_points_and_dragging_moves(tmp_path):
    seen = seen_in_browser(
        tmp_path,
        """
        seen.full = await view();
        const before = at("stage-0");
        svg().dispatchEvent(new WheelEvent("wheel", { deltaY: -400, ...before, cancelable: true }));
        seen.zoomed = await view(); const after = at("stage-0");
        seen.shift = [after.clientX - before.clientX, after.clientY - before.clientY];
        const to = { clientX: after.clientX + 50, clientY: after.clientY - 30 };
        point("pointerdown", "stage-0"); point("pointermove", "stage-0", to); point("pointerup", "stage-0", to);
        point("click", "stage-0", to);
        await view(); const moved = at("stage-0");
        seen.drag = [moved.clientX - after.clientX, moved.clientY - after.clientY]; seen.lit = lit();
        for (let turn = 0; turn < 60; turn += 1) press("-");
        seen.far = await view();
        for (let turn = 0; turn < 60; turn += 1) press("ArrowUp");
        seen.up = await view();
        press("0"); seen.again = await view();
        """,
    )
    assert seen["full"] == seen["again"] == [0, 0, 200, 100]
    assert seen["zoomed"][2] == pytest.approx(200 * 2.718281828**-0.6, rel=1e-3)
    assert seen["shift"] == pytest.approx([0, 0], abs=0.5)
    assert seen["drag"] == pytest.approx([50, -30], abs=0.5)
    assert seen["lit"] == []  # a drag is no click
    assert seen["far"][2] == pytest.approx(800)
    assert seen["up"][1] + seen["up"][3] / 2 == pytest.approx(0, abs=0.01)  # the middle stays on the page


def test_two_fingers_zoom(tmp_path):
    seen = seen_in_browser(
        tmp_path,
        """
        const middle = at("stage-1");
        const finger = (name, id, shift) => point(name, "stage-1", { pointerId: id, clientX: middle.clientX + shift });
        finger("pointerdown", 1, -50); finger("pointerdown", 2, 50);
        finger("pointermove", 1, -100); finger("pointermove", 2, 100);
        seen.view = await view();
        """,
    )
    assert seen["view"][2] == pytest.approx(100, rel=0.01)


def test_arrows_walk_along_the_trunk(tmp_path):
    seen = seen_in_browser(
        tmp_path,
        """
        seen.walk = [];
        for (const key of ["ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "Home", "End"]) {
          press(key); seen.walk.push(active());
        }
        seen.ring = document.querySelector(".nf-focus").style.display;
        press("Escape"); seen.left = [active(), lit().length];
        """,
    )
    assert seen["walk"] == ["stage-0", "stage-1", "stage-2", "stage-2", "stage-1", "stage-0", "stage-2"]
    assert seen["ring"] == "inline"
    assert seen["left"] == ["", 0]


def test_searching_lights_hits_and_goes_from_one_to_the_next(tmp_path):
    seen = seen_in_browser(
        tmp_path,
        """
        press("/"); seen.active = active();
        seen.two = [type("LINEAR"), lit()];
        press("Enter"); seen.first = document.getElementById("nf-found").textContent; seen.near = lit();
        press("Enter"); press("Enter"); seen.round = document.getElementById("nf-found").textContent;
        seen.none = [type("linearx"), lit()];
        type("stem"); seen.one = lit();
        document.querySelectorAll(".nf-tab")[1].click();
        seen.other = [document.querySelector(".nf-page").hidden, lit()];
        document.getElementById("nf-search").focus(); press("Escape"); seen.empty = [type(""), lit()];
        """,
        num_pages=2,
    )
    assert seen["active"] == "nf-search"
    assert seen["two"] == ["2 found", ["stage-1", "stage-2"]]
    assert seen["first"] == "1 of 2"
    assert seen["near"] == ["edge-0", "edge-1", "ring-1", "stage-0", "stage-1"]
    assert seen["round"] == "1 of 2"
    assert seen["none"] == ["0 found", []]
    assert seen["one"] == ["stage-0"]
    assert seen["other"][0] is True
    assert seen["other"][1] == ["p1-stage-0"]
    assert seen["empty"] == ["", []]
