/*
 * model_binary.c - binary input and output of kmeans_model.
 *
 * All numbers are in network byte order:
 *   int32   magic, version, k, d, history_len, ncolumns
 *   int32   k_asked, iterations, init, distance, unit_exp
 *   byte    standardize, converged, columns_array (0 or 1)
 *   int64   seed, rows_used, rows_skipped
 *   float8  inertia, load_ms, context_ms, upload_ms, seed_ms, iterate_ms, total_ms
 *   float8  center[d], scale[d]; int32 expo[d]
 *   float8  centroids[k][d]; int64 size[k]; float8 inertia[k], radius[k]
 *   float8  history inertia[history_len], history shift[history_len]
 *   string  device, strategy, columns[ncolumns]: int32 length, then the bytes in
 *           the client's encoding, in a text form of a kmeans_state in UTF-8
 *   int32   weight_exp, where the fit had weights
 * and of a model that fills in NULLs
 *   int32   magic
 *   float8  fill[d]
 * and of a spectral model
 *   int32   magic, k, number of eigenvalues, k_asked, neighbors, affinity, laplacian, choice,
 *           components, cut_off
 *   float8  gamma, strength, graph_ms, eigen_ms, embed_ms, eigenvalues
 *   int32   cluster[k] of each representative
 *   float8  weight[k] of each, where the fit had weights; the first models have none
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "pg/pg_compat.h"
#include "types/model.h"

#define KM_WIRE_INVALID "invalid kmeans_model: "
#include "pg/pg_wire.h"

PG_FUNCTION_INFO_V1(kmeans_model_send);
PG_FUNCTION_INFO_V1(kmeans_model_recv);

#define SPECTRAL_MAGIC	0x6b6d7331	/* "kms1" */
#define FILL_MAGIC		0x6b6d6631	/* "kmf1" */

/* ---- output ---- */

static void
send_numbers(StringInfo buf, const double *v, int64 n)
{
	for (int64 i = 0; i < n; i++)
	{
		km_look_for_cancel(i);
		pq_sendfloat8(buf, v[i]);
	}
}

static void
send_string(StringInfo buf, const char *s, int encoding)
{
	char	   *converted = pg_server_to_any(s, strlen(s), encoding);
	int			len = strlen(converted);

	pq_sendint32(buf, len);
	pq_sendbytes(buf, converted, len);
}

static void
send_spectral(StringInfo buf, const GkModel *m)
{
	const GkSpectral *s = &m->spectral;

	pq_sendint32(buf, SPECTRAL_MAGIC);
	pq_sendint32(buf, s->k);
	pq_sendint32(buf, s->neigenvalues);
	pq_sendint32(buf, s->asked.k);
	pq_sendint32(buf, s->asked.neighbors);
	pq_sendint32(buf, s->asked.affinity);
	pq_sendint32(buf, s->asked.laplacian);
	pq_sendint32(buf, s->choice);
	pq_sendint32(buf, s->components);
	pq_sendint32(buf, s->cut_off);
	pq_sendfloat8(buf, s->asked.gamma);
	pq_sendfloat8(buf, s->strength);
	pq_sendfloat8(buf, s->graph_ms);
	pq_sendfloat8(buf, s->eigen_ms);
	pq_sendfloat8(buf, s->embed_ms);
	send_numbers(buf, s->eigenvalue, s->neigenvalues);
	for (int i = 0; i < m->k; i++)
		pq_sendint32(buf, s->cluster[i]);
	if (s->weight != NULL)
		send_numbers(buf, s->weight, m->k);
}

