"""The figure around the drawings: it has the right size, and no part is cut off."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from semcom.plots import Plot, style
from semcom.plots.kinds import KINDS, name_empty, settle_kind
from semcom.plots.panels import draw_panels
from semcom.studies.analysis.means import cut_intervals
from semcom.studies.analysis.study import Study
from semcom.studies.names import METHODS
from semcom.tasks.metric import ACCURACY
from tests.plots.studies import SNR, drawn, made

LETTER = {
    "fedcl": (0.63, 0.64, 0.64),
    "fedproto": (0.62, 0.63, 0.635),
    "local": (0.625, 0.62, 0.63),
    "fedavg": (0.36, 0.42, 0.45),
}
"""Three personal methods between 62 and 64 %, and FedAvg between 36 and 45 %."""
LINES = Plot(kind="lines", x=SNR, hue="variant")


def cells(half: float = 0.005, **lines: tuple[float, ...]) -> pd.DataFrame:
    """The numbers of lines at three SNRs, with intervals of some half-width."""
    rows = [
        {"variant": name, SNR: snr, "mean": mean, "low": mean - half, "high": mean + half, "n": 3, "mark": ""}
        for name, means in lines.items()
        for snr, mean in zip((0.0, 9.0, 18.0), means, strict=True)
    ]
    return pd.DataFrame(rows)


def test_the_ordinate_of_fractions_ends_where_they_end() -> None:
    """Few seeds can have an interval from 0 to 100 %. A gain is not a fraction, so its interval is shown whole."""
    wide, said = cells(half=0.9, fedcl=(0.5, 0.55, 0.6)), "(Student's t), cut at 0 and 100 %."
    cut = cut_intervals(wide, ACCURACY)
    assert set(cut["low"]) == {0} and set(cut["high"]) == {1}
    assert drawn(wide, LINES).axes[0].get_ylim() == pytest.approx((-0.05, 1.05))
    low, high = drawn(cells(**LETTER), LINES).axes[0].get_ylim()
    assert drawn(wide, replace(LINES, y="gain")).axes[0].get_ylim()[0] < -0.4
    assert 0.3 < low < 0.355 and 0.645 < high < 0.7, "nor is it wider than before"
    caption = KINDS.get("lines").caption
    assert said in caption(cut, LINES) and said not in caption(cells(**LETTER), LINES)


def test_so_does_that_of_curves() -> None:
    """Bands from -40 to 150 % leave the curves all of the height."""
    curves = Plot(kind="curves", x="round", hue="variant")
    wide = cells(0.9, fedcl=(0.5, 0.55, 0.6)).rename(columns={SNR: "round"})
    assert drawn(wide, curves).axes[0].get_ylim() == pytest.approx((-0.05, 1.05))


MARKS = 24
"""Number of lines that differ by their mark: twelve marks, filled and open."""


def test_many_lines_have_no_intervals_and_say_so() -> None:
    names = dict(list(METHODS.items())[:MARKS])
    numbers = cells(**{name: (0.6 + i / 100,) * 3 for i, name in enumerate(names)})
    figure = drawn(numbers, LINES)
    assert not any(container.has_yerr for container in figure.axes[0].containers)
    assert "Bars of so many lines would hide each other" in KINDS.get("lines").caption(numbers, LINES)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(names.values())
    marks = {(line.get_marker(), str(line.get_markerfacecolor())[:5] == "white") for line in figure.axes[0].lines}
    assert len(marks) == MARKS, "told apart by the mark alone"


@pytest.fixture(scope="module", params=[2, 7, 23])
def study(request: pytest.FixtureRequest, resolving: None, tmp_path_factory: pytest.TempPathFactory) -> Study:
    longest = sorted(METHODS, key=lambda name: -len(METHODS[name]))
    return made(tmp_path_factory.mktemp("many"), tuple(longest[: request.param]), seeds=2, snrs=(0.0,))


REQUESTS: list[dict[str, Any]] = [
    {"x": SNR},
    {"x": "round"},
    {},
    {"kind": "dots", "x": "method", "hue": SNR},
    {"kind": "heatmap", "x": SNR},
    {"x": "client"},
    {"x": "class", "hue": "method"},
    {"x": "client", "hue": "variant"},
    {"kind": "confusion"},
    {"kind": "divisions", "at": {"seed": 0}},
    {"x": "uses"},
    {"x": SNR, "facet": "seed"},
]


@pytest.mark.parametrize("fields", REQUESTS, ids=lambda fields: fields.get("kind") or fields.get("x") or "bars")
def test_figures_fit_a_page_s_columns_and_nothing_is_cut_off(study: Study, fields: dict[str, Any]) -> None:
    part, plot = settle_kind(study, Plot(**fields))
    numbers = name_empty(KINDS.get(str(plot.kind)).numbers(part, plot), plot)
    with style.ieee():
        figure = draw_panels(numbers, plot)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        box = figure.get_tightbbox(canvas.get_renderer())
    width, height = figure.get_size_inches()
    panels = len(numbers[plot.facet].unique()) if plot.facet else 1
    assert width == (style.WIDTH if panels == 1 else style.WIDE)
    assert box.x0 >= -0.01 and box.y0 >= -0.01 and box.x1 <= width + 0.01 and box.y1 <= height + 0.01, box
    for place in (axes.get_position() for axes in figure.axes if axes.get_label() != "<colorbar>"):
        assert place.height * height > 0.25 and place.width * width > 1, "room for the drawing"


def test_numbers_of_a_map_stand_in_their_cells() -> None:
    """Long names of methods and of places take a page's width: in a column the numbers would lie on each other."""
    places = [f"q {q}, m 3, K 20" for q in (5, 10, 20, 50, 100)]
    names = ("fedproto", "fedcl with common encoder and own decoders")
    rows = [
        {"variant": name, "place": place, "mean": -0.1, "low": -0.2, "high": 0.0, "supported": False}
        for name in names
        for place in places
    ]
    with style.ieee():
        figure = draw_panels(pd.DataFrame(rows), Plot(kind="gain", x="place", hue="variant", over="local"))
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        axes = figure.axes[0]
        for texts in (axes.texts[:5], axes.texts[5:], axes.get_xticklabels()):
            boxes = [text.get_window_extent(canvas.get_renderer()) for text in texts]
            assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    assert figure.get_size_inches()[0] == style.WIDE
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "FedProto",
        "FedCL with common encoder and own decoders",
    ]
    assert axes.texts[0].get_text() == "-10.0 ± 10.0"


