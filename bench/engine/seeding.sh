#!/usr/bin/env bash
# Seeding on the CPU beside an iteration: bench/engine/seeding.sh [N (50000) [D (768) [THREADS (2)]]] after make -C bench
#
# KS="100 1000": numbers of clusters. COMMIT=: what is measured, where there is no git. OLD=: another engine, built
# from another commit: each case is run by both in turn, so that they meet the same load, and the last columns are its.
#
# Points like embeddings: feature j is normal with variance 1 / (j + 1). seed: ms of the seeding of a process's first fit;
# again: of the same fit once more, with the memory that the process has kept, as a server's session has it; iteration:
# a full one without bounds, the median of five, right after that fit; times: seed and again over it.
# The seeds are the same either way: the inertia after two iterations is compared.
set -euo pipefail
cd "$(dirname "$0")/../.."
n=${1:-50000} d=${2:-768} threads=${3:-2}

field() {
	sed -n "s/.*\"$1\": \"*\([^,\"}]*\).*/\1/p" <<<"$2"
}

echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs at load $(cut -d' ' -f1-2 /proc/loadavg), $(date -u +%F), commit ${COMMIT:-$(bench/report/commit)}"
echo "command: KS='${KS:-100 1000}' bench/engine/seeding.sh $n $d $threads"
printf '%-13s %-20s %9s %9s %9s %6s %6s%s\n' init 'n x d, k' seed again iteration times times "${OLD:+      old   iteration  times}"
for init in k-means++ 'k-means||' hierarchical; do
	for k in ${KS:-100 1000}; do
		new=$(build/bench/engine init "$init" "$n" "$d" "$k" -i 2 -r 5 -t "$threads") old=
		[ -z "${OLD:-}" ] || old=$("$OLD" init "$init" "$n" "$d" "$k" -i 2 -r 5 -t "$threads")
		[ -z "$old" ] || [ "$(field inertia "$old")" = "$(field inertia "$new")" ] || { echo "$init, k = $k: other seeds" >&2; exit 1; }
		awk -v init="$init" -v shape="$n x $d, $k" -v seed="$(field seed_ms "$new")" -v again="$(field again_ms "$new")" -v ms="$(field ms "$new")" \
			-v old="$(field seed_ms "$old")" -v old_ms="$(field ms "$old")" 'BEGIN {
			printf "%-13s %-20s %9.0f %9.0f %9.1f %6.1f %6.1f", init, shape, seed, again, ms, seed / ms, again / ms
			if (old != "") printf " %8.0f %11.1f %6.1f", old, old_ms, old / old_ms
			print "" }'
	done
done
