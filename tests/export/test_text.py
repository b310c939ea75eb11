from __future__ import annotations

from dataclasses import replace

from neural_flow.export._base import render_bytes
from neural_flow.export.text import scene_text


def test_order_of_marks_does_not_show(scene):
    assert scene_text(replace(scene, marks=tuple(reversed(scene.marks)))) == scene_text(scene)


def test_a_hundredth_of_a_point_shows_and_less_does_not(scene):
    def shifted(by):
        return replace(
            scene, marks=tuple(replace(mark, x=mark.x + by) if hasattr(mark, "x") else mark for mark in scene.marks)
        )

    assert scene_text(shifted(1e-6)) == scene_text(scene)
    assert scene_text(shifted(0.02)) != scene_text(scene)


def test_pixels_show(scene):
    image = next(mark for mark in scene.marks if hasattr(mark, "pixels"))
    other = replace(image, pixels=image.pixels + 1)
    assert scene_text(replace(scene, marks=(other,))) != scene_text(replace(scene, marks=(image,)))


def test_groups_are_in_the_order_of_their_numbers(scene):
    groups = [replace(scene.groups[0], group_id=f"stage-{number}") for number in (10, 9, 2)]
    lines = scene_text(replace(scene, groups=tuple(groups))).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("group")] == ["stage-2", "stage-9", "stage-10"]


def test_all_pages_are_written(picture, scene):
    twice = replace(picture, scenes=(scene, scene))
    assert render_bytes(twice, ".txt").decode().count("scene 120 x 80 on #FFFFFF") == 2
