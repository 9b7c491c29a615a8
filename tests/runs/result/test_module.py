"""Models that leave a run, and weights that come in."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from semcom.config import run_hash
from semcom.methods.registry import METHODS
from semcom.models.weights import encode_weights, read_weights
from semcom.runs.result.export import export_model
from semcom.runs.result.module import Noisy
from semcom.runs.result.result import Result
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.refusals import refuses
from tests.runs.rounds import test_new_clients  # noqa: F401 - registers data of other classes


def trained(method: str = "fedper", **options: object) -> Result:
    return run(worlds.request(method, train={"rounds": 2}, **options))


def start(result: Result) -> dict[str, Tensor]:
    (cohort,) = result.world.population().select(result.clients[:1]).stacks()
    return {name: t[0] for name, t in cohort.tensors.items()}


@pytest.mark.parametrize("kind", ["ideal", "none"])
def test_a_module_computes_what_the_run_does_over_a_channel_without_noise(kind: str) -> None:
    result = trained(channel={"kind": kind})
    images = result.federation.images[:9]
    for client in (0, 3):
        module = result.module(client)
        assert torch.allclose(module(images), result.decode(client, images), atol=1e-12)
        assert torch.allclose(module(images.double() / 127.5 - 1), module(images), atol=1e-12)
    assert {type(layer) for layer in module.encoder} >= {nn.Conv2d, nn.LeakyReLU, nn.Flatten}, "torch's own layers"
    before = result.decode(3, images)
    nn.init.zeros_(module.head[0].weight)
    assert torch.equal(result.decode(3, images), before), "its weights are copies"


def test_with_its_link_the_noise_is_that_of_the_test_snr() -> None:
    """At -3 dB symbols of unit power meet noise of variance 2, which MMSE scales: y = a (x + n), a = 1 / (1 + 2)."""
    result = trained("fedavg", channel={"kind": "awgn", "snr_db": 10.0, "test_snr_db": -3.0103})
    module = result.module(0, link=True)
    assert isinstance(module.between, Noisy)
    x = torch.ones(20_000, 4, dtype=torch.float64)
    first, second = module.between(x), module.between(x)
    assert not torch.equal(first, second)
    found = (first / first.mean()).var().item()
    assert found == pytest.approx(2.0, rel=0.05), "a real part has half the noise, and half of a symbol's energy of 2"


def test_what_no_head_decides_is_refused() -> None:
    result = trained("fedproto")
    with refuses("view", "prototype"):
        result.module(0, "prototype")
    with refuses("client", "9"):
        result.module(9)


def test_an_export_is_weights_and_a_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = trained(out=str(tmp_path / "run"))
    with refuses("client", "models of their own"):
        export_model(result)
    weights, card = export_model(result, 2)
    found, module = read_weights(str(weights)), result.module(2)
    assert found.keys() == module.state_dict().keys()
    assert all(torch.equal(found[name], t) for name, t in module.state_dict().items())
    text, view = card.read_text(), result.summary["views"]["personal"]
    assert "# fedper: the model of client 2, view personal" in text and "| test-bars, shots, ways 2" in text
    assert f"| accuracy of client 2 | {100 * view['clients'][2]:.1f} % |" in text
    assert '`semcom.load(RUN).module(\n2, "personal")`' in text
    assert f"| training | {result.summary['rounds']} rounds," in text
    for_all = export_model(trained("fedavg"), out=tmp_path / "all")[1].read_text()
    assert for_all.startswith("# fedavg: the model of all clients, view global")


def test_a_file_is_laid_out_as_safetensors_says(tmp_path: Path) -> None:
    """Eight bytes of length, JSON, then the numbers; read back, and as `torch.save` writes them."""
    small = torch.tensor([-3, 300], dtype=torch.int16)
    tensors = {"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor(7), "none": torch.empty(0, 3), "small": small}
    content = encode_weights(tensors, {"run": "x"})
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    assert header["a"] == {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]} and length % 8 == 0
    assert header["b"] == {"dtype": "I64", "shape": [], "data_offsets": [8, 16]}
    assert header["__metadata__"] == {"run": "x"} and struct.unpack("<ff", content[8 + length :][:8]) == (1, 2)
    (tmp_path / "a.safetensors").write_bytes(content)
    torch.save({"state_dict": tensors}, tmp_path / "a.pt")
    for name in ("a.safetensors", "a.pt"):
        found = read_weights(str(tmp_path / name))
        assert all(torch.equal(found[key], t) for key, t in tensors.items()) and found.keys() == tensors.keys()
    for name, text in (("cut.safetensors", content[:20]), ("b.pt", b"no"), ("c.safetensors", b"")):
        (tmp_path / name).write_bytes(text)
        with refuses("model.weights", name):
            read_weights(str(tmp_path / name))
    with refuses("model.encoder", "complex64"):
        encode_weights({"c": torch.zeros(2, dtype=torch.complex64)}, {})
    (tmp_path / "none.safetensors").write_bytes(encode_weights({}, {"run": "x"}))
    torch.save({}, tmp_path / "none.pt")
    torch.save({"state_dict": {}}, tmp_path / "inner.pt")
    for name in ("none.safetensors", "none.pt", "inner.pt"):
        with refuses("model.weights", "holds no tensors"):
            trained("local", model={"weights": str(tmp_path / name)})


def test_a_run_begins_with_the_weights_of_a_file(tmp_path: Path) -> None:
    """All of a model, or those of an encoder alone; their content is part of the run's identity."""
    result = trained(out=str(tmp_path / "run"))
    weights, _ = export_model(result, 1)
    given = read_weights(str(weights))
    begun = start(trained("local", model={"weights": str(weights)}))
    assert begun.keys() == given.keys() and all(torch.equal(begun[name], t) for name, t in given.items())
    plain = start(trained("local"))
    encoder = {name.removeprefix("encoder."): t for name, t in given.items() if name.startswith("encoder.")}
    path = tmp_path / "encoder.pt"
    torch.save(encoder | {"fc.weight": torch.ones(3)}, path)
    alone = worlds.request("local", model={"weights": str(path)})
    of_encoder = start(run(alone))
    assert all(torch.equal(of_encoder[n], (given if n.startswith("encoder.") else plain)[n]) for n in plain)
    inner = dict.fromkeys(name for name in encoder if name.startswith("0."))
    torch.save({name.removeprefix("0."): encoder[name] for name in inner}, path)
    backbone = start(run(worlds.request("local", model={"weights": str(path)})))
    for n in plain:
        assert torch.equal(backbone[n], (given if n.removeprefix("encoder.") in inner else plain)[n]), "its first layer"
    torch.save(encoder, path)
    again = worlds.request("local", model={"weights": str(path)})
    assert len({run_hash(worlds.request("local")), run_hash(alone), run_hash(again)}) == 3
    torch.save({"0.weight": torch.ones(2, 2)}, path)
    with refuses("model.weights", "encoder.0.weight", "[2, 2]"):
        trained("local", model={"weights": str(path)})
    torch.save({"other.weight": torch.ones(2, 2)}, path)
    with refuses("model.weights", "another network"):
        trained("local", model={"weights": str(path)})
    with refuses("model.weights", "cannot be read"):
        trained("local", model={"weights": str(tmp_path / "none.pt")})


