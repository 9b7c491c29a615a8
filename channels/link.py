"""Base of all links: noise, equaliser, the split gradient, the meter. A channel is a short subclass.

For example, Nakagami fading with whole m, where |h|^2 is the mean of m independent exponentials:

    @LINKS.register("nakagami")
    class Nakagami(Link):
        @dataclass(frozen=True)
        class Options(Link.Options):
            m: int = 2

            def check(self):
                super().check()
                require("m", self.m, COUNT)

        def draw(self, sizes, d, generator, dtype=torch.float32):
            drawn = super().draw(sizes, d, generator, dtype)  # the noise
            paths = complex_normal((self.options.m, sum(sizes), 1), generator, dtype)
            return drawn | {"fading": torch.polar(paths.abs().square().mean(0).sqrt(), paths[0].angle())}

        def gain(self, drawn):
            return drawn["fading"]  # h, complex, E|h|^2 = 1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from semcom.channels.equalise import EQUALISERS, Equaliser, Estimate, equalise
from semcom.channels.law import Law
from semcom.channels.meter import Meter
from semcom.channels.options import NOT_NEGATIVE, BaseOptions, one_of, require
from semcom.channels.power import check_even, check_finite, normalise_power
from semcom.channels.split import Hop, Split

Downlink = Literal["noisy", "ideal"]
DOWNLINKS = get_args(Downlink)
Feedback = Literal["gain", "none"]
FEEDBACKS = get_args(Feedback)

Realisation = Mapping[str, Tensor]
"""One realisation of the channel, as `Link.draw` draws it: tensors by name, each with an entry per sample."""

ADDED = "added"
"""The name in a realisation of the noise that clients add to their features, `[k, ..., d]` (`Link.draw_added`)."""
NO = "no, sqrt(no)"
"""The name in a realisation of both in one tensor, `[k, ..., 2]`, if they were computed beforehand (`find_noise`)."""
SAMPLES = 2**18
"""Realisations behind the statistics of a link without a closed form. Over Rayleigh fading the p-quantile of |h|^2 then
has a relative standard error of sqrt((1 - p) / (p SAMPLES)), 0.6 % with p = 0.1."""


@dataclass(frozen=True)
class SenderOptions(BaseOptions):
    """Option of a link whose clients may hide what they send."""

    feature_noise: float = 0.0
    """Variance of the Gaussian noise that clients add to their features, of mean square 1, before they send both with
    the power of features alone (0: none)."""

    def check(self) -> None:
        """Raise ValueError for a negative variance."""
        require("feature_noise", self.feature_noise, NOT_NEGATIVE)


class Cost(NamedTuple):
    """Costs of transmissions to a client's part of the band, `[n]` each."""

    uses: np.ndarray
    """Complex channel uses: time times bandwidth, pilots and prefixes included."""
    energy: np.ndarray
    """Energy in units of Es, the energy of a symbol."""


