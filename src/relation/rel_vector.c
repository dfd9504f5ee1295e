/*
 * rel_vector.c - values of vector types as they are stored.
 */
#include "postgres.h"

#include "core/store/gk_columns.h"
#include "relation/rel_vector.h"

/* A sparse vector's head. */
typedef struct Sparse
{
	int32		dim;
	int32		nnz;
	int32		unused;
} Sparse;

static const char *const type_names[] = {
	[KM_LAYOUT_ARRAY] = "array",[KM_LAYOUT_VECTOR] = "vector",[KM_LAYOUT_HALFVEC] = "halfvec",
	[KM_LAYOUT_SPARSEVEC] = "sparsevec",[KM_LAYOUT_BIT] = "bit"
};

const char *
km_vector_type_name(KmLayout layout)
{
	return type_names[layout];
}

static int32
word(const char *from)
{
	int32		v;

	memcpy(&v, from, sizeof(v));
	return v;
}

/* vector and halfvec: the number of elements, a word that is 0, the elements. */
static int
dense_features(const char *body, Size bytes, Size element)
{
	int16		head[2];

	if (bytes < sizeof(head))
		return 0;
	memcpy(head, body, sizeof(head));
	return head[0] > 0 && head[1] == 0 && bytes == sizeof(head) + head[0] * element ? head[0] : 0;
}

static int
sparse_features(const char *body, Size bytes)
{
	Sparse		head;
	int32		last = -1;

	if (bytes < sizeof(head))
		return 0;
	memcpy(&head, body, sizeof(head));
	if (head.dim <= 0 || head.nnz < 0 || head.unused != 0 ||
		bytes != sizeof(head) + (Size) head.nnz * (sizeof(int32) + sizeof(float4)))
		return 0;
	for (int i = 0; i < head.nnz; i++)
	{
		int32		index = word(body + sizeof(head) + i * sizeof(int32));

		if (index <= last || index >= head.dim)
			return 0;
		last = index;
	}
	return head.dim;
}

static int
bit_features(const char *body, Size bytes)
{
	int32		bits = bytes < sizeof(int32) ? 0 : word(body);

	return bits > 0 && bytes == sizeof(int32) + ((Size) bits + 7) / 8 ? bits : 0;
}

int
km_vector_features(KmLayout layout, const char *body, Size bytes)
{
	switch (layout)
	{
		case KM_LAYOUT_VECTOR:
			return dense_features(body, bytes, sizeof(float4));
		case KM_LAYOUT_HALFVEC:
			return dense_features(body, bytes, sizeof(uint16));
		case KM_LAYOUT_SPARSEVEC:
			return sparse_features(body, bytes);
		case KM_LAYOUT_BIT:
			return bit_features(body, bytes);
		case KM_LAYOUT_ARRAY:
			break;
	}
	return 0;
}

Size
km_vector_largest(KmLayout layout, int d)
{
	switch (layout)
	{
		case KM_LAYOUT_HALFVEC:
			return KM_VECTOR_HEAD + d * sizeof(uint16);
		case KM_LAYOUT_SPARSEVEC:
			return sizeof(Sparse) + d * (sizeof(int32) + sizeof(float4));
		case KM_LAYOUT_BIT:
			return sizeof(int32) + (d + 7) / 8;
		default:
			return KM_VECTOR_HEAD + d * sizeof(float4);
	}
}

static void
sparse_to_floats(const char *body, int d, float *to)
{
	const char *index = body + sizeof(Sparse);
	Sparse		head;

	memcpy(&head, body, sizeof(head));
	memset(to, 0, d * sizeof(float));
	for (int i = 0; i < head.nnz; i++)
		memcpy(&to[word(index + i * sizeof(int32))], index + (head.nnz + i) * sizeof(int32), sizeof(float));
}

void
km_vector_floats(KmLayout layout, const char *body, int d, float *to)
{
	switch (layout)
	{
		case KM_LAYOUT_VECTOR:
			memcpy(to, body + KM_VECTOR_HEAD, d * sizeof(float));
			break;
		case KM_LAYOUT_HALFVEC:
			gk_columns()->halves(body + KM_VECTOR_HEAD, d, to);
			break;
		case KM_LAYOUT_SPARSEVEC:
			sparse_to_floats(body, d, to);
			break;
		case KM_LAYOUT_BIT:
			/* the first bit is the highest of its byte */
			for (int j = 0; j < d; j++)
				to[j] = (float) ((uint8) body[sizeof(int32) + j / 8] >> (7 - j % 8) & 1);
			break;
		case KM_LAYOUT_ARRAY:
			break;
	}
}

void
km_vector_values(KmLayout layout, const char *body, int d, double *to)
{
	/* The floats stand in the upper half: a double ends where the next float begins, or before. */
	float	   *floats = (float *) to + d;

	km_vector_floats(layout, body, d, floats);
	for (int j = 0; j < d; j++)
		to[j] = floats[j];
}
