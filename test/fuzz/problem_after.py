"""Problems of test/fuzz/problems.py: queries, samples, and what is asked of a model later."""
import math

import numpy as np

from fuzz_common import ident, literal
from problem_attack import PLAIN, campaign, problem


@problem(2)
def query(a):
    """The same columns as a query."""
    if not a.clusters.ok:
        return
    weight = [a.t.weight] * a.weighted
    targets = ", ".join(ident(c) for c in a.rng.choice([a.t.features + weight, weight + a.t.features]))
    select = a.rng.choice([f"SELECT {targets} FROM {a.t.relation}", f"SELECT {targets} FROM {a.t.relation} WHERE true; -- all"])
    got = a.s.run(f"SELECT * FROM kmeans_query({literal(select)}, {a.k}{a.arguments()})")
    if campaign.sane(got, a.s):
        a.check(got.rows == a.clusters.rows, lambda: f"kmeans_query: {got}, expected {a.clusters}")


@problem(2)
def samples(a):
    """With samples, the same under other settings."""
    if a.error or not a.clusters.ok:
        return
    more = {name: a.rng.choice([1.0, 0.5, 7.0, 100.0, 1e6]) for name in ("init_sample", "fit_sample") if a.rng.random() < 0.7}
    call = a.call(a.rng.choice(["kmeans", "kmeans_labels"]) if a.t.has_ctid else "kmeans", **more)
    got = a.s.run(call)
    if got.state == "0A000" and "gkmeans.strategy 'scan'" in got.message:
        campaign.count()
        return
    a.settings(dict(PLAIN))
    a.same(got, a.s.run(call), f"{more} under other settings")


@problem(2)
def update(a):
    """A model with its own rows once more: at once, in parts, of the relation; and how many they are."""
    if not a.model:
        return
    usable = a.kept | a.rows.null
    rows, point = a.usable_rows(usable, a.weighted)
    nonfinite = ", nonfinite => 'skip'" if a.skip else ""
    results = [a.s.run(f"SELECT c.*, rows_used FROM ({updated}) s (m), kmeans_centroids(m) c, kmeans_info(m)") for updated in (
        f"SELECT kmeans_update_finish(kmeans_step_partial({a.model['text']}, {point})) FROM {rows}",
        f"SELECT kmeans_update_finish(kmeans_combine(part)) FROM (SELECT kmeans_step_partial({a.model['text']}, {point}) "
        f"AS part FROM {rows} GROUP BY id % 3) p",
        f"SELECT kmeans_update_finish(kmeans_step({a.t.regclass}, {a.t.names}, {a.model['text']}{nonfinite}))")]
    if a.weighted or a.cosine:
        a.check(all(r.state == "0A000" for r in results[:2]), f"kmeans_update of weights, or of directions: {results}")
        return
    if not all(campaign.sane(r, a.s) for r in results) or any(map(a.out_of_range, results)):
        return
    for what, got in zip(("parts", "the relation"), results[1:]):
        a.same(got, results[0], f"kmeans_update by {what}")
    if a.check(results[0].ok, f"kmeans_update: {results[0]}"):
        total = sum(int(row[1]) for row in results[0].rows)
        a.check(total == 2 * len(a.x) == int(results[0].rows[0][-1]), f"kmeans_update has {total} rows of {len(a.x)} twice")


