"""Random tables: what kmeans() may be asked to read, stored in every way that PostgreSQL stores rows."""
import math

import numpy as np

from fuzz_common import array_text, ident, literal

FIXED = ["int2", "int4", "int8", "float4", "float8", "whole", "real_number"]  # of one width
NUMBERS = FIXED + ["numeric"]
DOMAINS = {"whole": "int4", "real_number": "float8"}
LARGEST = {"int2": 32767, "int4": 2**31 - 1, "int8": 2**63 - 1, "whole": 2**31 - 1}
NAMES = ["x", "y", "z", "Upper", "select", 'quo"te', "it's", "with space", "größe", "$1", "a" * 63, "{brace}", "comma,", "a<b&c"]


# What readers and kernels have ways of their own for. The first cases of a seed have each once, the others now and then.
# Pages are far from full: the first page of a table is read row by row.
SHAPES = [
    # four columns, or elements, of four bytes side by side, and a page has hardly a row that is left out
    dict(types=["float4"], array=False, d=[4, 4, 5], n=(300, 700), adjacent=True, strange=0.01, fillfactor=20, kind="plain"),
    # several arrays of a page are stored elsewhere
    dict(array=True, types=["float8", "float4", "int4"], d=[17, 40], n=(60, 300), elsewhere=True, weight=False, strange=0, fillfactor=20,
         numbers="blobs", kind="plain"),
    # columns that were added later, between rows
    dict(late=0.8, n=(100, 400), strange=0, fillfactor=10, kind="plain"),
    # several chunks of points
    dict(array=True, types=["float4", "float8"], d=[40], n=(1300, 1500), kind="plain"),
    # points at nearly the same distance from several centroids
    dict(array=True, types=["int2", "float4"], d=[17, 40], n=(200, 500), numbers="few", kind="plain"),
    dict(array=True, types=["float4"], d=[5, 8, 17], n=(300, 700), strange=0.01, fillfactor=30, kind="plain"),
    # groups by one whole number, without a NULL, of finite numbers
    dict(array=False, types=["float4", "float8", "int4"], n=(30, 600), groups=True, kind="plain"),
    # enough pages for threads, and for several extents of workers
    dict(n=(2600, 3000), d=[1, 2, 3, 5], fillfactor=10, kind="plain"),
]


def places(rng, n):
    """Some of n rows: none of them most of the time; one, a run, the first, the last, any, all but some."""
    kind = rng.randrange(12)
    if n == 0 or kind < 5:
        return set()
    if kind == 5:
        return {rng.randrange(n)}
    if kind == 6:
        at = rng.randrange(n)
        return set(range(at, min(n, at + rng.randint(1, 200))))
    if kind == 7:
        return set(range(min(n, rng.randint(1, 300))))
    if kind == 8:
        return set(range(max(0, n - rng.randint(1, 300)), n))
    share = rng.choice([0.003, 0.05, 0.05, 0.5, 0.98])
    return {i for i in range(n) if rng.random() < share}


def numbers(rng, n, blob, kind=None):
    """n numbers of one kind; blob says to which of some heaps a row belongs."""
    kind = kind or rng.choice(["blobs"] * 4 + ["few"] * 3 + ["wide", "shifted", "huge", "tiny", "constant", "denormal"])
    if kind == "few":
        top = rng.choice([1, 2, 5, 100])
        return [float(rng.randint(-top, top)) for _ in range(n)]
    if kind == "constant":
        return [rng.choice([0.0, 1.0, 0.1, -7.0, 1e9])] * n
    if kind == "wide":
        top = rng.choice([5, 30, 140, 300])
        return [rng.choice([-1, 1]) * 10 ** rng.uniform(-top, top) for _ in range(n)]
    if kind == "denormal":
        return [rng.randint(-50, 50) * 5e-324 for _ in range(n)]
    scale, centre = {"blobs": (rng.choice([1, 1, 0.001, 1000]), 0), "shifted": (1, rng.choice([1e6, 1e9, -1e15])),
                     "huge": (10.0 ** rng.randint(140, 299), 0), "tiny": (10.0 ** rng.randint(-299, -20), 0)}[kind]
    middle = [rng.uniform(-10, 10) for _ in range(max(blob, default=0) + 1)]
    return [centre + scale * (middle[b] + rng.gauss(0, 0.5)) for b in blob]