void
kmeans_model_put(StringInfo buf, const KmeansModel *v, int encoding)
{
	char	  **columns = kmeans_model_columns(v);
	GkModel		m;

	kmeans_model_view(v, &m);
	pq_sendint32(buf, KMEANS_MODEL_MAGIC);
	pq_sendint32(buf, KMEANS_MODEL_VERSION);
	pq_sendint32(buf, m.k);
	pq_sendint32(buf, m.prep.d);
	pq_sendint32(buf, m.history_len);
	pq_sendint32(buf, v->ncolumns);
	pq_sendint32(buf, m.k_asked);
	pq_sendint32(buf, m.iterations);
	pq_sendint32(buf, m.init);
	pq_sendint32(buf, m.prep.distance);
	pq_sendint32(buf, m.prep.unit_exp);
	pq_sendbyte(buf, m.prep.standardize);
	pq_sendbyte(buf, m.converged);
	pq_sendbyte(buf, v->columns_array);
	pq_sendint64(buf, m.seed);
	pq_sendint64(buf, m.rows_used);
	pq_sendint64(buf, m.rows_skipped);
	pq_sendfloat8(buf, m.inertia);
	pq_sendfloat8(buf, m.load_ms);
	pq_sendfloat8(buf, m.context_ms);
	pq_sendfloat8(buf, m.upload_ms);
	pq_sendfloat8(buf, m.seed_ms);
	pq_sendfloat8(buf, m.iterate_ms);
	pq_sendfloat8(buf, m.total_ms);
	send_numbers(buf, m.prep.center, m.prep.d);
	send_numbers(buf, m.prep.scale, m.prep.d);
	for (int j = 0; j < m.prep.d; j++)
		pq_sendint32(buf, m.prep.expo[j]);
	send_numbers(buf, m.centroids, (int64) m.k * m.prep.d);
	for (int i = 0; i < m.k; i++)
		pq_sendint64(buf, m.size[i]);
	send_numbers(buf, m.cluster_inertia, m.k);
	send_numbers(buf, m.radius, m.k);
	send_numbers(buf, m.history_inertia, m.history_len);
	send_numbers(buf, m.history_shift, m.history_len);
	send_string(buf, m.device, encoding);
	send_string(buf, m.strategy, encoding);
	for (int i = 0; i < v->ncolumns; i++)
		send_string(buf, columns[i], encoding);
	if (m.weights.known)
		pq_sendint32(buf, m.weights.expo);
	if (m.fill != NULL)
	{
		pq_sendint32(buf, FILL_MAGIC);
		send_numbers(buf, m.fill, m.prep.d);
	}
	if (m.spectral.k > 0)
		send_spectral(buf, &m);
}

Datum
kmeans_model_send(PG_FUNCTION_ARGS)
{
	StringInfoData buf;

	pq_begintypsend(&buf);
	kmeans_model_put(&buf, PG_GETARG_KMEANS_MODEL(0), pg_get_client_encoding());
	PG_RETURN_BYTEA_P(pq_endtypsend(&buf));
}

/* ---- input: the bytes are not to be trusted ---- */

/* Bytes of the scalars in front of the arrays. */
#define HEADER_BYTES	(11 * 4 + 3 + 10 * 8)

static bool
recv_bool(StringInfo buf, const char *name)
{
	int			v = pq_getmsgbyte(buf);

	if (v > 1)
		INVALID("\"%s\" is byte %d, expected 0 or 1", name, v);
	return v == 1;
}

static double *
recv_numbers(StringInfo buf, int64 n)
{
	double	   *v = palloc(n * sizeof(double));

	for (int64 i = 0; i < n; i++)
	{
		km_look_for_cancel(i);
		v[i] = pq_getmsgfloat8(buf);
	}
	return v;
}

/* A string in the database encoding; the conversion checks its bytes. */
static char *
recv_string(StringInfo buf, const char *name, int max, int encoding)
{
	int			rest = buf->len - buf->cursor;
	int			len;
	int			converted;
	const char *bytes;
	char	   *s;

	if (rest < 4)
		INVALID("the value ends before \"%s\"", name);
	len = (int) pq_getmsgint(buf, 4);
	if (len < 0 || len > rest - 4)
		INVALID("\"%s\" has %d bytes, but %d are left", name, len, rest - 4);
	bytes = pq_getmsgbytes(buf, len);
	s = pg_any_to_server(bytes, len, encoding);
	if (s == bytes)
		s = pnstrdup(bytes, len);
	converted = (int) strlen(s);
	if (memchr(bytes, '\0', len) != NULL)
		INVALID("\"%s\" contains a zero byte", name);
	if (converted > max)
		INVALID("\"%s\" has %d bytes, expected up to %d", name, converted, max);
	return s;
}

/* Does the part with this magic begin here, or some bytes on? */
static bool
part_at(const StringInfoData *buf, int offset, uint32 magic)
{
	uint32		found;

	if (buf->len - buf->cursor < offset + (int) sizeof(found))
		return false;
	memcpy(&found, buf->data + buf->cursor + offset, sizeof(found));
	return pg_ntoh32(found) == magic;
}

