"""One random table, one random set of options, and what is known of the right answer."""

import numpy as np

from fuzz_common import Campaign, ident, literal
from problem_oracle import Oracle, close

campaign = Campaign("problems")

SETTINGS = {
    "gkmeans.reader": ["auto", "auto", "executor"],
    "gkmeans.threads": ["1", "2", "3", "7"],
    "gkmeans.workers": ["0", "1", "2", "3"],
    "gkmeans.simd": ["scalar"],  # and what this machine has
    "gkmeans.skip_points": ["on", "off"],
    "gkmeans.feature_sum": ["partitioned_features", "cluster_merge", "delta"],
    "gkmeans.mass_sum": ["partitioned_private", "partitioned_local", "partitioned_global", "global_atomic"],
    "gkmeans.strategy": ["single_pass", "multi_pass", "cross_processing", "scan"],
    "gkmeans.chunk_size": ["64kB", "1MB"],
    "gkmeans.memory_limit": ["0", "64kB", "1MB"],
    "gkmeans.keep_memory": ["0", "1MB"],
    "gkmeans.enable_window_scan": ["off"],
    "work_mem": ["64kB"],
    "enable_hashagg": ["off"],
    "force_parallel_mode": ["regress"],
    "parallel_setup_cost": ["0"],
    "parallel_tuple_cost": ["0"],
    "min_parallel_table_scan_size": ["0"],
}
PLAIN = {"gkmeans.reader": "executor", "gkmeans.threads": "1", "gkmeans.workers": "0", "gkmeans.simd": "scalar",
         "gkmeans.skip_points": "off", "gkmeans.enable_window_scan": "off"}
SPILL = {"gkmeans.chunk_size": "64kB", "gkmeans.memory_limit": "0"}
FIRST = "RESET ALL; SET search_path = attacked, public"


problems = []


def problem(often=1):
    """For what is tried with an Attack."""
    return lambda f: problems.extend([f] * often) or f


def floats(text):
    return np.array([float(v) for v in text.strip("{}").split(",")])


