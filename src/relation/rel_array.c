/*
 * rel_array.c - where the numbers of a row's array or vector are.
 *
 * On the page, if they are stored there as numbers; otherwise in copies, which are kept until
 * the rows found so far are in the batch.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/tupmacs.h"
#include "utils/array.h"
#include "utils/memutils.h"

#include "relation/rel_array.h"

/* Bytes of arrays that are copied before the batch takes them. */
#define MAX_COPIES	(256 * 1024)

struct KmArrays
{
	const KmRowSpec *spec;
	KmToast    *toast;			/* NULL: it is a helper's */
	Size		largest;		/* bytes of an array at most */
	char	   *copies;			/* [MAX_COPIES], and an array as it is stored and as it is read */
	Size		copied;
	MemoryContext unpacked;		/* arrays that PostgreSQL has brought or decompressed */
	Size		unpacked_bytes;
};

KmArrays *
km_arrays_open(const KmRowSpec *spec, KmToast *toast)
{
	KmArrays   *a = palloc0(sizeof(KmArrays));

	a->spec = spec;
	a->toast = toast;
	a->largest = spec->layout != KM_LAYOUT_ARRAY ? km_vector_largest(spec->layout, spec->d)
		: ARR_OVERHEAD_WITHNULLS(1, spec->d) + spec->d * km_value_size(spec->type[0]);
	a->copies = palloc(MAX_COPIES + MAXALIGN(VARHDRSZ + a->largest) + MAXALIGN(spec->d * sizeof(float)));
	if (toast != NULL)
		a->unpacked = AllocSetContextCreate(CurrentMemoryContext, "gkmeans arrays", ALLOCSET_DEFAULT_SIZES);
	return a;
}

bool
km_arrays_have_room(const KmArrays *a)
{
	return a->copied + a->unpacked_bytes < MAX_COPIES;
}

void
km_arrays_forget(KmArrays *a)
{
	a->copied = 0;
	if (a->unpacked_bytes > 0)
		MemoryContextReset(a->unpacked);
	a->unpacked_bytes = 0;
}

/* Room among the copies. */
static char *
take(KmArrays *a, Size bytes)
{
	char	   *room = a->copies + a->copied;

	a->copied += MAXALIGN(bytes);
	return room;
}

/* What was compressed, as it was. */
static void
unpack(KmArrays *a, const struct varlena *packed, const char **body, Size *bytes)
{
	MemoryContext caller = MemoryContextSwitchTo(a->unpacked);
	struct varlena *value = detoast_attr(unconstify(struct varlena *, packed));

	MemoryContextSwitchTo(caller);
	a->unpacked_bytes += VARSIZE(value);
	*body = VARDATA(value);
	*bytes = VARSIZE(value) - VARHDRSZ;
}

/* Bring a value that is out of line. */
static int
bring(KmArrays *a, const struct varlena *value, const char **body, Size *bytes)
{
	struct varatt_external at;
	bool		packed;
	char	   *to;

	VARATT_EXTERNAL_GET_POINTER(at, value);
	packed = VARATT_EXTERNAL_IS_COMPRESSED(at);
	*bytes = km_toast_size(&at);
	/* another number of features, which is an error */
	if (at.va_rawsize - VARHDRSZ > a->largest || *bytes > a->largest)
		return KM_ROW_DEFERRED;
	to = take(a, VARHDRSZ + *bytes);
	if (!km_toast_read(a->toast, &at, to + VARHDRSZ))
		unpack(a, value, body, bytes);
	else if (packed)
	{
		SET_VARSIZE_COMPRESSED(to, VARHDRSZ + *bytes);
		unpack(a, (struct varlena *) to, body, bytes);
	}
	else
		*body = to + VARHDRSZ;
	return KM_ROW_PLAIN;
}

/* A value without its header: KM_ROW_PLAIN. */
static int
find_body(KmArrays *a, const struct varlena *value, const char **body, Size *bytes)
{
	/* a pointer to a value elsewhere has the bit of a short one, too */
	bool		elsewhere = VARATT_IS_EXTERNAL(value);

	if (elsewhere || VARATT_IS_COMPRESSED(value))
	{
		if (a->toast == NULL || (elsewhere && !VARATT_IS_EXTERNAL_ONDISK(value)))
			return KM_ROW_DEFERRED;
		if (elsewhere)
			return bring(a, value, body, bytes);
		unpack(a, value, body, bytes);
		return KM_ROW_PLAIN;
	}
	*body = VARDATA_ANY(value);
	*bytes = VARSIZE_ANY_EXHDR(value);
	return KM_ROW_PLAIN;
}

/* Find the numbers in an ArrayType without its first word. */
static int
find_elements(const KmArrays *a, const char *body, Size bytes, const char **elements)
{
	KmArrayHead head;

	/* an empty array ends before the head does */
	if (bytes < sizeof(head))
		return KM_ROW_DEFERRED;
	/* not aligned if it is short */
	memcpy(&head, body, sizeof(head));
	if (head.ndim != 1 || head.d != a->spec->d)
		return KM_ROW_DEFERRED;
	if (head.dataoffset == 0)
		head.dataoffset = ARR_OVERHEAD_NONULLS(1);
	else
	{
		const		bits8 *bits = (const bits8 *) body + sizeof(ArrayType) + 2 * sizeof(int) - VARHDRSZ;

		for (int j = 0; j < a->spec->d; j++)
			if (att_isnull(j, bits))
				return a->spec->filled ? KM_ROW_DEFERRED : KM_ROW_NULL_FEATURE;
	}
	*elements = body + head.dataoffset - VARHDRSZ;
	return KM_ROW_PLAIN;
}

/* Find the numbers in a vector. */
static int
find_floats(KmArrays *a, const char *body, Size bytes, const char **elements)
{
	const KmRowSpec *spec = a->spec;
	char	   *to;

	if (km_vector_features(spec->layout, body, bytes) != spec->d)
		return KM_ROW_DEFERRED;
	*elements = body + KM_VECTOR_HEAD;
	if (spec->layout == KM_LAYOUT_VECTOR)
		return KM_ROW_PLAIN;
	to = take(a, spec->d * sizeof(float));
	km_vector_floats(spec->layout, body, spec->d, (float *) to);
	*elements = to;
	return KM_ROW_PLAIN;
}

int
km_arrays_find(KmArrays *a, Datum value, const char **elements)
{
	Size		copied = a->copied;
	const char *body;
	Size		bytes;
	int			verdict = find_body(a, (struct varlena *) DatumGetPointer(value), &body, &bytes);

	if (verdict == KM_ROW_PLAIN)
		verdict = a->spec->layout == KM_LAYOUT_ARRAY ? find_elements(a, body, bytes, elements)
			: find_floats(a, body, bytes, elements);
	/* a row that is left out needs no room */
	if (verdict != KM_ROW_PLAIN)
		a->copied = copied;
	return verdict;
}
