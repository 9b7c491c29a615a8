"""Every kind of figure plots the numbers of the study and draws exactly these numbers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from scipy.stats import ttest_1samp

import semcom
from semcom.config import ConfigError, DataConfig
from semcom.plots import Plot, gain
from semcom.plots.base import Kind, Styles
from semcom.plots.kinds import KINDS, settle_kind
from semcom.runs.folder.summary import write_summary
from semcom.runs.result.accuracy import compute_headlines
from semcom.studies.analysis.means import compute_means
from semcom.studies.analysis.study import Study
from tests.plots.studies import CLASSES, SNR, accuracy, made, shown
from tests.refusals import refuses
from tests.studies.folders import config, keep, line, scored, write

ONE = {SNR: 9}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, resolving: None) -> Study:
    return made(tmp_path_factory.mktemp("study"))


def as_of(means: pd.DataFrame, cells: pd.DataFrame, by: list[str]) -> None:
    """Check that cells are those of a study's means, to the last bit."""
    both = [frame.sort_values(by)[[*by, "mean", "low", "high", "n"]].reset_index(drop=True) for frame in (means, cells)]
    pd.testing.assert_frame_equal(*both, check_exact=True)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"x": SNR}, "lines"),
        ({"x": "channel.test_snr_db"}, "lines"),
        ({"x": "partition.kind"}, "bars"),
        ({}, "bars"),
        ({"x": "round"}, "curves"),
        ({"x": "client"}, "clients"),
        ({"x": "class"}, "classes"),
        ({"x": "energy_j"}, "pareto"),
    ],
)
def test_the_kind_follows_from_the_abscissa(whole: Study, fields: dict[str, str], kind: str) -> None:
    assert settle_kind(whole, Plot(**fields))[1].kind == kind


@pytest.mark.parametrize("kind", ["lines", "bars", "dots", "heatmap"])
def test_means_are_those_of_the_study(whole: Study, kind: str) -> None:
    cells, _, _ = shown(whole, kind=kind, x=SNR)
    as_of(whole.mean(), cells, ["variant", SNR])
    assert cells["mean"].min() == pytest.approx(accuracy("fedavg", 0, 1))
    assert set(cells["mark"]) == {"best", "second", ""}
    cells, _, _ = shown(whole, kind=kind, x=SNR, hue="method", y="worst10", view="personal")
    by = ["method", SNR]
    as_of(whole.mean(by, metric="worst10"), cells, by)


def test_an_axis_that_does_not_vary_and_the_test_snr(whole: Study) -> None:
    cells, figure, _ = shown(whole, x="partition.ways", hue="variant", at=ONE)
    as_of(whole.where(ONE).mean(), cells, ["variant"])
    assert set(cells["partition.ways"]) == {3.0} and figure.axes[-1].get_xlabel() == "Ways"
    cells, _, _ = shown(whole, x="channel.test_snr_db", facet=SNR)
    np.testing.assert_array_equal(cells["test_snr_db"], cells[SNR])  # trained and tested at the same
    as_of(whole.mean(), cells, ["variant", SNR])


def test_bars_and_dots_stand_at_their_means(whole: Study) -> None:
    cells, figure, _ = shown(whole, at=ONE)
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert names == ["FedAvg", "FedProto", "FedCL"], "the best one on top"
    np.testing.assert_array_equal([bar.get_width() for bar in figure.axes[0].patches], cells["mean"])
    assert figure.axes[0].get_xlim()[0] == 0 and figure.axes[0].get_xlim()[1] > cells["high"].max()
    cells, figure, _ = shown(whole, kind="dots", x="method", hue=SNR)
    for container, snr in zip(figure.axes[0].containers, (0.0, 9.0), strict=True):
        np.testing.assert_array_equal(container[0].get_xdata(), cells.loc[cells[SNR] == snr, "mean"])
        assert np.abs(container[0].get_ydata() - [0, 1, 2]).max() < 0.5
    assert 0.35 < figure.axes[0].get_xlim()[0] < cells["low"].min(), "the axis shows the variation"


