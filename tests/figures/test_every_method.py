"""The figures of all methods, on studies with known gains and accuracies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import semcom
from semcom.config import AirConfig, ConfigError, PartitionConfig, run_hash
from semcom.plots import style
from semcom.plots.panels import draw_panels
from semcom_papers.figures.every_method import (
    COLLABORATION_WAYS,
    WIRELESS_EXCHANGE,
    WIRELESS_HETEROGENEITY,
    average_at_two_snrs,
    average_by_exchange,
    average_gains_by_ways,
)
from tests.studies.folders import config, line, scored, write

PLOT = COLLABORATION_WAYS.plot
GAINS = {
    ("fedper", 2): {5: -0.02, 30: 0.04},
    ("fedper", 10): {5: 0.10, 30: 0.20},
    ("fedbabu", 2): {5: -0.30, 30: -0.30},
    ("fedbabu", 10): {5: 0.0, 30: 0.0},
}
"""Method and classes -> images of a class -> its gain in seed 1; a point less in seed 0, one more in seed 2."""


def made(folder: Path, methods: tuple[str, ...] = ("local", "fedper", "fedbabu", "fedcrl")) -> Path:
    for method in methods:
        for ways in (2, 10):
            for shots in (5, 30):
                for seed in range(3):
                    of = config(method, seed, partition=PartitionConfig(options={"ways": ways, "shots": shots}))
                    gain = GAINS.get((method, ways), {}).get(shots, 0.0) + (seed - 1) / 100 * (method != "local")
                    views = {"global" if method == "fedbabu" else "personal": scored([0.5 + gain])}
                    own = {"personal": scored([0.6 + (seed - 1) / 100])} if method == "fedbabu" else {}
                    write(folder / run_hash(of), of, [line(4, {**views, **own})])
    return folder


def test_gains_are_means_over_the_numbers_of_images_seed_by_seed(tmp_path: Path) -> None:
    """FedPer gains 1 point with two classes and 15 with ten, by a point more or less from seed to seed."""
    cells = average_gains_by_ways(semcom.study(made(tmp_path)), PLOT)
    assert list(dict.fromkeys(cells["variant"])) == ["fedbabu", "fedbabu personal", "fedper"], "FedCRL is FedCoSR"
    found = cells.set_index(["variant", "partition.ways"])
    half = 4.302653 * 0.01 / 3**0.5
    for (method, ways), mean in {("fedper", 2): 0.01, ("fedper", 10): 0.15, ("fedbabu personal", 10): 0.1}.items():
        row = found.loc[method, ways]
        assert (row["mean"], row["low"], row["n"]) == (pytest.approx(mean), pytest.approx(mean - half, abs=1e-6), 3)
    # A t of 0.15 / (0.01 / sqrt(3)) = 26 has p = 0.0015, the second smallest of six: times five.
    assert found.loc["fedper", 10]["p_holm"] == pytest.approx(5 * 0.00147825, rel=1e-3)
    assert found["supported"].to_dict() == {
        **{("fedper", 2): False, ("fedper", 10): True, ("fedbabu", 2): True, ("fedbabu", 10): False},
        **{("fedbabu personal", 2): True, ("fedbabu personal", 10): True},
    }
    with style.ieee():
        figure = draw_panels(cells, PLOT)
    panel, scale = figure.axes
    names = [text.get_text() for text in panel.get_yticklabels()]
    assert names == ["FedBABU", "FedBABU personal", "FedPer"] and scale.get_ylabel() == "Gain over Local (points)"
    assert figure.get_size_inches()[0] == style.WIDTH, "one column"


def test_a_place_that_is_missing_is_said(tmp_path: Path) -> None:
    folder = made(tmp_path, ("local", "fedper"))
    of = config("fedper", 2, partition=PartitionConfig(options={"ways": 10, "shots": 5}))
    (folder / run_hash(of) / "summary.json").unlink()
    with pytest.raises(ConfigError, match=r"^results: fedper is not finished at every place$"):
        average_gains_by_ways(semcom.study(folder), PLOT)


def test_maps_over_the_air_have_the_end_of_training_and_a_row_for_each_later_view(tmp_path: Path) -> None:
    """Accuracies at 10 and 0 dB fall by 10 points from one to the other, and rise by 10 from round 3 to round 4."""
    for method, top in (("local", 0.6), ("fedbabu", 0.3)):
        for ways in (2, 10):
            of = config(method, partition=PartitionConfig(options={"ways": ways, "shots": 5}))
            of = replace(of, channel=replace(of.channel, test_snr_db="10,0,-5"))

            def tested(top: float) -> dict[str, Any]:
                return scored([top], at={"10": top, "0": top - 0.1, "-5": top - 0.3})

            first = "global" if method == "fedbabu" else "personal"
            early, late = ({first: tested(accuracy)} for accuracy in (top - 0.1, top))
            own = {"personal": tested(0.8)} if method == "fedbabu" else {}
            write(tmp_path / run_hash(of), of, [line(3, early), line(4, {**late, **own})])
    found = semcom.study(tmp_path)
    cells = average_at_two_snrs(found, WIRELESS_HETEROGENEITY.plot)
    assert list(dict.fromkeys(cells["test_snr_db"])) == [10.0, 0.0]
    assert list(dict.fromkeys(cells["variant"])) == ["fedbabu", "fedbabu personal", "local"]
    means = cells.set_index(["variant", "partition.ways", "test_snr_db"])["mean"]
    for ways in (2, 10):
        assert means["local", ways, 10] == pytest.approx(0.6) and means["local", ways, 0] == pytest.approx(0.5)
        assert means["fedbabu", ways, 0] == pytest.approx(0.2), "its first view is one model for all"
        assert means["fedbabu personal", ways, 0] == pytest.approx(0.7)


def test_over_the_air_an_averaged_encoder_is_as_clients_receive_it(tmp_path: Path) -> None:
    """FedAvg is 10 points lower as received; FedAvg + FT has such a view too, but of another model than its first."""
    for method in ("local", "fedavg", "fedavg_ft"):
        for kind in ("ideal",) if method == "local" else ("ideal", "analog"):
            of = config(method, air=AirConfig(parameters=kind))
            of = replace(of, channel=replace(of.channel, test_snr_db="10,0"))
            views = {"personal" if method != "fedavg" else "global": scored([0.6], at={"10": 0.6, "0": 0.5})}
            if kind == "analog":
                views["received"] = scored([0.5], at={"10": 0.5, "0": 0.4})
            write(tmp_path / run_hash(of), of, [line(4, views)])
    cells = average_by_exchange(semcom.study(tmp_path), WIRELESS_EXCHANGE.plot)
    rows = list(zip(cells["air.parameters"], cells["test_snr_db"], cells["variant"], cells["mean"], strict=True))
    assert rows == [
        (kind, snr, method, pytest.approx(top - (snr == 0) / 10))
        for kind, of_fedavg in (("ideal", 0.6), ("analog", 0.5))
        for snr in (0, 10)
        for method, top in (("fedavg", of_fedavg), ("fedavg_ft", 0.6))
    ], "local exchanges nothing"
