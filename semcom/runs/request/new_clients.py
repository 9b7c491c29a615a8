"""The configuration of new clients, which took no part in training.

They live in a world of their own, with draws of their own. From a field with one value per client they take the values
in turn (SNRs, rates). They share the band equally, as many at a time as take part in a round.
"""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import cycle, islice

from semcom.channels import Link
from semcom.config import ConfigError, NoEffect, Resolved, RunConfig
from semcom.config.options import spell_option
from semcom.engine.air.registry import PLACES
from semcom.engine.host.keys import derive_key_seed
from semcom.methods.parts.kinds import holds_classifier


def check_new_clients(config: Resolved, link: Link) -> None:
    """Raise ConfigError for new clients that a resolved configuration, whose link is given, cannot have."""
    default = {f.name: f.default for f in fields(RunConfig)}
    for name in ("new_data", "new_steps") if not config.new_clients else ():
        if getattr(config, name) != default[name]:
            value = getattr(config, name)
            raise NoEffect(f"{spell_option(name)}: {value!r} has no effect without new clients; set new-clients")
    if not config.new_clients:
        return
    if holds_classifier(config.finish.kind) and config.new_steps != default["new_steps"]:
        why = f"{config.finish.kind} is not trained in steps"
        raise NoEffect(f"new-steps: {config.new_steps} has no effect, as {why}; leave it out")
    kinds = sorted(set(config.model.encoder.split(",")))
    if len(kinds) > 1:
        raise ConfigError(f"new-clients: they receive one model, but model.encoder has {' and '.join(kinds)}; give one")
    if config.new_data == config.data.name:
        raise ConfigError(f"new-data: {config.new_data!r} is the data of the run; leave it out")
    if config.new_data is not None and config.partition.kind == "file":
        raise ConfigError(f"new-data: {config.new_data!r} is not what the file of partition.path divides; leave it out")
    numbered = {"channel": link.carrier.numbered, "network": PLACES.get(config.network.kind).numbered}
    for section in (name for name, by_number in numbered.items() if by_number):
        what = f"{section}.kind {getattr(config, section).kind}"
        raise ConfigError(
            f"new-clients: {what} has the run's clients by their numbers, and no new ones; take another kind"
        )


def configure_new_clients(config: Resolved) -> Resolved:
    """Configure the new clients' world."""
    n, channel, train = config.new_clients, config.channel, config.train
    lr, down, own = train.lr, channel.downlink_snr_db, channel.options
    return replace(
        config,
        clients=n,
        new_clients=0,
        seed=derive_key_seed(config.seed, "new clients"),
        out=None,
        channel=replace(
            channel,
            snr_db=_adapt_snr(channel.snr_db, n),
            downlink_snr_db=None if down is None else _adapt_snr(down, n),
            options=replace(own, shares=None) if hasattr(own, "shares") else own,
        ),
        train=replace(
            train,
            lr=tuple(islice(cycle(lr), n)) if isinstance(lr, tuple) else lr,
            local_epochs=1,
            local_steps=None,
            participation=min(n, config.participants) / n,
            eval_clients=None,
        ),
    )


def _adapt_snr(text: float | str, n: int) -> float | str:
    """Adapt an SNR field to n clients; only a list with a value per client changes."""
    return ",".join(islice(cycle(text.split(",")), n)) if isinstance(text, str) and "," in text else text
