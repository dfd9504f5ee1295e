"""What numpy says about a clustering, in float64, with a bound of what float32 points may make of it.

The contract (docs/algorithms.md): a point is centred and rounded once, to 24 bits of its distance
from the mean and to 2^-40 of the feature's largest; a distance is a chain of float32 operations.
A weight is rounded to 24 bits and to 2^-40 of the power of two at or above the heaviest, which is
done here, too: the sums of weights are exact. So every number here comes with the error that these roundings can add up to, and no more.
"""
import math
from fractions import Fraction

import numpy as np

EPS = 2.0 ** -24
GRID = 2.0 ** -40
DENORMAL = 2.0 ** -1072  # the first step takes a quarter of a number, which a denormal one loses bits by


def exact_sum(values, weights=None):
    """The sum of floats (times floats), rounded once; None: beyond float64."""
    total = sum(Fraction(v) * (1 if weights is None else Fraction(weights[i])) for i, v in enumerate(values))
    try:
        return float(total)
    except OverflowError:
        return None


class Oracle:
    """Points x (n, d) of weights w, as distances see them."""

    def __init__(self, x, w, cosine, standardize):
        self.cosine, self.standardize, self.uncertain = cosine, standardize, 0.0
        self.n, self.d = x.shape
        fraction, exponent = math.frexp(w.max())
        self.wexp = exponent - (fraction == 0.5)
        self.w = np.rint(np.ldexp(w, -self.wexp).astype(np.float32).astype(float) / GRID) * GRID
        if cosine:
            self.centre, self.scale = np.zeros(self.d), np.ones(self.d)
            self.exponent = np.zeros(self.d, int)
            self.p = self._directions(x)
        else:
            # so that no difference of two numbers overflows
            self.part = 0.25 if np.abs(x).max() > 1e300 else 1.0
            self.constant = (x == x[0]).all(axis=0)
            self.centre = np.where(self.constant, x[0] * self.part, (x * self.part).mean(axis=0))
            spread = np.abs(x * self.part - self.centre).max(axis=0)
            self.exponent = np.frexp(spread if standardize else spread.max() + 0 * spread)[1]
            self.scale = np.ones(self.d)
            self.p = self._centred(x)
            if standardize:
                mean = np.average(self.p, axis=0, weights=self.w)
                sd = np.sqrt(np.average((self.p - mean) ** 2, axis=0, weights=self.w))
                self.scale = np.where(sd > 0, sd, 1.0)
                self.uncertain = self._deviation_error(sd)
                self.p = self.p / self.scale
        self.unit = 0 if cosine or standardize else int(self.exponent[0]) + (2 if self.part == 0.25 else 0)
        self.reach = np.abs(self.p).max(axis=0)
        self.error = self._error(self.p, x)

    def _directions(self, x):
        largest = np.abs(x).max(axis=1, keepdims=True)
        scaled = np.ldexp(x, -np.frexp(largest)[1])
        return scaled / np.sqrt((scaled ** 2).sum(axis=1, keepdims=True))

    def _centred(self, x):
        return np.ldexp(x * self.part - self.centre, -self.exponent) / self.scale

    def _error(self, p, x):
        """How far a prepared point may be from p, a number for each feature."""
        error = EPS * (np.abs(p) + 2.0 ** -20 * self.reach) + GRID * self.reach
        if self.cosine:
            return error + 2.0 ** -50 * np.abs(p)
        whole = np.where(self.constant, 0, np.abs(x) * self.part)
        return error + np.ldexp(whole + 2.0 ** 50 * DENORMAL, -self.exponent - 50) / self.scale

    def _deviation_error(self, sd):
        """How much standard deviations may be off, relative to them; points are at most 1 here.

        Points that are moved by e move it by no more than the root of the mean of e^2. The variance is
        a difference of float64 numbers, and of squares that are cut off below 2^-80.
        """
        square = np.average(self.p ** 2, axis=0, weights=self.w) + 2.0 ** -38
        moved = EPS * np.sqrt(square) + 2 * GRID
        cancelled = 2.0 ** -49 * square + self.n * 2.0 ** -77 / self.w.sum()
        sd = np.maximum(sd, 1e-300)
        with np.errstate(over="ignore"):
            error = (moved + cancelled / (2 * sd)) / sd
        error = np.where(self.constant, 0, 1.01 * error)
        return float(np.where(error < 0.5, error / (1 - np.minimum(error, 0.5)), 1e9).max())

    def distances(self, centroids):
        """(distances (n, k), their errors), Euclidean and in this oracle's units."""
        p = self._directions(centroids) if self.cosine else self._centred(centroids)
        own = np.sqrt((self._error(p, centroids) ** 2).sum(axis=1))
        points = np.sqrt((self.error ** 2).sum(axis=1))
        distance = np.empty((self.n, len(p)))
        step = max(1, 2_000_000 // p.size)
        for i in range(0, self.n, step):
            distance[i:i + step] = np.sqrt(((self.p[i:i + step, None, :] - p) ** 2).sum(axis=2))
        relative = (self.d + 4) * EPS + self.uncertain
        return distance, 1.01 * (points[:, None] + own) + relative * distance + 2.0 ** -99

    def original(self, distance, error):
        """A distance as SQL has it: (value, error)."""
        if self.cosine:
            return distance ** 2 / 2, distance * error + error ** 2 / 2 + 1e-15
        e = self.unit
        with np.errstate(over="ignore"):
            return np.ldexp(distance, e), np.ldexp(error, e) + DENORMAL

    def wrong_label(self, labels, distance, error):
        """The first row whose label is not the nearest, or None."""
        rows = np.arange(self.n)
        mine = distance[rows, labels] - error[rows, labels]
        wrong = mine > (distance + error).min(axis=1)
        return int(np.argmax(wrong)) if wrong.any() else None

    def inertia(self, nearest, error):
        """(value, error) of the sum of w times squared distance, and the power of two that both lack."""
        square = nearest ** 2 * (0.5 if self.cosine else 1)
        bound = 2 * nearest * error + error ** 2
        value = (self.w * square).sum()
        slack = (self.w * bound).sum()
        slack += self.n * self.d * 2.0 ** -76 * (1 + (self.reach ** 2).sum()) + 1e-14 * value
        return value, slack, 2 * self.unit + self.wexp

    def mean_is_off(self, labels, centroids, moved):
        """The first cluster whose centroid is not the mean of its points, or None; not those that rows have moved to or from."""
        p = self._directions(centroids) if self.cosine else self._centred(centroids)
        own = 0 if self.cosine else np.ldexp(np.abs(centroids) * self.part, -self.exponent - 50) / self.scale
        own = own + np.zeros_like(p)
        for i, c in enumerate(p):
            of = labels == i
            w, q, error = self.w[of, None], self.p[of], self.error[of]
            mass = w.sum()
            if mass == 0 or moved[i]:
                continue
            mean = (w * q).sum(axis=0) / mass
            bound = (w * error).sum(axis=0) / mass
            if self.cosine:
                length = np.sqrt((mean ** 2).sum())
                if length < 1e-3:
                    continue
                mean, bound = mean / length, np.full(self.d, 2 * np.sqrt((bound ** 2).sum()) / length)
            off = np.abs(mean - c) > 1.01 * bound + own[i] + 2.0 ** -45 * np.abs(c) + 1e-300
            if off.any():
                return i
        return None


def close(value, expected, error, exponent=0):
    """value * 2^-exponent within error of expected; beyond float64 is infinity."""
    with np.errstate(over="ignore"):
        if math.isinf(value):
            return bool(np.isinf(np.ldexp(expected + error, exponent)))
        least = float(np.ldexp(1.0, max(-1074, min(1020, -1074 - exponent))))
        return abs(float(np.ldexp(value, -exponent)) - expected) <= error + least