@problem(2)
def anomalies(a):
    """Those that are farthest by kmeans_normalized_distance, and medoids that are nearest by kmeans_labels."""
    if not a.model or not a.t.has_ctid or a.weighted:
        return
    share = a.rng.choice([0, 0.01, 0.1, 0.5])
    nonfinite = ", nonfinite => 'skip'" if a.skip else ""
    got = a.s.run(f"WITH m AS MATERIALIZED (SELECT {a.model['text']} AS m),\n"
                  f"l AS MATERIALIZED (SELECT l.* FROM m, kmeans_labels({a.t.regclass}, m{nonfinite}) l WHERE l.cluster IS NOT NULL),\n"
                  f"r AS MATERIALIZED (SELECT l.*, kmeans_normalized_distance(m, {a.t.point()}) AS n FROM m, {a.t.relation} t\n"
                  "    JOIN l ON l.tableoid = t.tableoid AND l.ctid = t.ctid),\n"
                  f"f AS MATERIALIZED (SELECT f.* FROM m, kmeans_anomalies({a.t.regclass}, m, {share}{nonfinite}) f),\n"
                  f"d AS MATERIALIZED (SELECT d.* FROM m, kmeans_medoids({a.t.regclass}, m{nonfinite}) d)\n"
                  "SELECT (SELECT count(*) FROM f),\n"
                  "    (SELECT count(*) FROM f JOIN r USING (tableoid, ctid, cluster, distance) WHERE f.normalized_distance = r.n),\n"
                  "    (SELECT count(*) FROM r WHERE n > (SELECT min(normalized_distance) FROM f)\n"
                  "        AND NOT EXISTS (SELECT FROM f WHERE f.tableoid = r.tableoid AND f.ctid = r.ctid)),\n"
                  "    (SELECT count(*) FROM d JOIN l USING (tableoid, ctid, cluster, distance)\n"
                  "        WHERE d.distance = (SELECT min(distance) FROM l WHERE l.cluster = d.cluster)),\n"
                  "    (SELECT count(DISTINCT cluster) FROM l)")
    if not campaign.sane(got, a.s) or not a.check(got.ok, f"kmeans_anomalies: {got}"):
        return
    wanted = math.ceil(share * len(a.x) * (1 - 1e-12))
    farthest, equal, farther, medoids, clusters = map(int, got.rows[0])
    a.check(farthest == equal == wanted and farther == 0,
            f"kmeans_anomalies: {farthest} rows, {equal} with the distance of the point, {farther} rows are farther; expected {wanted}")
    a.check(medoids == clusters, f"kmeans_medoids: {medoids} of {clusters} clusters")


@problem(2)
def from_table(a):
    """The clusters as rows of a table, and a model of these: the same clusters, and distances as near as the fit's."""
    if not a.model:
        return
    distance = f", distance => '{a.options['distance']}'" if "distance" in a.options else ""
    a.s.run(f"DROP TABLE IF EXISTS kept; CREATE TABLE kept AS SELECT * FROM kmeans_centroids({a.model['text']})")
    got = a.s.run(f"SELECT count(*), count(*) FILTER (WHERE c::text = k::text), count(DISTINCT kmeans_predict(m, k.centroid))\n"
                  f"FROM kmeans_from_table('kept'{distance}) m, kmeans_centroids(m) c JOIN kept k USING (cluster)")
    if not campaign.sane(got, a.s) or not a.check(got.ok, f"kmeans_from_table: {got}"):
        return
    rows, same, labels = map(int, got.rows[0])
    a.check(rows == a.size.size and (a.cosine or same == rows) and 1 <= labels <= rows,
            f"kmeans_from_table: {same} of {rows} clusters are the same, with {labels} labels")
    rows, point = a.usable_rows(a.kept, False)
    far = a.s.run(f"SELECT count(*) FROM {rows}, (SELECT {a.model['text']} AS m) f, kmeans_from_table('kept'{distance}) k,\n"
                  f"    LATERAL (SELECT kmeans_distance(f.m, {point}) AS of_fit, kmeans_distance(k, {point}) AS of_table) d\n"
                  f"WHERE of_fit <> of_table AND abs(of_fit - of_table) > 1e-5 * of_fit + '{(a.reach if not a.cosine else 1) * 1e-5!r}'::float8")
    if max(np.ptp(a.centroids, axis=0).max() * 1e18, 1e18) < a.reach and far.state == "22003" and "too far" in far.message:
        return  # centroids that are all near each other, as one is, have next to no range
    if campaign.sane(far, a.s) and a.check(far.ok, f"kmeans_from_table: {far}") and not a.standardize:
        a.check(far.rows[0][0] == "0", f"{far.rows[0][0]} points are farther by kmeans_from_table, or nearer")
