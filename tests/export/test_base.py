from __future__ import annotations

import os
import stat

import pytest

from neural_flow.drawing import Picture
from neural_flow.errors import ExportError, UnknownNameError
from neural_flow.export import _base
from neural_flow.export._base import EXPORTERS, render_bytes, write_picture


def test_the_suffix_picks_the_exporter_in_any_case(picture, tmp_path):
    write_picture(picture, tmp_path / "Figure.SVG")
    assert (tmp_path / "Figure.SVG").read_bytes() == render_bytes(picture, ".svg") == render_bytes(picture, "svg")


def test_an_unknown_suffix_lists_the_choices(picture, tmp_path):
    with pytest.raises(UnknownNameError, match=r"unknown exporter '\.svgz'") as caught:
        write_picture(picture, tmp_path / "figure.svgz")
    assert caught.value.exit_code == 2
    assert set(caught.value.choices) >= {".svg", ".png", ".pdf", ".html", ".json", ".md", ".txt"}
    assert list(tmp_path.iterdir()) == []


def test_no_suffix_is_an_unknown_exporter(picture, tmp_path):
    with pytest.raises(UnknownNameError):
        write_picture(picture, tmp_path / "figure")


def test_a_missing_folder_is_named_with_the_command_that_makes_it(picture, tmp_path):
    with pytest.raises(ExportError, match="cannot be written") as caught:
        write_picture(picture, tmp_path / "no" / "figure.svg")
    assert "mkdir -p" in caught.value.hint
    assert caught.value.exit_code == 6
    assert isinstance(caught.value, OSError)


def test_a_folder_in_place_of_the_file(picture, tmp_path):
    (tmp_path / "figure.svg").mkdir()
    with pytest.raises(ExportError, match="cannot be written") as caught:
        write_picture(picture, tmp_path / "figure.svg")
    assert "folder" in caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["figure.svg"]


def test_a_file_that_cannot_be_drawn_keeps_the_old_one(picture, tmp_path, monkeypatch):
    file = tmp_path / "figure.svg"
    file.write_text("old")

    def fail(picture, options):
        raise RuntimeError("drawing failed")

    monkeypatch.setitem(EXPORTERS._parts, ".svg", fail)
    with pytest.raises(RuntimeError, match="drawing failed"):
        write_picture(picture, file)
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["figure.svg"]


def test_an_interrupted_write_leaves_nothing_half_written(picture, tmp_path, monkeypatch):
    file = tmp_path / "figure.svg"
    file.write_text("old")

    def interrupt(source, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(_base.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_picture(picture, file)
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["figure.svg"]


def test_a_full_disk_is_an_export_error(picture, tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_base.os, "replace", full)
    with pytest.raises(ExportError, match="No space left on device") as caught:
        write_picture(picture, tmp_path / "figure.svg")
    assert "make room" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_has_ordinary_permissions_and_an_old_one_keeps_its_own(picture, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")
    file = tmp_path / "figure.svg"
    write_picture(picture, file)
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    file.chmod(0o640)
    write_picture(picture, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_link_stays_a_link(picture, tmp_path):
    real = tmp_path / "real.svg"
    real.write_text("old")
    link = tmp_path / "link.svg"
    link.symlink_to(real)
    write_picture(picture, link)
    assert link.is_symlink()
    assert real.read_bytes().startswith(b"<?xml")


def test_a_relative_file_is_written_to_the_working_folder(picture, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_picture(picture, "figure.svg")
    assert os.listdir() == ["figure.svg"]


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf", ".html"])
def test_data_without_a_page_cannot_become_a_picture(picture, suffix):
    empty = Picture(topology=picture.topology, capture=picture.capture)
    with pytest.raises(ExportError, match="no drawn page"):
        render_bytes(empty, suffix)
