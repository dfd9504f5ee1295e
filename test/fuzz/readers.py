"""Bytes into the readers of models, states, options and kmeans_pass messages, without a server (readers.c).

Builds build/fuzz/readers, with gcc's sanitizers, and hands its arguments on. clang's libFuzzer, which
looks which inputs reach new code, makes better inputs of the same corpus, for as long as one likes:

    make build/fuzz/readers-libfuzzer && mkdir -p build/fuzz/corpus
    build/fuzz/readers-libfuzzer -dict=test/fuzz/readers.dict -max_len=4096 build/fuzz/corpus test/fuzz/corpus
"""
import os
import subprocess
import sys

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = "build/fuzz/readers"

os.chdir(TREE)
libraries = subprocess.run([os.environ.get("PG_CONFIG", "pg_config"), "--pkglibdir"], capture_output=True, text=True)
if not os.path.exists(os.path.join(libraries.stdout.strip(), "libpgcommon.a")):
    print("skipped: there is no libpgcommon.a (postgresql-server-dev)")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)
if subprocess.run(["make", "-s", "-j2", "WITH_CUDA=0", PROGRAM]).returncode:
    print("readers: the build failed\n0 passed, 1 failed")
    sys.exit(1)
done = subprocess.run([PROGRAM, *sys.argv[1:], "test/fuzz/corpus"])
sys.exit(1 if done.returncode else 0)
