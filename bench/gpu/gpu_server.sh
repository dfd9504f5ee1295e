#!/usr/bin/env bash
# The GPU in a real server: one large table on the GPU and on the CPU beside count(*) and
# sum(), with as many workers each, from which job size on the GPU gains, and many small
# groups.
#
# usage: [ROWS=20000000] [WORKERS='0 2 8'] [SIZES='1000 10000 ...'] [GROUP_ROWS=10000000] bench/gpu/gpu_server.sh OUTPUT_DIRECTORY
# with the PG* variables of a server that has gkmeans (of this tree) and its
# superuser. Writes gpu_server.json, one object per line, and gpu_server.md.
#
# For each number in WORKERS, count(*), the sums and kmeans() have that many parallel
# workers, and kmeans() that many threads and one. A round is one new session: first
# kmeans() on the GPU, which is cold, since it makes the session's CUDA context; then
# count(*), the sums, kmeans() on the GPU, which is warm now, and kmeans() on the CPU, by
# psql's \timing; then both kmeans() as they are by default, which is one process with a
# thread for each CPU; then a fit of all these for kmeans_info(). RUNS=... rounds (3) after one
# that is not counted; medians. DEVICE=cpu takes the CPU instead of a GPU: it only shows
# that this script works.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:?usage: bench/gpu/gpu_server.sh OUTPUT_DIRECTORY}
rows=${ROWS:-20000000} runs=${RUNS:-3} workers=${WORKERS:-0 2 8} device=${DEVICE:-gpu}
sizes=${SIZES-1000 10000 30000 100000 300000 1000000 3000000} group_rows=${GROUP_ROWS:-10000000}
mkdir -p "$out"
json=$out/gpu_server.json md=$out/gpu_server.md
commit=$(bench/report/commit)
command="ROWS=$rows RUNS=$runs WORKERS='$workers' SIZES='$sizes' GROUP_ROWS=$group_rows DEVICE=$device bench/gpu/gpu_server.sh"
gpu='no GPU'
[ "$device" = cpu ] || gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)
sql() { psql -XqAt -v ON_ERROR_STOP=1 "$@"; }

cat >"$json" <<END
{"what": "machine", "date": "$(date -u +%FT%TZ)", "commit": "$commit", "rows": $rows, "device": "$device", "command": "$command", "gpu": "$gpu", "cpu": "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores", "postgresql": "$(sql -c 'SHOW server_version')", "jit": "$(sql -c 'SHOW jit')", "shared_buffers": "$(sql -c 'SHOW shared_buffers')"}
END

sql >/dev/null <<SQL
SET client_min_messages = error;
CREATE EXTENSION IF NOT EXISTS gkmeans;
SELECT setseed(0.5);
DROP TABLE IF EXISTS gpu_server;
CREATE UNLOGGED TABLE gpu_server AS
SELECT (random() * 10 + i % 4)::float4 AS a, (random() * 8 - i % 3)::float4 AS b,
       (random() * 5)::float4 AS c, (random() * 3 + random() * 3)::float4 AS d
FROM generate_series(1, $rows) i;
VACUUM ANALYZE gpu_server;
SQL

# ---- the large table ----