@pytest.mark.parametrize(("places", "beside"), [(2, 3), (5, 2), (8, 1)])
def test_maps_stand_beside_each_other_where_there_is_room(places: int, beside: int) -> None:
    """A page fits three maps of two columns, two of five columns with intervals, or one of eight."""
    rows = [
        {"variant": "fedavg", "part": part, "place": place, "mean": 0.1, "low": 0.0, "high": 0.2, "supported": False}
        for part in "abc"
        for place in range(places)
    ]
    figure = drawn(rows, Plot(kind="gain", x="place", hue="variant", facet="part", over="local"))
    left = {axes.get_subplotspec().colspan.start for axes in figure.axes if axes.get_label() != "<colorbar>"}
    assert len(left) == beside


def test_seven_snrs_leave_room_for_three_maps() -> None:
    """A number is as wide as a label of its column, which has no unit: that stands below."""
    rows = [
        {"variant": "fedavg_ft", "part": part, SNR: snr, "mean": 0.5}
        for part in "abc"
        for snr in (-15.0, -10.0, -5.0, 0.0, 5.0, 10.0, 15.0)
    ]
    figure = drawn(rows, Plot(kind="heatmap", x=SNR, y="accuracy", hue="variant", facet="part"))
    assert len({axes.get_position().y0 for axes in figure.axes[:3]}) == 1


def test_numbers_are_in_ascending_order_in_the_legend() -> None:
    """The first panel lacks the smallest one."""
    rows = [
        {"variant": "fedavg", "part": part, "partition.beta": beta, "mean": 0.5, "low": 0.4, "high": 0.6}
        for part, beta in (("a", 1.0), ("a", 100.0), ("b", 0.5), ("b", 1.0))
    ]
    figure = drawn(rows, Plot(kind="dots", x="variant", y="accuracy", hue="partition.beta", facet="part"))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [f"Dirichlet beta {beta}" for beta in (0.5, 1, 100)]


def test_marks_that_would_hide_each_other_take_turns() -> None:
    """Two equal lines at four SNRs show two marks each, while a separate third line shows all of its marks."""
    numbers = pd.concat([cells(fedcl=(0.6,) * 3, fedproto=(0.6,) * 3, fedavg=(0.2, 0.3, 0.4))] * 2, ignore_index=True)
    numbers.loc[9:, SNR] += 30
    axes = drawn(numbers, LINES).axes[0]
    shown = [container[0].get_markevery() for container in axes.containers]
    assert shown == [[0, 2, 4], [1, 3, 5], [0, 1, 2, 3, 4, 5]]
    assert "take turns" in KINDS.get("lines").note(numbers, LINES)
    assert "take turns" not in KINDS.get("lines").note(cells(**LETTER), LINES), "three SNRs are few"