@pytest.mark.parametrize("kind", ["dots", "heatmap"])
def test_panels_with_other_rows_have_labels_of_their_own(tmp_path: Path, kind: str) -> None:
    """FedAvg has no runs at 9 dB, so the two panels have different rows."""
    study = made(tmp_path, seeds=2)
    for run in study.stored:
        if run.variant == "fedavg" and run.fields[SNR] == 9:
            shutil.rmtree(run.folder)
    fields = {"x": "variant", "facet": SNR} if kind == "dots" else {"x": "partition.ways", "facet": SNR}
    _, figure, _ = shown(semcom.study(tmp_path), kind=kind, **fields)
    names = [sorted(text.get_text() for text in axes.get_yticklabels()) for axes in figure.axes[:2]]
    assert names == [["FedAvg", "FedCL", "FedProto"], ["FedCL", "FedProto"]]
    assert all(axes.yaxis.get_tick_params()["labelleft"] for axes in figure.axes[:2])


def test_a_heatmap_has_the_means_in_its_cells(whole: Study) -> None:
    cells, figure, _ = shown(whole, kind="heatmap", x=SNR)
    axes = figure.axes[0]
    expected = [[accuracy(method, snr, 1) for snr in (0, 9)] for method in ("fedavg", "fedcl", "fedproto")]
    np.testing.assert_allclose(axes.images[0].get_array(), expected)
    texts = {text.get_position(): (text.get_text(), text.get_fontweight()) for text in axes.texts}
    assert texts[1, 1] == ("64.9", "bold") and texts[0, 0] == ("40.0", "normal")
    assert [text.get_color() for text in axes.texts][::5] == ["white", "black"], "on dark, on light"


def test_curves_are_smoothed_means_with_bands(whole: Study) -> None:
    cells, figure, _ = shown(whole, x="round", window=2, at=ONE)
    as_of(compute_means(whole.where(ONE).smooth(2), ["variant", "round"], "accuracy"), cells, ["variant", "round"])
    last = cells.set_index(["variant", "round"])["mean"]["fedcl", 4]
    assert last == pytest.approx(accuracy("fedcl", 9, 1) + 0.1)
    axes = figure.axes[0]
    for curve, band, hue in zip(axes.lines, axes.collections, ("fedavg", "fedcl", "fedproto"), strict=True):
        own = cells[cells["variant"] == hue]
        np.testing.assert_array_equal(curve.get_xydata(), own[["round", "mean"]])
        ends = band.get_paths()[0].vertices
        assert ends[:, 1].min() == own["low"].min() and ends[:, 1].max() == own["high"].max()
    cells, _, _ = shown(whole, x="round", y="loss", at=ONE)
    assert cells["mean"].tolist()[:4] == [1, 1 / 2, 1 / 3, 1 / 4]


def test_curves_may_be_over_what_the_rounds_cost(whole: Study) -> None:
    """Up and down, of 3 clients: 100 uses and 2 symbols each way for the first method, more for the next."""
    usual, _, _ = shown(whole, x="round", at=ONE)
    cells, figure, plot = shown(whole, kind="curves", x="energy_j", at=ONE)
    assert cells["mean"].tolist() == usual["mean"].tolist() and cells["round"].tolist() == usual["round"].tolist()
    costs = whole.where(ONE).pareto("energy_j").set_index("variant")["cost"]
    expected = [costs[name] * r / 4 for name, r in zip(cells["variant"], cells["round"], strict=True)]
    assert cells["energy_j"].tolist() == pytest.approx(expected)
    assert figure.axes[0].get_xlabel() == "Energy (symbols)"
    assert " against energy (symbols), " in KINDS.get("curves").caption(cells, plot)
    with pytest.raises(ConfigError, match="x: the time_s of fedavg are not known"):
        shown(whole, kind="curves", x="time_s", at=ONE)