/* The grid of the weights has no magic: it is what stands before the other parts. */
static void
recv_weights(StringInfo buf, GkModel *m)
{
	int			size = sizeof(int32);

	m->weights.known = buf->len - buf->cursor == size ||
		(!part_at(buf, 0, FILL_MAGIC) && (part_at(buf, size, FILL_MAGIC) || part_at(buf, size, SPECTRAL_MAGIC)));
	if (m->weights.known)
		m->weights.expo = (int) pq_getmsgint(buf, 4);
}

static void
recv_fill(StringInfo buf, GkModel *m)
{
	int64		rest = buf->len - buf->cursor - (int64) sizeof(int32);

	if (rest < m->prep.d * (int64) sizeof(double))
		INVALID("\"fill\" has %lld bytes, expected %lld for d = %d", (long long) rest,
				(long long) (m->prep.d * (int64) sizeof(double)), m->prep.d);
	(void) pq_getmsgint(buf, 4);
	m->fill = recv_numbers(buf, m->prep.d);
}

/* Bytes of the spectral part before its arrays. */
#define SPECTRAL_BYTES	(10 * 4 + 5 * 8)

static void
recv_spectral(StringInfo buf, GkModel *m)
{
	GkSpectral *s = &m->spectral;
	int64		rest = buf->len - buf->cursor;
	int64		weights;

	if (rest < SPECTRAL_BYTES)
		INVALID("\"spectral\" has %lld bytes, expected at least %d", (long long) rest, SPECTRAL_BYTES);
	(void) pq_getmsgint(buf, 4);
	s->k = (int) pq_getmsgint(buf, 4);
	s->neigenvalues = (int) pq_getmsgint(buf, 4);
	weights = rest - (SPECTRAL_BYTES + (int64) s->neigenvalues * 8 + (int64) m->k * 4);
	if (s->k < 1 || s->neigenvalues < 0 || (weights != 0 && weights != (int64) m->k * 8))
		INVALID("\"spectral\" has %lld bytes, expected %lld for %d clusters and %d eigenvalues", (long long) rest,
				(long long) (SPECTRAL_BYTES + (int64) s->neigenvalues * 8 + (int64) m->k * 4), s->k, s->neigenvalues);
	s->asked.k = (int) pq_getmsgint(buf, 4);
	s->asked.neighbors = (int) pq_getmsgint(buf, 4);
	s->asked.affinity = (GkAffinity) pq_getmsgint(buf, 4);
	s->asked.laplacian = (GkLaplacian) pq_getmsgint(buf, 4);
	s->choice = (GkChoice) pq_getmsgint(buf, 4);
	s->components = (int) pq_getmsgint(buf, 4);
	s->cut_off = (int) pq_getmsgint(buf, 4);
	s->asked.gamma = pq_getmsgfloat8(buf);
	s->strength = pq_getmsgfloat8(buf);
	s->graph_ms = pq_getmsgfloat8(buf);
	s->eigen_ms = pq_getmsgfloat8(buf);
	s->embed_ms = pq_getmsgfloat8(buf);
	s->eigenvalue = recv_numbers(buf, s->neigenvalues);
	s->cluster = palloc(m->k * sizeof(int32));
	for (int i = 0; i < m->k; i++)
		s->cluster[i] = (int) pq_getmsgint(buf, 4);
	if (weights > 0)
		s->weight = recv_numbers(buf, m->k);
}