def fitting(value, typ):
    """The text of a value in a type's range; NaN and infinity where there are none become a number."""
    if value is None:
        return None
    if typ in LARGEST:
        value = 0 if math.isnan(value) else max(-LARGEST[typ], min(LARGEST[typ], value))
        return str(int(round(value))) if not math.isinf(value) else "1"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if typ == "float4":
        value = max(-3e38, min(3e38, value))
        value = 0.0 if 0 < abs(value) < 1e-44 else value
    return repr(value)


class Column:
    def __init__(self, name, typ, values):
        self.name, self.type, self.values = name, typ, values

    def __str__(self):
        return f"{ident(self.name)} {self.type}"


class Table:
    """A relation with features, perhaps a weight, a group and a label column, and other columns between them."""

    def __init__(self, rng, session, shape, name="t"):
        self.rng, self.session, self.shape = rng, session, shape
        self.name = name if rng.random() < 0.8 else rng.choice(NAMES)
        self.n = rng.choice([0, 1, 2, 3] + [rng.randint(4, 60)] * 6 + [rng.randint(60, 700)] * 8 + [rng.randint(700, 3000)])
        if "n" in shape:
            self.n = rng.randint(*shape["n"])
        self.kind = shape.get("kind") or \
            rng.choice(["plain"] * 9 + ["temporary", "partitioned", "partitioned", "inherited", "view", "materialized"])
        self.partitions = []
        self._choose_columns()
        self._create()
        self._fill()
        for _ in range(rng.choice([0, 0, 1, 2, 5])):
            self._change()
        self._finish()

    # ---- what stands in it ----

    def _choose_columns(self):
        rng, n, shape = self.rng, self.n, self.shape
        names = rng.sample(NAMES, 8) if rng.random() < 0.3 else ["x1", "x2", "x3", "x4", "x5", "w", "lab", "grp"]
        # half of all tables have everything at the same place in every row, for which readers have a shorter way
        self.fixed = rng.random() < 0.5 and not shape.get("array")
        types = shape.get("types") or (FIXED if self.fixed else NUMBERS)
        blobs = rng.randint(1, 5)
        blob = [rng.randrange(blobs) for _ in range(n)]
        self.array = shape.get("array", not self.fixed and rng.random() < 0.5)
        self.d = rng.choice(shape.get("d") or ([1, 2, 2, 3, 5, 8, 17, 40, 300] if self.array else [1, 2, 2, 3, 4, 5]))
        if self.d * n > 60000:
            self.d = 3
        features = [numbers(rng, n, blob, shape.get("numbers")) for j in range(min(self.d, 5))]
        features = [features[j % len(features)] for j in range(self.d)]
        zero, strange, null, skewed = (places(rng, n) for _ in range(4))
        if "groups" in shape:
            null = strange = ()
        if "strange" in shape:
            strange = {i for i in range(n) if rng.random() < shape["strange"]}
            null = {i for i in range(n) if rng.random() < 0.02}
            zero = skewed = ()
        rows = [list(row) for row in zip(*features)] if n else []
        for i in zero:
            rows[i] = [0.0] * self.d
        for i in strange:
            rows[i][rng.randrange(self.d)] = rng.choice([math.nan, math.inf, -math.inf])
        for i in null:
            rows[i][rng.randrange(self.d)] = None
        columns = [Column("id", "int4", [str(i) for i in range(n)])]
        if self.array:
            typ = rng.choice([t for t in types if t not in DOMAINS])
            texts = [array_text([None if v is None else Bare(fitting(v, typ)) for v in row]) for row in rows]
            for i in skewed if rng.random() < 0.5 else ():
                texts[i] = None
            columns.append(Column(names[0], typ + "[]", texts))
            self.features = [names[0]]
        else:
            for j in range(self.d):
                typ = rng.choice(types)
                columns.append(Column(names[j], typ, [fitting(row[j], typ) for row in rows]))
            self.features = names[:self.d]
        self.weight = names[5] if rng.random() < 0.5 and shape.get("weight", True) else None
        if self.weight:
            columns.append(self._weights(names[5], rng.choice(FIXED if self.fixed else NUMBERS)))
        self.label = names[6] if rng.random() < 0.4 else None
        if self.label:
            columns.append(Column(self.label, rng.choice(["int2", "int4", "int8"]),
                                  [rng.choice([None, "0", "1", "2"]) for _ in range(n)]))
        self.group = names[7]
        groups = [["-1", "0", "1"], [str(i) for i in range(-20, 21)]]
        whole = ["int4", "int8", "int2"]
        if "groups" not in shape:
            groups.append([None, "0", "1", "-1", "2", "30"])
            whole.append("int4" if self.fixed else "text")
        groups = rng.choice(groups)
        columns.append(Column(self.group, rng.choice(whole), [rng.choice(groups) for _ in range(n)]))
        if self.kind in ("partitioned", "inherited"):
            columns.append(Column("part", "int4", [str(rng.randrange(3)) for _ in range(n)]))
        for name in rng.sample(["note", "flag", "day"] + ["remark"] * (not self.fixed), rng.randint(0, 3)):
            columns.append(self._other(name))
        if not shape.get("adjacent"):
            rng.shuffle(columns)
        self.columns = columns

    def _weights(self, name, typ):
        rng = self.rng
        draw = rng.choice([lambda: rng.randint(1, 3), lambda: rng.uniform(0.1, 10), lambda: 1.0,
                           lambda: 10 ** rng.uniform(-5, 5)])
        values = [float(draw()) for _ in range(self.n)]
        for hole in (0.0, None):
            for i in places(rng, self.n):
                values[i] = hole
        if rng.random() < 0.05:
            for i in places(rng, self.n):
                values[i] = rng.choice([-1.0, math.nan, math.inf])
        return Column(name, typ, [fitting(v, typ) for v in values])

    def _other(self, name):
        rng, n = self.rng, self.n
        values, typ = {"note": (lambda: str(rng.randint(0, 9)), "int4"),
                       "remark": (lambda: "r" * rng.choice([0, 1, 5, 130, 200]), "text"),
                       "flag": (lambda: rng.choice("tf"), "bool"),
                       "day": (lambda: "2020-01-01", "date")}[name]
        column = Column(name, typ, [values() for _ in range(n)])
        for i in places(rng, n):
            column.values[i] = None
        return column

    # ---- how it is stored ----

    def _create(self):
        rng, run = self.rng, self.session.run
        for name, base in DOMAINS.items():
            run(f"CREATE DOMAIN {name} AS {base}")
        self.base = ident(self.name)
        late = [c for c in self.columns if c.name not in ("id", "part") and rng.random() < self.shape.get("late", 0 if self.shape else 0.08)]
        columns = [c for c in self.columns if c not in late]
        junk = ["junk int", "junk text", "junk float8"][rng.randrange(3)] if rng.random() < 0.25 else None
        texts = [str(c) for c in columns]
        if junk:
            texts.insert(rng.randint(0, len(texts)), junk)
        options = f" WITH (fillfactor = {self.shape.get('fillfactor') or rng.choice([10, 50, 90])})" \
            if rng.random() < 0.4 or "fillfactor" in self.shape else ""
        elsewhere = self.shape.get("elsewhere")
        if elsewhere:  # so do rows with a long value
            options = options[:-1] + ", toast_tuple_target = 128)"
            texts.append("long text DEFAULT repeat('long', 600)")
        if self.kind == "partitioned":
            run(f"CREATE TABLE {self.base} ({', '.join(texts)}) PARTITION BY LIST (part)")
            for i in range(3):
                self._create_partition(i, texts)
        else:
            temporary = "TEMPORARY " if self.kind == "temporary" else "UNLOGGED " if rng.random() < 0.1 else ""
            run(f"CREATE {temporary}TABLE {self.base} ({', '.join(texts)}){options}")
            if self.kind == "inherited":
                run(f"CREATE TABLE child () INHERITS ({self.base})")
        if elsewhere:
            run(f"ALTER TABLE {self.base} ALTER long SET STORAGE EXTERNAL" +
                "".join(f", ALTER {ident(c.name)} SET STORAGE EXTERNAL" for c in columns if c.type.endswith("[]")))
        self.late, self.junk = late, junk

    def _create_partition(self, i, texts):
        rng, run = self.rng, self.session.run
        if rng.random() < 0.5:
            run(f"CREATE TABLE part{i} PARTITION OF {self.base} FOR VALUES IN ({i})")
            return
        # another order, and a column that has gone
        mixed = rng.sample(texts, len(texts)) + ["gone int"]
        rng.shuffle(mixed)
        run(f"CREATE TABLE part{i} ({', '.join(mixed)}); ALTER TABLE part{i} DROP COLUMN gone; "
            f"ALTER TABLE {self.base} ATTACH PARTITION part{i} FOR VALUES IN ({i})")

    def _fill(self):
        rng, run = self.rng, self.session.run
        early = [c for c in self.columns if c not in self.late]
        cut = rng.randint(self.n // 4, self.n - self.n // 4) if self.late else self.n
        self._copy(early, 0, cut)
        if self.junk:
            run(f"ALTER TABLE {self.base} DROP COLUMN junk")
        for c in self.late:
            default = next((v for v in c.values if v is not None), None) if rng.random() < 0.9 else None
            run(f"ALTER TABLE {self.base} ADD COLUMN {c}" + ("" if default is None else f" DEFAULT {literal(default)}"))
        if self.late:
            self._copy(self.columns, cut, self.n)
        if self.n > 100 and self.d < 9 and rng.random() < 0.06:
            # enough that threads read them
            names = ", ".join(ident(c.name) for c in self.columns)
            copies = ", ".join(f"id + i * {self.n}" if c.name == "id" else ident(c.name) for c in self.columns)
            run(f"INSERT INTO {self.base} ({names}) SELECT {copies} FROM {self.base}, "
                f"generate_series(1, {20000 // self.n}) i")

    def _copy(self, columns, first, last):
        def line(i):
            return "\t".join("\\N" if c.values[i] is None else c.values[i].replace("\\", "\\\\") for c in columns)
        names = ", ".join(ident(c.name) for c in columns)
        rows = {self.base: range(first, last)}
        if self.kind == "inherited":
            part = next(c for c in columns if c.name == "part").values
            rows = {self.base: [i for i in range(first, last) if part[i] == "0"],
                    "child": [i for i in range(first, last) if part[i] != "0"]}
        for target, chosen in rows.items():
            if len(chosen):
                self.session.copy(f"{target} ({names})", [line(i) for i in chosen])

    def _change(self):
        """Something that leaves dead rows, other versions, other page layouts."""
        rng, base = self.rng, self.base
        some = f"id % {rng.choice([2, 3, 7, 50])} = {rng.randrange(2)}"
        names = [c.name for c in self.columns]
        column = ident(rng.choice([name for name in names if name != "part"]))
        copied = ", ".join("id + 1000000" if name == "id" else ident(name) for name in names)
        listed = ", ".join(map(ident, names))
        more = f"INSERT INTO {base} ({listed}) SELECT {copied} FROM {base} WHERE id < 1000000 AND {some}"
        null = f"UPDATE {base} SET {column} = NULL WHERE {some}"
        change = rng.choice([
            f"UPDATE {base} SET id = id WHERE {some}",
            f"UPDATE {base} SET {column} = {column} WHERE {some}",
            null if column != '"id"' else "SELECT 1",
            f"DELETE FROM {base} WHERE {some}",
            f"VACUUM {base}", f"VACUUM (FREEZE) {base}", f"VACUUM FULL {base}", f"ANALYZE {base}",
            f"BEGIN; INSERT INTO {base} ({listed}) SELECT {copied} FROM {base}; ROLLBACK",
            f"BEGIN; UPDATE {base} SET id = id WHERE {some}; SAVEPOINT s; DELETE FROM {base} WHERE {some}; "
            "ROLLBACK TO s; COMMIT",
            f"BEGIN; SELECT FROM {base} WHERE {some} FOR UPDATE; COMMIT",
            f"CREATE INDEX ON {base} (id)",
            f"ALTER TABLE {base} ALTER {ident(self.features[0])} SET STORAGE EXTERNAL; UPDATE {base} SET id = id"
            if self.array else f"VACUUM {base}",
        ] + [f"DELETE FROM {base} WHERE id >= 1000000; {more}"])
        self.session.run(change)

    def _finish(self):
        """The relation to cluster, which may be a view of the table."""
        rng, run = self.rng, self.session.run
        self.relation = self.base
        if self.kind == "view":
            run(f"CREATE VIEW v AS SELECT * FROM {self.base}" + rng.choice(["", " WHERE id % 5 > 0", " ORDER BY id DESC"]))
            self.relation = "v"
        elif self.kind == "materialized":
            run(f"CREATE MATERIALIZED VIEW v AS SELECT * FROM {self.base}")
            self.relation = "v"
        self.has_ctid = self.kind != "view"
        self.writable = self.kind not in ("view", "materialized")

    # ---- as SQL, and as numbers ----

    @property
    def regclass(self):
        return literal(self.relation) + "::regclass"

    @property
    def names(self):
        return literal(list(self.features)) + "::text[]"

    def point(self, alias="t"):
        """A row's point as an array."""
        if self.array:
            return f"{alias}.{ident(self.features[0])}"
        return "ARRAY[" + ", ".join(f"{alias}.{ident(c)}::float8" for c in self.features) + "]"

    def read(self):
        """All rows as the executor has them."""
        row = "tableoid || ' ' || ctid" if self.has_ctid else "NULL"
        weight = ident(self.weight) + "::float8" if self.weight else "1"
        features = f"{ident(self.features[0])}::float8[]" if self.array else \
            ", ".join(ident(c) + "::float8" for c in self.features)
        outcome = self.session.run(f"SELECT {row}, id, {weight}, {ident(self.group)}, {features} FROM {self.relation}",
                                   remember=False)
        return Rows(outcome.rows, self)


class Bare(float):
    """A number that array_text() writes as it was given."""
    def __new__(cls, text):
        number = float.__new__(cls, text)
        number.text = text
        return number

    def __repr__(self):
        return self.text


class Rows:
    """What is in a table: places, ids, weights (None: NULL), groups, features."""

    def __init__(self, rows, table):
        self.n = len(rows)
        self.place = [r[0] for r in rows]
        self.id = [r[1] for r in rows]
        self.group = [r[3] for r in rows]
        self.w = np.array([math.nan if r[2] is None else float(r[2]) for r in rows])
        self.no_weight = np.array([r[2] is None for r in rows], bool) | (self.w == 0)
        texts = [[None] * table.d if r[4] is None else r[4][1:-1].split(",") for r in rows] if table.array \
            else [r[4:] for r in rows]
        empty = np.array([[v in (None, "NULL") for v in t] for t in texts], bool).reshape(self.n, table.d)
        self.empty, self.null = empty, empty.any(axis=1)
        self.no_array = np.array([table.array and r[4] is None for r in rows], bool)
        self.x = np.array([[0.0 if v in (None, "NULL") else float(v) for v in t] for t in texts]).reshape(self.n, table.d)

    def judge(self, table, weighted, cosine, skip):
        """(which rows count, how many are left out and why, the first row's error or None)"""
        no_weight = self.no_weight if weighted else np.zeros(self.n, bool)
        bad_weight = ~(no_weight | (self.w > 0) & np.isfinite(self.w)) & weighted
        null = ~no_weight & ~bad_weight & self.null
        strange = ~no_weight & ~bad_weight & ~null & ~np.isfinite(self.x).all(axis=1)
        zero = ~no_weight & ~bad_weight & ~null & ~strange & (self.x == 0).all(axis=1) & cosine
        kept = ~(no_weight | bad_weight | null | strange | zero)
        errors = bad_weight if skip else bad_weight | strange | zero
        if not errors.any():
            return kept, {"with a NULL feature": null.sum(), "with NaN or infinity": strange.sum(),
                          "with all features zero": zero.sum(), "with weight 0 or NULL": no_weight.sum()}, None
        i = int(np.argmax(errors))
        if bad_weight[i]:
            return kept, {}, ("22003", f"weight must be finite and at least 0, but column \"{table.weight}\" has ")
        if zero[i]:
            return kept, {}, ("22000", "a point with all features zero has no direction")
        j = int(np.argmax(~np.isfinite(self.x[i])))
        v = self.x[i][j]
        what = "NaN" if math.isnan(v) else "infinity" if v > 0 else "-infinity"
        at = f" in element {j + 1}" if table.array else ""
        return kept, {}, ("22003", f"column \"{table.features[0 if table.array else j]}\" has {what}{at}")
