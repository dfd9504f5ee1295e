"""distance => 'manhattan' on the random tables: labels, distances and medians by numpy, the same by all settings."""
import numpy as np

from problem_attack import PLAIN, campaign, floats, problem
from problem_oracle import EPS


def distances(o, centroids):
    """(distances (n, k), their errors), of the oracle's points."""
    p = o._centred(centroids)
    own = o._error(p, centroids).sum(axis=1)
    distance = np.stack([np.abs(o.p - c).sum(axis=1) for c in p], axis=1)
    relative = (o.d + 4) * EPS + o.uncertain
    return p, distance, 1.01 * (o.error.sum(axis=1)[:, None] + own) + relative * distance + 2.0 ** -99


@problem(2)
def medians(a):
    if a.error or a.weighted or a.cosine or not len(a.x) or a.options.get("init") == "k-means||" or \
            a.s.run("SHOW gkmeans.strategy", remember=False).value == "scan":
        return
    more = {"distance": "manhattan"}
    got = a.s.run(a.call("kmeans", **more))
    memory = got.state == "53400" and "as distance 'manhattan' needs them" in got.message
    a.settings({**PLAIN, "gkmeans.memory_limit": "64MB"})
    expected = a.s.run(a.call("kmeans", **more))
    if memory:
        campaign.count()
    elif not a.same(got, expected, "kmeans of distance 'manhattan' under other settings"):
        return
    if a.out_of_range(expected):
        return
    if not a.check(expected.ok and expected.rows, f"kmeans of distance 'manhattan': {expected}"):
        return
    if a.t.has_ctid and a.reach < 1e145:
        check(a, expected.rows, a.s.run(a.call("kmeans_labels", **more)),
              a.s.run("SELECT (kmeans_info(kmeans_fit)).converged FROM (" + a.call("kmeans_fit", **more) + ") f").value == "t")


def check(a, rows, labels, converged):
    if not campaign.sane(labels, a.s) or not a.check(labels.ok, f"kmeans_labels of distance 'manhattan': {labels}"):
        return
    o = a.oracle
    size = np.array([int(r[1]) for r in rows])
    p, distance, error = distances(o, np.array([floats(r[2]) for r in rows]))
    by_place = {f"{r[0]} {r[1]}": r for r in labels.rows}
    mine = [by_place[a.rows.place[i]] for i in np.flatnonzero(a.kept)]
    label = np.array([int(r[2]) for r in mine])
    if not a.check((np.bincount(label, minlength=len(size)) == size).all(), "sizes and labels differ under 'manhattan'"):
        return
    wrong = o.wrong_label(label, distance, error)
    if not a.check(wrong is None, lambda: f"label {label[wrong]} under 'manhattan': distances {distance[wrong]} +- {error[wrong]}"):
        return
    at = np.arange(len(label)), label
    e = o.unit
    with np.errstate(over="ignore"):
        value, slack = np.ldexp(distance[at], e), np.ldexp(error[at], e)
    away = np.array([float(r[3]) for r in mine])
    off = np.flatnonzero(~(np.abs(away - value) <= slack + 1e-320) & np.isfinite(value))
    if not a.check(not len(off), lambda: f"distance {away[off[0]]} under 'manhattan', numpy has {value[off[0]]} +- {slack[off[0]]}"):
        return
    if not converged or a.options.get("tol") != 0.0:
        return
    # clusters get their numbers after the last medians: rows as near to another one may have moved
    others = distance - error
    others[at] = np.inf
    tied = others.min(axis=1) <= distance[at] + error[at]
    for i, c in enumerate(p):
        of = label == i
        free = int(tied[of].sum() + tied[~of].sum())
        below = (o.p[of] + o.error[of] < c - o._error(p, np.zeros_like(p) + c)[i]).sum(axis=0)
        up_to = (o.p[of] - o.error[of] <= c + o._error(p, np.zeros_like(p) + c)[i]).sum(axis=0)
        place = (of.sum() - 1) // 2
        if not a.check((below <= place + free).all() and (up_to > place - free).all(),
                       lambda: f"cluster {i}: {below} of {of.sum()} values below its medians, {up_to} up to them, {free} rows tied"):
            return
