"""What an attack is: its kind, who listens, and what he knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from semcom.channels.options import COUNT, NOT_NEGATIVE, Rule, one_of, require
from semcom.config import ConfigError

Kind = Literal["invert", "member"]
Place = Literal["base", "eavesdropper"]
Knows = Literal["encoder", "clients"]
Decoder = Literal["network", "linear"]
OF_INVERT = ("at", "snr_db", "knows", "known", "decoder", "steps", "seed")
"""Options of inversion alone."""


@dataclass(frozen=True)
class Attack:
    """An attack on a run: who listens, and what he knows."""

    kind: Kind = "invert"
    """Attack: rebuild test images from features (`invert`), or tell training images from test images by the loss of a
    client's model (`member`)."""
    at: Place = "base"
    """Listener to the features: the base station (`base`), or somebody with a link of his own (`eavesdropper`)."""
    snr_db: float | None = None
    """Mean SNR of the eavesdropper's link in dB; he has to have one. Its fading is of the run's kind, drawn anew."""
    knows: Knows = "encoder"
    """Origin of his pairs of images and features: the victim's encoder (`encoder`), which he has or may ask, or those
    of other clients (`clients`)."""
    known: int = 2000
    """Images that he has, none of them a victim's, at most."""
    decoder: Decoder = "network"
    """Decoder that he trains: a transposed convolutional `network`, or the best `linear` one in closed form."""
    steps: int = 500
    """Steps of his training of a network, 64 images each, for each encoder; and of his classifier."""
    clients: int = 4
    """Victims: the first clients, so many, at most."""
    view: str | None = None
    """View of the method whose models are attacked (None: the headline)."""
    seed: int = 0
    """Seed of his choices."""

    def __post_init__(self) -> None:
        try:
            for name, accepted in (("kind", Kind), ("at", Place), ("knows", Knows), ("decoder", Decoder)):
                one_of(name, getattr(self, name), get_args(accepted))
            for name in ("known", "steps", "clients"):
                require(name, getattr(self, name), COUNT)
            require("seed", self.seed, NOT_NEGATIVE)
            require("snr_db", self.snr_db, Rule(lambda v: -100 <= v <= 200, "a number from -100 to 200 dB"))
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if (self.at == "eavesdropper") != (self.snr_db is not None):
            told = f"snr_db: {self.snr_db!r} is for an eavesdropper; give at eavesdropper"
            raise ConfigError(told if self.at == "base" else "snr_db: none is given, and an eavesdropper has his own")
        idle = [name for name in OF_INVERT if getattr(self, name) != getattr(Attack, name)]
        if self.kind != "invert" and idle:
            raise ConfigError(f"{idle[0]}: {getattr(self, idle[0])!r} has no effect on kind {self.kind}; leave it out")

    def name_setting(self) -> str:
        """Name what differs from a base station that knows the encoder of the headline's models.

        Such as "eavesdropper-0dB-clients"; "" where nothing does.
        """
        listener = f"eavesdropper-{self.snr_db:g}dB" if self.at == "eavesdropper" else ""
        knows, decoder = self.knows * (self.knows == "clients"), self.decoder * (self.decoder == "linear")
        return "-".join(filter(None, (listener, knows, decoder, self.view)))

    def describe_size(self) -> str:
        """Describe the effort, by which numbers of two runs may be compared or not."""
        names = ("clients",) if self.kind == "member" else ("clients", "known", "steps", "seed")
        return ", ".join(f"{name} {getattr(self, name)}" for name in names)
