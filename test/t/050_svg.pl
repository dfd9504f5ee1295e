# The pictures, opened in a real browser: well-formed, no console message, and as
# many points, clusters and labels as asked. Skipped where there is no Chromium.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($browser) = grep { -x } map { my $name = $_; map { "$_/$name" } split /:/, $ENV{PATH} }
  qw(chromium chromium-browser google-chrome);
plan skip_all => 'there is no chromium here (Debian: apt-get install chromium)' if !$browser;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', q{
	SET client_min_messages = warning;
	CREATE EXTENSION gkmeans;
	CREATE TABLE penguins (species text, island text, bill_length_mm float8, bill_depth_mm float8,
		flipper_length_mm float8, body_mass_g float8, sex text, year int);
});
my $data = $ENV{TESTDIR} . '/test/data/penguins.csv';
$node->safe_psql('postgres', "\\copy penguins FROM '$data' (FORMAT csv, HEADER)");

my $columns = "'{bill_length_mm,bill_depth_mm,flipper_length_mm,body_mass_g}'";
my %picture = (
	features => "kmeans_svg(kmeans_fit('penguins', $columns, 3, standardize => true), 'penguins', 'bill_length_mm', 'flipper_length_mm', title => 'Penguins & <bills>')",
	components => "kmeans_svg(kmeans_fit('penguins', $columns, 20, standardize => true), 'penguins', points => 100)",
	scan => "kmeans_scan_svg('penguins', $columns, 2, 12, standardize => true, n_init => 5)",
	spectral => "kmeans_spectral_svg(kmeans_spectral_fit('penguins', $columns, 4, 100, standardize => true), title => 'Penguins & <graph>')");

# What the browser makes of the picture, counted by a script in a page around it.
my $dir = PostgreSQL::Test::Utils::tempdir();
sub look
{
	my ($name) = @_;
	my $svg = $node->safe_psql('postgres', "SET client_min_messages = warning; SELECT $picture{$name}");
	append_to_file("$dir/$name.svg", $svg);
	append_to_file("$dir/$name.html", qq{<!DOCTYPE html><meta charset="utf-8"><body>$svg<pre id="out"></pre>
<script type="text/plain" id="source">$svg</script><script>
const s = document.querySelector('svg'), n = q => s.querySelectorAll(q).length;
const xml = new DOMParser().parseFromString(document.getElementById('source').textContent, 'image/svg+xml');
const marks = s.querySelectorAll('.cluster > *, .line > g > *, .centroid > *:not(text)');
const box = s.getBoundingClientRect();
let outside = 0;
for (const m of s.querySelectorAll('*')) {
	if (m.closest('title, desc') || !m.getBoundingClientRect) continue;
	const b = m.getBoundingClientRect();
	if (b.left < box.left - 1 || b.top < box.top - 1 || b.right > box.right + 1 || b.bottom > box.bottom + 1) outside++;
}
const text = [...s.querySelectorAll('text')].map(t => t.textContent).join('|');
document.getElementById('out').textContent = JSON.stringify({
	valid: xml.getElementsByTagName('parsererror').length === 0, points: n('.cluster > *'), clusters: n('.cluster'),
	centroids: n('.centroid'), entries: n('.entry'), lines: n('.line'), marks: n('.line > g > *'), suggested: n('.suggested'),
	outside, text, colours: new Set([...s.querySelectorAll('.cluster')].map(g => getComputedStyle(g).fill + (g.firstElementChild || g).tagName)).size });
</script></body>});
	my ($dom, $log) = ('', '');
	IPC::Run::run([ $browser, '--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', "--user-data-dir=$dir/profile",
		'--enable-logging=stderr', '--virtual-time-budget=2000', '--dump-dom', "file://$dir/$name.html" ],
		'>', \$dom, '2>', \$log, IPC::Run::timeout(120));
	unlike($log, qr/CONSOLE/, "$name: no console message");
	my ($json) = $dom =~ m{<pre id="out">(.*?)</pre>}s;
	my %seen;
	$seen{$1} = $2 while ($json // '') =~ /"(\w+)":("[^"]*"|[\w.]+)/g;
	is($seen{valid}, 'true', "$name: well-formed XML");
	is($seen{outside}, 0, "$name: nothing sticks out of the picture");
	return \%seen;
}

my $seen = look('features');
is($seen->{points}, 342, 'every measured penguin is drawn');
is("$seen->{clusters} $seen->{centroids} $seen->{entries} $seen->{colours}", '3 3 3 3', 'three clusters, centroids, entries, colours');
like($seen->{text}, qr/Penguins &amp; &lt;bills&gt;\|.*bill_length_mm\|.*flipper_length_mm\|/, 'title and axes are named');
$seen = look('components');
is($seen->{points}, 100, 'as many points as asked for');
is("$seen->{clusters} $seen->{centroids} $seen->{entries}", '20 20 20', 'twenty clusters');
cmp_ok($seen->{colours}, '>=', 16, 'colours come again with another shape');
like($seen->{text}, qr/principal component 1 \(\d+ % of the variance, standard deviations\)/, 'components are named');
$seen = look('scan');
is("$seen->{lines} $seen->{marks} $seen->{suggested}", '3 33 2', 'three lines over eleven k, two suggestions');
like($seen->{text}, qr/elbow: k = \d+\|.*best silhouette: k = 2\|/, 'the suggested k are named');
$seen = look('spectral');
is("$seen->{clusters} $seen->{points} $seen->{colours}", '4 100 4', 'four clusters of a hundred representatives');
is("$seen->{lines} $seen->{marks} $seen->{suggested}", '1 18 1', 'eighteen eigenvalues, one gap');
like($seen->{text}, qr/Penguins &amp; &lt;graph&gt;\|.*k = 4\|.*principal component 1 of 4 eigenvectors/, 'title, gap and axes are named');

$node->stop;
done_testing();
