"""`semcom bench channels`: what a pass through each link costs, beside the bare training step of the DCGAN encoder."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state

from channels import Meter, make_link
from semcom.bench.commands import Bench, Outcome, cells, chosen, machine, spread, spread_cells, table, timer
from semcom.engine.host.memory import keep_freed_memory
from semcom.engine.host.sending import send
from semcom.engine.train.precision import rounding
from semcom.models.own import own_layers
from semcom.models.registry import ENCODERS
from semcom.models.stacks import on_stacks

logger = logging.getLogger(__name__)

CLIENTS, SAMPLES, FEATURES, STEPS, SNR_DB = 20, 64, 64, 5, 10.0
"""K, samples per client and step, d (32 complex symbols), steps of a round whose draws are made at once, SNR."""
FLAT, KNOWN, ESTIMATED = ({"cpu": 0.005, "cuda": 0.10}, {"cpu": 0.01, "cuda": 0.25}, {"cpu": 0.02, "cuda": 0.25})
"""Targets of links without subcarriers, and of OFDM with a known and with an estimated channel."""
Case = tuple[str, Mapping[str, Any], Mapping[str, float]]
"""Kind and options of a link, and its targets: device -> largest share of the bare step that a call may take."""
CASES: Mapping[str, Case] = {
    "ideal": ("ideal", {}, {}),
    "awgn": ("awgn", {}, FLAT),
    "rayleigh": ("rayleigh", {}, FLAT),
    "rician": ("rician", {}, FLAT),
    "ofdm-rayleigh": ("ofdm", {"profile": "rayleigh"}, KNOWN),
    "ofdm-tdl": ("ofdm", {"profile": "tdl-a"}, KNOWN),
    "ofdm-tdl-ls": ("ofdm", {"profile": "tdl-a", "csi": "ls"}, ESTIMATED),
    "ofdm-cdl": ("ofdm", {"profile": "cdl-a"}, KNOWN),
    "ofdm-cdl-ls": ("ofdm", {"profile": "cdl-a", "csi": "ls"}, ESTIMATED),
    "digital": ("digital", {}, {}),
    "digital-rayleigh": ("digital", {"fading": "rayleigh"}, {}),
}
"""Cases by their name in the table."""


@dataclass(frozen=True)
class BenchChannels(Bench):
    """A pass through each link, forward and backward, beside the bare training step of the DCGAN encoder.

    20 clients with 64 samples of 32 symbols, on one CPU thread, and on a GPU where there is one. Also what it takes to
    draw a client's realisation of a round.
    """

    links: str | None = None
    """Links, separated by commas (None: all)."""
    repeats: int | None = None
    """Measurements of each (None: 15; with --quick 2)."""

    def measure(self) -> Outcome:
        """Measure all links on a CPU, and on a GPU where there is one."""
        names, repeats = chosen("links", self.links, list(CASES)), self.count("repeats", 15, 2)
        clients, facts = 2 if self.quick else CLIENTS, machine()
        keep_freed_memory()
        with torch.random.fork_rng(), rounding("float32"):
            found = beside_the_step(names, "cpu", clients, repeats, least := 0.001 if self.quick else 0.05)
            if torch.cuda.is_available():
                found += beside_the_step(names, "cuda", clients, repeats, least)
        rows = compared(pd.DataFrame(found), clients)
        settings = {"benchmark": "channels", "machine": facts, "repeats": repeats, "clients": clients}
        settings |= {"samples": SAMPLES, "features": FEATURES, "steps_per_draw": STEPS}
        return Outcome(text(rows, settings), rows, settings)


def encoder_step(device: str, clients: int, at_once: bool) -> Callable[[], object]:
    """Return the bare training step of K encoders, forward and backward, one by one or all at once."""
    encoder = own_layers(ENCODERS.get("dcgan")(3, FEATURES)).to(device)
    order = torch.contiguous_format if at_once else torch.channels_last
    encoders = [copy.deepcopy(encoder).to(memory_format=order) for _ in range(clients)]
    images = torch.randn(clients, SAMPLES, 32, 32, 3, device=device).movedim(-1, 2)  # channels last in memory
    gradients = torch.randn(clients, SAMPLES, FEATURES, device=device)
    params, buffers = stack_module_state(encoders)

    def one_by_one() -> None:
        for module, x, gradient in zip(encoders, images, gradients, strict=True):
            torch.autograd.grad(module(x), list(module.parameters()), gradient)

    def all_at_once() -> None:
        with on_stacks():
            features = functional_call(encoder, {**params, **buffers}, (images,))
        torch.autograd.grad(features, list(params.values()), gradients)

    return all_at_once if at_once else one_by_one


class Pass:
    """A link between features of all clients and their gradient, with one step's part of a round's realisation."""

    def __init__(self, case: Case, device: str, clients: int) -> None:
        kind, options, _ = case
        self.link = make_link(kind, **options).in_band(clients, clients, SAMPLES, FEATURES)
        self.generator = torch.Generator().manual_seed(0)
        self.features = torch.randn(clients, SAMPLES, FEATURES, device=device, requires_grad=True)
        self.gradient = torch.randn(clients, SAMPLES, FEATURES, device=device)
        self.snr_db = torch.full((clients,), SNR_DB, device=device)
        self.meters = Meter(), Meter()
        self.up, self.down = self._rows(clients), self._rows(clients)

    def __call__(self) -> None:
        """Send features up and their gradient down, both metered, as in a training step of a split method."""
        down: dict[str, Any] = {"down": self.down, "down_snr_db": self.snr_db, "down_meter": self.meters[1]}
        received = self.link(self.features, self.up, self.snr_db, meter=self.meters[0], check=False, **down)
        torch.autograd.grad(received, self.features, self.gradient)

    def draw(self, client: int = 0) -> dict[str, Tensor]:
        """Return one client's realisation of a round, in one direction; drawn on the host, and sent to the device."""
        device, sizes = self.features.device, [[SAMPLES] * STEPS]
        (drawn,) = self.link.draw_all([client], sizes, FEATURES, [self.generator], device=device)
        sent: dict[str, Tensor] = send(drawn, device)
        return sent

    def _rows(self, clients: int) -> dict[str, Tensor]:
        """Return the first step of a round of each client: a view of its realisation, as the engine takes it."""
        drawn = [self.draw(client) for client in range(clients)]
        return {name: torch.stack([rows[name] for rows in drawn])[:, :SAMPLES] for name in drawn[0]}