call="'gpu_server', '{a,b,c,d}', 4, init => 'random', max_iter => 20, tol => 0"
whole() { echo "SELECT count(*) FROM kmeans($call, device => '$1');"; }
# fit DEVICE WORKERS [NAME]: one JSON line, where the time of a fit went
fit() {
	cat <<-SQL
		SELECT '{"what": "fit", "workers": "${3:-$2}", "asked": "$1", "device": ' || to_json(device) || ', "strategy": ' || to_json(strategy)
			|| format(', "iterations": %s, "load_ms": %s, "seed_ms": %s, "iterate_ms": %s, "total_ms": %s', iterations, load_ms, seed_ms, iterate_ms, total_ms)
			|| coalesce(', "context_ms": ' || context_ms || ', "upload_ms": ' || upload_ms, '') || '}'
		FROM kmeans_info((SELECT kmeans_fit($call, device => '$1')));
	SQL
}
# one_round WORKERS: the milliseconds of the timed statements, then the fits' JSON
one_round() {
	sql <<-SQL
		SET client_min_messages = error;
		SET maintenance_work_mem = '8GB';
		SET max_parallel_workers_per_gather = $1;
		SET gkmeans.workers = $1;
		SET gkmeans.threads = $(($1 + 1));
		\timing on
		$(whole "$device")
		SELECT count(*) FROM gpu_server;
		SELECT sum(a), sum(b), sum(c), sum(d) FROM gpu_server;
		$(whole "$device")
		$(whole cpu)
		\timing off
		$(fit "$device" "$1")
		$(fit cpu "$1")
		RESET gkmeans.workers;
		RESET gkmeans.threads;
		\timing on
		$(whole "$device")
		$(whole cpu)
		\timing off
		$(fit "$device" "$1" default)
		$(fit cpu "$1" default)
	SQL
}
for n in $workers; do
	sql -c "ALTER TABLE gpu_server SET (parallel_workers = $n)"
	for round in $(seq 0 "$runs"); do
		lines=$(one_round "$n")
		[ "$round" -gt 0 ] || continue
		# shellcheck disable=SC2046,SC2183 # one argument for each time
		printf '{"what": "round", "workers": %s, "cold_ms": %s, "count_ms": %s, "sum_ms": %s, "warm_ms": %s, "cpu_ms": %s, "default_ms": %s, "default_cpu_ms": %s}\n' \
			"$n" $(sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' <<<"$lines") >>"$json"
		grep '^{' <<<"$lines" >>"$json"
	done
done

# ---- from which size on ----

# seed + iterate (+ upload) on either device, the context being there; load is the same
sql -c 'DROP TABLE IF EXISTS gpu_threshold' \
	-c 'CREATE TABLE gpu_threshold (n int, d int, k int, device text, run int, ms float8, iterations int)' 2>/dev/null
for n in $sizes; do
	sql -c 'SET client_min_messages = error' -c "DROP TABLE IF EXISTS gpu_n" -c "CREATE UNLOGGED TABLE gpu_n AS SELECT * FROM gpu_server LIMIT $n" -c "VACUUM ANALYZE gpu_n"
	{
		echo "SET client_min_messages = error; SET maintenance_work_mem = '1GB';"
		echo "SELECT FROM kmeans('gpu_n', '{a}', 1, device => '$device', max_iter => 1);"
		for d in 1 4; do
			for k in 2 8 32 128 512; do
				[ $((n * k)) -le 200000000 ] && [ $((k * 4)) -le "$n" ] || continue
				for run in $(seq "$runs"); do
					for side in cpu gpu; do
						cols=a,b,c,d
						[ $d = 4 ] || cols=a
						where=$device
						[ $side = gpu ] || where=cpu
						echo "INSERT INTO gpu_threshold SELECT $n, $d, $k, '$side', $run, (i).total_ms - (i).load_ms, (i).iterations FROM
							(SELECT kmeans_info(kmeans_fit('gpu_n', '{$cols}', $k, max_iter => 20, device => '$where')) AS i OFFSET 0) x;"
					done
				done
			done
		done
	} | sql
done
sql -c "SELECT json_build_object('what', 'threshold', 'n', n, 'd', d, 'k', k, 'ndk', n::bigint * d * k, 'cpu_ms', cpu, 'gpu_ms', gpu)
	FROM (SELECT n, d, k, percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) FILTER (WHERE device = 'cpu') AS cpu,
	      percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) FILTER (WHERE device = 'gpu') AS gpu
	      FROM gpu_threshold GROUP BY 1, 2, 3) x ORDER BY n::bigint * d * k" >>"$json"

# ---- many small groups ----

# groups of 100 points: kmeans_grouped() as a whole, with 2 workers, later calls of a session
sql -c 'SET client_min_messages = error' -c 'DROP TABLE IF EXISTS gpu_groups' \
	-c "CREATE UNLOGGED TABLE gpu_groups AS SELECT i % ($group_rows / 100) AS g, (i / ($group_rows / 100) % 3 * 5 + random())::real AS a,
		random()::real AS b, (i / ($group_rows / 100) % 3 * 2 + random())::real AS c, (1000 * random())::real AS d
		FROM generate_series(1, $group_rows) i" -c 'VACUUM ANALYZE gpu_groups'
for n_init in 1 10; do
	for side in cpu gpu; do
		where=$device
		[ $side = gpu ] || where=cpu
		query="SELECT count(*) FROM kmeans_grouped('gpu_groups', '{g}', '{a,b,c,d}', 3, n_init => $n_init, device => '$where');"
		{
			echo "SET client_min_messages = error; SET maintenance_work_mem = '4GB'; SET max_parallel_workers_per_gather = 2;"
			echo "$query"
			echo '\timing on'
			for _ in $(seq "$runs"); do echo "$query"; done
		} | sql | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | while read -r ms; do
			printf '{"what": "groups", "rows": %s, "n_init": %s, "side": "%s", "ms": %s}\n' "$group_rows" "$n_init" "$side" "$ms"
		done >>"$json"
	done
