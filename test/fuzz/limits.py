"""Limits: of temporary files, the disk, memory, threads, open files, workers, buffers, connections.

Each statement has to give the right answer, or an error of SQL that says what there is too little
of; afterwards, without the limit, the session works on and nothing is left.
"""
import os
import resource
import subprocess
import time

from faults import JOBS, LEFT, SETUP, Server, answers, make_models, make_table, rows, some_settings, status
from fuzz_common import Campaign

ROWS = 20000
SMALL = "SET gkmeans.memory_limit = '300kB'; SET gkmeans.chunk_size = '64kB'; SET work_mem = '64kB'; "
PARTITIONS = """
CREATE TABLE parts (LIKE pts) PARTITION BY RANGE (id);
DO $$ BEGIN
    FOR i IN 0 .. 149 LOOP
        EXECUTE format('CREATE TABLE parts_%s PARTITION OF parts FOR VALUES FROM (%s) TO (%s)', i, i * 40, i * 40 + 40);
    END LOOP;
END $$;
INSERT INTO parts SELECT * FROM pts WHERE id < 6000;
"""
PARTS_JOBS = [
    rows("partitions", "kmeans('parts', '{a,b,c,d}', 12, init => 'k-means||', max_iter => 2)"),
    rows("many seeds", "kmeans('parts', '{a,b,c,d}', 200, max_iter => 1)"),
    rows("grouped partitions", "kmeans_grouped('parts', '{tenth}', '{a,b,c,d}', 4, max_iter => 2)"),
]

# A MOCK of what gkmeans uses of Citus: its catalogs; all shards are on this server
SHARDS = """
CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass, partmethod "char", repmodel "char", colocationid int, partkey text);
CREATE FUNCTION pg_catalog.column_to_column_name(regclass, text) RETURNS text LANGUAGE sql STABLE AS $$ SELECT $2 $$;
CREATE TABLE pg_catalog.pg_dist_shard (logicalrelid regclass, shardid bigint);
CREATE TABLE dist (LIKE pts);
CREATE TABLE dist_101 AS SELECT * FROM pts WHERE id <= 5000;
CREATE TABLE dist_102 AS SELECT * FROM pts WHERE id > 5000 AND id <= 5100;
CREATE TABLE dist_103 AS SELECT * FROM pts WHERE id > 5100;
INSERT INTO pg_dist_partition VALUES ('dist', 'h', 's', 1);
INSERT INTO pg_dist_shard VALUES ('dist', 101), ('dist', 102), ('dist', 103);
CREATE TABLE pg_catalog.pg_dist_shard_placement AS
    SELECT shardid, split_part(current_setting('unix_socket_directories'), ',', 1) AS nodename, current_setting('port')::int AS nodeport
    FROM pg_dist_shard;
CREATE FUNCTION pg_catalog.shard_name(regclass, bigint) RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'dist_' || $2 $$;
"""
SHARDS_JOB = rows("shards", "kmeans('dist', '{a,b,c,d}', 7, max_iter => 3)")

# How the server is started
SERVERS = [
    "",
    "-c shared_buffers=128kB -c max_files_per_process=64",
    "-c max_worker_processes=1 -c max_parallel_workers=1 -c max_parallel_workers_per_gather=1",
    "-c max_connections=10 -c superuser_reserved_connections=1 -c allow_system_table_mods=on",
]
# Buffers that are all pinned, and a process or segment that the system refuses
TOO_LITTLE = ("53000", "53200")
LIMITS = {"as": resource.RLIMIT_AS, "nproc": resource.RLIMIT_NPROC, "nofile": resource.RLIMIT_NOFILE}

campaign = Campaign("limits")