def test_broken_lines_lie_on_solid_ones_which_are_wider() -> None:
    axes = drawn(cells(**LETTER), LINES).axes[0]
    lines = sorted((container[0] for container in axes.containers), key=lambda line: line.get_zorder())
    assert [line.get_linestyle() for line in lines] == ["-", "--", "-.", ":"]
    assert all(below.get_linewidth() > above.get_linewidth() for below, above in pairwise(lines))
    assert len({each["color"] for each in style.choose_line_styles(14)}) == 14


@pytest.mark.parametrize(("y", "better", "end"), [("accuracy", 1, "min"), ("mse", -1, "max")])
def test_a_scale_has_an_arrow_where_values_lie_beyond_it(y: str, better: int, end: str) -> None:
    """Gains end at 20 points, and so does the scale: a loss of 30 lies beyond it, one of 10 does not."""
    plot = Plot(kind="gain", x=SNR, y=y, hue="variant", over="local")
    for loss, extend in ((-0.3, end), (-0.1, "neither")):
        rows = [
            {
                "variant": "fedavg",
                SNR: snr,
                "mean": mean,
                "low": mean,
                "high": mean,
                "supported": False,
                "interval": "t",
            }
            for snr, mean in ((0.0, better * 0.2), (9.0, better * loss))
        ]
        bar = drawn(rows, plot).axes[0].images[0].colorbar
        assert bar is not None and bar.extend == extend and (bar.vmin, bar.vmax) == (-0.2, 0.2)
        assert ("arrow" in KINDS.get("gain").caption(pd.DataFrame(rows), plot)) == (extend == end)


FAR = {
    "constellation": {"i": [-3.0, 3.0], "q": [-3.0, 3.0], "sent_i": [-1.0, 1.0], "sent_q": [-1.0, 1.0]},
    "cell": {"x_m": [90.0, 10.0], "y_m": [90.0, 10.0], "los": [True, False], "snr_db": [0.0, 9.0]},
    "timeline": {"client": [0, 9], "late": [False, True], "round_s": [1.0, 1.0]}
    | dict.fromkeys(("receive_s", "compute_s", "send_s", "wait_s"), [0.1, 0.2]),
}
"""Two rows of a kind; a tenth of them is near."""


@pytest.mark.parametrize("kind", FAR)
def test_a_panel_is_not_cut_at_the_limits_of_another(kind: str) -> None:
    far = pd.DataFrame(FAR[kind]).assign(variant="fedcl")
    near = (far.select_dtypes("number") / 10).astype(far.select_dtypes("number").dtypes)
    plot = Plot(kind=kind, facet="variant")
    both = drawn(pd.concat([far, far.assign(**near, variant="fedavg")]), plot).axes
    for axes, part in zip(both, (far, far.assign(**near, variant="fedavg")), strict=False):
        assert axes.get_ylim() == drawn(part, plot).axes[0].get_ylim()


def test_a_panel_with_fewer_values_is_narrower() -> None:
    """Four values and one: five shares of the width to two."""
    rows = [
        {"variant": "fedcl", SNR: snr, "part": part, "mean": 0.5, "low": 0.4, "high": 0.6}
        for part, snrs in (("a", (0.0, 3.0, 6.0, 9.0)), ("b", (9.0,)))
        for snr in snrs
    ]
    figure = drawn(rows, replace(LINES, facet="part"))
    spec = figure.axes[0].get_subplotspec()
    assert spec is not None and spec.get_gridspec().get_width_ratios() == [5.0, 2.0]


def test_what_costs_nothing_is_a_level() -> None:
    """On a logarithmic axis it has no place."""
    plot = Plot(kind="curves", x="energy_j", hue="variant")
    numbers = cells(fedcl=(0.5, 0.55, 0.6), fedavg=(0.3, 0.4, 0.45), local=(0.5, 0.52, 0.53)).assign(
        round=[1, 2, 3] * 3
    )
    numbers["energy_j"] = [1.0, 2.0, 3.0, 10.0, 20.0, 30.0, 0.0, 0.0, 0.0]
    axes = drawn(numbers, plot).axes[0]
    assert axes.get_xscale() == "log" and list(axes.lines[2].get_ydata()) == [0.53, 0.53]
    assert "costs nothing" in KINDS.get("curves").caption(numbers, plot)


@pytest.mark.parametrize("kind", ["curves", "pareto"])
def test_costs_of_several_decades_have_a_prefix(kind: str) -> None:
    numbers = cells(fedcl=(0.5, 0.55, 0.6), fedavg=(0.3, 0.4, 0.45)).assign(efficient=True)
    numbers["uses"] = [2e3, 4e3, 6e3, 2e5, 4e5, 6e5]
    axes = drawn(numbers, Plot(kind=kind, x="uses", hue="variant")).axes[0]
    assert axes.get_xscale() == "log" and axes.xaxis.get_major_formatter()(1e4) == "10\N{THIN SPACE}k"
