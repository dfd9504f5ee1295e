# make says what it compiles for the GPU and how long nvcc took: by an nvcc that only writes files.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

my $tree = $ENV{TESTDIR};
my $dir = PostgreSQL::Test::Utils::tempdir;
my @sources = glob "$tree/src/gpu/*.cu";
plan skip_all => 'there is no src/gpu' unless @sources;

# nvcc: fails for a file of the name in $NVCC_FAILS, else makes what -o names
my $nvcc = "$dir/nvcc";
PostgreSQL::Test::Utils::append_to_file($nvcc, <<'SH');
#!/bin/sh
case "$*" in *"$NVCC_FAILS") echo 'error: no such thing' >&2; exit 2 ;; esac
[ -z "$NVCC_SLEEPS" ] || case "$*" in *"$NVCC_SLEEPS") sleep 2 ;; esac
while [ $# -gt 0 ]; do [ "$1" != -o ] || : >"$2"; shift; done
SH
chmod 0755, $nvcc;

sub build
{
	my ($out, %env) = ('', NVCC_FAILS => 'none', NVCC_SLEEPS => '', @_);
	local @ENV{keys %env} = values %env;
	local $ENV{MAKEFLAGS} = '';
	$out = `make -C $tree -f src/gpu/Makefile.gpu gpu NVCC=$nvcc GPU_BUILD=$dir/build GPU_LIB=$dir/lib.so 2>&1`;
	return ($? >> 8, $out);
}

my ($status, $out) = build(NVCC_SLEEPS => 'gk_gpu_seed.cu');
is($status, 0, 'it builds');
is(() = $out =~ /^CUDA: compiling gk_gpu\w*\.cu, one of ${\scalar @sources} files$/mg, scalar @sources, 'a line before each file');
is(() = $out =~ /^CUDA: gk_gpu\w*\.cu took \d+ s$/mg, scalar @sources, 'and one after it');
like($out, qr/^CUDA: gk_gpu_seed\.cu took [2-9]\d* s$/m, 'with its time');
like($out, qr/^CUDA: linking ${\scalar @sources} objects, which took nvcc [2-9]\d* s$/m, 'and the time of all');

($status, $out) = build();
is($status, 0, 'nothing to do');
unlike($out, qr/CUDA/, 'and nothing to say');

unlink "$dir/lib.so", "$dir/build/gk_gpu_seed.o";
($status, $out) = build();
is(() = $out =~ /took \d+ s$/mg, 1, 'one file again');
like($out, qr/^CUDA: linking ${\scalar @sources} objects/m, 'and the link');

unlink "$dir/build/gk_gpu_seed.o";
($status, $out) = build(NVCC_FAILS => 'gk_gpu_seed.cu');
isnt($status, 0, 'a file that does not compile: an error');
like($out, qr/error: no such thing/, 'which is shown');
unlike($out, qr/took|linking/, 'and no time');

done_testing();