class Limits:
    def __init__(self, server):
        self.server = server
        self.disk = None
        self.skipped = {}

    # ---- one limit each: (settings, before, after, SQLSTATEs) ----

    def temporary_files(self, rng, session):
        return f"{SMALL}SET temp_file_limit = {int(2 ** rng.uniform(0, 14))}; ", ("53400",)

    def full_disk(self, rng, session):
        if self.disk is None:
            return None
        with open(os.path.join(self.disk, "ballast"), "wb") as f:
            space = os.statvfs(self.disk)
            f.write(bytes(int(space.f_bavail * space.f_frsize * rng.uniform(0, 1))))
        return f"{SMALL}SET temp_tablespaces = small; ", ("53100",)

    def memory(self, rng, session):
        size = status(session.pid, "VmSize") * 1024
        self.limit(session, "as", size + int(2 ** rng.uniform(10, 28)))
        return some_settings(rng), ("53200", "53000", "58000", "58030")

    def threads(self, rng, session):
        self.limit(session, "nproc", 1)
        return f"SET gkmeans.threads = {rng.randint(2, 40)}; ", TOO_LITTLE

    def files(self, rng, session):
        now = max(int(fd) for fd in os.listdir(f"/proc/{session.pid}/fd"))
        self.limit(session, "nofile", now + rng.randint(-2, 12))
        return some_settings(rng), ("53000",)

    def nothing(self, rng, session):
        """The server's own limits are enough."""
        return some_settings(rng), TOO_LITTLE

    def limit(self, session, what, value):
        """The soft one, as the server's user: root need not be allowed to."""
        subprocess.run([*self.server.as_owner, "prlimit", f"--pid={session.pid}", f"--{what}={value}:"], check=True)
        self.limited = what

    KINDS = ("temporary_files", "full_disk", "memory", "threads", "files", "nothing")

    def mount(self, session):
        """A small disk as a tablespace, where root may mount one."""
        disk = os.path.join(os.path.dirname(self.server.data), "small")
        os.makedirs(disk, exist_ok=True)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True).returncode:
            return
        space = os.path.join(disk, "space")
        os.mkdir(space)
        os.chown(space, self.server.owner.pw_uid, self.server.owner.pw_gid)
        self.disk = disk
        campaign.sane(session.run(f"CREATE TABLESPACE small LOCATION '{space}'", False))

    def unmount(self):
        if self.disk is not None:
            self.server.stop()
            subprocess.run(["umount", self.disk], check=True)

    def one(self, rng, job, table, right, kinds):
        kind = rng.choice(kinds)
        session = campaign.session(kind)
        session.run("SET client_min_messages = error; LOAD 'gkmeans'")
        if rng.random() < 0.5 and kind != "threads":  # a session that has done all that before
            session.run(f"BEGIN; {job.on(table)}")
            session.run("ROLLBACK", False)
        self.limited = None
        how = getattr(self, kind)(rng, session)
        if how is None:
            self.skipped[kind] = "root may not mount a disk here"
            return None
        settings, states = how
        label = f"{job.name}, {kind}, {settings}"
        outcome = session.run(f"{settings}BEGIN; {job.on(table)}")
        if not session.lost and self.limited is not None:
            hard = resource.getrlimit(LIMITS[self.limited])[1]
            self.limit(session, self.limited, "unlimited" if hard == resource.RLIM_INFINITY else hard)
        if self.disk is not None and kind == "full_disk":
            os.remove(os.path.join(self.disk, "ballast"))
        if outcome.ok:
            campaign.check(outcome.value == right, f"{label}: another answer", session)
        else:
            campaign.check(outcome.state in states, f"{label}: {outcome}", session)
        if not session.lost:
            session.run("ROLLBACK; RESET ALL; SET client_min_messages = error", False)
            left = session.run(LEFT, False)
            campaign.check(left.ok and left.value == "0|0|0", f"{label}: left over: {left}", session)
            again = session.run(f"BEGIN; {job.on(table)}")
            campaign.check(again.ok and again.value == right or again.state in TOO_LITTLE and kind == "nothing",
                           f"{label}: not well afterwards: {again}", session)
            session.run("ROLLBACK", False)
        session.close()
        if table == "pts" and rng.random() < 0.1:
            with_vacuum = campaign.session()
            with_vacuum.run("VACUUM pts", False)
            with_vacuum.close()
        return outcome.ok


def connections(right):
    """No connection is left for the shards."""
    session = campaign.session("shards")
    session.run("SET client_min_messages = error")
    fine = session.run(SHARDS_JOB.on("dist"))
    campaign.check(fine.ok and fine.value == right, f"shards: {fine}", session)
    others = []
    while True:
        try:
            others.append(type(session)("other"))
        except Exception:  # no more
            break
    outcome = session.run(SHARDS_JOB.on("dist"))
    campaign.check(outcome.state == "08006" and "too many clients" in (outcome.detail or ""), f"shards without connections: {outcome}", session)
    for other in others:
        other.close()
    # their processes end when they have seen it
    while (again := session.run(SHARDS_JOB.on("dist"))).state == "08006" and campaign.left() > -30:
        pass
    campaign.check(again.ok and again.value == right, f"shards afterwards: {again}", session)
    session.close()


def attack(first, server, limits):
    limits.mount(first)
    first.run("VACUUM ANALYZE", False)
    right = answers(first, "pts")[0]
    right.update(answers(first, "parts", PARTS_JOBS)[0])
    campaign.sane(first.run(SHARDS, False))
    fit = rows("shards", "kmeans(ARGS, 7, max_iter => 3)")
    right["shards"] = answers(first, "pts", [fit])[0]["shards"]
    first.close()
    done, at = {}, None
    campaign.start = time.monotonic()  # all that was no attack
    for rng in campaign.cases():
        wanted = campaign.case // 25 % len(SERVERS)
        if wanted != at:
            at = wanted
            server.restart(SERVERS[at])
            if at == 3:
                connections(right["shards"])
        job = rng.choice(JOBS + PARTS_JOBS * 4)
        table = "parts" if job in PARTS_JOBS else "pts"
        kinds = ("nothing",) if at == 1 else ("nothing", "memory", "files") if at == 2 else limits.KINDS
        ok = limits.one(rng, job, table, right[job.name], kinds)
        done[ok] = done.get(ok, 0) + 1
    left = server.temporary()
    campaign.check(not left, f"files are left: {left}")
    campaign.check(not server.crashes(), f"crashes: {server.crashes()[:5]}")
    print(f"{done.get(True, 0)} right answers, {done.get(False, 0)} errors")


def main():
    first = campaign.session("first")
    server = Server(first)
    first.close()
    server.restart("-c allow_system_table_mods=on")
    first = campaign.session("first")
    for statement in (SETUP, make_table("pts", ROWS), make_models("pts"), PARTITIONS):
        campaign.sane(first.run(statement, False))
    limits = Limits(server)
    try:
        attack(first, server, limits)
    finally:
        limits.unmount()
    for kind, why in limits.skipped.items():
        print(f"skipped: {kind}: {why}")
    campaign.finish()


main()