done

python3 - "$json" >"$md" <<'PY'
import json
import statistics
import sys

rows = [json.loads(line) for line in open(sys.argv[1])]
m = rows[0]
print("# The GPU in the server\n")
print(f"{m['date']}, commit {m['commit']}, `{m['command']}`  \n{m['gpu']}; {m['cpu']}; PostgreSQL {m['postgresql']}, jit {m['jit']}, shared_buffers {m['shared_buffers']}\n")
def median(what, key, **same):
    return statistics.median(r[key] for r in rows if r["what"] == what and all(r[k] == v for k, v in same.items()))


workers = sorted({r["workers"] for r in rows if r["what"] == "round"})
side = {"gpu": "GPU", "cpu": "CPU in place of a GPU"}[m["device"]]
jobs = (("count_ms", "count(*)"), ("sum_ms", "sum(a), sum(b), sum(c), sum(d)"), ("warm_ms", f"kmeans() on the {side}, later call of a session"),
        ("cold_ms", f"kmeans() on the {side}, first call of a session"), ("cpu_ms", "kmeans() on the CPU"), ("default_ms", f"kmeans() on the {side} by default, later call"),
        ("default_cpu_ms", "kmeans() on the CPU by default"))
print(f"## {m['rows']:,} rows of 4 float4 columns, k = 4, 20 iterations\n")
print("Whole statements, milliseconds by psql's clock, medians. kmeans() has as many workers as the scans beside it, and as many threads as that and one; by default it is one process without workers, and a thread for each CPU.\n")
print("| statement | " + " | ".join(f"{n} workers" for n in workers) + " |\n|---" + "|---" * len(workers) + "|")
for key, name in jobs:
    print(f"| {name} | " + " | ".join(f"{median('round', key, workers=n):.0f}" for n in workers) + " |")
for key, name in jobs[2:]:
    for beside, text in jobs[:2]:
        print(f"| **{name} / {text.split(',')[0]}{', ...' if ',' in text else ''}** | " + " | ".join(
            f"**{median('round', key, workers=n) / median('round', beside, workers=n):.2f}**" for n in workers) + " |")
print("\nWhere the time of a later call goes, by kmeans_info():\n")
print("| workers | device | load ms | context ms | upload ms | seed ms | iterate ms | iterations | total ms |\n|---|---|---|---|---|---|---|---|---|")
seen = []
for r in rows:
    if r["what"] != "fit" or (r["workers"], r["device"]) in seen:
        continue
    same = {"workers": r["workers"], "device": r["device"]}
    seen.append(tuple(same.values()))
    c, u = (f"{median('fit', x, **same):.2f}" if x in r else "" for x in ("context_ms", "upload_ms"))
    load, seed, iterate, total = (median("fit", x + "_ms", **same) for x in ("load", "seed", "iterate", "total"))
    print(f"| {r['workers']} | {r['device']}, {r['strategy']} | {load:.0f} | {c} | {u} | {seed:.2f} | {iterate:.2f} | {r['iterations']} | {total:.0f} |")
if any(r["what"] == "threshold" for r in rows):
    print("\n## From which size on\n\nEverything but the load, the context being there; k-means++, at most 20 iterations; medians.\n")
    print("| n | d | k | n d k | CPU ms | GPU ms | CPU / GPU |\n|---|---|---|---|---|---|---|")
for r in rows:
    if r["what"] == "threshold":
        print(f"| {r['n']:,} | {r['d']} | {r['k']} | {r['ndk']:.1e} | {r['cpu_ms']:.2f} | {r['gpu_ms']:.2f} | {r['cpu_ms'] / r['gpu_ms']:.2f} |")
if any(r["what"] == "groups" for r in rows):
    n = next(r["rows"] for r in rows if r["what"] == "groups")
    print(f"\n## {n // 100:,} groups of 100 points of 4 float4 columns, k = 3\n\nkmeans_grouped() as a whole with 2 workers, later calls of a session, milliseconds, medians.\n")
    print("| restarts | CPU | " + side + " |\n|---|---|---|")
    for n_init in (1, 10):
        print(f"| {n_init} | " + " | ".join(f"{median('groups', 'ms', n_init=n_init, side=x):.0f}" for x in ("cpu", "gpu")) + " |")
PY
cat "$md"
sql -c 'DROP TABLE IF EXISTS gpu_server, gpu_threshold, gpu_n, gpu_groups' 2>/dev/null
