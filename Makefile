# gkmeans: k-means inside PostgreSQL
#
#   make && make install    build and install (the GPU part too when nvcc is found)
#   make demo               watch it work: needs nothing installed but make
#   make test               every test suite, on a private throw-away server
#
# WITH_CUDA=0|1  without or with the GPU part      NVCC=...       which nvcc
# OPTFLAGS=...   extra compiler flags              PG_CONFIG=...  which PostgreSQL

EXTENSION = gkmeans gkmeans_vector
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" gkmeans.control)
MODULE_big = gkmeans
DATA = $(wildcard sql/gkmeans--*.sql sql/gkmeans_vector--*.sql)
ENGINE_DIRS := src/core $(patsubst %/,%,$(wildcard src/core/*/)) src/cpu $(patsubst %/,%,$(wildcard src/cpu/*/))
ENGINE_SRCS := $(sort $(wildcard $(ENGINE_DIRS:%=%/*.c)))
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/*/*.c) $(ENGINE_SRCS)))

REGRESS := $(sort $(basename $(notdir $(wildcard test/sql/*.sql))))
REGRESS_OPTS = --inputdir=test --load-extension=gkmeans

# Every kernel must give the same bits, and only fmaf() in the source may fuse a
# multiply and an add: the compiler must not. Never add -ffast-math (it would also
# change how the whole server process treats denormals) or a -march flag (kernels
# choose their instructions at run time). -fno-math-errno changes errno, not results.
GK_FLAGS = -ffp-contract=off -fno-math-errno -fopenmp-simd -pthread
OPTFLAGS ?=
PG_CPPFLAGS = -I$(CURDIR)/src -I$(libpq_srcdir)
PG_CFLAGS = $(OPTFLAGS) $(GK_FLAGS) -MMD -MP
SHLIB_LINK = $(libpq) -pthread -lm -ldl

# No JIT bitcode: it would compile our arithmetic a second time, by another compiler
# with other flags. The kernels gain nothing from being inlined into expressions.
override with_llvm = no

NVCC ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
WITH_CUDA ?= $(if $(NVCC),1,0)
GPU_MAKE := $(if $(filter 1,$(WITH_CUDA)),$(wildcard src/gpu/Makefile.gpu))

EXTRA_CLEAN = $(OBJS:.o=.d) build tmp_check log gkmeans-*.zip

all:

PG_CONFIG ?= pg_config
# Debian installs pg_config and PGXS without the headers, so look for those
ifneq ($(wildcard $(shell $(PG_CONFIG) --includedir-server 2>/dev/null)/postgres.h),)
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)
all: cuda-note
# Objects that were compiled for another server, or with other flags, are compiled again
COMPILED_FOR = $(strip $(includedir_server) $(VERSION) $(CC) $(CFLAGS))
$(OBJS): build/compiled-for
build/compiled-for: $(if $(subst =$(COMPILED_FOR),,=$(strip $(file <build/compiled-for))),FORCE)
	$(shell mkdir -p $(@D))$(file >$@,$(COMPILED_FOR))
.PHONY: FORCE
ifneq ($(GPU_MAKE),)
include $(GPU_MAKE)
endif
-include $(OBJS:.o=.d)
else
all install installcheck uninstall:
	@echo 'PostgreSQL server headers were not found (PG_CONFIG = $(PG_CONFIG)).'
	@echo 'On Debian or Ubuntu, with the version of your server:'
	@echo '    apt-get install build-essential postgresql-15 postgresql-server-dev-15'
	@echo 'or let "make demo" or "make test" install them. For a PostgreSQL that is not'
	@echo 'in PATH: make PG_CONFIG=/path/to/pg_config'
	@exit 1
clean:
	rm -rf gkmeans.so $(OBJS) $(EXTRA_CLEAN)
endif

cuda-note:
ifneq ($(GPU_MAKE),)
	@echo '✓ CUDA: building gkmeans_gpu.so with $(NVCC)'
else ifeq ($(WITH_CUDA),0)
	@echo '✗ CUDA: $(if $(NVCC),switched off (WITH_CUDA=0),nvcc was not found), building for the CPU only'
else
	@echo '✗ CUDA: src/gpu is missing, building for the CPU only'
endif

# Engine tests: no server, and no PostgreSQL header in sight, which is what keeps
# src/core and src/cpu free of PostgreSQL. One program per test/unit/test_*.c, linked
# with the engine and with any other file in test/unit.
UNIT_BUILD ?= build/unit
UNIT_CC ?= $(if $(filter default,$(origin CC)),cc,$(CC))
SANITIZE ?= -fsanitize=address,undefined -fno-sanitize-recover=all
# The oracle's fmaf() is the same with the instruction, and ten times as fast
UNIT_FMA := $(if $(filter x86_64,$(shell uname -m)),$(if $(shell grep -m1 ' fma ' /proc/cpuinfo),-mfma))
UNIT_CFLAGS = $(UNIT_OPTIMIZE) -g1 $(UNIT_FMA) $(SANITIZE) $(GK_FLAGS) -Wall -Wextra -Werror -Isrc -Itest/unit -MMD -MP
UNIT_OPTIMIZE = -O2
# The longest come first, those that wait for each other's threads before all: the others have the CPUs meanwhile
UNIT_LONG := $(patsubst %,test/unit/test_%.c,spread spread_ingest passes fit seed int16)
UNIT_TESTS := $(UNIT_LONG) test/gpu/test_several.c $(filter-out $(UNIT_LONG),$(sort $(wildcard test/unit/test_*.c)))
UNIT_BINS := $(patsubst %.c,$(UNIT_BUILD)/%,$(notdir $(UNIT_TESTS)))
UNIT_LIB := $(patsubst %.c,$(UNIT_BUILD)/%.o,$(notdir $(ENGINE_SRCS) $(filter-out $(UNIT_TESTS),$(wildcard test/unit/*.c))))

define unit-rule
$(UNIT_BUILD)/%.o: $(1)/%.c
	@mkdir -p $(UNIT_BUILD)
	$$(UNIT_CC) $$(UNIT_CFLAGS) -c -o $$@ $$<
endef
$(foreach dir,$(ENGINE_DIRS) test/unit test/gpu,$(eval $(call unit-rule,$(dir))))

# These take up to two minutes each at -O2, a quarter of that at -O1
$(patsubst %,$(UNIT_BUILD)/gk_cpu_%.o,smallk_avx512 smallk_avx2 avx512 avx2): UNIT_OPTIMIZE = -O1

$(UNIT_BINS): $(UNIT_BUILD)/%: $(UNIT_BUILD)/%.o $(UNIT_LIB)
	$(UNIT_CC) $(UNIT_CFLAGS) -o $@ $^ -lm -ldl

# Several devices in one fit, on two that the CPU plays
$(UNIT_BUILD)/test_several.o $(UNIT_BUILD)/fake_gpu.o: UNIT_CFLAGS += -fPIC -DFAKE_GPUS=2
$(UNIT_BUILD)/gkmeans_gpu.so: $(UNIT_BUILD)/fake_gpu.o
	$(UNIT_CC) $(UNIT_CFLAGS) -shared -o $@ $^ -lm
run-test_several: $(UNIT_BUILD)/gkmeans_gpu.so
run-test_several: UNIT_ARGS = $(UNIT_BUILD) small

-include $(wildcard $(UNIT_BUILD)/*.d)

# make unit UNIT=test_finish runs one of them; -j several at a time, -k all of them
UNIT_RUNS := $(patsubst $(UNIT_BUILD)/%,run-%,$(UNIT_BINS))
unit: $(if $(UNIT),$(UNIT:%=run-%),$(UNIT_RUNS))
$(if $(filter-out $(notdir $(UNIT_BINS)),$(UNIT)),$(error UNIT=$(UNIT): the tests are $(notdir $(UNIT_BINS))))

# (On the stacks that AddressSanitizer makes to see returned addresses used, GCC 13.2 misplaces vectors: its bug 110027)
$(UNIT_RUNS): run-%: $(UNIT_BUILD)/%
	@echo '# $*'
	@ASAN_OPTIONS="$$ASAN_OPTIONS:detect_stack_use_after_return=0" $(UNIT_RUN) $< $(UNIT_ARGS) || { echo "not ok - $* exited with status $$?"; exit 1; }

# The readers of bytes from outside, attacked without a server: see test/fuzz/readers.py. They
# are glue code, so this takes PostgreSQL's headers and libpgcommon.
FUZZ_SRCS := $(filter-out %/fail_nth.c,$(wildcard test/fuzz/*.c)) \
	$(patsubst %,src/%.c,functions/fn_options pg/pg_args pg/pg_error relation/rel_rules relation/rel_value relation/rel_vector rescan/rescan_wire \
	types/model types/model_binary types/model_text_in types/model_text_out types/state types/state_step types/state_sum)
FUZZ_HEADERS := $(wildcard src/*.h src/*/*.h src/*/*/*.h test/fuzz/*.h)
FUZZ_CFLAGS = -O1 -g $(GK_FLAGS) -fwrapv -fno-strict-aliasing -Wall -Isrc -Itest/fuzz \
	-isystem $(shell $(PG_CONFIG) --includedir-server)
FUZZ_LIBS = $(patsubst %,$(shell $(PG_CONFIG) --pkglibdir)/lib%.a,pgcommon pgport) -pthread -lm -ldl

build/fuzz/readers: $(FUZZ_SRCS) $(FUZZ_HEADERS) $(UNIT_LIB)
	@mkdir -p build/fuzz
	$(UNIT_CC) $(FUZZ_CFLAGS) $(SANITIZE) -o $@ $(FUZZ_SRCS) $(UNIT_LIB) $(FUZZ_LIBS)

# A question whose preparation does not suit the rows has coordinates that no int64 holds: any
# will do.
build/fuzz/readers-libfuzzer: Makefile $(FUZZ_SRCS) $(FUZZ_HEADERS) $(ENGINE_SRCS)
	@mkdir -p build/fuzz
	clang $(FUZZ_CFLAGS) -fsanitize=fuzzer,address,undefined -fno-sanitize=float-cast-overflow -fno-sanitize-recover=all \
		-o $@ $(filter-out %/readers_main.c,$(FUZZ_SRCS)) $(ENGINE_SRCS) $(FUZZ_LIBS)

# make tap PROVE_TESTS=test/t/002_privileges.pl runs one of them, PROVE_FLAGS=-j2 two at a time. The
# longest come first: one of them alone at the end would leave the other CPUs idle
TAP_LONG := test/t/070_cron.pl test/t/001_cancel.pl
PROVE_TESTS ?= $(TAP_LONG) $(filter-out $(TAP_LONG),$(sort $(wildcard test/t/*.pl)))
PROVE_FLAGS ?=
tap: all
	test/with-cluster --tap prove $(PROVE_FLAGS) $(PROVE_TESTS)

test-gpu: all
	@if [ -x test/gpu/run ]; then test/gpu/run; else echo 'skipped: there is no test/gpu/run'; fi

# Random attacks: SECONDS of each campaign. A failure names its seed.
SECONDS ?= 3600
SEED ?= $(shell date +%Y%m%d)
fuzz: all
	test/fuzz/run --seconds $(SECONDS) --seed $(SEED)

# These two begin with installing what is missing, so they work on a bare Debian
# where this very file could not include PGXS when make read it.
test:
	@test/bootstrap test
	@test/run

demo:
	@test/bootstrap build
	@echo 'Building ...'
	@$(MAKE) -s all
	@test/with-cluster test/demo

# Benchmarks: the engine, a private server, a GPU; then the pages made from what they found
bench: all
	bench/run engine
bench-server: all
	bench/run server
bench-gpu:
	bench/run gpu
bench-report:
	bench/run report

# The Debian packages, into build/deb; with nvcc the GPU package too. As root, and with
# debootstrap, they are installed and tried in a fresh Debian.
test-deb:
	@test/bootstrap deb
	@test/package $(if $(filter 1,$(WITH_CUDA)),cuda,deb) chroot

DIST ?= gkmeans-$(EXTVERSION).zip
dist:
	git archive --format=zip --prefix=gkmeans-$(EXTVERSION)/ -o $(DIST) HEAD

.PHONY: all install installcheck uninstall clean cuda-note unit $(UNIT_RUNS) tap fuzz test-gpu test test-deb demo dist \
	bench bench-server bench-gpu bench-report
