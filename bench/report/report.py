#!/usr/bin/env python3
"""Write all pages of benchmarks from the result files: `bench/run report` runs it.

    bench/report/report.py [--smoke]        --smoke writes nothing

docs/benchmarks.md is the summary, docs/planning.md plans for a billion rows; the tables lie
beside the results, bench/results/*.md.  Nothing is measured here, and nothing but Python is needed.
"""
import os
import sys

import page_engine
import page_gpu
import page_gpu_grid
import page_gpu_products
import page_gpu_several
import page_groups
import page_load
import page_papers
import page_peers
import page_planning
import page_roundtrip
import page_spectral
import page_summary
from about import RESULTS, ROOT, read
from figures import Gpu


def main():
    gpu = Gpu()
    papers, images, summary = page_papers.page(gpu)
    engine, missed = page_engine.page()
    planning, plots = page_planning.page(gpu, read("papers-cpu.json")[1])
    pages = {"papers.md": papers, "engine.md": engine, "gpu.md": page_gpu.page(), "gpu_grid.md": page_gpu_grid.page(),
             "gpu_products.md": page_gpu_products.page(), "gpu_several.md": page_gpu_several.page(), "groups.md": page_groups.page(),
             "load.md": page_load.page(), "peers.md": page_peers.page(gpu), "roundtrip.md": page_roundtrip.page(),
             "spectral.md": page_spectral.page()}
    files = {os.path.join(RESULTS, name): text for name, text in pages.items()}
    files.update({os.path.join(RESULTS, "images", name): text for name, text in images.items()})
    files.update({os.path.join(ROOT, "docs", "images", name): text for name, text in plots.items()})
    files[os.path.join(ROOT, "docs", "planning.md")] = planning
    files[os.path.join(ROOT, "docs", "benchmarks.md")] = page_summary.page(gpu, summary, missed)
    if "--smoke" not in sys.argv:
        for name, text in files.items():
            with open(name, "w", encoding="utf-8") as f:
                f.write(text)
    print(f"report: {len(summary)} rows of the papers, {sum(row[3] == 'missing' for row in summary)} of them missing, {len(files)} files")


if __name__ == "__main__":
    main()
