#!/usr/bin/env bash
# Seeding on a GPU beside an iteration: bench/gpu/seeding.sh [FOLDER of gkmeans_gpu.so (.)]
# after make -C bench, and after test/gpu/run or bench/run gpu_kernels, which leave build/gpu/gpu_kernels.
# COMMIT=: what is measured, where there is no git
#
# Points like embeddings: column j is normal with variance 1 / (j + 1), "blobs": Lutz et al.'s. seed: ms of k-means++ or
# k-means||; plain: with every round reading all points; iteration: ms of a late one on the same kind of points
# (gpu_kernels). The seeds are the same either way: the program compares the inertia after five iterations.
set -euo pipefail
cd "$(dirname "$0")/../.."
lib=${1:-.}

field() {
	sed -n "s/.*\"$1\": \"*\([^,\"}]*\).*/\1/p" <<<"$2"
}

row() {
	local init=$1 n=$2 d=$3 k=$4 points=$5 kind=s out late
	local args=(init "$init" "$n" "$d" "$k" -i 5 -g "$lib")

	[ "$points" = embeddings ] || { kind=; args+=(-p "$points"); }
	out=$(build/bench/engine "${args[@]}")
	late=$(build/gpu/gpu_kernels "$lib/gkmeans_gpu.so" "${n}x${d}x$k$kind" | sed -n 's/.*later *//p')
	awk -v init="$init" -v shape="$n x $d, $k" -v points="$points" -v seed="$(field seed_ms "$out")" \
		-v plain="$(field plain_ms "$out")" -v late="$late" 'BEGIN {
		printf "%-10s %-20s %-10s %8.1f %8.1f %6.1f %9.2f %6.0f\n", init, shape, points, seed, plain, plain / seed, late, seed / late }'
}

echo "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1), $(date -u +%F), commit ${COMMIT:-$(git rev-parse --short HEAD)}, bench/gpu/seeding.sh"
printf '%-10s %-20s %-10s %8s %8s %6s %9s %6s\n' init 'n x d, k' points seed plain ratio iteration times
for points in embeddings blobs; do
	row k-means++ 300000 768 1000 "$points"
	row k-means++ 1000000 768 1000 "$points"
	row k-means++ 1000000 128 4096 "$points"
	row k-means++ 500000 1536 1000 "$points"
	row 'k-means||' 1000000 768 1000 "$points"
done
row k-means++ 2458285 68 256 blobs
row k-means++ 8388608 128 1024 blobs