KmeansModel *
kmeans_model_get(StringInfo buf, int encoding)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext cxt;
	KmeansModel *result;
	GkModel		m;
	int			ncolumns;
	bool		columns_array;
	char	  **columns;
	int64		k;
	int64		d;
	int64		expected;
	int64		rest;

	memset(&m, 0, sizeof(m));
	rest = buf->len - buf->cursor;
	if (rest < HEADER_BYTES)
		INVALID("the value has %lld bytes, expected at least %d", (long long) rest, HEADER_BYTES);
	if (pq_getmsgint(buf, 4) != KMEANS_MODEL_MAGIC)
		INVALID("the value does not begin as a kmeans_model does");
	kmeans_model_check_version((int) pq_getmsgint(buf, 4), ERRCODE_INVALID_BINARY_REPRESENTATION);
	m.k = (int) pq_getmsgint(buf, 4);
	m.prep.d = (int) pq_getmsgint(buf, 4);
	m.history_len = (int) pq_getmsgint(buf, 4);
	ncolumns = (int) pq_getmsgint(buf, 4);
	kmeans_model_validate_sizes(m.k, m.prep.d, ERRCODE_INVALID_BINARY_REPRESENTATION);
	if (m.history_len < 0)
		INVALID("\"history\" has length %d, expected 0 or more", m.history_len);
	if (ncolumns < 0 || ncolumns > m.prep.d)
		INVALID("\"columns\" has length %d, expected up to %d", ncolumns, m.prep.d);

	/* All the arrays have to be there before memory is taken for any of them. */
	k = m.k;
	d = m.prep.d;
	rest -= HEADER_BYTES;
	expected = d * (8 + 8 + 4) + k * d * 8 + k * (8 + 8 + 8) + (int64) m.history_len * (8 + 8) +
		(2 + ncolumns) * 4;
	if (rest < expected)
		INVALID("%lld bytes follow the header, expected at least %lld for k = %d, d = %d",
				(long long) rest, (long long) expected, m.k, m.prep.d);

	cxt = AllocSetContextCreate(caller, "kmeans_model input", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(cxt);
	m.k_asked = (int) pq_getmsgint(buf, 4);
	m.iterations = (int) pq_getmsgint(buf, 4);
	m.init = (GkInit) pq_getmsgint(buf, 4);
	m.prep.distance = (GkDistance) pq_getmsgint(buf, 4);
	m.prep.unit_exp = (int) pq_getmsgint(buf, 4);
	m.prep.standardize = recv_bool(buf, "standardize");
	m.converged = recv_bool(buf, "converged");
	columns_array = recv_bool(buf, "columns_array");
	m.seed = pq_getmsgint64(buf);
	m.rows_used = pq_getmsgint64(buf);
	m.rows_skipped = pq_getmsgint64(buf);
	m.inertia = pq_getmsgfloat8(buf);
	m.load_ms = pq_getmsgfloat8(buf);
	m.context_ms = pq_getmsgfloat8(buf);
	m.upload_ms = pq_getmsgfloat8(buf);
	m.seed_ms = pq_getmsgfloat8(buf);
	m.iterate_ms = pq_getmsgfloat8(buf);
	m.total_ms = pq_getmsgfloat8(buf);
	m.prep.center = recv_numbers(buf, d);
	m.prep.scale = recv_numbers(buf, d);
	m.prep.expo = palloc(d * sizeof(int32));
	for (int j = 0; j < d; j++)
		m.prep.expo[j] = (int32) pq_getmsgint(buf, 4);
	m.centroids = recv_numbers(buf, k * d);
	m.size = palloc(k * sizeof(int64));
	for (int i = 0; i < k; i++)
		m.size[i] = pq_getmsgint64(buf);
	m.cluster_inertia = recv_numbers(buf, k);
	m.radius = recv_numbers(buf, k);
	m.history_inertia = recv_numbers(buf, m.history_len);
	m.history_shift = recv_numbers(buf, m.history_len);
	strlcpy(m.device, recv_string(buf, "device", sizeof(m.device) - 1, encoding), sizeof(m.device));
	strlcpy(m.strategy, recv_string(buf, "strategy", sizeof(m.strategy) - 1, encoding), sizeof(m.strategy));
	columns = palloc(ncolumns * sizeof(char *) + 1);
	for (int i = 0; i < ncolumns; i++)
		columns[i] = recv_string(buf, "columns", NAMEDATALEN - 1, encoding);
	recv_weights(buf, &m);
	if (part_at(buf, 0, FILL_MAGIC))
		recv_fill(buf, &m);
	if (part_at(buf, 0, SPECTRAL_MAGIC))
		recv_spectral(buf, &m);
	if (buf->cursor != buf->len)
		INVALID("%d bytes follow the end of the value", buf->len - buf->cursor);
	kmeans_model_validate(&m, columns, ncolumns, columns_array, ERRCODE_INVALID_BINARY_REPRESENTATION);

	MemoryContextSwitchTo(caller);
	result = kmeans_model_assemble(&m, columns, ncolumns, columns_array);
	MemoryContextDelete(cxt);
	return result;
}

Datum
kmeans_model_recv(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(kmeans_model_get((StringInfo) PG_GETARG_POINTER(0), pg_get_client_encoding()));
}
