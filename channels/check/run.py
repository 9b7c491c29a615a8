"""All checks, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from semcom.channels.check import digital, errors, fading, noise, ofdm, outage, users
from semcom.channels.check.finding import Finding
from semcom.channels.check.lab import Lab

Check = Callable[[Lab], Iterator[Finding]]

CHECKS: Mapping[str, Check] = {
    "noise": noise.check_noise,
    "power": noise.check_symbol_power,
    "fading": fading.check_fading,
    "coherence": fading.check_coherence,
    "received-snr": fading.check_received_snr,
    "antennas": fading.check_antenna_gains,
    "outage": outage.check_outage,
    "inversion": outage.check_channel_inversion,
    "users": users.check_users,
    "rounds": users.check_users_over_rounds,
    "equalisers": errors.check_equaliser_errors,
    "bit-errors": errors.check_bit_errors,
    "ofdm-transparency": ofdm.check_ofdm_transparency,
    "ofdm-leaks": ofdm.check_ofdm_leaks,
    "ofdm-profiles": ofdm.check_ofdm_profiles,
    "ofdm-doppler": ofdm.check_ofdm_doppler,
    "ofdm-delay": ofdm.check_ofdm_delay,
    "ofdm-estimates": ofdm.check_ofdm_estimates,
    "digital": digital.check_link,
    "constellations": digital.check_constellations,
    "codes": digital.check_codes,
}
"""Checks by name. Each uses its own draws, so a single check finds the same numbers as a run of all."""


def run_checks(lab: Lab, checks: Mapping[str, Check] | None = None) -> Iterator[Finding]:
    """Run the checks (None: all of them) in order, and yield their findings."""
    for check in (CHECKS if checks is None else checks).values():
        yield from check(lab)