def test_a_file_of_which_part_fits_is_refused_or_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Refused where most of the file and most of the part have nothing to do with each other, told else."""
    of = {n: t for n, t in start(trained("local")).items() if n.startswith("encoder.")}
    (first, second, *_), whole = of, tmp_path / "whole.pt"
    other = {f"encoder.other.{i}": torch.ones(2) for i in range(len(of))}
    counted = {"encoder.1.num_batches_tracked": torch.tensor(3)}

    def begin_with(tensors: dict[str, Tensor]) -> list[str]:
        torch.save(tensors, whole)
        caplog.clear()
        trained("local", model={"weights": str(whole)})
        return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    assert begin_with(of) == []
    for tensors in ({first: of[first], **other}, counted, {**counted, **other}):
        with refuses("model.weights", "another network"):
            begin_with(tensors)
    (text,) = begin_with({first: of[first]})
    assert second.removeprefix("encoder.") in text and "drawn are" in text
    last = f"{[*of][-1].rpartition('.')[0]}."  # of a network for other classes: the layer is drawn
    (text,) = begin_with({n: torch.ones(7, 7) if n.startswith(last) else t for n, t in of.items()})
    assert f"drawn are {last.removeprefix('encoder.')}" in text
    (text,) = begin_with({**of, "encoder.fc.bias": torch.ones(2)})
    assert "left out of the file are fc.bias" in text
    (text,) = begin_with({**of, "optimizer.step": torch.ones(1)})
    assert "optimizer.step" in text


def export(method: str, head: str, folder: Path) -> dict[str, Any]:
    """The settings of a run that begins with what another one of a method has exported of its first client."""
    sections: dict[str, Any] = {"encoder": "test-pool", "train": {"rounds": 1}}
    result = run(worlds.request(method, **sections, model={"head": head}))
    weights, card = export_model(result, 0, out=folder)
    assert "`semcom train --config RUN --model.weights" in card.read_text()
    return {**sections, "model": {"head": head, "weights": str(weights)}}


def begin(method: str, settings: dict[str, Any]) -> dict[str, Tensor]:
    states: list[Any] = []
    run(worlds.request(method, **settings), observe=lambda before, after, world: states.append(before) or {})
    return states[0].model.named()


@pytest.mark.parametrize("head", ["linear", "mlp"])
@pytest.mark.parametrize("method", [name for name in METHODS.names() if METHODS.ships(name)])
def test_every_method_begins_with_what_it_has_exported(method: str, head: str, tmp_path: Path) -> None:
    """Every tensor, for every client: personal heads, biases and second models too."""
    settings = export(method, head, tmp_path)
    given, begun = read_weights(settings["model"]["weights"]), begin(method, settings)
    assert all(torch.equal(begun[name], t.expand_as(begun[name])) for name, t in given.items())
    own = {name: begun[f"own.{name}"] for name in given if f"own.{name}" in begun}
    assert all(torch.equal(t, given[name].expand_as(t)) for name, t in own.items()) and bool(own) == (method == "apfl")


@pytest.mark.parametrize("head", ["linear", "mlp"])
@pytest.mark.parametrize("method", ["fedrod", "feddbe"])
def test_an_extended_head_begins_its_method_alone(method: str, head: str, tmp_path: Path) -> None:
    """With as many features as classes too, where the bias of FedDBE has the shape of a layer's; a plain one fits."""
    settings = export(method, head, tmp_path / "own")
    for other in {"fedavg", "apfl", "fedrod", "feddbe"} - {method}:
        with refuses("model.weights", "of another network", "head."):
            begin(other, settings)
    plain = export("fedavg", head, tmp_path / "plain")
    given, begun = read_weights(plain["model"]["weights"]), begin(method, plain)
    places = {"fedrod": ("generic.", "personal."), "feddbe": ("1.",)}[method]
    for name in (name.removeprefix("head.") for name in given if name.startswith("head.")):
        assert all((begun[f"head.{place}{name}"] == given[f"head.{name}"]).all() for place in places)
    assert method != "feddbe" or not begun["head.0.bias"].any()


