"""bench/results/roundtrip.md: clustering in the database, or out to scikit-learn and back."""
import json
import os

from about import RESULTS

K, ITERATIONS = 8, 20                  # of every run of roundtrip.py


def table(report):
    lines = ["# In the database, or out and back\n\nWritten by `bench/run report`; do not edit.\n\n"
             "The way out is a binary COPY to numpy, scikit-learn and a binary COPY of the labels back; bench/server/roundtrip.py says "
             f"what each step is. k = {K}, {ITERATIONS} iterations from the same centroids, milliseconds, medians of {report['rounds']} rounds.\n",
             f"- command: `{report['command']}`", f"- commit: {report['commit']}, {report['date']}",
             f"- machine: {report['machine']}, load at the start and the end {report['load'][0]:.2f}, {report['load'][1]:.2f}"
             + (", other work ran on it at the same time" if min(report["load"]) > 2 * report["threads"] else ""),
             f"- PostgreSQL {report['postgresql']}, scikit-learn {report['sklearn']}, {report['blas']}, {report['threads']} threads each\n"]
    head = [f"{r['rows']:,} × {r['features']}" for r in report["results"]]
    lines += ["| step | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]

    def row(name, value, form="{:.0f}"):
        lines.append(f"| {name} | " + " | ".join(form.format(value(r)) for r in report["results"]) + " |")

    for step in report["results"][0]["way out"]["steps"]:
        row(f"out: {step}", lambda r, s=step: r["way out"]["steps"][s])
    row("**out: centroids**", lambda r: r["way out"]["centroids"])
    row("**out: centroids and a new table of labels**", lambda r: r["way out"]["total"])
    row("`kmeans()`: centroids", lambda r: r["centroids"]["total"])
    for step in report["results"][0]["parts"]["steps"]:
        row(f"of it: {step}", lambda r, s=step: r["parts"]["steps"][s])
    row("`kmeans_label_table()`: centroids and a new table (id, label)", lambda r: r["label table"]["total"])
    row("`kmeans_labels()`: a new table (ctid, label)", lambda r: r["labels by ctid"]["total"])
    row("of it: a new table (ctid, 1), the least of `CREATE TABLE AS`", lambda r: r["floor by ctid"]["total"])
    row("`kmeans_fit()`, `kmeans_predict()`: a new table (id, label)", lambda r: r["labels by id"]["total"])
    row("of it: a new table (id, 1), the least of `CREATE TABLE AS`", lambda r: r["floor by id"]["total"])
    for what, out, clock in (("times as fast", "centroids", "total"), ("times less processor time", "centroids_cpu", "cpu")):
        row(f"**centroids: {what}**", lambda r: r["way out"][out] / r["centroids"][clock], "**{:.1f}**")
        row(f"**centroids and a new table of labels: {what}**", lambda r: r["way out"][clock] / r["label table"][clock], "**{:.1f}**")
        row(f"**labels by ctid: {what}**", lambda r: r["way out"][clock] / r["labels by ctid"][clock], "**{:.1f}**")
        row(f"**labels by id: {what}**", lambda r: r["way out"][clock] / r["labels by id"][clock], "**{:.1f}**")
    for column in ("ctid", "id"):
        row(f"least new table ({column}, 1), in % of a third of the way out",
            lambda r, c=column: 300 * r[f"floor by {c}"]["total"] / r["way out"]["total"])
    row("rows with another label than scikit-learn's", lambda r: r["other_labels"], "{:,}")
    lines.append("\nAims: 10 times as fast for centroids, 3 times with a new table of labels. `kmeans_label_table()` writes that table many rows at once; "
                 "`CREATE TABLE AS` does it row by row and takes, even of a constant, the share above of the time that 3 times as fast would leave.")
    return "\n".join(lines) + "\n"


def read():
    with open(os.path.join(RESULTS, "roundtrip.json"), encoding="utf-8") as f:
        return json.load(f)


def page():
    return table(read())
