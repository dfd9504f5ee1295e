"""nulls => 'partial' on the random tables: labels and distances by numpy, those of the model, the same by all settings."""
import numpy as np

from problem_attack import PLAIN, campaign, floats, problem

# Columns farther apart have no common unit, which a row that has only the small ones would need
APART = 1e28


@problem(2)
def partial(a):
    r = a.rows
    counted = ~r.no_array & ~(r.no_weight if a.weighted else np.zeros(r.n, bool))
    strange = ~np.isfinite(r.x).all(axis=1) & counted
    if a.cosine or a.options.get("init") == "k-means||" or strange.any() and not a.skip or \
            a.weighted and (counted & ~((r.w > 0) & np.isfinite(r.w))).any() or \
            a.s.run("SHOW gkmeans.strategy", remember=False).value == "scan":
        return
    got = a.s.run(a.call("kmeans", nulls="partial"))
    a.settings(PLAIN)
    expected = a.s.run(a.call("kmeans", nulls="partial"))
    if not a.same(got, expected, "kmeans with nulls => 'partial' under other settings") or a.out_of_range(expected):
        return
    used = counted & ~strange & ~r.empty.all(axis=1)
    if used.any() and r.empty[used].all(axis=0).any():
        a.check(expected.state == "22004" and "has no mean: it is always NULL" in expected.message, f"a column without a value: {expected}")
        return
    if not a.check(expected.ok, f"kmeans with nulls => 'partial': {expected}"):
        return
    if not r.empty[counted].any() and a.error is None:
        a.same(expected, a.clusters, "nulls => 'partial' where there are none")
    if used.any() and a.t.has_ctid:
        of_model(a)
        check(a, used, expected.rows, a.s.run(a.call("kmeans_labels", nulls="partial")))


def of_model(a):
    got = a.s.run(f"WITH m AS MATERIALIZED ({a.call('kmeans_fit', what='kmeans_fit AS m', nulls='partial')}),\n"
                  f"l AS MATERIALIZED ({a.call('kmeans_labels', nulls='partial')})\n"
                  f"SELECT count(*) FROM {a.t.relation} t JOIN l ON l.tableoid = t.tableoid AND l.ctid = t.ctid, m WHERE l.cluster IS NOT NULL AND\n"
                  f"(l.cluster, l.distance) IS DISTINCT FROM (kmeans_predict(m, {a.t.point()}), kmeans_distance(m, {a.t.point()}))")
    if campaign.sane(got, a.s):
        a.check(got.ok and got.value == "0", f"rows whose label is another one after nulls => 'partial': {got}")


def check(a, used, rows, labels):
    if not campaign.sane(labels, a.s) or not a.check(labels.ok, f"kmeans_labels with nulls => 'partial': {labels}"):
        return
    by_place = {f"{r[0]} {r[1]}": r for r in labels.rows}
    mine = [by_place[a.rows.place[i]] for i in np.flatnonzero(used)]
    if not a.check(all(r[2] is not None for r in mine) and sum(r[2] is not None for r in labels.rows) == len(mine),
                   "rows that have a label under nulls => 'partial'"):
        return
    label = np.array([int(r[2]) for r in mine])
    size = np.array([int(r[1]) for r in rows])
    if not a.check((np.bincount(label, minlength=len(size)) == size).all(), "sizes and labels differ under nulls => 'partial'"):
        return
    centroids = np.array([floats(r[2]) for r in rows])
    x = np.where(a.rows.empty[used], np.nan, a.rows.x[used])
    largest = np.nanmax(np.abs(x), axis=0)
    if a.standardize or largest.max() > 1e145 or largest.max() < 1e-140:
        return
    spread = np.nanmax(x, axis=0) - np.nanmin(x, axis=0)
    if (spread > 0).any() and spread.max() > APART * spread[spread > 0].min():
        return
    centre = np.nanmean(x, axis=0)
    p, c, here = x - centre, centroids - centre, ~np.isnan(x)
    factor = x.shape[1] / here.sum(axis=1)
    # every coordinate is rounded to float32 on a grid, and to float64 before
    grid = np.maximum(spread, np.abs(c).max(axis=0)) * 2.0 ** -22 + (np.abs(centre) + largest) * 2.0 ** -50
    unit = max(spread.max(), np.abs(c).max(), 1e-290)
    gap = np.where(here[:, None, :], np.abs(np.where(here, p, 0)[:, None, :] - c[None]), 0) / unit
    value = np.sqrt(factor[:, None] * (gap ** 2).sum(axis=2)) * unit
    with np.errstate(over="ignore"):
        slack = np.sqrt(factor[:, None] * (np.where(here, grid / unit, 0) ** 2).sum(axis=1)[:, None]) * unit * 2 + value * 2.0 ** -18
    at = np.arange(len(label)), label
    away = np.array([float(r[3]) for r in mine])
    off = np.flatnonzero(~(np.abs(away - value[at]) <= slack[at]))
    if not a.check(not len(off), lambda: f"distance {away[off[0]]} under nulls => 'partial', numpy has {value[at][off[0]]} +- {slack[at][off[0]]}"):
        return
    farther = np.flatnonzero((value[at][:, None] - slack[at][:, None] > value + slack).any(axis=1))
    a.check(not len(farther), lambda: f"label {label[farther[0]]} under nulls => 'partial': distances {value[farther[0]]} +- {slack[farther[0]]}")
