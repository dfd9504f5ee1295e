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
        "`kmeans_agg()` is compared with one `kmeans()` per group. `kmeans()` needs a relation for each group: a temporary table, a view, or one view that filters "
        "by a setting, which a loop sets before each call. The aim was that this loop takes at least 20 times as long as `kmeans_agg()`. With an index on the group "
        "it takes less, as the lines below show; the view of a setting is the fastest form. Without an index it takes thousands of times as long. The aggregate needs no index, no loop and no relation. On 16 CPUs `kmeans_grouped()` was 14.8 times as fast as `kmeans_agg()` "
        "([grouped-16cpu.txt](grouped-16cpu.txt)), on an Intel machine with 2 CPUs and an older commit 6.6 times "
        "([grouped-intel.txt](grouped-intel.txt)).", "",
        *printed("grouped.txt"),
        "## Windows", "",
        "`kmeans()` has a plan node of its own: it does not sort, and keeps only the columns that are needed, so it takes less time than `row_number()`, for which the server sorts. "
        "The lines \"by WindowAgg\" are the same without that node; there an Intel machine with 2 CPUs took 2.31 times as long as `row_number()` and was 2.71 times as fast as PostGIS "
        "([window-intel.txt](window-intel.txt)). `kmeans()` on the table has one thread here, like PostGIS. With two threads it was 35 times as fast, "
        "in a new session 23 times ([window-2threads.txt](window-2threads.txt)).", "",
        *printed("window.txt")])