def test_a_curve_ends_where_the_first_seed_ends(tmp_path: Path) -> None:
    """A mean over fewer seeds would jump."""
    study = made(tmp_path, ("fedcl",), seeds=2, snrs=(9.0,))
    folder, summary = study.stored[1].folder, study.stored[1].summary
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)[:2]
    (folder / "metrics.jsonl").write_text("".join(lines))
    views = compute_headlines([json.loads(each) for each in lines])
    write_summary(folder, {**(summary or {}), "rounds": 2, "views": views})  # it stopped by its patience
    cells, _, _ = shown(semcom.study(tmp_path), x="round")
    assert cells["round"].tolist() == [1, 2] and set(cells["n"]) == {2}


def test_classes_and_clients(whole: Study) -> None:
    cells, figure, _ = shown(whole, x="class", at=ONE)
    own = cells[cells["variant"] == "fedcl"]
    np.testing.assert_allclose(own["mean"], np.multiply(CLASSES, np.mean([accuracy("fedcl", 9, s) for s in range(3)])))
    assert [axes.get_title() for axes in figure.axes] == ["FedAvg", "FedCL", "FedProto"]
    np.testing.assert_array_equal([bar.get_height() for bar in figure.axes[1].patches], own["mean"])
    end = accuracy("fedcl", 9, 1)
    cells, _, _ = shown(whole, x="client", at=ONE)
    np.testing.assert_allclose(cells.loc[cells["variant"] == "fedcl", "mean"], [end - 0.1, end, end + 0.1])
    cells, figure, plot = shown(whole, x="client", at={**ONE, "seed": 2})
    one = cells.loc[cells["variant"] == "fedcl", "mean"]
    np.testing.assert_allclose(one, np.array([end, end + 0.1, end - 0.1]) + 1 / 500, err_msg="seed 2: by their numbers")
    assert figure.axes[0].get_xlabel() == "Client" and "no interval" in KINDS.get("clients").caption(cells, plot)


@pytest.mark.parametrize(
    ("fields", "ranked"),
    [({"facet": "seed", "at": {"method": "fedcl"}}, False), ({}, True), ({"hue": "variant"}, True)],
)
def test_clients_are_sorted_where_a_bar_is_of_several_seeds(
    fields: dict[str, Any], ranked: bool, tmp_path: Path
) -> None:
    """FedCL has two seeds, and FedAvg the second one, whose first client is its best: all are sorted, or none."""
    study = made(tmp_path, ("fedcl", "fedavg"), seeds=2, snrs=(9.0,))
    shutil.rmtree(study.where({"method": "fedavg", "seed": 0}).stored[0].folder)
    cells, figure, plot = shown(semcom.study(tmp_path), x="client", **fields)
    lines = cells.sort_values("client").groupby(fields.get("facet", "variant"))["mean"]
    assert lines.is_monotonic_increasing.all() == ranked
    assert {axes.get_xlabel() for axes in figure.axes} == {"Client, least accurate first" if ranked else "Client"}
    assert ("Clients are sorted" in KINDS.get("clients").caption(cells, plot)) == ranked


def test_confusion_is_the_share_of_the_true_class(whole: Study) -> None:
    cells, figure, _ = shown(whole, kind="confusion", at=ONE)
    rows = cells.set_index(["variant", "true", "predicted"])["mean"]
    assert rows["fedcl", 0, 0] == 6 / 8 and rows["fedproto", 2, 0] == 3 / 8 and rows["fedavg", 0, 2] == 0
    np.testing.assert_allclose(cells.groupby(["variant", "true"])["mean"].sum(), 1)
    np.testing.assert_allclose(figure.axes[1].images[0].get_array(), rows["fedcl"].unstack())


def test_the_area_of_a_dot_is_the_number_of_images(whole: Study) -> None:
    cells, figure, _ = shown(whole, kind="divisions", at={"seed": 1})
    table = cells.pivot(index="client", columns="class", values="train").to_numpy()
    assert table.tolist() == [[5, 5, 40], [40, 10, 0], [0, 25, 25]]
    dots = figure.axes[0].collections[0]
    places = dots.get_offsets().astype(int)
    sizes = dict(zip(map(tuple, places.tolist()), dots.get_sizes(), strict=True))
    assert len(sizes) == 7 and sizes[2, 0] / sizes[0, 0] == pytest.approx(8) and sizes[1, 2] == sizes[2, 2]
    cells, figure, _ = shown(whole, kind="divisions", facet="seed", y="test")
    assert len(cells) == 27 and set(cells["test"]) == {8} and len(figure.axes) == 3