@pytest.mark.parametrize("method", ["fedavg", "fedrod", "feddbe"])
@pytest.mark.parametrize("kind", [None, "mlp"])
def test_new_clients_of_a_run_that_began_with_weights_have_fresh_heads(
    method: str, kind: str | None, tmp_path: Path
) -> None:
    """The extended head of the file is none of theirs; nor is one of another architecture."""
    settings = {**export(method, "linear", tmp_path), "new_clients": 2, "finish": {"kind": kind}}
    assert "head" in run(worlds.request(method, **settings)).summary["new_clients"]


def test_new_clients_of_other_classes_leave_the_head_of_the_file(tmp_path: Path) -> None:
    """With its encoder frozen they have what a file of the encoder alone gives them."""
    settings = {**export("fedavg", "linear", tmp_path), "new_clients": 2, "new_data": "test-dots"}
    settings["train"] |= {"lr_parts": ("encoder=0",)}
    whole, alone = (settings["model"]["weights"], str(tmp_path / "encoder.pt"))
    torch.save({n: t for n, t in read_weights(whole).items() if n.startswith("encoder.")}, alone)
    ends = []
    for path in (whole, alone):
        request = worlds.request("fedavg", **settings | {"model": {"weights": path}, "train": {**settings["train"]}})
        ends.append(run(request).summary["new_clients"])
    assert ends[0] == ends[1] and list(ends[0]) == ["head"] and len(ends[0]["head"]["classes"]) == 2