class Attack:
    """One table, one set of options: what is known of the right answer."""

    def __init__(self, rng, session, table, rows):
        self.rng, self.s, self.t, self.rows = rng, session, table, rows
        self.labels = self.model = None
        self.choose_options()
        o = self.options
        self.weighted, self.skip = "weight_column" in o, o.get("nonfinite") == "skip"
        self.cosine, self.standardize = o.get("distance") == "cosine", o.get("standardize", False)
        self.kept, self.left_out, self.error = rows.judge(table, self.weighted, self.cosine, self.skip)
        if self.cosine and self.standardize:
            self.error = ("22023", "standardize cannot be used with distance 'cosine'")
        self.x = rows.x[self.kept]
        self.w = rows.w[self.kept] if self.weighted else np.ones(len(self.x))
        self.reach = np.ptp(self.x / 2, axis=0).max() if len(self.x) else 0

    # ---- the call ----

    def choose_options(self):
        rng, t = self.rng, self.t
        o = self.options = {}
        self.k = rng.choice([1, 2, 2, 3, 3, 4, 5, 8, rng.randint(9, 40)])
        if t.weight and rng.random() < 0.6:
            o["weight_column"] = t.weight
        if rng.random() < 0.3:
            o["init"] = rng.choice(["k-means++", "k-means||", "random", "K-Means++"])
        elif rng.random() < 0.3 and len(self.rows.x):
            finite = self.rows.x[np.isfinite(self.rows.x).all(axis=1)]
            if len(finite):
                o["centroids"] = [[float(v) + rng.choice([0, 0, 0.5]) for v in finite[rng.randrange(len(finite))]]
                                  for _ in range(self.k)]
        for name, values in (("n_init", [2, 3]), ("max_iter", [1, 2, 5]), ("tol", [0.0, 0.0, 0.0, 0.01, 1.0]),
                             ("distance", ["cosine", "Cosine", "euclidean"]), ("standardize", [True]),
                             ("seed", [1, -5, 2**63 - 1]), ("nonfinite", ["skip", "skip", "error"]), ("device", ["cpu", "auto"])):
            if rng.random() < (0.6 if name in ("tol", "nonfinite") else 0.2):
                o[name] = rng.choice(values)
        if "distance" in o and o["distance"] == "Cosine":
            o["distance"] = rng.choice(["cosine", "cosine"])
        if "distance" in o and o.get("standardize") and rng.random() < 0.9:
            del o["standardize"]
        if o.get("distance") == "cosine" and any(not any(c) for c in o.get("centroids", [])):
            del o["centroids"]
        self.ordered = "centroids" in o

    def arguments(self, drop=(), **more):
        o = {k: v for k, v in {**self.options, **more}.items() if k not in drop}
        cast = {"centroids": "::float8[]"}
        return "".join(f", {k} => {literal(v)}{cast.get(k, '')}" for k, v in o.items())

    def call(self, function, between="", what="*", relation=None, **more):
        t = self.t
        return f"SELECT {what} FROM {function}({relation or t.regclass}, {t.names}, {self.k}{between}{self.arguments(**more)})"

    def settings(self, chosen=None):
        """Random ones, or those given."""
        rng = self.rng
        if chosen is None:
            chosen = {} if rng.random() < 0.25 else \
                {k: rng.choice(v) for k, v in SETTINGS.items() if rng.random() < 0.35}
            if rng.random() < 0.15:
                chosen.update(SPILL)
            if rng.random() < 0.6:
                chosen["gkmeans.simd"] = rng.choice(SETTINGS["gkmeans.simd"])
        self.s.run(FIRST + "".join(f"; SET {k} = '{v}'" for k, v in chosen.items()))

    def check(self, good, text):
        return campaign.check(good, text, self.s)

    def same(self, got, expected, what):
        """The same rows, or the same error."""
        return campaign.sane(got, self.s) and \
            self.check(got == expected, lambda: f"{what}: got {got}\n  expected {expected}")

    # ---- the answer that all others are compared with ----

    def begin(self):
        """The clusters by the plainest way, checked by numpy. False: there is nothing to go on with."""
        self.settings(dict(PLAIN))
        self.clusters = self.s.run(self.call("kmeans"))
        if self.error is None and self.out_of_range(self.clusters):
            self.error = ("22003", "sum of squared distances is out of the range of double precision")
        if not campaign.sane(self.clusters, self.s) or not self.expected_error(self.clusters):
            return False
        if self.error:
            self.labels = self.fit = self.clusters
            return True
        if not self.clusters_are_right():
            return False
        self.fit = self.s.run(self.call("kmeans_fit", what="kmeans_fit"))
        self.labels = self.s.run(self.call("kmeans_labels")) if self.t.has_ctid else None
        return campaign.sane(self.fit, self.s) and self.fit_is_right() and \
            (self.labels is None or campaign.sane(self.labels, self.s) and self.labels_are_right())

    def out_of_range(self, outcome):
        """Sums of squares of other clusters, or of an earlier iteration, may be, though these are not."""
        return outcome.state == "22003" and self.reach > 1e145

    def expected_error(self, outcome):
        if self.error is None:
            return self.check(outcome.ok, f"expected no error, got {outcome}")
        return self.check(outcome.state == self.error[0] and outcome.message.startswith(self.error[1]),
                          f"expected the error {self.error}, got {outcome}")

    def clusters_are_right(self):
        rows, n = self.clusters.rows, len(self.x)
        if n == 0 or not rows:
            return self.check(n == 0 and not rows, f"{len(rows)} clusters of {n} rows")
        self.size = np.array([int(r[1]) for r in rows])
        self.centroids = np.array([floats(r[2]) for r in rows])
        self.oracle = Oracle(self.x, self.w, self.cosine, self.standardize)
        self.distance, self.bound = self.oracle.distances(self.centroids)
        self.inertia = [float(r[3]) for r in rows]
        self.radius = [float(r[4]) for r in rows]
        if not self.check([int(r[0]) for r in rows] == list(range(len(rows))) and len(rows) <= self.k and
                          self.size.sum() == n and self.size.min() > 0 and np.isfinite(self.centroids).all(),
                          f"clusters of {n} rows: {self.clusters}"):
            return False
        if not self.ordered:
            keys = [(-s, *c) for s, c in zip(self.size, self.centroids.tolist())]
            if not self.check(keys == sorted(keys), f"order of clusters: {self.clusters}"):
                return False
        nearest = self.distance.min(axis=1)
        if len(rows) < self.k and not self.check((nearest <= self.bound.max(axis=1) * 2).all(),
                                                 f"{len(rows)} clusters, but a point is away from all of them"):
            return False
        value, slack, exponent = self.oracle.inertia(nearest, self.bound.max(axis=1))
        total = sum(self.inertia)
        return self.check(close(total, value, slack, exponent),
                          f"inertia {total}, numpy has {value} +- {slack} times 2^{exponent}")

    def labels_are_right(self):
        left = [r for r in self.labels.rows if r[2] is None]
        place = {p: i for i, p in enumerate(self.rows.place)}
        order = [place.get(f"{r[0]} {r[1]}") for r in self.labels.rows]
        kept = np.flatnonzero(self.kept)
        if not self.check(sorted(order[:len(left)]) == np.flatnonzero(~self.kept).tolist() and
                          order[len(left):] == kept.tolist(), "rows of kmeans_labels, and which are left out"):
            return False
        if not len(kept):
            return True
        self.label = np.array([int(r[2]) for r in self.labels.rows[len(left):]])
        away = np.array([float(r[3]) for r in self.labels.rows[len(left):]])
        if not self.check((np.bincount(self.label, minlength=len(self.size)) == self.size).all(),
                          "sizes and labels differ"):
            return False
        wrong = self.oracle.wrong_label(self.label, self.distance, self.bound)
        if not self.check(wrong is None, lambda: f"row {self.rows.place[kept[wrong]]} has label {self.label[wrong]}: "
                          f"distances {self.distance[wrong]}, bounds {self.bound[wrong]}"):
            return False
        at = np.arange(len(kept)), self.label
        value, slack = self.oracle.original(self.distance[at], self.bound[at])
        off = np.flatnonzero(~(np.abs(away - value) <= slack) & np.isfinite(value))
        if not self.check(not len(off), lambda: f"distance of row {self.rows.place[kept[off[0]]]} is {away[off[0]]}, "
                          f"numpy has {value[off[0]]} +- {slack[off[0]]}"):
            return False
        for i, r in enumerate(self.radius):
            of = self.label == i
            if not self.check(r == away[of].max(), f"radius of cluster {i} is {r}, the largest distance {away[of].max()}"):
                return False
        if self.fit.ok and self.model["converged"] == "t" and self.options.get("tol") == 0.0:
            # clusters get their numbers after the last means, which can move a row as near to another one
            others = self.distance - self.bound
            others[at] = np.inf
            tied = others <= (self.distance[at] + self.bound[at])[:, None]
            moved = tied.any(axis=0) | np.isin(np.arange(len(self.size)), self.label[tied.any(axis=1)])
            wrong = self.oracle.mean_is_off(self.label, self.centroids, moved)
            return self.check(wrong is None, f"centroid {wrong} is not the mean of its points")
        return True

    def fit_is_right(self):
        if not self.check(self.fit.ok, f"kmeans_fit: {self.fit}"):
            return False
        if not len(self.x):
            self.model = None
            return self.check(self.fit.value is None, "a model of no rows")
        text = literal(self.fit.value)
        info = self.s.run(f"SELECT rows_used, rows_skipped, converged, k FROM kmeans_info({text})", remember=False)
        self.model = {"text": text + "::kmeans_model", "converged": info.rows[0][2]}
        rows = self.s.run(f"SELECT * FROM kmeans_centroids({text})", remember=False)
        detail = next((d for m, d in self.fit.notices if "left out" in m), None)
        reasons = ", ".join(f"{n} {why}" for why, n in self.left_out.items() if n)
        return self.check(rows == self.clusters, "kmeans_centroids of the fit and kmeans differ") and \
            self.check(info.rows[0][:2] == (str(len(self.x)), str(self.rows.n - len(self.x))), f"kmeans_info: {info}") and \
            self.check(not detail and not reasons or detail == reasons + ".", f"left out: {detail}, expected {reasons}")

    def usable_rows(self, usable, weighted):
        """These rows, as t, and the arguments of an aggregate over them."""
        ids = literal([int(self.rows.id[i]) for i in np.flatnonzero(usable)])
        return f"(SELECT * FROM {self.t.relation} WHERE id = ANY ({ids})) t", \
            self.t.point() + "::float8[]" + (f", {ident(self.t.weight)}::float8" if weighted else "")

    def by_id(self, outcome=None):
        """id -> label, of kmeans_labels()."""
        place = dict(zip(self.rows.place, self.rows.id))
        return {place[f"{r[0]} {r[1]}"]: r[2] for r in (outcome or self.labels).rows}
