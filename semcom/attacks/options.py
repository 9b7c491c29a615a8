"""What an attack is: its kind, who listens, and what he knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from semcom.channels.options import COUNT, WHOLE, Rule, one_of, require
from semcom.config import ConfigError

Kind = Literal["invert", "member", "labels", "gradient"]
Place = Literal["base", "eavesdropper", "client"]
Knows = Literal["encoder", "pairs", "clients"]
Decoder = Literal["network", "linear"]
Secret = Literal["none", "permutation", "rotation"]
LISTENS = ("at", "snr_db", "knows", "decoder", "secret")
WHO = {"eavesdropper": "an eavesdropper", "client": "a client"}
TAKES: Mapping[Kind, tuple[str, ...]] = {
    "invert": (*LISTENS, "known", "steps", "seed"),
    "member": (),
    "labels": ("known", "seed"),
    "gradient": ("known", "steps", "batch", "seed"),
}
"""Kind -> the options that it takes, of those that not all kinds take."""


@dataclass(frozen=True)
class Attack:
    """An attack on a run: who listens, and what he knows."""

    kind: Kind = "invert"
    """Attack: rebuild test images from features (`invert`), tell training images from test images by the loss of a
    client's model (`member`), find the shares of a client's classes from what goes up (`labels`), or rebuild training
    images from a model's update (`gradient`)."""
    at: Place = "base"
    """Listener to the features: the base station (`base`), somebody with a link of his own (`eavesdropper`), or another
    client, who listens likewise, and has his own images and encoder alone (`client`)."""
    snr_db: float | None = None
    """Mean SNR of the link of an eavesdropper or a client in dB; he has to have one. Its fading is of the run's kind,
    drawn anew."""
    knows: Knows = "encoder"
    """Origin of his pairs of images and features: the victim's encoder (`encoder`), which he has or may ask, what the
    victim has sent (`pairs`: under its key if it has a `secret`), or encoders of other clients (`clients`)."""
    secret: Secret = "none"
    """Defence that is tried: each client permutes or rotates its features by a key that the base station has too."""
    known: int = 2000
    """Images that he has, none of them a victim's, at most."""
    decoder: Decoder = "network"
    """Decoder that he trains: the best `linear` one in closed form, or a transposed convolutional `network` beside
    it."""
    steps: int = 500
    """Steps of his training of a network, 64 images each, for each encoder, and of his classifier; or of his search for
    the images behind an update."""
    batch: int = 4
    """Training images behind an update."""
    clients: int = 4
    """Victims: the first clients, so many, at most."""
    view: str | None = None
    """View of the method whose models are attacked (None: the headline)."""
    seed: int = 0
    """Seed of his choices."""

    def __post_init__(self) -> None:
        choices = (("kind", Kind), ("at", Place), ("knows", Knows), ("decoder", Decoder), ("secret", Secret))
        try:
            for name, accepted in choices:
                one_of(name, getattr(self, name), get_args(accepted))
            for name in ("known", "steps", "batch", "clients"):
                require(name, getattr(self, name), COUNT)
            require("seed", self.seed, WHOLE)
            require("snr_db", self.snr_db, Rule(lambda v: -100 <= v <= 200, "a number from -100 to 200 dB"))
        except ValueError as error:
            raise ConfigError(str(error)) from None
        for name in sorted({name for taken in TAKES.values() for name in taken}.difference(TAKES[self.kind])):
            self._refuse_idle(name, f"kind {self.kind}")
        if (self.at != "base") != (self.snr_db is not None):
            told = f"snr_db: {self.snr_db!r} is for an eavesdropper; give at eavesdropper"
            raise ConfigError(told if self.at == "base" else f"snr_db: none is given, and {WHO[self.at]} has his own")
        if self.at == "base":
            self._refuse_idle("secret", "the base station, which has the key")
        if self.at == "client":
            self._refuse_idle("knows", "a client, who knows his own")
        if self.knows == "pairs" and self.secret == "none":
            raise ConfigError("knows: 'pairs' are those of the encoder, as there is no secret; leave it out")

    def _refuse_idle(self, name: str, what: str) -> None:
        """Raise ConfigError if an option that has no effect is set."""
        if (value := getattr(self, name)) != getattr(Attack, name):
            raise ConfigError(f"{name}: {value!r} has no effect on {what}; leave it out")

    def name_setting(self) -> str:
        """Name what differs from a base station that knows the encoder of the headline's models.

        Such as "eavesdropper-0dB-clients"; "" where nothing does.
        """
        listener = f"{self.at}-{self.snr_db:g}dB" if self.at != "base" else ""
        told = (self.kind * (self.kind == "gradient"), listener, *map(self._name_other, ("knows", "secret", "decoder")))
        return "-".join(filter(None, (*told, self.view)))

    def _name_other(self, name: str) -> str:
        """Return the value of a choice that is not the usual one, else an empty text."""
        value = str(getattr(self, name))
        return value if value != getattr(Attack, name) else ""

    def describe_size(self) -> str:
        """Describe the effort, by which numbers of two runs may be compared or not."""
        names = ("clients", *(name for name in TAKES[self.kind] if name not in LISTENS))
        return ", ".join(f"{name} {getattr(self, name)}" for name in names)