def test_datasets_with_other_classes_have_panels_of_their_own(tmp_path: Path) -> None:
    for name, classes in (("mnist", 2), ("cifar10", 3)):
        of = config("fedavg", data=DataConfig(name))
        write(tmp_path / name, of, [line(1, {"personal": scored([0.5, 0.7])})])
        keep(tmp_path / name, of, np.ones((2, classes, classes), int), *np.full((2, 2, classes), classes))
    cells, figure, _ = shown(semcom.study(tmp_path), kind="divisions", facet="data.name")
    assert cells.groupby("data.name")["train"].agg(list).to_dict() == {"cifar10": [3] * 6, "mnist": [2] * 4}
    assert sorted(len(axes.collections[0].get_offsets()) for axes in figure.axes) == [4, 6]


def test_features_are_measured_before_they_are_placed(whole: Study) -> None:
    cells, figure, plot = shown(whole, kind="embedding", at={"seed": 0, SNR: 0})
    run = next(run for run in whole.stored if run.variant == "fedcl" and run.arrays().keys() >= {"received/personal"})
    features, labels = (run.arrays()[name] for name in ("received/personal", "samples/label"))
    row = cells[cells["variant"] == "fedcl"].iloc[0]
    assert row["silhouette"] == semcom.silhouette(features, labels)
    assert row["purity"] == semcom.knn_purity(features, labels, k=10)
    own = cells[cells["variant"] == "fedcl"]
    np.testing.assert_array_equal(own[["x", "y"]], semcom.embedding(features, seed=0))
    text = KINDS.get("embedding").caption(cells, plot)
    assert f"FedCL: silhouette {row['silhouette']:.3f}, purity {row['purity']:.3f}, 36 images" in text
    np.testing.assert_array_equal(figure.axes[1].collections[0].get_offsets(), own[["x", "y"]])
    assert [label.get_text() for label in figure.axes[1].texts] == ["0", "1", "2"]


