#!/usr/bin/env bash
# Two, four, eight GPUs of one host against one of them, and the CPU beside one: bench/gpu/several.sh
# [FOLDER of gkmeans_gpu.so (.) [--smoke|--resident|--streamed|--papers|NxDxK...]].  Only these shapes.
# COMMIT=: what is measured, where there is no git.  ROUNDS= of each way (3).  Some minutes, and 16 GB of main memory.
set -euo pipefail
cd "$(dirname "$0")/../.."
lib=${1:-.}
fma=
[ "$(uname -m)" = x86_64 ] && grep -q -m1 ' fma ' /proc/cpuinfo && fma=-mfma

[ -e "$lib/gkmeans_gpu.so" ] || make -s -f src/gpu/Makefile.gpu gpu
mkdir -p build/gpu
# shellcheck disable=SC2086 # $fma may be nothing
${CC:-cc} ${ROUNDS:+-DROUNDS=$ROUNDS} -std=gnu11 -O2 $fma -ffp-contract=off -fno-math-errno -fopenmp-simd -pthread -Wall -Wextra -Isrc \
	-o build/gpu/several bench/gpu/several.c src/core/*.c src/core/*/*.c src/cpu/*.c src/cpu/*/*.c -lm -ldl
why=$(build/gpu/several "$lib" --check)
[ -z "$why" ] || { echo "$why"; exit; }
echo "$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | sort | uniq -c | sed 's/^ *//' | paste -sd,), $(nproc) CPUs," \
	"$(date -u +%F), commit ${COMMIT:-$(git rev-parse --short HEAD)}, bench/gpu/several.sh ${*:2}"
exec build/gpu/several "$lib" "${@:2}"
