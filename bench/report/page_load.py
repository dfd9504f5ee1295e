"""bench/results/load.md: what load.sh measured."""
import json
import os

from about import RESULTS, number, table

TABLES = {"real4": "int, 4 real", "double4": "int, 4 double precision", "int4s": "int, 4 integer", "nulls4": "int, 4 real, 10 % NULLs",
          "text4": "int, text, 4 real", "array4": "int, real[4]", "array8": "int, double precision[4]", "real68": "68 real"}
# of count(*), with default settings
AIMS = {"real4": 0.5, "double4": 0.5, "int4s": 0.5, "nulls4": 2, "array4": 2, "array8": 2, "real68": 1.3}
# times of load.sh, and which of them are divided by which
TIMES = {"count": "`count(*)`", "sum": "four sums", "executor": "executor", "pages": "pages", "pages_again": "pages again",
         "default": "default", "again": "default again", "floor": "floor", "floor_again": "floor again", "fit": "`kmeans()`"}
RATIOS = [("pages", "count"), ("pages_again", "count"), ("default", "count"), ("again", "count"), ("fit", "sum")]


FILES = ("load-2cpu.json", "load-2cpu-small.json", "load-16cpu.json", "load-16cpu-gpu.json", "load.json")


class Loads:
    def __init__(self, name):
        self.name = name
        with open(os.path.join(RESULTS, name), encoding="utf-8") as f:
            self.about, *self.rows = (json.loads(line) for line in f)

    def ratio(self, tab, workers, over, under="count"):
        """None: not measured."""
        for r in self.rows:
            if (r["table"], r["workers"]) == (tab, workers) and r.get(over + "_ms") and r.get(under + "_ms"):
                return r[over + "_ms"] / r[under + "_ms"]
        return None

    def ratios(self, tab, over, under="count"):
        """Of all numbers of workers, as "0.1 / 0.2"."""
        return " / ".join(f"{self.ratio(tab, n, over, under):.2f}" for n in sorted({r["workers"] for r in self.rows}))

    def section(self, title, *text):
        times = [t for t in TIMES if any(r.get(t + "_ms") for r in self.rows)]
        pairs = [(a, b) for a, b in RATIOS if a in times and b in times]
        lines = []
        for r in self.rows:
            ratios = [self.ratio(r["table"], r["workers"], a, b) for a, b in pairs]
            lines.append([TABLES[r["table"]], r["workers"], *(number(r[t + "_ms"]) if r.get(t + "_ms") else "" for t in times),
                          *(f"{x:.2f}" if x else "" for x in ratios), f"{r['bytes'] / r['pages_ms'] / 1e6:.1f}"])
        a = self.about
        return [f"## {title}", "", *text, "",
                f"{a['machine']}, {a['date'][:10]}, commit {a['commit']}, medians of {a['rounds']}, `shared_buffers` {a['shared_buffers']}; "
                f"`{a['command']}`, bench/results/{self.name}. Milliseconds; GB/s is of `pages`.", "",
                *table(["table", "workers", *(TIMES[t] for t in times), *(f"{TIMES[x]} / {TIMES[y]}".replace("`count(*)`", "count").replace("four sums", "sums")
                                                                           for x, y in pairs), "GB/s"], lines), ""]


def page():
    two, small, cpu, gpu, all_tables = map(Loads, FILES)
    return "\n".join([
        "# Reading tables: times", "", "Written by `bench/run report`; do not edit.", "",
        "How long gkmeans takes to read a table, and how long PostgreSQL takes to count its rows and to sum four columns. Measured by `bench/server/load.sh`. "
        "Tables are unlogged, vacuumed and cached; those of 68 columns have an eighth of the rows. Each query runs in its own session.", "",
        "- `pages` is the load phase (read, centre, scale, exact statistics) with `workers` parallel workers and one thread for each process; "
        "`executor` is the same when PostgreSQL's executor reads; `kmeans()` is the whole call with k = 4 and 20 iterations;",
        "- `default` is the load phase with default settings: one process and a thread for each CPU, in every row;",
        "- `again` is the session's next load of that table, which reuses the memory of the one before ([`gkmeans.keep_memory`](../../docs/reference.md#settings)). "
        "A session's first load waits for the system to find and zero its memory;",
        "- `floor` is a program that only copies the bytes from shared memory, then multiplies and adds in place, as centring by the exact mean must, with the number of "
        "threads of `pages` (`bench/server/load_floor.c`): in a new process, and `floor again` with memory that it has already. It knows no pages, rows or columns.", "",
        "The aims, in times of `count(*)`: 0.5 for plain columns, 1.3 for 68 columns (which `count(*)` does not look at), 2 for NULLs and arrays. The whole call on two CPUs should "
        "take less than 1.5 times the four sums.", "",
        *two.section(
            "Two CPUs",
            f"Tables are in `shared_buffers` (`CONF='shared_buffers = 2GB' test/with-cluster`). With 0 / 2 workers beside it, loading by default takes {two.ratios('real4', 'default')} of `count(*)` for 4 columns, "
            f"{two.ratios('real4', 'again')} again, {two.ratios('real4', 'pages')} with as many processes, {two.ratios('real4', 'pages_again')} again; for 68 columns {two.ratios('real68', 'default')}, "
            f"again {two.ratios('real68', 'again')}, with as many processes {two.ratios('real68', 'pages')}, again {two.ratios('real68', 'pages_again')}; with NULLs {two.ratios('nulls4', 'default')}, arrays "
            f"{two.ratios('array8', 'default')}. The whole call takes {two.ratios('real4', 'fit', 'sum')} of the four sums. Two workers are three processes, more than there are CPUs. "
            "This machine gives free memory back to its host after seconds, so new memory costs 10 ms or 200 ms."),
        *small.section(
            "Two CPUs, tables in the system's cache only",
            "`shared_buffers` is PostgreSQL's default, less than a table: one process copies each page from the system's cache, for `count(*)`, too. "
            f"By default 4 columns take {small.ratios('real4', 'default')}, again {small.ratios('real4', 'again')}; 68 columns {small.ratios('real68', 'default')}, "
            f"again {small.ratios('real68', 'again')}."),
        *cpu.section(
            "Sixteen CPUs",
            f"The host of an H200. With 0 / 2 / 8 workers beside it, loading by default takes {cpu.ratios('real4', 'default')} of `count(*)` for 4 columns, "
            f"{cpu.ratios('real4', 'again')} again, {cpu.ratios('real4', 'pages')} with as many processes; for 68 columns {cpu.ratios('real68', 'default')}, "
            f"{cpu.ratios('real68', 'again')} again, {cpu.ratios('real68', 'pages')} with as many processes: each of them waits for memory, for pages and for its turn to write."),
        *gpu.section(
            "Sixteen CPUs and a GPU",
            "Rows go to the GPU [while they are read](../../docs/gpu.md#memory) and are not kept in main memory. "
            f"By default 4 columns take {gpu.ratios('real4', 'default')}, again {gpu.ratios('real4', 'again')}, with as many processes {gpu.ratios('real4', 'pages')}; "
            f"68 columns {gpu.ratios('real68', 'default')}, again {gpu.ratios('real68', 'again')}, with as many processes {gpu.ratios('real68', 'pages')}."),
        *all_tables.section("Sixteen CPUs, other tables", "With text before a feature, each row has to be deformed.")])
