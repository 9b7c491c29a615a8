"""The table of measured block errors: against new codewords, against Sionna's decoder, and against the bound."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
import torch
from scipy import optimize, stats

from semcom.channels.coding import waterfall
from semcom.channels.coding.mcs import SCHEMES, Scheme
from semcom.channels.coding.modem import make_modem, split_into_codewords
from semcom.channels.coding.waterfall import LENGTHS, LOST, find_block_error, measure_waterfall
from semcom.channels.link import complex_normal

BLOCKS = 400
OFF_DB = 0.12
"""Error of the table that is let pass, in dB, beside that of counting: its own sample, and the straight lines."""


def table() -> dict[tuple[int, float, int], list[float]]:
    """Read the rows of the file."""
    with waterfall.TABLE.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    return {(int(m), float(rate), int(uses)): [*map(float, snrs)] for m, rate, uses, *snrs in rows}


def expected(scheme: Scheme, uses: int, snr_db: float) -> float:
    return float(find_block_error(scheme, uses, torch.tensor([snr_db]))[0])


def find_snr(scheme: Scheme, uses: int, share: float) -> float:
    """Find the SNR at which the table gives this share of lost blocks."""
    return float(optimize.brentq(lambda db: expected(scheme, uses, db) - share, -20, 60, xtol=1e-6))


def holds(lost: int, blocks: int, scheme: Scheme, uses: int, snr_db: float, off_db: float = OFF_DB) -> bool:
    """Whether so many lost blocks may come of the table's share, by an exact test at one in 10,000."""
    low, high = expected(scheme, uses, snr_db + off_db), expected(scheme, uses, snr_db - off_db)
    return stats.binom.cdf(lost, blocks, low) > 1e-4 and stats.binom.sf(lost - 1, blocks, high) > 1e-4


def count_lost(scheme: Scheme, uses: int, snr_db: float, blocks: int = BLOCKS) -> int:
    """Send random bits over AWGN, and count the blocks that do not arrive as they were."""
    bits, generator = math.floor(scheme.efficiency * uses), torch.Generator().manual_seed(7)
    modem = make_modem(bits, uses, scheme.modulation, torch.device("cpu"))
    sent, no = torch.randint(2, (blocks, bits), generator=generator), torch.full((1, 1), 10 ** (-snr_db / 10))
    heard = modem.symbols(sent) + no.sqrt() * complex_normal((blocks, uses), generator, torch.float32)
    return int((modem.receive(heard, None, no)[0] != sent.bool()).any(1).sum())


ON = [(0, 256), (5, 512), (9, 64), (12, 256), (18, 128), (25, 256)]
OFF = [(0, 700), (3, 45), (4, 180), (6, 363), (11, 90), (14, 190), (16, 300), (20, 100), (23, 45), (25, 180)]
SEVERAL = [(10, 4096), (25, 2000)]


@pytest.mark.parametrize(("number", "uses"), ON + OFF + SEVERAL)
def test_so_many_blocks_are_lost(number: int, uses: int) -> None:
    """At lengths in the table and between them, and with several codewords, where 40 % and 5 % should be lost."""
    scheme = SCHEMES[number]
    several = split_into_codewords(math.floor(scheme.efficiency * uses), uses, scheme.modulation)[0] > 1
    assert several == ((number, uses) in SEVERAL)
    for share in (0.4, 0.05):
        snr_db = find_snr(scheme, uses, share)
        blocks = BLOCKS // 4 if several else BLOCKS
        assert holds(lost := count_lost(scheme, uses, snr_db, blocks), blocks, scheme, uses, snr_db), (lost, snr_db)


def test_a_table_that_is_wrong_by_half_a_decibel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme, uses = SCHEMES[5], 512
    snr_db = find_snr(scheme, uses, 0.4)
    lost = count_lost(scheme, uses, snr_db)
    for wrong in (-0.5, 0.5):
        moved = {s: {n: [db + wrong for db in snrs] for n, snrs in rows.items()} for s, rows in TABLE.items()}
        monkeypatch.setattr(waterfall, "_read_scheme_snrs", lambda moved=moved: moved)
        assert not holds(lost, BLOCKS, scheme, uses, snr_db)


TABLE = waterfall._read_scheme_snrs()


@pytest.mark.parametrize(("number", "uses"), [(2, 256), (8, 128), (24, 64)])
def test_sionnas_decoder_loses_as_many(number: int, uses: int) -> None:
    """Its own codewords, 16-QAM and so on, its max-log demapper, and 20 iterations: within 0.3 dB."""
    with torch.random.fork_rng():  # importing reseeds it
        from sionna.phy.fec.ldpc import LDPC5GDecoder, LDPC5GEncoder
        from sionna.phy.mapping import Demapper, Mapper
    scheme = SCHEMES[number]
    m, bits = scheme.modulation.bit_length() - 1, math.floor(scheme.efficiency * uses)
    encoder = LDPC5GEncoder(bits, m * uses, num_bits_per_symbol=m, device="cpu")
    generator = torch.Generator().manual_seed(3)
    sent = torch.randint(2, (BLOCKS, bits), generator=generator).float()
    snr_db = find_snr(scheme, uses, 0.2)
    no = 10 ** (-snr_db / 10)
    symbols = Mapper("qam", m, device="cpu")(encoder(sent))
    heard = symbols + no**0.5 * complex_normal((BLOCKS, uses), generator, torch.float32)
    llr = Demapper("maxlog", "qam", m, device="cpu")(heard, torch.tensor(no))
    got = LDPC5GDecoder(encoder, num_iter=20, device="cpu")(llr)
    assert holds(int((got != sent).any(1).sum()), BLOCKS, scheme, uses, snr_db, 0.3)


