#!/usr/bin/env python3
"""The cases of the grids beside other GPU k-means, for gpu_kernels and gpu_peers.py:

    bench/gpu/grid.py wide | narrow

wide: 17 to 4,096 features and 8 to 100,000 clusters, n so that an iteration of 10^14 multiply-adds
a second takes 8 ms, but from 20,000 rows or twice the clusters to 8,000,000 rows or 16 GB; what
takes 200 ms then is left out. narrow: 2 to 24 features, 8,000,000 rows, from 12 features on 4,000,000.
The clusters that most users have come first, so that a run that is stopped has these.
"""
import sys

WIDE_D = (17, 24, 32, 48, 64, 68, 96, 128, 200, 256, 384, 512, 768, 1024, 1536, 4096)
WIDE_K = (1000, 256, 4096, 64, 16384, 8, 100000)
NARROW_D = (2, 3, 5, 8, 12, 16, 24)
NARROW_K = (128, 512, 2048, 32, 8, 16, 2)
PRODUCTS = 8e11
MOST_PRODUCTS = 2e13


def wide():
    for k in WIDE_K:
        for d in WIDE_D:
            n = min(8000000, int(4e9 / d), int(PRODUCTS / (d * k)))
            n = max(n, 20000, 2 * k)
            if n * d * k <= MOST_PRODUCTS:
                yield n, d, k


def narrow():
    for k in NARROW_K:
        for d in NARROW_D:
            yield 8000000 if d <= 8 else 4000000, d, k


def main():
    if sys.argv[1:] not in (["wide"], ["narrow"]):
        sys.exit(__doc__)
    print(" ".join("x".join(map(str, case)) for case in (wide() if sys.argv[1] == "wide" else narrow())))


if __name__ == "__main__":
    main()
