// What attend.c and its kernels share.
#pragma once
#include "cpu/attend.h"

enum {
  ATTEND_TILE = 64,     // keys at a time; a multiple of four vectors of every instruction set
  ATTEND_QUERIES = 32,  // of a block, at most
  ATTEND_MANY = 8,      // from here on keys are transposed first
  ATTEND_PAD = 16       // floats that rows are padded to
};

// The queries of rows [row, row + queries / group) of the heads of key head h, against past rows [from, to) and, with_new,
// the new ones. Query x is row x / group of head x % group.
typedef struct attend_block {
  int64_t b, h, row, queries, past, from, to;
  bool with_new;
  int64_t width, value_width;  // size and value_size, padded
  float *q;                    // [queries, width]
  float *y;                    // [queries, value_width], zero at first
  float *most, *sum;           // [queries], -inf and zero at first
  float *products, *turned, *room;  // [queries, TILE], [size, TILE], [TILE, the wider width]
} attend_block;

void attend_plain(const cpu_attend *a, const attend_block *k);
void attend_avx2(const cpu_attend *a, const attend_block *k);
void attend_avx512(const cpu_attend *a, const attend_block *k);