def test_pareto_circles_what_the_study_calls_efficient(whole: Study) -> None:
    cells, figure, _ = shown(whole, x="uses", at=ONE)
    found = whole.where(ONE).pareto("uses")
    as_of(found.rename(columns={"accuracy": "mean"}), cells, ["variant"])
    assert cells["uses"].tolist() == found["cost"].tolist() and cells["efficient"].tolist() == [False, True, False]
    rings = figure.axes[0].collections[-1].get_offsets()
    np.testing.assert_array_equal(rings, cells.loc[cells["efficient"], ["uses", "mean"]])


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"kind": "lines"}, "x: none is given; lines take a field of the runs, such as channel.snr_db"),
        ({"x": SNR, "hue": "methods"}, "hue: 'methods' is no field of the study; "),
        ({"x": SNR, "facet": SNR}, "facet: channel.snr_db is x already; give another field"),
        ({"kind": "lines", "x": "partition.kind", "at": ONE}, "x: partition.kind 'shots' is no finite number; take"),
        ({"x": "round"}, "channel.snr_db: 0 and 9 for fedavg at round 1 would be averaged as seeds"),
        ({"x": "class"}, "channel.snr_db: 0 and 9 for fedavg at class 0 would be averaged as seeds"),
        (
            {"kind": "confusion"},
            "channel.snr_db: 0 and 9 for fedavg would be averaged as seeds; give one value of it, such as --at ",
        ),
        ({"x": "uses"}, "channel.snr_db: its values would be shown as one; give one with --at, or --facet channel.snr"),
        (
            {"x": SNR, "hue": "seed"},
            "method: fedavg and fedcl and fedproto for 0 at channel.snr_db 0 would be averaged as seeds",
        ),
        ({"x": SNR, "y": "acc"}, "metric: fedavg has no 'acc'; it has accuracy, "),
        ({"x": "round", "y": "acc", "at": ONE}, "metric: rounds have no 'acc'; they have channel.snr_db, loss, "),
        ({"x": SNR, "view": "global"}, "view: fedavg has no view 'global'; it has personal"),
        ({"x": "class", "view": "global"}, "view: no run has 'global'; there are personal"),
        ({"kind": "gain", "x": "method", "over": "fedavg"}, "x: gains are differences of methods, paired by seed, and"),
        (
            {"kind": "gain", "x": "seed", "over": "fedavg"},
            "x: gains are differences of methods, paired by seed, and have",
        ),
        ({"x": SNR, "view": {"ditto": "global"}}, "view: 'ditto' is not compared; fedavg, fedcl, fedproto are"),
        ({"x": SNR, "window": 3}, "window: 3 has no effect on lines; leave it out"),
        ({"x": "uses", "y": "jain"}, "y: 'jain' has no effect on pareto; leave it out"),
        ({"kind": "divisions", "view": "global"}, "view: 'global' has no effect on divisions; leave it out"),
        ({"kind": "curves", "x": SNR}, "x: 'channel.snr_db' is not what curves are over; give airtime_s or bits or"),
        ({"kind": "lines", "x": "uses"}, "x: lines cannot be over 'uses'; leave the kind out, or give a field of the"),
        (
            {"kind": "divisions"},
            "seed: its values have other divisions; give one, such as --at seed=0, or --facet seed",
        ),
        ({"kind": "divisions", "y": "all"}, "y: 'all' is not one of train, test"),
        ({"kind": "embedding", "at": {SNR: 0}}, "seed: a panel shows one run, and there are 0, 1, 2; give one: --at "),
        ({"kind": "embedding", "at": {**ONE, "seed": 0}}, "view: fedavg kept no features of personal; repeat it with "),
        (
            {"kind": "embedding", "facet": "test_snr_db", "at": {"seed": 0}},
            "facet: whole runs are shown, which have no one test_snr_db; give another field",
        ),
    ],
)
def test_what_is_refused(whole: Study, fields: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError) as refused:
        shown(whole, **fields)
    assert str(refused.value).startswith(error) and "\n" not in str(refused.value)


def test_every_kind_says_what_it_shows() -> None:
    assert all(kind.title and kind.title[0].islower() for kind in map(KINDS.get, KINDS.names()))


def test_gains_are_paired_differences_with_their_intervals(whole: Study) -> None:
    """FedCL over FedProto gains 2 points, less 0.02 per seed. The interval is that of the seeds' differences."""
    cells, figure, plot = shown(whole, kind="gain", x=SNR, over="fedproto")
    assert list(dict.fromkeys(cells["variant"])) == ["fedavg", "fedcl"] and set(cells["n"]) == {3}
    one = cells.set_index(["variant", SNR]).loc["fedcl", 9]
    assert one["mean"] == pytest.approx(0.02)
    assert one["high"] - one["mean"] == pytest.approx(4.302653 * 0.0002 / np.sqrt(3), rel=1e-5)
    compared = whole.where(ONE).compare("fedcl", "fedproto")
    assert (one["mean"], one["low"], one["high"]) == (compared.difference, compared.low, compared.high)
    axes = figure.axes[0]
    texts = {text.get_position(): (text.get_text(), text.get_fontweight()) for text in axes.texts}
    assert texts[1, 1] == ("+2.0 ± 0.0", "bold") and texts[0, 0] == ("-22.0 ± 0.0", "bold")
    assert axes.images[0].get_clim() == pytest.approx((-0.1, 0.1)), "white is zero"
    assert "(paired t over 3 seeds)" in KINDS.get("gain").caption(cells, plot)
    assert "minus that of FedProto in percentage points" in KINDS.get("gain").caption(cells, plot)


