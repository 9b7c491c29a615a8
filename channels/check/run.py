"""All checks, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from channels.check import digital, errors, fading, noise, ofdm, outage, users
from channels.check.finding import Finding
from channels.check.lab import Lab

Check = Callable[[Lab], Iterator[Finding]]

CHECKS: Mapping[str, Check] = {
    "noise": noise.check_noise,
    "power": noise.check_symbol_power,
    "fading": fading.check_fading,
    "coherence": fading.check_fading_coherence,
    "received-snr": fading.check_snr_over_fading,
    "antennas": fading.check_fading_antennas,
    "outage": outage.check_outage,
    "inversion": outage.check_inversion,
    "users": users.check_users,
    "rounds": users.check_rounds,
    "equalisers": errors.check_equaliser_errors,
    "bit-errors": errors.check_bit_errors,
    "ofdm-transparency": ofdm.check_ofdm_transparency,
    "ofdm-leaks": ofdm.check_ofdm_leaks,
    "ofdm-profiles": ofdm.check_ofdm_profiles,
    "ofdm-doppler": ofdm.check_ofdm_doppler,
    "ofdm-delay": ofdm.check_ofdm_delay,
    "ofdm-estimates": ofdm.check_ofdm_estimates,
    "digital": digital.check_digital_link,
    "constellations": digital.check_digital_constellations,
    "codes": digital.check_digital_codes,
}
"""Checks by name. Each uses draws of its own, so one alone finds the same as among the others."""


def run_checks(lab: Lab, checks: Mapping[str, Check] | None = None) -> Iterator[Finding]:
    """Yield the findings of the checks (None: of all), one check after the other."""
    for check in (CHECKS if checks is None else checks).values():
        yield from check(lab)