def beside_the_step(
    names: Sequence[str], device: str, clients: int, repeats: int, least: float
) -> list[dict[str, Any]]:
    """Return a row per link, with milliseconds; all links and the bare step take turns, forth and back.

    Each turn is warmed up and then measured for `least` seconds or more.
    """
    works: dict[str, Callable[[], object]] = {"step": encoder_step(device, clients, at_once=device == "cuda")}
    for name in names:
        link = Pass(CASES[name], device, clients)
        works |= {f"call {name}": link, f"draw {name}": link.draw}
    timers = {name: timer(work, device) for name, work in works.items()}
    took: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats):
        for name in works if turn % 2 == 0 else reversed(works):
            took[name].append(1e3 * timers[name].blocked_autorange(min_run_time=least).median)
        logger.info("%s, turn %d of %d: bare step %.3g ms", device, turn + 1, repeats, took["step"][-1])
    rows = []
    for name in names:
        kind, options, targets = CASES[name]
        row = {"device": device, "link": name, "kind": kind, "options": options, "target": targets.get(device)}
        times = {"step_ms": took["step"], "call_ms": took[f"call {name}"], "draw_ms": took[f"draw {name}"]}
        rows.append(row | times)
    return rows


def compared(rows: pd.DataFrame, clients: int) -> pd.DataFrame:
    """Return the rows with a call's share of a step, all clients' draws' share of a round's steps, and targets met."""
    step, call, draw = (spread(rows[name])["median"] for name in ("step_ms", "call_ms", "draw_ms"))
    target = rows.target.astype(float)
    met = (call / step < target).astype(object).where(target.notna(), None)
    return rows.assign(target=target, share_of_step=call / step, share_of_round=clients * draw / STEPS / step, met=met)


def text(rows: pd.DataFrame, settings: Mapping[str, Any]) -> str:
    """Return a block per device, after a line about the machine."""
    work = f"{settings['clients']} clients x {SAMPLES} samples x {FEATURES // 2} symbols, forward and backward"
    head = f"{settings['machine']['title']}; {work}; repeats: {settings['repeats']}"
    return "\n\n".join([head, *(device_text(name, found) for name, found in rows.groupby("device", sort=False))])


def device_text(device: str, rows: pd.DataFrame) -> str:
    """Return one device: the bare step, a row per link, and what missed its target."""
    step, missed = spread(rows.step_ms).iloc[0], ", ".join(rows[rows.met.eq(False)].link)
    columns = table(
        ("link", rows.link),
        *spread_cells("ms/call", rows.call_ms, ".3g"),
        cells("% of step", 100 * rows.share_of_step, ".3f"),
        ("target", ["-" if pd.isna(most) else f"< {100 * most:g}" for most in rows.target]),
        *spread_cells("ms/draw", rows.draw_ms, ".3g"),
        cells("% of round", 100 * rows.share_of_round, ".3f"),
    )
    title = f"bare step of the encoders: {step['median']:.4g} ms (min {step['min']:.4g}, max {step['max']:.4g})"
    draws = f"a draw is one client's round of {STEPS} steps in one direction; % of round: those of all clients"
    aims = f"targets missed by {missed}" if missed else "targets met"
    return "\n".join([f"{device}{', one thread' if device == 'cpu' else ''}; {title}", columns, f"{draws}; {aims}"])
