#!/usr/bin/env bash
# Whole fits beside flash-kmeans and flashlib, from the same points and centroids for as many
# iterations: bench/gpu/fits.sh FOLDER_OF_gkmeans_gpu.so [--json FILE] [--commit ID] [case ...]
#
# A case is points x features x clusters, as in gpu_kernels.cu. $SHARE (/dev/shm) takes the points
# of one case at a time; $BENCH (build/gpu) has gpu_kernels.
set -euo pipefail
lib=$1
shift
options=()
while [[ "${1-}" == --* ]]; do
	options+=("$1" "$2")
	shift 2
done
[ $# -gt 0 ] || set -- 2458285x68x16 2458285x68x64 2458285x68x256 10000000x32x256 1000000x128x4096 8388608x128x1024 \
	1000000x768x1000 1000000x768x4096 500000x1536x1000 2458285x68x256s 10000000x32x256s 1000000x128x4096s \
	8388608x128x1024s 1000000x768x1000s 1000000x768x4096s 500000x1536x1000s
folder=$(mktemp -d "${SHARE:-/dev/shm}/fits.XXXXXX")
trap 'rm -rf "$folder"' EXIT
for case in "$@"; do
	ours=$("${BENCH:-build/gpu}/gpu_kernels" "$lib/gkmeans_gpu.so" "${options[@]}" --fit "$folder" "$case" | tail -n 1)
	echo "$ours"
	iterations=$(awk '{ print $(NF - 1) }' <<< "$ours")
	"${PYTHON:-python3}" "$(dirname "$0")/gpu_peers.py" "${options[@]}" --fit "$folder" --iterations "$iterations" "$case"
done
