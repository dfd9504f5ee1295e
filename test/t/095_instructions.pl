# Instructions per point of the CPU kernels against the recorded ones: a kernel that got
# slower shows on a busy machine, too.
use strict;
use warnings;

use Test::More;

my $out = `bench/instructions --check 2>&1`;
my $status = $?;

plan skip_all => $1 if $out =~ /^skipped: (.*)/m;
my @lines = grep { /^(not )?ok / } split /\n/, $out;
ok(@lines > 0, 'kernels were counted') or diag($out);
ok($_ =~ /^ok /, s/^(not )?ok //r) for @lines;
is($status, 0, 'bench/instructions --check');
done_testing();
