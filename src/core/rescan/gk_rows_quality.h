/*
 * gk_rows_quality.h - the measures of quality of rows that are not kept (gk_pass.h): the bits
 * that gk_quality_model() and gk_quality_labels() have of the same rows in a store.
 */
#ifndef GK_ROWS_QUALITY_H
#define GK_ROWS_QUALITY_H

#include "core/quality/gk_quality.h"
#include "core/rescan/gk_pass.h"

/* As gk_quality_model(); or, with `prepared`, as gk_quality_labels() with the model's labels of a prepared store. */
GkStatus	gk_rows_quality(GkStore *store, const GkModel *model, bool prepared, int64_t sample, GkMeasures *out, GkError *err);

/* As gk_quality_rows(). */
GkStatus	gk_rows_sample(GkStore *store, const GkModel *model, int64_t sample, double *x, int32_t *label, int64_t *got,
						   GkError *err);

#endif							/* GK_ROWS_QUALITY_H */
