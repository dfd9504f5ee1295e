/*
 * gk_testfit.h - random problems for whole fits, their answers, and whether two of these are the
 * same to the last bit.
 */
#ifndef GK_TESTFIT_H
#define GK_TESTFIT_H

#include "core/spread/gk_spread.h"
#include "gk_testhost.h"

typedef struct Problem
{
	int			n,
				d,
				k;
	double	   *x,
			   *w;
	double	   *init;
	GkOptions	opt;
} Problem;

typedef struct Answer
{
	GkStatus	status;
	GkModel		model;
	Labels		labels;
	TestHost	host;
} Answer;

/* The inits that draw rows, but for k-means++. */
#define RANDOM_INITS	3
extern const GkInit random_inits[RANDOM_INITS];

Problem		random_problem(uint64_t *rng, int number);
void		given_centroids(Problem *p, uint64_t *rng);
void		problem_free(Problem *p);

/* Bytes of a chunk that has room for all rows; more would be pages to zero in each of some thousand fits. */
size_t		whole_chunk(const Problem *p);

/* An empty answer, which must stay where it is: its host is the engine's. */
void		answer_init(Answer *a, const Problem *p, int threads);
void		answer_free(Answer *a);

/* Bit for bit: what the model says, not how it was computed; and, with the labels, the whole answer. */
bool		same_model(const GkModel *x, const GkModel *y);
bool		same_answer(const Answer *a, const Answer *b, int n);

/* GkSpread.rows that take turns, each for one step: "64,1;0,128".  Of one spread at a time; NULL or one list: they stay. */
void		rows_take_turns(GkSpread *spread, const char *lists);

#endif							/* GK_TESTFIT_H */
