"""Tables of counts `[K, C]` behind the partitions: how many samples of each class a client gets.

Legend: K clients, C classes; `stock` `[C]`, the available samples of each class, n_c; `ways` `[K]`, the classes per
client, m; `sizes` `[K]`, the samples of each of them, q.
"""

from __future__ import annotations

import logging
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from semcom.config import ConfigError

LOG = logging.getLogger(__name__)
Table = npt.NDArray[np.int64]
REDRAWS, WORK = 20_000, 10_000_000
"""Draws of `draw_dirichlet_counts` after which its minimum size is called impossible, and their work, some seconds."""
DISPLACED = 0.02
"""Part of all samples that rounding may leave to be drawn again in `draw_client_dirichlet_counts` without a word."""
TRIES = 20
"""Draws of a client's classes after which the classes with the largest stock are taken."""


def draw_spread_counts(
    name: str, centre: int, width: int, clients: int, rng: np.random.Generator, top: int | None = None
) -> Table:
    """Draw `[K]` whole numbers, uniform in [centre - width, centre + width].

    Raises ConfigError naming the field if that leaves 1 to `top`.
    """
    if top is not None and centre > top:
        raise ConfigError(f"{name}: {centre} is more than the {top} classes of the dataset")
    if centre - width < 1 or (top is not None and centre + width > top):
        bound = f"1 to {top}" if top is not None else "at least 1"
        raise ConfigError(f"{name}-spread: {width} around {centre} leaves {bound}")
    return rng.integers(centre - width, centre + width + 1, clients)