class Link:
    """Link with `y = h x + sqrt(no) n` per complex symbol, no = 10^(-snr_db / 10); a subclass may replace h = 1.

    Calling a link sends features (`__call__`). `transmit` has only the physics of complex symbols.

    A link declares its options as a nested dataclass `Options`, and has their values in `options`. A subclass inherits
    those of its parent, extends them, or declares its own from `BaseOptions` to leave out options without effect.

    Args:
        options: an instance of the class's `Options`.

    Raises:
        ValueError: for options that `Options.check` refuses.
    """

    @dataclass(frozen=True)
    class Options(SenderOptions):
        """Options of a link that may fade."""

        equaliser: Equaliser = "mmse"
        """Equaliser of the receiver: "mmse", zero forcing ("zf"), or "none"."""
        downlink: Downlink = "noisy"
        """Way of the gradients of a split method: through the channel too ("noisy"), or exact ("ideal")."""
        feedback: Feedback = "gain"
        """Knowledge of the client about its uplink, for the gradient: its true effective gain, free of errors and costs
        ("gain"), or nothing ("none"): then the gradient stays as it arrives."""

        def check(self) -> None:
            """Raise ValueError for an unknown equaliser, downlink or feedback, or as the parent does."""
            super().check()
            one_of("equaliser", self.equaliser, EQUALISERS)
            one_of("downlink", self.downlink, DOWNLINKS)
            one_of("feedback", self.feedback, FEEDBACKS)

    options: BaseOptions
    """Options of the link. Open options (None) are filled in as soon as they are known, at the latest by `in_band`."""

    def __init__(self, options: BaseOptions) -> None:
        if hasattr(options, "check"):  # a plain dataclass will do
            options.check()
        self.options = options
        self.equaliser: str = getattr(options, "equaliser", "none")
        self.downlink: str = getattr(options, "downlink", "noisy")
        self.feature_noise: float = getattr(options, "feature_noise", 0.0)
        self.antennas: int = getattr(options, "antennas", 1)

    noisy: ClassVar[bool] = True
    """True if the SNR makes a difference."""
    radio: ClassVar[bool] = True
    """True if features cross the air as complex symbols, two in one, which take band, time and energy."""
    normalises: bool = True
    """True if features are scaled to mean square 1 before they are sent."""
    shares: tuple[float, ...] | None = None
    """Fraction of the band for each client, summing to 1 (None: participants share it equally)."""
    bandwidth_hz: float | None = None
    """Band of all clients, if the link knows it."""
    users: int = 1
    """Clients that share each part of the band. A link of several couples clients: its `draw_all` takes `fades`, for
    each client the generators of all of them (`semcom.channels.users.Fades`)."""
    antennas: int = 1
    """Antennas of the base station."""
    power_control: str = "none"
    """Control of the powers at which these clients are received (`semcom.channels.users.POWER_CONTROLS`)."""
    lasting: bool = False
    """True if a client's fading continues from round to round. Then `draw_all` takes `fades`, whose generators are the
    same in all rounds."""
    same_again: bool = False
    """True if a block that is repeated in a round meets the channel that it met before."""
    numbered: ClassVar[bool] = False
    """True if the link of a client is that of its number in a file, which has none of clients outside the run."""
    block_fading: bool = True
    """True if a block of data meets a single h, whatever its length."""
    estimates: bool = False
    """True if the receiver has only an estimate of h (`estimate`)."""
    overhead: float = 1.0
    """Channel uses that each use with data takes of what is coded, with pilots and cyclic prefixes."""

    @property
    def carrier(self) -> Link:
        """Link that uncoded symbols cross: this link itself."""
        return self

    def in_band(self, clients: int, active: int, batch: int, d: int) -> Link:
        """Share the band of this link among the clients.

        Args:
            clients: K.
            active: number of clients that participate at a time.
            batch: samples of a client's mini-batch, by which a link may size its band.
            d: real features per sample.

        Raises:
            ValueError: if the clients do not fit into the band.
        """
        return self

    def of(self, client: int) -> Link:
        """Return this link as seen by a client, for drawing its realisations."""
        return self

    def at(self, seconds: float) -> Link:
        """Return this link as it is at a time of the run, if its channel follows it, for drawing realisations.

        A link of one's own that does overrides `find_moment` too, by which its means over time are kept apart.
        """
        return self

    def find_moment(self, seconds: float) -> int | None:
        """Find the number of the moment whose channel `at` has (None: it is the same at all times)."""
        return None

    def broadcast(self) -> Link:
        """Return this link for broadcasts to all clients: over the whole band, without other users."""
        return self

    def like(self, client: int) -> int:
        """Find a client whose link has the same statistics, the same for all such clients."""
        # A subclass with its own `of` may give each client another link, so no two are taken to be alike.
        return 0 if type(self).of is Link.of else client

    def law(self) -> Law | None:
        """Find the law of |h|^2 of one client's link, `link.of(client)`, if it has a closed form."""
        return None

    def cost(self, numbers: np.ndarray, clients: np.ndarray) -> Cost:
        """Compute the cost of mini-batches of `numbers` `[n]` real numbers, each separate, for `clients` `[n]`."""
        symbols = np.ceil(numbers / 2)
        return Cost(symbols, symbols)

    def draw(
        self, sizes: Sequence[int], d: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> dict[str, Tensor]:
        """Draw one client's realisation for all mini-batches of a round, sample by sample: `[sum(sizes), ...]`.

        Args:
            sizes: sizes of the mini-batches, in the order of training.
            d: real features per sample, even.
            generator: the only source of randomness. The tensors lie on its device.
            dtype: real type of the features that the realisation will meet.

        Returns:
            "noise": complex `[sum(sizes), d/2]` with E|n|^2 = 1. A subclass adds its own entries.

        Raises:
            ValueError: for odd `d`.
        """
        check_even(d)
        return {"noise": complex_normal((sum(sizes), d // 2), generator, dtype)}

    def draw_all(
        self,
        clients: Sequence[int],
        sizes: Sequence[Sequence[int]],
        d: int,
        generators: Sequence[torch.Generator],
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> list[dict[str, Tensor]]:
        """Draw the realisations of several clients, each as `draw` does. A link may compute them at once.

        Args:
            clients: clients of these realisations.
            sizes: sizes of each client's mini-batches.
            d: real features per sample, even.
            generators: of each client, on the host.
            dtype: real type of the features.
            device: device of the transmission, on which a link may compute them.
        """
        each = zip(clients, sizes, generators, strict=True)
        return [self.of(client).draw(own, d, generator, dtype) for client, own, generator in each]

    def draw_added(
        self, samples: int, d: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> dict[str, Tensor]:
        """Draw the noise that a client adds to features `[samples, d]`, for their realisation; nothing without."""
        if not self.feature_noise:
            return {}
        drawn = torch.randn(samples, d, generator=generator, dtype=dtype, device=generator.device)
        return {ADDED: drawn * self.feature_noise**0.5}

    def sinr_law(self, no: float, others: Sequence[float]) -> Law | None:
        """Find the law of the SINR of a user among several on a resource, if it has a closed form.

        Args:
            no: noise variance.
            others: powers of the others over its own.
        """
        return None

    def draw_blocks(
        self, uses: float, blocks: int | None, generator: torch.Generator, powers: Tensor | None = None
    ) -> tuple[Realisation, float]:
        """Draw the realisations of independent blocks of data of one client, on some symbols of each.

        Args:
            uses: symbols of a block.
            blocks: their number (None: enough for statistics, `SAMPLES` if draws are cheap).
            generator: the only source of randomness.
            powers: of several users of a resource, over that of the first, `[U]` (None: equal).

        Returns:
            the realisation `[blocks, n, ...]`, float64, and the variance of a block's mean over that of the mean of its
            n symbols.
        """
        # One sample per block, in one draw: valid unless h lasts for longer than a sample, which equal gains show.
        drawn = self.draw([1] * (blocks or SAMPLES), 2, generator, torch.float64)
        gain = self.gain(drawn)
        if gain is None or blocks == 1 or bool((gain != gain[:1]).any()):
            return drawn, 1.0
        each = [self.draw([1], 2, generator, torch.float64) for _ in range(SAMPLES // 16)]  # h lasts for a whole draw
        return {name: torch.cat([d[name] for d in each]) for name in drawn}, 1.0

    def inversion_means(self, threshold: float, csi_error: float) -> tuple[float, float] | None:
        """Compute `semcom.channels.theory.inversion_means` for one client's link, if it has this closed form."""
        return None

    def draw_symbols(self, generator: torch.Generator) -> Realisation:
        """Draw realisations of a client's symbols, with estimates, for means over the channel, float64 `[n, ...]`."""
        return self.draw([1] * SAMPLES, 2, generator, torch.float64)

    def gain(self, drawn: Realisation) -> Tensor | None:
        """Compute h per symbol from stacked `drawn`, complex, broadcastable to the symbols (None: 1 everywhere)."""
        return None

    def gain_at(self, drawn: Realisation, no: Tensor) -> Tensor | None:
        """Compute h as `gain` does, if it also depends on the noise variance `no`, broadcastable to the symbols."""
        return self.gain(drawn)

    def strength(self, generator: torch.Generator, round_: int) -> float:
        """Compute |h|^2 of a client in a round, if it lasts (`lasting`), from the generator of its fading."""
        raise NotImplementedError

    def interference(self, drawn: Realisation, no: Tensor) -> Tensor | None:
        """Compute the variance that other users' symbols add to the noise, real, per symbol (None: no interference)."""
        return None

    def amplitude(self, gain: Tensor | None, no: Tensor) -> Tensor | None:
        """Choose the amplitude of each symbol, for a sender that knows h and no (None: 1 everywhere).

        Real, broadcastable to the symbols, with a mean square of 1 over the fading, on which the count of energy
        relies. The receiver knows it, and treats it as a factor of h.
        """
        return None

    def estimate(self, drawn: Realisation, deviation: Tensor) -> Estimate | None:
        """Estimate h from stacked `drawn` as the receiver does (None: the receiver knows h).

        `deviation` is sqrt(no), real, broadcastable to the symbols.
        """
        return None

    def __call__(
        self,
        features: Tensor,
        up: Realisation,
        snr_db: Tensor,
        *,
        down: Realisation | None = None,
        down_snr_db: Tensor | None = None,
        mask: Tensor | None = None,
        meter: Meter | None = None,
        down_meter: Meter | None = None,
        check: bool = True,
    ) -> Tensor:
        """Scale features `[k, b, d]` to mean square 1, send them, and return them as received, `[k, b, d]`.

        A link that does not normalise (`normalises`) sends them unscaled, over noise for symbols of unit power. Noise
        that `up` has of clients (`draw_added`) is added to scaled features, and the sum is scaled again.

        Args:
            features: float32 or float64, d even.
            up: realisation of the uplink, stacked over clients: `[k, b, ...]`.
            snr_db: `[k]`, uplink SNR in dB, or inf for no noise.
            down: realisation of the gradient's downlink (None, or a link with an ideal downlink: the gradient is
                exact).
            down_snr_db: `[k]`, SNR of the downlink (None: `snr_db`).
            mask: bool `[k, b]`, False for padding, which gets no gradient and counts nowhere.
            meter: adds up the received SNR of the uplink.
            down_meter: the same for the downlink, when the gradient passes.
            check: look for features that are not finite, which makes the host wait for the device. Training does not do
                so at each step: the loss shows them.

        Raises:
            ValueError: for odd d, a feature that is not finite, or a realisation without the clients' noise.
        """
        check_even(features.shape[-1])
        if check:
            check_finite(features, mask)
        uplink = self._hop(up, snr_db, features, meter)
        if getattr(self.options, "feedback", "gain") == "none":
            uplink = replace(uplink, effective=None)
        back = None
        if down is not None and self.downlink == "noisy":
            # The gradient has the shape of the features, so these tell the downlink its sizes.
            back = self._hop(down, snr_db if down_snr_db is None else down_snr_db, features, down_meter)
        sent = normalise_power(features) if self.normalises else features
        if self.feature_noise:
            if ADDED not in up:
                raise ValueError("up: the noise of the clients is missing, which draw_added draws")
            sent = sent + up[ADDED]
            sent = normalise_power(sent) if self.normalises else sent
        received = Split.apply(sent, uplink, back, mask)
        assert isinstance(received, Tensor)
        return received

    def transmit(self, symbols: Tensor, up: Realisation, snr_db: Tensor, *, meter: Meter | None = None) -> Tensor:
        """Send complex symbols `[k, ..., n]` that the caller scaled to E|x|^2 = 1, and return them equalised.

        Args:
            symbols: complex64 or complex128.
            up: realisation for d = 2 n, stacked to `[k, ..., n]` (or `[k, ..., 1]` for a gain that lasts).
            snr_db: `[k]`, in dB, or inf for no noise.
            meter: adds up the received SNR.
        """
        return self._hop(up, snr_db, symbols, meter).send(symbols, 1.0, None)

    def _hop(self, drawn: Realisation, snr_db: Tensor, like: Tensor, meter: Meter | None) -> Hop:
        """Realise a crossing with `drawn` at `snr_db` `[k]`, for tensors like `like` `[k, ...]`."""
        if NO in drawn:
            no, deviation = drawn[NO].unbind(-1)
        else:
            no, deviation = find_noise(snr_db, like)
        gains, others = self.gains_at(drawn, no, deviation), self.interference(drawn, no)
        return Hop(*gains, drawn.get("noise"), deviation if others is None else (no + others).sqrt(), meter)

    def sent_gain(self, drawn: Realisation, no: Tensor) -> Tensor | None:
        """Compute h with the sender's amplitude, complex, at a noise variance (None: 1 everywhere)."""
        gain = self.gain_at(drawn, no)
        if (amplitude := self.amplitude(gain, no)) is None:
            return gain
        return amplitude.to(no.dtype.to_complex()) if gain is None else amplitude * gain

    def gains_at(
        self, drawn: Realisation, no: Tensor, deviation: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Compute h with the sender's amplitude, the equaliser's w, and a = w h, at a noise variance. None means 1.

        Args:
            drawn: realisation, stacked.
            no: real, broadcastable to the symbols.
            deviation: its square root.
        """
        gain, others = self.sent_gain(drawn, no), self.interference(drawn, no)
        heard = no if others is None else no + others
        return gain, *equalise(self.equaliser, gain, heard, self.estimate(drawn, deviation))


def find_noise(snr_db: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Compute no and sqrt(no) at SNRs `[k]`, for tensors like `like` `[k, ...]`, to which they are broadcastable.

    An infinite SNR gives no = 0, so links without noise need no branch.
    """
    no = torch.pow(10.0, snr_db.to(like.real.dtype) / -10.0).view(-1, *[1] * (like.ndim - 1))
    return no, no.sqrt()


def complex_normal(shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Draw circular complex Gaussian numbers with E|z|^2 = 1, of the complex type that belongs to the real `dtype`."""
    return torch.randn(*shape, generator=generator, dtype=dtype.to_complex(), device=generator.device)
