#!/usr/bin/env bash
# kmeans() on a distributed table of a real Citus: a coordinator and two workers on this
# machine, against a local copy of the rows with strategy "scan".
# usage: bench/server/citus.sh CITUS [ROWS [SHARDS]]     CITUS: a built source tree of Citus
#
# Citus 13.2.2 builds against PostgreSQL 15 with ./configure --without-libcurl, and on Debian
# libzstd-dev, liblz4-dev and libkrb5-dev; with 15.20 its own have_createdb_privilege() in
# src/include/pg_version_compat.h has to be removed.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
citus=$(cd "$1" && pwd) rows=${2:-8000000} shards=${3:-8}
tree=$(cd "$(dirname "$0")/../.." && pwd)
bindir=$(pg_config --bindir) sharedir=$(pg_config --sharedir) pkglibdir=$(pg_config --pkglibdir)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/gkmeans.XXXXXX")
chmod 755 "$tmp"
root=$tmp/root
as=()
[ "$(id -u)" -ne 0 ] || as=(setpriv --reuid=postgres --regid="$(id -g postgres)" --init-groups env HOME="$tmp")
cleanup() {
	cd /
	for i in 0 1 2; do "${as[@]}" "$root$bindir/pg_ctl" -D "$tmp/data$i" -m immediate -w stop >/dev/null 2>&1 || true; done
	rm -rf "$tmp"
}
trap cleanup EXIT

