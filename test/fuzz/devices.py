"""A GPU, played by the CPU (test/gpu/fake_gpu.c), that fails at its n-th call: n = 0, 1, 2, ... until it does not.

With device 'gpu' that has to be an error which says so; with 'auto' a warning, and the right
answer by the CPU. Either way the session works on, with the GPU, and nothing is left.
"""
import os
import platform
import shutil
import subprocess
import time

from faults import JOBS, LEFT, SETUP, Job, answers, make_models, make_table, make_wide, rows
from fuzz_common import TREE, Campaign

ROWS = 9000
# Enough points and features that auto takes the GPU
WIDE = make_wide("wide", 10000, 400)
WIDE_ARGS = "'TABLE', '{v}', 30, init => 'random', max_iter => 2"
WIDE_JOBS = [
    rows("kmeans", f"kmeans({WIDE_ARGS})"),
    rows("seed", "kmeans('TABLE', '{v}', 26, init => 'k-means||', max_iter => 2)"),
    rows("labels", f"(SELECT ctid, cluster, distance FROM kmeans_labels({WIDE_ARGS}))"),
    Job("label_column", f"SELECT FROM kmeans('TABLE', '{{v}}', 30, 'label', init => 'random', max_iter => 2); "
        "SELECT hash(string_agg(label::text, ' ' ORDER BY id)) FROM TABLE"),
    Job("step", "SELECT hash(kmeans_step('TABLE', '{v}', (SELECT m FROM wide_models))::text)"),
]
WAYS = ["", "SET gkmeans.strategy = scan; ", "SET gkmeans.chunk_size = '64kB'; ",
        "SET gkmeans.chunk_size = '64kB'; SET gkmeans.memory_limit = '300kB'; ", "SET gkmeans.reader = executor; "]
WARNING = "the GPU failed, the CPU does the job"

campaign = Campaign("devices")


def new_session():
    session = campaign.session("it")
    session.run("SET client_min_messages = warning")
    return session


def one(session, job, table, device, settings, fault, right):
    """Whether there was a call to fail."""
    label = f"{job.name}, {settings}device {device}, {fault}"
    statement = f"BEGIN; {job.on(table)}"
    outcome = session.run(f"{settings}SET gkmeans.device = {device}; SET gkmeans.gpu_fault = '{fault}'; {statement}")
    warnings = [message for message, _ in outcome.notices if message.startswith(WARNING)]
    session.run("ROLLBACK", False)
    if outcome.ok:
        campaign.check(outcome.value == right, f"{label}: another answer", session)
        campaign.check(not warnings or device == "auto", f"{label}: the CPU did it", session)
        campaign.check(len(warnings) <= 1, f"{label}: {len(warnings)} warnings", session)
    else:
        wanted = "53200" if "memory" in fault else "58000"
        campaign.check(device == "gpu" and outcome.state == wanted, f"{label}: {outcome}", session)
    if outcome.ok and not warnings:
        return False
    left = session.run(LEFT, False)
    campaign.check(left.ok and left.value == "0|0|0", f"{label}: left over: {left}", session)
    again = session.run(f"SET gkmeans.gpu_fault = ''; SET gkmeans.device = gpu; {statement}")
    campaign.check(again.ok and again.value == right and not again.notices, f"{label}: not well afterwards: {again}", session)
    session.run("ROLLBACK; RESET ALL; SET client_min_messages = warning", False)
    return True


def sweep(rng, job, table, device, settings, right):
    """All calls, or some of them where each takes long; how many failed."""
    session = new_session()
    kind = rng.choice(("error", "memory"))
    failed = one(session, job, table, device, settings, f"open-{kind}:0", right)
    n = 0
    while campaign.failed < campaign.args.failures:
        if not one(session, job, table, device, settings, f"{kind}:{n}", right):
            break
        failed += 1
        session.script.clear()
        n += rng.randint(1, 4) if table == "wide" else 1
        if n % 10 == 0:
            session.run(f"VACUUM {table}", False)
    session.close()
    return failed


def lost(job, right):
    """A device that is lost to its session: auto goes on without it, and so does the next session with it."""
    session = new_session()
    session.run(f"SET gkmeans.gpu_fault = 'trap:0'; SET gkmeans.device = auto; BEGIN; {job.on('wide')}")
    session.run("ROLLBACK; SET gkmeans.gpu_fault = ''", False)
    outcome = session.run(f"BEGIN; {job.on('wide')}")
    campaign.check(outcome.ok and outcome.value == right, f"{job.name} after the device was lost: {outcome}", session)
    session.close()


def main():
    if not shutil.which(os.environ.get("CC", "cc")):
        print("skipped: there is no C compiler")
        return
    library = subprocess.run(["pg_config", "--pkglibdir"], capture_output=True, text=True, check=True).stdout.strip()
    library = os.path.join(library, "gkmeans_gpu.so")
    if os.path.lexists(library):
        os.remove(library)
    with open("/proc/cpuinfo") as f:
        fma = ["-mfma"] if platform.machine() == "x86_64" and " fma " in f.read() else []
    subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", *fma, "-ffp-contract=off", "-O2", "-fPIC", "-shared",
                    "-I" + os.path.join(TREE, "src"), "-o", library, os.path.join(TREE, "test", "gpu", "fake_gpu.c"), "-lm"],
                   check=True)
    first = campaign.session("first")
    wide_models = "CREATE TABLE wide_models AS SELECT kmeans_fit('wide', '{v}', 30, init => 'random', max_iter => 1) AS m"
    for statement in ("SET client_min_messages = error; SET gkmeans.device = cpu", SETUP, make_table("pts", ROWS),
                      make_models("pts"), WIDE, wide_models, "VACUUM ANALYZE"):
        campaign.sane(first.run(statement, False))
    right = answers(first, "pts")[0]
    wide_right = answers(first, "wide", WIDE_JOBS)[0]
    first.close()
    todo = [(job, "pts", "gpu", settings, right) for job in JOBS for settings in WAYS]
    todo += [(job, "wide", "auto", settings, wide_right) for job in WIDE_JOBS for settings in WAYS[:2]] * 3
    total, used = 0, set()
    campaign.start = time.monotonic()  # all that was no attack
    for rng in campaign.cases():
        order = list(range(len(todo)))
        type(rng)(campaign.seed).shuffle(order)
        job, table, device, settings, answer = todo[order[campaign.case % len(todo)]]
        failed = sweep(rng, job, table, device, settings, answer[job.name])
        total += failed
        if failed:
            used.add(job.name)
        if table == "wide":
            lost(job, answer[job.name])
    print(f"{total} calls of the GPU have failed, of: {', '.join(sorted(used))}")
    campaign.finish()


main()
