"""Labels in any script: an installed font with their characters is taken, and missing characters give one line."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager
from matplotlib.figure import Figure

from semcom.plots import fonts
from semcom.plots.style import ieee, render_bytes


def make_font(path: Path, name: str, characters: str) -> None:
    """Write a font in which each of some characters is a square."""
    glyphs = [".notdef", *(f"u{ord(c):X}" for c in characters)]
    pen = TTGlyphPen(None)
    for step, point in enumerate([(0, 0), (0, 500), (500, 500), (500, 0)]):
        pen.lineTo(point) if step else pen.moveTo(point)
    pen.closePath()
    square = pen.glyph()
    builder = FontBuilder(1000)
    builder.setupGlyphOrder(glyphs)
    builder.setupCharacterMap({ord(c): f"u{ord(c):X}" for c in characters})
    builder.setupGlyf(dict.fromkeys(glyphs, square))
    builder.setupHorizontalMetrics(dict.fromkeys(glyphs, (600, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": name, "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, usWinAscent=800, usWinDescent=200)
    builder.setupPost()
    builder.save(path)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install fonts of two scripts that the style's fonts lack, and of no other script."""
    kept = [font for font in font_manager.fontManager.ttflist if font.name.startswith(("DejaVu", "STIX"))]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", kept)
    for name, characters in (("Chinese", "准确率"), ("Korean", "정확도")):
        make_font(tmp_path / f"{name}.ttf", name, characters)
        font_manager.fontManager.addfont(tmp_path / f"{name}.ttf")
    fonts._find_families.cache_clear()
    fonts._warn_of_boxes.cache_clear()


def draw(text: str) -> list[str]:
    """Find the families of a label in a written file, and check that matplotlib warns of no character."""
    with warnings.catch_warnings(), ieee():
        warnings.simplefilter("error")
        figure = Figure()
        label = figure.text(0.1, 0.5, text)
        usual = label.get_fontfamily()
        contents = [render_bytes(figure, kind) for kind in ("pdf", "png")]
    assert all(contents) and label.get_fontfamily()[: len(usual)] == usual
    return list(label.get_fontfamily()[len(usual) :])


@pytest.mark.parametrize(
    ("text", "families"),
    [
        ("accuracy in %", []),
        ("准确率", ["Chinese"]),
        ("정확도", ["Korean"]),
        ("fedavg, 准确率 or 정확", ["Chinese", "Korean"]),
        ("Точность, précision", []),
    ],
)
@pytest.mark.usefixtures("installed")
def test_a_font_that_has_the_characters_is_taken(
    text: str, families: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert draw(text) == families and caplog.messages == []


@pytest.mark.usefixtures("installed")
def test_characters_that_no_font_has_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        assert draw("准 \U0001f680 漢") == ["Chinese"]
    assert caplog.messages == ["no installed font has 漢 \U0001f680: boxes in figures"]