def test_a_method_has_rows_for_another_view_too(tmp_path: Path) -> None:
    """FedBABU's global model is 40 points below Local, and the clients' models are 10 points above it."""
    for seed in range(2):
        local = {"personal": scored([0.6, 0.6 + seed / 100])}
        babu = {"global": scored([0.2, 0.2 + seed / 50]), "personal": scored([0.7, 0.7 + seed / 100])}
        ala = {"initialised": scored([0.5, 0.5]), "trained": scored([0.6, 0.6])}
        for method, views in (("local", local), ("fedbabu", babu), ("fedala", ala)):
            write(tmp_path / f"{method}-{seed}", config(method, seed=seed), [line(4, views)])
    study = semcom.study(tmp_path)
    plot = Plot(kind="gain", hue="variant", over="local")
    cells = gain.compute_gain(study, plot, {"fedbabu": "personal"}).set_index("variant")
    assert list(cells.index) == ["fedala", "fedbabu", "fedbabu personal"]
    assert cells["mean"].tolist() == pytest.approx([-0.1025, -0.3975, 0.1])
    alone = gain.compute_gain(study, plot).set_index("variant")
    assert alone["mean"].tolist() == pytest.approx([-0.1025, -0.3975])
    pvalue = ttest_1samp([-0.4, -0.395], 0).pvalue
    assert alone.loc["fedbabu", "p_holm"] == pytest.approx(2 * pvalue), "the smallest of two"
    assert cells.loc["fedbabu", "p_holm"] == pytest.approx(2 * pvalue), "two of three have a p-value"
    everywhere = study.gains("local", view={"fedbabu": "personal", "fedala": "trained"})
    assert [one.difference for one in everywhere] == pytest.approx([-0.0025, 0.1])
    with pytest.raises(ConfigError, match=r"^view: fedbabu has no view 'own'; it has global, personal$"):
        study.gains("local", view={"fedbabu": "own"})


def test_gains_are_refused_without_the_other_method_or_over_what_varies(whole: Study) -> None:
    with pytest.raises(ConfigError, match=r"^compare: 'local' is not in the study; there are fedavg, fedcl, fedproto$"):
        shown(whole, kind="gain", x=SNR)
    with pytest.raises(ConfigError, match=rf"^{SNR}: its values would be shown as one; give one with --at, or --facet"):
        shown(whole, kind="gain", x="partition.ways", over="fedavg")
    with pytest.raises(ConfigError, match=r"^over: 'fedavg' has no effect on lines; leave it out$"):
        shown(whole, kind="lines", x=SNR, over="fedavg")


# -- kinds of one's own ----------------------------------------------------------------------------------------------


def draw_nothing(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Leave the panel empty."""


@pytest.mark.parametrize("tabled", [True, False])
@pytest.mark.parametrize("lacking", ["", "mean", "low", "high", "n", "variant", SNR, "seed"])
def test_a_kind_lacks_no_column_that_it_says(
    lacking: str, tabled: bool, whole: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kind gives hue and panels. The page's table also needs the abscissa, means, intervals and seeds."""

    def numbers(study: Study, plot: Plot) -> pd.DataFrame:
        return study.mean(plot.fields).drop(columns=lacking or [])

    kind = Kind("own", numbers, draw_nothing, lambda cells, plot: "Own.", ("x", "hue"), hue="variant", tabled=tabled)
    monkeypatch.setattr(KINDS, "_added", {**KINDS._added, "violin": kind})
    wanted = Plot(kind="violin", x="seed", facet=SNR)
    if lacking in ("variant", SNR) or (tabled and lacking):
        with refuses("kind", "violin", repr(lacking)):
            semcom.plot(whole.stored[0].folder.parent, wanted, out=tmp_path)
        assert not list(tmp_path.glob("violin*"))
    else:
        page = semcom.plot(whole.stored[0].folder.parent, wanted, out=tmp_path)[-1].read_text()
        assert ("| FedCL |" in page) == tabled


@pytest.mark.parametrize("found", [None, [], {"mean": [1]}, pd.DataFrame(), pd.DataFrame({"variant": [], "mean": []})])
def test_a_kind_gives_rows(found: Any, whole: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Kind("own", lambda study, plot: found, draw_nothing, lambda cells, plot: "Own.", hue="variant")
    monkeypatch.setattr(KINDS, "_added", {**KINDS._added, "violin": kind})
    with refuses("kind", "violin"):
        semcom.plot(whole.stored[0].folder.parent, Plot(kind="violin"), out=tmp_path)