# A private installation, as in test/with-cluster
make --no-print-directory -s -C "$tree" install DESTDIR="$root" >"$tmp/install.log" 2>&1
make --no-print-directory -s -C "$citus" install DESTDIR="$root" >>"$tmp/install.log" 2>&1
mkdir -p "$root$bindir"
cp -L "$bindir"/* "$root$bindir/"
link_all() {
	mkdir -p "$root$1"
	for from in "$1"/*; do
		[ -e "$root$from" ] || ln -s "$from" "$root$from"
	done
}
link_all "$sharedir/extension"
link_all "$sharedir"
link_all "$pkglibdir"
PATH=$root$bindir:$PATH

port() { echo $((54320 + $1)); }
for i in 0 1 2; do
	mkdir "$tmp/data$i"
	[ "$(id -u)" -ne 0 ] || chown postgres "$tmp/data$i"
	"${as[@]}" "$root$bindir/initdb" -D "$tmp/data$i" -U postgres -A trust -E UTF8 --no-locale --no-sync >/dev/null
	"${as[@]}" tee -a "$tmp/data$i/postgresql.conf" >/dev/null <<-CONF
		shared_preload_libraries = 'citus'
		listen_addresses = '127.0.0.1'
		port = $(port $i)
		unix_socket_directories = '$tmp/data$i'
		fsync = off
		max_wal_size = 4GB
		shared_buffers = 1GB
		citus.enable_statistics_collection = off
	CONF
	# several shards of a worker are read at once, by a process each
	[ "$i" -eq 0 ] || "${as[@]}" tee -a "$tmp/data$i/postgresql.conf" >/dev/null <<<'gkmeans.threads = 1'
	"${as[@]}" "$root$bindir/pg_ctl" -D "$tmp/data$i" -l "$tmp/data$i/log" -w start >/dev/null
	psql -qX -h 127.0.0.1 -p "$(port $i)" -U postgres -c 'CREATE EXTENSION citus' -c 'CREATE EXTENSION gkmeans'
done
sql() { psql -qXAt -h 127.0.0.1 -p "$(port 0)" -U postgres -v ON_ERROR_STOP=1 -c 'SET client_min_messages = warning' "$@"; }
bytes() { awk '$1 == "lo:" {print $2}' /proc/net/dev; }

sql -c "SELECT citus_set_coordinator_host('127.0.0.1', $(port 0))" -c "SELECT citus_add_node('127.0.0.1', $(port 1))" \
	-c "SELECT citus_add_node('127.0.0.1', $(port 2))" \
	-c "SELECT citus_set_node_property('127.0.0.1', $(port 0), 'shouldhaveshards', false)" >/dev/null
sql -c "SET citus.shard_count = $shards" -c "CREATE TABLE dist (id int, a real, b real, c real, d real)" \
	-c "SELECT create_distributed_table('dist', 'id')" \
	-c "INSERT INTO dist SELECT i, i % 5 + random(), i % 3 + random(), i % 7 + random(), random() FROM generate_series(1, $rows) i" >/dev/null
# the local copy: shard by shard, each in its physical order
sql -c "CREATE TABLE here (LIKE dist)" -c "COMMENT ON TABLE here IS 'copy'"
for id in $(sql -c "SELECT shardid FROM pg_dist_shard WHERE logicalrelid = 'dist'::regclass ORDER BY shardid"); do
	from=$(sql -c "SELECT nodeport FROM pg_dist_shard_placement WHERE shardid = $id")
	psql -qXAt -h 127.0.0.1 -p "$from" -U postgres -c "COPY (SELECT * FROM dist_$id) TO STDOUT (FORMAT binary)" >"$tmp/shard"
	sql -c '\copy here FROM '"$tmp/shard"' (FORMAT binary)' >/dev/null
done
for i in 0 1 2; do psql -qX -h 127.0.0.1 -p "$(port $i)" -U postgres -c 'VACUUM ANALYZE' -c CHECKPOINT >/dev/null; done

echo "command: bench/server/citus.sh CITUS $rows $shards"
echo "commit:  $("$tree/bench/report/commit"), $(date -u +%F)"
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), PostgreSQL $(sql -c 'SHOW server_version')"
echo "citus $(sql -c "SELECT extversion FROM pg_extension WHERE extname = 'citus'"), $rows rows of 4 real, $shards shards on 2 workers, $(nproc) CPUs"
sql -f - <<-'SQL'
	CREATE FUNCTION text_of(m kmeans_model) RETURNS text LANGUAGE sql AS $$
		SELECT (m::text::jsonb - '{load_ms,seed_ms,iterate_ms,total_ms,device,strategy}'::text[])::text $$;
	SELECT 'rows equal: ' || (SELECT count(*) FROM dist) || ' ' || (SELECT count(*) FROM here);
SQL
# a step of the relation, and rows that come here by a query, in the order of the shards
sql -c "CREATE TABLE m AS SELECT kmeans_fit('here', '{a,b,c,d}', 4, max_iter => 1) AS m"
before=$(bytes)
sql -c "CREATE TABLE s AS SELECT kmeans_step('dist', '{a,b,c,d}', m) AS s FROM m"
after=$(bytes)
sql -c "SELECT 'kmeans_step(relation) of the distributed table gives the state of the local one: ' ||
	(s::text = kmeans_step('here', '{a,b,c,d}', m)::text) || ', bytes over the loopback device: $((after - before))' FROM s, m"
sql -c "SELECT 'kmeans_evaluate() measures the same: ' || (kmeans_evaluate(m, 'dist')::text = kmeans_evaluate(m, 'here')::text) FROM m"
# the aggregate is pushed down, too
sql -c "SELECT 'kmeans_step() over the distributed table gives the model of the local one: ' ||
	((SELECT kmeans_step((SELECT m FROM m), ARRAY[a,b,c,d]::float8[])::text FROM dist) = (SELECT kmeans_step((SELECT m FROM m), ARRAY[a,b,c,d]::float8[])::text FROM here))" || true
sql -c "EXPLAIN (COSTS off) SELECT feature_sum(ARRAY[a,b,c,d]::float8[]) FROM dist" | sed 's/^/  /' | head -12
given="centroids => '{{0,0,0,0},{2,2,2,0},{4,1,5,1},{1,1,6,0}}', tol => 0, max_iter => 10"
for options in "seed => 1, max_iter => 5" "$given" "init => 'k-means||', max_iter => 3"; do
	before=$(bytes)
	sql -c "CREATE TABLE m_dist AS SELECT kmeans_fit('dist', '{a,b,c,d}', 4, $options) AS m"
	after=$(bytes)
	sql -c "SET gkmeans.strategy = scan" -c "CREATE TABLE m_here AS SELECT kmeans_fit('here', '{a,b,c,d}', 4, $options) AS m"
	sql -c "SET gkmeans.strategy = auto" -c "CREATE TABLE m_kept AS SELECT kmeans_fit('here', '{a,b,c,d}', 4, $options) AS m"
	sql -c "SELECT 'options: $(echo "$options" | sed "s/'/''/g")'"
	sql -c "SELECT format('  same bits: %s (scan), %s (kept); strategy %s', text_of(d.m) = text_of(h.m), text_of(d.m) = text_of(k.m), i.strategy)
		FROM m_dist d, m_here h, m_kept k, kmeans_info(d.m) i"
	sql -c "SELECT format('  per iteration (the final passes included): distributed %s ms, local scan %s ms, ratio %s',
		round((i.iterate_ms / i.iterations)::numeric, 1), round((j.iterate_ms / j.iterations)::numeric, 1),
		round((i.iterate_ms / i.iterations / (j.iterate_ms / j.iterations))::numeric, 2))
		FROM m_dist d, m_here h, kmeans_info(d.m) i, kmeans_info(h.m) j"
	echo "  bytes over the loopback device: $((after - before)), the rows have $((rows * 16))"
	sql -c "DROP TABLE m_dist, m_here, m_kept"
done