def draw_shot_counts(stock: Table, ways: Table, sizes: Table, rng: np.random.Generator) -> Table:
    """Draw a table in which client k gets `sizes[k]` samples of each of `ways[k]` random classes.

    Clients choose in random order, large samples first. A choice that would leave too little for the others is drawn
    again, and after some tries the client takes the classes with the largest stock. With equal sizes this finds a table
    whenever one exists: Gale and Ryser's condition decides whether the others can still be served, and taking the
    largest stocks never breaks it. With unequal sizes the condition for the next client's size is used, which is
    sufficient, not necessary.

    Raises ConfigError naming partition.shots with the number of missing samples: with equal sizes, the fewest that
    would have to be added to the classes.
    """
    order = rng.permutation(len(ways))
    order = order[np.argsort(-sizes[order], kind="stable")]
    equal = bool((sizes == sizes[0]).all())
    if equal and count_unserved(stock // sizes[0], ways):
        raise _make_shortage_error(ways, sizes, stock, count_missing_samples(stock, ways, int(sizes[0])))
    table = np.zeros((len(ways), len(stock)), dtype=np.int64)
    left, lacking = stock.copy(), 0
    waiting = _Waiting(ways)
    for position, client in enumerate(order):
        waiting.serve(int(ways[client]))
        following = int(sizes[order[min(position + 1, len(order) - 1)]])
        chosen = _choose_classes(left, int(ways[client]), int(sizes[client]), following, waiting, rng)
        lacking += (int(ways[client]) - len(chosen)) * int(sizes[client])
        table[client, chosen] = sizes[client]
        left[chosen] -= sizes[client]
    if lacking:
        raise _make_shortage_error(ways, sizes, stock, lacking)
    return table


def count_unserved(places: Table, ways: Table) -> int:
    """Count the fewest choices of K clients (`ways[k]` different classes each) that `places[c]` per class leave unmet.

    Gale-Ryser, as a minimum cut: the largest over j of the sum of the j largest ways minus sum_c min(places_c, j).
    """
    return _Waiting(ways).unserved(places)


def count_missing_samples(stock: Table, ways: Table, size: int) -> int:
    """Count the fewest samples to add to the stock so that each client can have `size` of each of `ways[k]` classes.

    The first further place of a class costs the gap to its remainder, each other place `size`. Filling the cheapest
    useful place first is optimal, as the number of met choices is submodular in the places.
    """
    waiting, places = _Waiting(ways), stock // size
    lacking, added = waiting.unserved(places), 0
    for c in np.argsort(-(stock % size), kind="stable"):
        more = places.copy()
        more[c] += 1
        if lacking and waiting.unserved(more) < lacking:
            places, lacking, added = more, lacking - 1, added + size - int(stock[c] % size)
    return added + lacking * size


class _Waiting:
    """The clients that have not chosen yet: the number of clients for each number of ways."""

    def __init__(self, ways: Table) -> None:
        values, numbers = np.unique(ways, return_counts=True)
        self.values, self.numbers = values[::-1], numbers[::-1].copy()

    def serve(self, ways: int) -> None:
        """Let one client with that many ways stop waiting."""
        self.numbers[self.values == ways] -= 1

    def unserved(self, places: Table) -> int:
        """Compute `count_unserved`: linear minus concave between two numbers of ways, so their ends suffice."""
        ends = np.cumsum(self.numbers)
        demand = np.cumsum(self.numbers * self.values)
        supply = np.minimum(places, ends[:, None]).sum(axis=1)
        return max(0, int((demand - supply).max()))


def _choose_classes(
    left: Table, ways: int, size: int, following: int, waiting: _Waiting, rng: np.random.Generator
) -> Table:
    """Choose classes for one client so that those who wait can still be served, if that is possible."""
    open_classes = np.flatnonzero(left >= size)
    if len(open_classes) <= ways:
        return open_classes
    for _ in range(TRIES):
        chosen = rng.permutation(open_classes)[:ways]
        rest = left.copy()
        rest[chosen] -= size
        if not waiting.unserved(rest // following):
            return chosen
    return np.argsort(-(left // size) - rng.random(len(left)) / 2)[:ways]


def _make_shortage_error(ways: Table, sizes: Table, stock: Table, missing: int) -> ConfigError:
    """Make the error of `draw_shot_counts` for data that do not suffice."""
    m, q = (f"{v.min()}" if v.min() == v.max() else f"{v.min()} to {v.max()}" for v in (ways, sizes))
    return ConfigError(
        f"partition.shots: {len(ways)} clients x {m} ways x {q} shots are {missing} samples more than the "
        f"{stock.sum()} training images can give ({stock.min()} to {stock.max()} per class); "
        "lower partition.shots, partition.ways or clients"
    )


def draw_dirichlet_counts(stock: Table, clients: int, beta: float, least: int, rng: np.random.Generator) -> Table:
    """Divide each class over the clients in proportions ~ Dir(beta, ..., beta).

    With `least` > 0 the field's practical setting: a client that already has its equal share of the total gets no
    samples of the following classes, and the whole table is drawn again until every client has at least `least`
    samples. With 0 the plain form, in which clients may stay empty.

    Raises ConfigError naming partition.min-size after 20,000 draws, fewer if a draw takes long, and already after a
    tenth of them if the smallest client never had half of it.
    """
    draws = max(1, min(REDRAWS, WORK // (len(stock) * (clients + 30)))) if clients * least <= stock.sum() else 0
    best = 0
    for draw in range(draws):
        table = _draw_one_dirichlet_table(stock, clients, beta, balanced=least > 0, rng=rng)
        best = max(best, int(table.sum(axis=1).min()))
        if best >= least:
            return table
        if draw >= draws // 10 and 2 * best < least:
            break
    had = f", whose smallest client had {best} at best" if draws else ""
    raise ConfigError(
        f"partition.min-size: {least} for each of {clients} clients is met by no draw of the {stock.sum()} samples"
        f"{had}; lower it or clients, raise partition.beta, or take 0 for the plain form"
    )


def _draw_one_dirichlet_table(
    stock: Table, clients: int, beta: float, *, balanced: bool, rng: np.random.Generator
) -> Table:
    table = np.zeros((clients, len(stock)), dtype=np.int64)
    concentrations, sizes, part = np.full(clients, beta), np.zeros(clients, dtype=np.int64), stock.sum() / clients
    for c, number in enumerate(stock):
        shares = rng.dirichlet(concentrations)
        if not number:  # nothing to share, perhaps as all clients have their part already
            continue
        if balanced:
            below = sizes < part
            left = shares * below
            shares = left if left.any() else below.astype(float)
        # 1e-9: rounding must not take a sample off a share that is a whole number.
        ends = np.floor(shares.cumsum() / shares.sum() * number + 1e-9).astype(np.int64)
        table[0, c], table[1:, c] = ends[0], ends[1:] - ends[:-1]
        sizes += table[:, c]
    return table


def draw_client_dirichlet_counts(stock: Table, clients: int, beta: float, rng: np.random.Generator) -> Table:
    """Draw clients of equal size floor(N / K), client k's classes from its own probabilities p_k ~ Dir(beta, ...).

    FedCRC's setting. All clients draw at once. If they want more of a class than is left, a random part of the wishes
    is met, and the rest of a client's samples is drawn again from p_k over the classes that are left (in proportion to
    their stock, if p_k gives those no weight). So shares of classes vary less than the p_k, whose variance is (C - 1) /
    (C^2 (C beta + 1)). A warning gives the difference if more than `DISPLACED` are drawn again.
    """
    table = np.zeros((clients, len(stock)), dtype=np.int64)
    weights = rng.dirichlet(np.full(len(stock), beta), clients)
    left = stock.astype(np.int64)
    lacking, again = np.full(clients, stock.sum() // clients), list[int]()
    while lacking.any():
        open_weights = weights * (left > 0)
        dead = open_weights.sum(axis=1) < 1e-200  # all open classes underflow at a small beta
        open_weights[dead] = left
        wishes = rng.multinomial(lacking, open_weights / open_weights.sum(axis=1, keepdims=True))
        for c in np.flatnonzero(wishes.sum(axis=0) > left):
            # Too many want the class: chance decides who gets its last samples, not the order of clients.
            wishes[:, c] = rng.multivariate_hypergeometric(wishes[:, c], left[c], method="marginals")
        table += wishes
        left -= wishes.sum(axis=0)
        lacking -= wishes.sum(axis=1)
        again.append(int(lacking.sum()))
    displaced = sum(again[:1]) / max(1, int(table.sum()))
    if displaced > DISPLACED:
        shares = table / table.sum(axis=1, keepdims=True)
        found, drawn = (((part - 1 / len(stock)) ** 2).mean() for part in (shares, weights))
        _note_on_partition(
            f"partition.beta: {beta:g} over {clients} clients: classes run out, {displaced:.1%} of the samples are "
            f"drawn again, and shares of classes have a variance of {found:.4f}, not the {drawn:.4f} of those drawn"
        )
    return table


def draw_fields(places_m: np.ndarray, length_m: float, fields: int, rng: np.random.Generator) -> np.ndarray:
    """Draw Gaussian fields over a map, of variance 1 and correlation exp(-distance / length), at some places.

    Args:
        places_m: x and y, `[K, 2]`.
        length_m: correlation length; 0: values are independent, inf: everywhere the same.
        fields: how many, C, which are independent.
        rng: source of the draws.

    Returns:
        the values, `[K, C]`.
    """
    apart = np.linalg.norm(places_m[:, None] - places_m, axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        alike = np.where(apart > 0, np.exp(-apart / length_m), 1.0)
    size, way = np.linalg.eigh(alike)  # places that coincide have no Cholesky decomposition
    return (way * np.sqrt(size.clip(0))) @ rng.normal(size=(len(places_m), fields))


def convert_to_shares(fields: np.ndarray, beta: float) -> np.ndarray:
    """Convert standard normal values to shares, `[K, C]` both, each row distributed as Dir(beta, ...).

    Each value becomes the number of Gamma(beta) at the same quantile; these over their sum are Dirichlet's.
    """
    from scipy import special  # takes a while to import, and few divisions ask

    with np.errstate(divide="ignore"):
        log = np.log(special.gammaincinv(beta, special.ndtr(fields)))
    # Near 0 the distribution function is x^beta / Gamma(beta + 1), and x may be too small to be held.
    least = (special.log_ndtr(fields) + special.gammaln(beta + 1)) / beta
    log = np.where(log < -600, least, log)
    shares = np.exp(log - log.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True)


def count_by_shares(stock: Table, shares: np.ndarray, size: int | None, rng: np.random.Generator) -> Table:
    """Count the samples of each class, `[K, C]`, of clients of one size with given shares, `[K, C]`, rounded.

    Args:
        stock: samples of each class, `[C]`.
        shares: of each client's samples; a row sums to 1.
        size: samples of a client (None: as many as the class of which the most is wanted allows).
        rng: breaks ties in rounding.

    Raises:
        ConfigError: of a class more is wanted than there is, or clients would have no sample.
    """
    clients, wanted = len(shares), shares.sum(0)
    # Rounding up adds less than a sample for each client.
    most = int(np.min((stock - clients).clip(0)[wanted > 0] / wanted[wanted > 0]))
    size = min(most, int(stock.sum()) // clients) if size is None else size
    table = np.array([round_amounts(size * own, size, rng) for own in shares])
    if size < 1 or (table.sum(0) > stock).any():
        least = "fewer clients or a larger beta" if most < 1 else f"at most {most}"
        raise ConfigError(f"partition.size: {size} images of each client are more than the classes have; give {least}")
    return table


@lru_cache(maxsize=256)
def _note_on_partition(finding: str) -> None:
    LOG.warning(finding)


def draw_pathological_counts(stock: Table, clients: int, classes: int, rng: np.random.Generator) -> Table:
    """Give client k a share of `classes` random classes; a class is divided equally among its owners.

    Each of the C classes with samples has floor or ceil of K * classes / C owners, so all samples are dealt if
    K * classes >= C. Otherwise some of them have no owner.

    Raises ConfigError for more classes than the dataset has, or a class with fewer samples than owners.
    """
    there = np.flatnonzero(stock)
    if classes > len(there):
        raise ConfigError(f"partition.classes: {classes} is more than the {len(there)} classes with samples")
    least, extra = divmod(clients * classes, len(there))
    owners = np.zeros(len(stock), dtype=np.int64)
    owners[there] = least
    owners[there[rng.permutation(len(there))[:extra]]] += 1
    short = np.flatnonzero(stock < owners)
    if len(short):
        c = int(short[0])
        raise ConfigError(f"partition.classes: class {c} has {stock[c]} samples for {owners[c]} clients; lower clients")
    owned = draw_shot_counts(owners, np.full(clients, classes), np.ones(clients, dtype=np.int64), rng)
    return divide_stock_in_proportion(owned, stock)


def draw_iid_counts(stock: Table, clients: int, rng: np.random.Generator) -> Table:
    """Shuffle all samples and cut them into K parts of equal size (up to one sample)."""
    table = np.zeros((clients, len(stock)), dtype=np.int64)
    left = stock.astype(np.int64)
    for client in range(clients):
        size = (stock.sum() - table.sum()) // (clients - client)
        table[client] = rng.multivariate_hypergeometric(left, size, method="marginals")
        left -= table[client]
    return table


def divide_stock_in_proportion(table: Table, stock: Table) -> Table:
    """Divide each class's stock in the proportions of the table's column. A class with an empty column stays out.

    Ends of the running sum are rounded, so each client is within one sample of its share.
    """
    total = table.sum(axis=0)
    ends = np.rint(np.cumsum(table, axis=0) * (stock / np.maximum(total, 1))).astype(np.int64)
    return np.diff(ends, axis=0, prepend=0)


def round_amounts(amounts: npt.NDArray[np.floating], total: int, rng: np.random.Generator) -> Table:
    """Round amounts `[C]` to whole numbers with the given sum: largest remainders go up, ties by chance."""
    down = np.floor(amounts + 1e-9).astype(np.int64)
    # Rounded, since equal remainders differ in their last digits. The random part then breaks such ties.
    up = np.argsort(-(amounts - down).round(9) - rng.random(len(amounts)) * 1e-10)[: total - int(down.sum())]
    down[up] += 1
    return down


def count_among_first(stock: Table, number: int, rng: np.random.Generator) -> Table:
    """Count the samples of each class `[C]` among the first `number` in an order that is fair at every length.

    Of N samples the first m have m n_c / N of class c, rounded down or up, for every m. So each sample has a first and
    a last admissible step, and of the admissible samples the one due first comes next, with ties broken at random
    (Steiner and Yeomans, "Level Schedules for Mixed-Model, Just-in-Time Processes", Management Science 39, 1993). The
    draws do not depend on `number`: a larger one gives no class less.
    """
    there = np.flatnonzero(stock)
    sizes, total, ties = stock[there], int(stock.sum()), rng.permutation(len(stock))[there]
    given = np.zeros_like(sizes)
    for step in range(1, number + 1):
        due = -(-(given + 1) * total // sizes) * len(stock) + ties
        given[np.where(given * total < step * sizes, due, np.iinfo(np.int64).max).argmin()] += 1
    found = np.zeros_like(stock)
    found[there] = given
    return found
