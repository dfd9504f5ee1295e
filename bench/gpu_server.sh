#!/usr/bin/env bash
# The GPU in a real server: one large table on the GPU and on the CPU beside
# count(*) and sum(), and from which job size on the GPU gains.
#
# usage: [ROWS=20000000] [SIZES='1000 10000 ...'] bench/gpu_server.sh OUTPUT_DIRECTORY
# with the PG* variables of a server that has gkmeans (of this tree) and its
# superuser. Writes gpu_server.json, one object per line, and gpu_server.md.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: bench/gpu_server.sh OUTPUT_DIRECTORY}
rows=${ROWS:-20000000} runs=${RUNS:-3}
sizes=${SIZES-1000 10000 30000 100000 300000 1000000 3000000}
mkdir -p "$out"
json=$out/gpu_server.json md=$out/gpu_server.md
commit=${GKMEANS_COMMIT:-$(git rev-parse HEAD)}
sql() { psql -XqAt -v ON_ERROR_STOP=1 "$@"; }
elapsed() { # elapsed SETTINGS STATEMENT: median milliseconds of $runs runs after one more
	{
		echo "$1"
		echo '\timing on'
		for _ in $(seq 0 "$runs"); do echo "$2;"; done
	} | sql | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | tail -n "$runs" | sort -n | sed -n "$(((runs + 1) / 2))p"
}

cat >"$json" <<END
{"what": "machine", "date": "$(date -u +%FT%TZ)", "commit": "$commit", "command": "ROWS=$rows RUNS=$runs bench/gpu_server.sh", "gpu": "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)", "cpu": "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores", "postgresql": "$(sql -c 'SHOW server_version')"}
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

count1=$(elapsed 'SET max_parallel_workers_per_gather = 0;' 'SELECT count(*) FROM gpu_server')
sum1=$(elapsed 'SET max_parallel_workers_per_gather = 0;' 'SELECT sum(a), sum(b), sum(c), sum(d) FROM gpu_server')
countp=$(elapsed '' 'SELECT count(*) FROM gpu_server')
sump=$(elapsed '' 'SELECT sum(a), sum(b), sum(c), sum(d) FROM gpu_server')
echo "{\"what\": \"scan\", \"rows\": $rows, \"count_ms\": $count1, \"sum_ms\": $sum1, \"count_parallel_ms\": $countp, \"sum_parallel_ms\": $sump}" >>"$json"

# fits DEVICE: all in one session, so only the first makes a context
fits() {
	{
		echo "SET maintenance_work_mem = '8GB'; SET client_min_messages = error;"
		for _ in $(seq 0 "$runs"); do
			echo "SELECT '{\"what\": \"fit\", \"rows\": $rows, \"d\": 4, \"k\": 4, \"device\": ' || to_json(device) || ', \"strategy\": ' || to_json(strategy)
				|| format(', \"iterations\": %s, \"load_ms\": %s, \"seed_ms\": %s, \"iterate_ms\": %s, \"total_ms\": %s', iterations, load_ms, seed_ms, iterate_ms, total_ms)
				|| coalesce(', \"context_ms\": ' || context_ms || ', \"upload_ms\": ' || upload_ms, '') || '}'
				FROM (SELECT (kmeans_info(m)).* FROM (SELECT kmeans_fit('gpu_server', '{a,b,c,d}', 4, init => 'random', max_iter => 20, tol => 0, device => '$1') AS m OFFSET 0) x) y;"
		done
	} | sql | tee -a "$json"
}
fits gpu
fits cpu

# ---- from which size on ----

# seed + iterate (+ upload) on either device, the context being there; load is the same
sql -c 'DROP TABLE IF EXISTS gpu_threshold' \
	-c 'CREATE TABLE gpu_threshold (n int, d int, k int, device text, run int, ms float8, iterations int)' 2>/dev/null
for n in $sizes; do
	sql -c 'SET client_min_messages = error' -c "DROP TABLE IF EXISTS gpu_n" -c "CREATE UNLOGGED TABLE gpu_n AS SELECT * FROM gpu_server LIMIT $n" -c "VACUUM ANALYZE gpu_n"
	{
		echo "SET client_min_messages = error; SET maintenance_work_mem = '1GB';"
		echo "SELECT FROM kmeans('gpu_n', '{a}', 1, device => 'gpu', max_iter => 1);"
		for d in 1 4; do
			for k in 2 8 32 128 512; do
				[ $((n * k)) -le 200000000 ] && [ $((k * 4)) -le "$n" ] || continue
				for run in $(seq "$runs"); do
					for device in cpu gpu; do
						cols=a,b,c,d
						[ $d = 4 ] || cols=a
						echo "INSERT INTO gpu_threshold SELECT $n, $d, $k, '$device', $run, (i).total_ms - (i).load_ms, (i).iterations FROM
							(SELECT kmeans_info(kmeans_fit('gpu_n', '{$cols}', $k, max_iter => 20, device => '$device')) AS i OFFSET 0) x;"
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

python3 - "$json" >"$md" <<'PY'
import json
import sys

rows = [json.loads(line) for line in open(sys.argv[1])]
m = rows[0]
print("# The GPU in the server\n")
print(f"{m['date']}, commit {m['commit']}, `{m['command']}`  \n{m['gpu']}; {m['cpu']}; PostgreSQL {m['postgresql']}\n")
scan = next(r for r in rows if r["what"] == "scan")
print(f"## {scan['rows']:,} rows of 4 float4 columns, k = 4, 20 iterations\n")
print("| statement | ms | with parallel workers |\n|---|---|---|")
print(f"| count(*) | {scan['count_ms']:.0f} | {scan['count_parallel_ms']:.0f} |")
print(f"| sum(a), sum(b), sum(c), sum(d) | {scan['sum_ms']:.0f} | {scan['sum_parallel_ms']:.0f} |\n")
print("| device | load ms | context ms | upload ms | seed ms | iterate ms | iterations | total ms |\n|---|---|---|---|---|---|---|---|")
for r in rows:
    if r["what"] == "fit":
        c, u = (f"{r[x]:.2f}" if x in r else "" for x in ("context_ms", "upload_ms"))
        print(f"| {r['device']}, {r['strategy']} | {r['load_ms']:.0f} | {c} | {u} | {r['seed_ms']:.2f} | {r['iterate_ms']:.2f} | {r['iterations']} | {r['total_ms']:.0f} |")
print("\n## From which size on\n\nEverything but the load, the context being there; k-means++, at most 20 iterations; medians.\n")
print("| n | d | k | n d k | CPU ms | GPU ms | CPU / GPU |\n|---|---|---|---|---|---|---|")
for r in rows:
    if r["what"] == "threshold":
        print(f"| {r['n']:,} | {r['d']} | {r['k']} | {r['ndk']:.1e} | {r['cpu_ms']:.2f} | {r['gpu_ms']:.2f} | {r['cpu_ms'] / r['gpu_ms']:.2f} |")
PY
cat "$md"
sql -c 'DROP TABLE IF EXISTS gpu_server, gpu_threshold, gpu_n'
