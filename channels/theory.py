"""Closed forms of the physical layer as functions of the SNR, for `semcom channel-check` and the figures.

SNR is Es/N0 in dB, `snr_db = 10 log10(1 / no)` with E|symbol|^2 = E|h|^2 = 1; Eb/N0 is `1 / (no bits)`. Every function
takes a number or a NumPy array and returns the same. Powers and errors are in units of the transmit power per symbol.

[Proakis] J. G. Proakis and M. Salehi, Digital Communications, 5th ed., 2008. [Cho] K. Cho and D. Yoon, "On the general
BER expression of one- and two-dimensional amplitude modulations", IEEE Trans. Commun. 50(7), 2002. [Alouini] M.-S.
Alouini and A. J. Goldsmith, "Capacity of Rayleigh fading channels under different adaptive transmission and
diversity-combining techniques", IEEE Trans. Veh. Technol. 48(4), 1999. [Gao] H. Gao, P. J. Smith and M. V. Clark,
"Theoretical reliability of MMSE linear diversity combining in Rayleigh-fading additive interference channels", IEEE
Trans. Commun. 46(5), 1998.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from semcom.channels.law import Continuous, Function

Real = Any
"""A float, or a NumPy array of floats."""

KURTOSIS = 2.0
"""E|n|^4 / (E|n|^2)^2 of circular complex Gaussian n: |n|^2 is exponential, whose second moment is 2 mean^2."""


def noise_power(snr_db: Real) -> Real:
    """Compute no, the noise variance per complex symbol."""
    return 10.0 ** (-snr_db / 10.0)


def gaussian_tail(x: Real) -> Real:
    """Compute Q(x) = P(N(0, 1) > x)."""
    return stats.norm.sf(x)


def rayleigh_tail(power: Real, antennas: int = 1) -> Real:
    """Average Q(sqrt(2 `power` sum |h|^2)) over Rayleigh fading of N antennas [Proakis, 13.4-15].

    That is t^N sum_k C(N - 1 + k, k) (1 - t)^k, k < N, with t = (1 - sqrt(p / (1 + p))) / 2, the result for N = 1,
    written without the difference of two numbers near 1, so that it stays exact at a high SNR.
    """
    root = np.sqrt(power / (1.0 + power))
    one = 0.5 / ((1.0 + power) * (1.0 + root))
    return one**antennas * sum(math.comb(antennas - 1 + k, k) * (1.0 - one) ** k for k in range(antennas))


def bit_error_terms(bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute a and c of the bit error rate sum_i a_i Q(sqrt(2 c_i g)), g = Eb/N0, of Gray-mapped square QAM.

    QPSK (2 bits): a = 1, c = 1. 16-QAM: a = (3, 2, -1) / 4, c = (2/5, 18/5, 10) [Cho]. Exact for
    decisions by the nearest point, which are those of the max-log demapper.

    Args:
        bits: per symbol, even: 2, 4, 6, 8, ...

    Raises:
        ValueError: for an odd or non-positive number of bits.
    """
    if bits < 2 or bits % 2:
        raise ValueError(f"bits: {bits} per symbol is no square QAM; 2, 4, 6, 8, ... are")
    levels, per_axis = 2 ** (bits // 2), bits // 2
    weights = np.zeros(levels - 1)  # of the distances 1, 3, 5, ...; of every one that some bit needs
    for k in range(1, per_axis + 1):
        for i in range(levels - levels // 2**k):
            step = i * 2 ** (k - 1)
            weights[i] += (-1) ** (step // levels) * (2 ** (k - 1) - (2 * step + levels) // (2 * levels))
    factors = (2 * np.arange(levels - 1) + 1.0) ** 2 * 1.5 * bits / (levels**2 - 1)
    needed = weights != 0
    return weights[needed] * 2 / (levels * per_axis), factors[needed]


def bit_error_rate(bits: int, snr_db: Real, fading: bool = False, antennas: int = 1) -> Real:
    """Compute the uncoded bit error rate of Gray-mapped square QAM over AWGN, or over known Rayleigh fading.

    Args:
        bits: per symbol; 2 is QPSK, 4 is 16-QAM.
        snr_db: Es/N0.
        fading: average over Rayleigh fading instead of AWGN.
        antennas: antennas that the receiver combines, with fading.
    """
    per_bit = 1.0 / (noise_power(snr_db) * bits)
    terms = zip(*bit_error_terms(bits), strict=True)
    if fading:
        return sum(a * rayleigh_tail(c * per_bit, antennas) for a, c in terms)
    return sum(a * gaussian_tail(np.sqrt(2 * c * per_bit)) for a, c in terms)


def scaled_exponential_integral(x: Real) -> Real:
    """Compute e^x E1(x), the mean of 1 / (t + x) over an exponential t of mean 1.

    The product does not overflow before E1 vanishes, as e^x would.
    """
    small, large = np.minimum(x, 500.0), np.maximum(x, 500.0)
    asymptotic = (1.0 - (1.0 - 2.0 / large) / large) / large
    return np.where(x < 500.0, np.exp(small) * special.exp1(small), asymptotic)[()]


def mean_square_error(equaliser: str, no: Real, least: float = 0.0, known: Real = 1.0) -> Real:
    """Compute the mean square error of equalised unit-power symbols over Rayleigh fading with |h|^2 > `least`.

    "zf": no / |h|^2 given h, so no e^a E1(a) with a = `least`, infinite for 0. "mmse", biased, over all h: no / (|h|^2
    + no) given h, so no e^no E1(no). "none", over all h: |h - 1|^2 + no, so 2 + no.

    If "mmse" has only an estimate g of h, with `known` = |E[h g*]|^2 / E|g|^2 of the power of h, it treats the
    remainder, 1 - known, as noise, so with x = (1 + no) / known - 1 in place of no, x e^x E1(x), which is below 1.

    Raises:
        ValueError: for another equaliser, or an equaliser without a closed form here for `least` > 0.
    """
    if equaliser == "zf":
        return no * scaled_exponential_integral(least) if least else np.where(no, math.inf, 0.0)[()]
    if least or equaliser not in ("mmse", "none"):
        raise ValueError(f"equaliser: {equaliser!r} with |h|^2 > {least:g} has no closed form here")
    if equaliser == "none":
        return 2.0 + no
    x = no / known + (1.0 / known - 1.0)
    return np.where(x, x * scaled_exponential_integral(np.where(x, x, 1.0)), 0.0)[()]


def ergodic_capacity(snr_db: Real) -> Real:
    """Compute the mean of log2(1 + |h|^2 / no) over Rayleigh fading, bit per symbol: e^no E1(no) / ln 2 [Alouini]."""
    return scaled_exponential_integral(noise_power(snr_db)) / math.log(2)


def power_cdf(a: Real, k_factor: float = 0.0, antennas: int = 1) -> Real:
    """Compute P(|h|^2 < a) for Rician fading with a linear K-factor, 1 - Q1(sqrt(2K), sqrt(2(1+K)a)) [Proakis, 2.3].

    Rayleigh (K = 0): 1 - e^-a. As a received SNR divided by its mean has the law of |h|^2, this is its CDF too.
    """
    return power_law(k_factor, antennas).cdf(a)


def power_law(k_factor: float = 0.0, antennas: int = 1) -> Any:
    """Build the law of |h|^2 summed over N antennas for Rician fading with a linear K-factor, from `scipy.stats`.

    It is non-central chi-square with 2N degrees of freedom [Proakis, 2.3]; with K = 0 Gamma(N), for small a a^N / N!.
    SciPy's series do not converge for a K-factor above 80 dB, at which |h|^2 is 1 to four digits, so K is capped there.
    """
    if k_factor == 0.0:
        return stats.gamma(antennas)
    k = min(k_factor, 1e8)
    return stats.ncx2(2 * antennas, 2 * k * antennas, scale=1 / (2 * (1 + k)))


def inversion_means(threshold: float, csi_error: float, k_factor: float = 0.0) -> tuple[float, float]:
    """Compute E[1 / |g|^2] and Re E[h / g] for |g|^2 of at least `threshold`, with g = h + e, E|e|^2 = `csi_error`.

    Over Rayleigh fading |g|^2 is exponential of mean m = 1 + csi_error: E1(t / m) / m and exp(-t / m) / m. With a line
    of sight v, g is Rician like h, and its scattered power is s = 1 / (1 + K) + csi_error. Given g and v, the mean of h
    is v + (g - v) / (s (1 + K)), and given |g| that of v / g is |v| I1(x) / (|g| I0(x)), x = 2 |v| |g| / s.
    """
    sight, scattered = k_factor / (1 + k_factor), 1 / (1 + k_factor) + csi_error
    mean, part = sight + scattered, 1 / ((1 + k_factor) * scattered)
    law = Continuous(power_law(sight / scattered))

    def turned(g: np.ndarray) -> np.ndarray:
        root = np.sqrt(sight / (mean * g))
        return part + (1 - part) * root * special.ive(1, x := 2 * root * mean * g / scattered) / special.ive(0, x)

    return law.mean(lambda g: 1 / g, threshold / mean) / mean, law.mean(turned, threshold / mean)


def combined_cdf(combining: str, x: Real, no: Real, antennas: int, others: Sequence[float]) -> Real:
    """Compute P(SINR < x) of a user of mean power 1 on N antennas, over independent Rayleigh fading.

    `others` are the mean powers p_j of the other users. "zf" gives Gamma(N - U + 1) / no, whatever they are. The other
    two reach x with the probability that a Poisson number of mean x no and a number z_j for each other user sum to less
    than N: with q_j = p_j x / (1 + p_j x), "mrc", Gamma(N) / (no + sum_j p_j Exp), has geometric z_j, P(z_j >= m) =
    q_j^m, and "mmse" has z_j = 1 with probability q_j, else 0. The former are the derivatives of the transform of no +
    I, the latter is [Gao]'s ratio of polynomials, written as probabilities, which neither overflow nor cancel.
    """
    if combining == "zf":
        return special.gammainc(antennas - len(others), x * no)
    law = [stats.poisson.pmf(m, x * no) for m in range(antennas)]
    for p in others:
        q = p * x / (1 + p * x)
        if combining == "mmse":
            law = [(1 - q) * a + q * b for a, b in zip(law, [0.0, *law[:-1]], strict=True)]
        else:
            for m in range(antennas):
                law[m] = (1 - q) * law[m] + (q * law[m - 1] if m else 0.0)
    return 1 - sum(law)


@dataclass(frozen=True)
class CombinedLaw:
    """Law of the SINR of a user among several, with the arguments of `combined_cdf`."""

    combining: str
    no: float
    antennas: int
    others: tuple[float, ...]

    def quantile(self, p: float) -> float:
        """Find the SINR that the user misses with probability p in (0, 1)."""
        low, high = math.log(1e-15 / (self.no + sum(self.others))), math.log(1e3 * self.antennas / self.no)
        return math.exp(optimize.brentq(lambda t: self.below(math.exp(t)) - p, low, high))

    def below(self, t: float) -> float:
        """Compute P(SINR < t)."""
        return float(combined_cdf(self.combining, t, self.no, self.antennas, self.others))

    def mean(self, f: Function, least: float = 0.0) -> float:
        """Compute E[f(SINR); SINR >= least], by the probabilities of narrow intervals of log SINR."""
        low, high = math.log(max(least, self.quantile(1e-9))), math.log(self.quantile(1 - 1e-9))
        edges = np.exp(np.linspace(low, high, 4001))
        below = combined_cdf(self.combining, edges, self.no, self.antennas, self.others)
        return float((np.diff(below) * f(np.sqrt(edges[1:] * edges[:-1]))).sum())


def power_variance(k_factor: float = 0.0) -> float:
    """Compute Var|h|^2 for E|h|^2 = 1: (1 + 2K) / (1 + K)^2 for Rician [Proakis, 2.3], 1 for Rayleigh."""
    return (1 + 2 * k_factor) / (1 + k_factor) ** 2


def time_correlation(doppler_hz: Real, seconds: Real) -> Real:
    """Compute E[h(t) h(0)*] of scattered paths from all around, J0(2 pi f_D t): Jakes' spectrum [Proakis, 13.1]."""
    return special.j0(2 * math.pi * doppler_hz * seconds)


def frequency_correlation(powers: Real, delays_s: Real, apart_hz: float) -> complex:
    """Compute E[h(f) h(f + D)*] of paths, sum_l p_l exp(j 2 pi D tau_l), where the powers sum to 1 [Proakis, 13.1]."""
    return complex((powers * np.exp(2j * math.pi * apart_hz * delays_s)).sum())


def one_bit_error(d: int, step: float) -> float:
    """Compute the mean square error of +-step/2 for numbers of random sign, d of them on a sphere of mean square 1.

    1 - step E|x| + step^2 / 4, with E|x| = sqrt(d / pi) Gamma(d/2) / Gamma((d + 1)/2).
    """
    magnitude = math.sqrt(d / math.pi) * math.exp(math.lgamma(d / 2) - math.lgamma((d + 1) / 2))
    return 1 - step * magnitude + step**2 / 4


def airtime_s(uses: Real, clients: int, bandwidth_hz: float) -> Real:
    """Compute the seconds that `uses` symbols of a client take when `clients` share the band: each has 1/K of it."""
    return uses / (bandwidth_hz / clients)
