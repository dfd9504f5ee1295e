"""bench/results/spectral.md: the phases of spectral clustering that spectral.py printed."""
import os
import re

from about import RESULTS, table

FILE = "spectral.txt"
PHASES = ("load, s", "representatives: k-means++, s", "representatives: iterations, s", "graph, s", "eigenvectors, s", "k-means of the embedding, s",
          "kmeans_spectral_fit(), s", "memory, MB")
OWN = PHASES[3:6]


def read():
    """{data set: {line: number}}, in the order of the file; a data set's name is its title there."""
    sets = {}
    with open(os.path.join(RESULTS, FILE), encoding="utf-8") as f:
        for block in f.read().strip().split("\n\n")[1:]:
            title, *lines = block.split("\n")
            found = (re.match(r"(.+?)\s{2,}([\d.]+)$", line) for line in lines)
            sets[title] = {re.sub(r": \d+ iterations", ": iterations", m[1]): float(m[2]) for m in found if m}
    return sets


def shares():
    """(share of graph, eigenvectors and embedding in a fit, data set)."""
    return [(sum(values[p] for p in OWN) / values["kmeans_spectral_fit(), s"], title.split(": ")[1].split(", k")[0])
            for title, values in read().items()]


def page():
    sets = read()
    own = [(title.split(":")[0], line, v) for title, values in sets.items() for line, v in values.items() if line not in PHASES]
    return "\n".join([
        "# Spectral clustering: times", "",
        f"From [{FILE}]({FILE}), which `bench/server/spectral.py` printed; its head says where and when. Written by `bench/run report`; do not edit.", "",
        "The chain of He et al. 2022, [phase by phase](../../docs/spectral.md), on tables of the paper's sizes (the paper times the k-means of the chain alone) and on one of 10,000,000 x 16:", "",
        *[f"- {title}" for title in sets], "",
        *table(["", *(title.split(":")[0] for title in sets)], [[p, *(f"{values[p]:g}" for values in sets.values())] for p in PHASES]), "",
        "The last beside `kmeans()`, called with the same options:", "",
        *table(["", "", "found"], own), ""])
