"""bench/results/groups.md: what grouped.sh and window.sh printed."""
import os

from about import RESULTS


def printed(name):
    with open(os.path.join(RESULTS, name), encoding="utf-8") as f:
        return ["```text", f.read().rstrip(), "```", ""]


def page():
    return "\n".join([
        "# Groups and windows: times", "",
        "What `bench/server/grouped.sh` and `bench/server/window.sh` printed. Their headers say what the lines are. Written by `bench/run report`; do not edit.", "",
        "## Groups", "",
        "One `kmeans()` per group is what `kmeans_agg()` is compared with. `kmeans()` takes a relation, and a group is none until somebody makes it one: "
        "a temporary table or a view for each group; or one view whose `WHERE` is a setting, which a loop sets before each call. That view with an index is the "
        "best such loop, and it is well below the aim of 20 times the time of `kmeans_agg()`; so is a table for each group that is there already, where only the "
        "calls are left. Relations made for each group take a third of the aim to all of it, and every form is beyond it by far without an index on the group. "
        "The aggregate needs no index, no loop and no relation. On 16 CPUs `kmeans_grouped()` was 14.8 times as fast as `kmeans_agg()` "
        "([grouped-16cpu.txt](grouped-16cpu.txt)), on an Intel machine with 2 CPUs and an older commit 6.6 times "
        "([grouped-intel.txt](grouped-intel.txt)).", "",
        *printed("grouped.txt"),
        "## Windows", "",
        "`kmeans()` has a plan node of its own: it sorts nothing and keeps only the columns that are wanted, so it takes less time than `row_number()`, for which the server sorts. "
        "The same by the server's WindowAgg is beside it, with which an Intel machine with 2 CPUs had reached 2.31 times `row_number()` and was 2.71 times as fast as PostGIS "
        "([window-intel.txt](window-intel.txt)). `kmeans()` on the table has one thread here, as PostGIS has; with two it was 35 times as fast, "
        "in a new session 23 times ([window-2threads.txt](window-2threads.txt)).", "",
        *printed("window.txt")])