def bound_rate(snr_db: float, uses: int, lost: float) -> float:
    """Compute Polyanskiy, Poor and Verdu (2010), Eq. 293: C - sqrt(V / n) Q^-1(lost) in bits per complex use."""
    p = 10 ** (snr_db / 10)
    dispersion = (1 - (1 + p) ** -2) * math.log2(math.e) ** 2
    return math.log2(1 + p) - math.sqrt(dispersion / uses) * float(stats.norm.isf(lost))


def test_no_code_beats_the_finite_length_bound() -> None:
    """From 64 symbols on, where the normal approximation holds: 0.6 to 2.8 dB from it, the more the larger the QAM."""
    gaps: dict[int, list[float]] = {}
    for (modulation, rate, uses), snrs in table().items():
        if uses >= 64:
            bits = math.floor(rate / 1024 * math.log2(modulation) * uses)
            for share, snr_db in zip(LOST, snrs, strict=True):
                at = optimize.brentq(lambda db, n=uses, p=share, r=bits / uses: bound_rate(db, n, p) - r, -20, 60)
                gaps.setdefault(modulation, []).append(snr_db - at)
    assert all(0.5 < gap < 3 for each in gaps.values() for gap in each)
    mean = [sum(each) / len(each) for each in gaps.values()]
    assert mean == sorted(mean)


def test_the_table_has_every_scheme_and_length_of_a_single_codeword() -> None:
    wanted = [
        (scheme.modulation, scheme.code_rate * 1024, uses)
        for scheme in SCHEMES
        for uses in LENGTHS
        if split_into_codewords(math.floor(scheme.efficiency * uses), uses, scheme.modulation)[0] == 1
    ]
    assert list(table()) == wanted and all(snrs == sorted(snrs) for snrs in table().values())


def test_shares_between_and_beyond_are_straight_lines_of_probits() -> None:
    """The table's shares at its own SNRs. Half way in dB is half way in probits, and the last line goes on past 1 %."""
    scheme, uses = SCHEMES[7], 128
    half, tenth, hundredth = table()[(scheme.modulation, scheme.code_rate * 1024, uses)]
    assert [expected(scheme, uses, db) for db in (half, tenth, hundredth)] == pytest.approx(LOST, rel=1e-4)
    middle = stats.norm.cdf((stats.norm.ppf(0.5) + stats.norm.ppf(0.1)) / 2)
    assert expected(scheme, uses, (half + tenth) / 2) == pytest.approx(middle, rel=1e-4)
    beyond = stats.norm.cdf(2 * stats.norm.ppf(0.01) - stats.norm.ppf(0.1))
    assert expected(scheme, uses, 2 * hundredth - tenth) == pytest.approx(beyond, rel=1e-4)
    assert expected(scheme, uses, -100) == pytest.approx(1.0) and expected(scheme, uses, 100) == 0.0


def test_lengths_between_are_straight_lines_of_the_logarithm() -> None:
    scheme = SCHEMES[7]
    rows = [table()[(scheme.modulation, scheme.code_rate * 1024, uses)] for uses in (64, 256)]
    middle = [0.5 * (a + b) for a, b in zip(*rows, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waterfall, "_read_scheme_snrs", lambda: {scheme: {64: rows[0], 256: rows[1]}})
        assert [expected(scheme, 128, db) for db in middle] == pytest.approx(LOST, rel=1e-4)
        assert expected(scheme, 16, rows[0][0]) == pytest.approx(0.5) == expected(scheme, 512, rows[1][0])


def test_a_block_of_several_codewords_arrives_where_all_do() -> None:
    """64-QAM at rate 873/1024: 4,000 symbols are 20,460 bits, three codewords of 1,333 symbols."""
    scheme = SCHEMES[16]
    assert split_into_codewords(math.floor(scheme.efficiency * 4000), 4000, 64)[0] == 3
    snr_db = find_snr(scheme, 1333, 0.2)
    assert expected(scheme, 4000, snr_db) == pytest.approx(1 - 0.8**3, rel=1e-4)


def test_the_command_measures_the_table_that_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One scheme and two lengths. The same seed gives the same row, as far as processors round alike."""
    monkeypatch.setattr(waterfall, "SCHEMES", SCHEMES[:1])
    monkeypatch.setattr(waterfall, "LENGTHS", (32, 64))
    waterfall.measure_waterfall_table(tmp_path / "table.csv")
    found = [line.split(",") for line in (tmp_path / "table.csv").read_text().splitlines()]
    ships = [line.split(",") for line in waterfall.TABLE.read_text().splitlines()]
    assert found[0] == ships[0]
    for row in found[1:]:
        kept = next(line for line in ships if line[:3] == row[:3])
        assert [*map(float, row[3:])] == pytest.approx([*map(float, kept[3:])], abs=0.05)


def test_a_codeword_arrives_from_its_snr_on() -> None:
    """Nearly every block arrives 0.3 dB above it and nearly none below: the search uses each codeword's own noise."""
    scheme, uses = SCHEMES[4], 128
    found = measure_waterfall(scheme, uses, 200, seed=7)
    for share in (0.7, 0.2):
        snr_db = float(found.quantile(1 - share))
        assert count_lost(scheme, uses, snr_db, 200) == pytest.approx(200 * share, abs=4)
