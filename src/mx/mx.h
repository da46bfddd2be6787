// A C view of MLX. Invariants:
// - Every array belongs to a scope and dies with it; a handle is never freed by hand. Handles know their scope.
// - Errors are sticky: the first failure is kept with the node it happened at; every later call on that scope returns
//   the scope's poison value (rank 0, float32) and does nothing. A translator therefore reads like a formula and need
//   not check, except where it loops over values that it read.
// - No exception leaves a function of this header.
// - Arrays are lazy: a call here builds MLX's graph, mx_eval or mx_read computes it.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "base/dtype.h"
#include "base/err.h"

enum { MX_MAX_RANK = 10 };
typedef struct mx_scope mx_scope;
typedef struct mx_cell *mx;
typedef struct mx_ints {  // a shape, a list of axes, a permutation, strides
  int n;
  int v[MX_MAX_RANK];
} mx_ints;
#ifndef __cplusplus
#define MXI(...) ((mx_ints){(int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), {__VA_ARGS__}})
#endif

// ---- runtime ------------------------------------------------------------------------------------------------------
typedef enum { MX_CPU = 0, MX_GPU = 1 } mx_device;
const char *mx_version(void);
bool mx_gpu_available(void);
// A thread that uses this header begins first and ends last: MLX's streams belong to threads.
bool mx_thread_begin(mx_device d, err *e);
void mx_thread_end(void);
bool mx_has_dtype(mx_device d, dtype t);  // can an array of this type live on this device?

// Test hook: the n-th call into MLX from now (1 = the next), of any thread, fails once; 0 switches it off. Tells whether
// one has failed since it was set.
bool mx_fail_after(long n);

// ---- scopes -------------------------------------------------------------------------------------------------------
mx_scope *mx_scope_new(mx_device d);  // on a thread that has begun; NULL when out of memory
void mx_scope_free(mx_scope *s);      // NULL is fine
bool mx_ok(const mx_scope *s);
const err *mx_error(const mx_scope *s);
mx_scope *mx_scope_of(mx x);
mx_device mx_device_of(const mx_scope *s);
mx mx_fail(mx_scope *s, err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
// Names the node that later failures are reported with; both strings must outlive the scope.
void mx_at_node(mx_scope *s, const char *op_type, const char *name);
// Lets go of every array of the scope but these, so that MLX may reuse the others' memory while it evaluates.
void mx_scope_keep(mx_scope *s, const mx *keep, size_t n);
// For the rounds of a loop: lets go of every array made since the mark but those in keep, which get new handles (the old
// ones are dangling); NULLs in keep stay.
size_t mx_scope_mark(const mx_scope *s);
void mx_scope_rewind(mx_scope *s, size_t mark, mx *keep, size_t n);

// ---- arrays from and to the host ----------------------------------------------------------------------------------
// A copy of row-major host data. bytes = elements * dtype_size(t).
mx mx_from(mx_scope *s, const void *data, dtype t, mx_ints shape);
// The same without a copy where that is safe; the data must outlive every evaluation that uses the array.
mx mx_wrap(mx_scope *s, const void *data, dtype t, mx_ints shape);
mx mx_i64s(mx_scope *s, const int64_t *v, int n);        // int64 [n]
mx mx_full(mx_scope *s, mx_ints shape, double v, dtype t);
mx mx_scalar(mx like, double v);                          // rank 0, of like's type; v rounded to it
mx mx_scalar_i64(mx_scope *s, int64_t v, dtype t);        // rank 0, exact for every integer type
bool mx_eval(mx_scope *s, const mx *xs, size_t n);        // false: see mx_error
// Evaluates; row-major data, valid while the scope lives; NULL on failure and for a placeholder of a trace.
const void *mx_read(mx x);
bool mx_read_i64(mx x, int64_t *out, size_t cap, size_t *n);  // integers or bools as int64; false and an error if > cap
// Is its data there, so that reading it computes nothing? False for a placeholder of a trace and after an error.
bool mx_ready(mx x);
bool mx_copy_out(mx x, void *dst, size_t bytes);              // evaluates; false and an error if bytes is not x's size

// An array that outlives its scope: constants, packed weights. May be used on every thread.
typedef struct mx_held mx_held;
mx_held *mx_hold(mx x);  // NULL after an error
mx mx_use(mx_scope *s, const mx_held *h);
void mx_held_free(mx_held *h);

// ---- what an array is ---------------------------------------------------------------------------------------------
dtype mx_dtype(mx x);
int mx_ndim(mx x);
int mx_dim(mx x, int axis);  // negative axes count from the end; 1 for an axis that is not there
mx_ints mx_shape(mx x);
size_t mx_size(mx x);        // elements
mx mx_length(mx x, int axis);  // mx_dim as data, int32 of rank 0: a trace does not hold it

// ---- element types ------------------------------------------------------------------------------------------------
mx mx_astype(mx x, dtype t);  // MLX's conversion; x itself if it has the type
mx mx_view(mx x, dtype t);    // the same bits

// ---- shape and movement -------------------------------------------------------------------------------------------
mx mx_reshape(mx x, mx_ints shape);  // one -1 is inferred
mx mx_flatten(mx x, int first, int last);
mx mx_transpose(mx x, mx_ints perm);
mx mx_swapaxes(mx x, int a, int b);
mx mx_expand_dims(mx x, mx_ints axes);
mx mx_squeeze(mx x, mx_ints axes);
mx mx_broadcast_to(mx x, mx_ints shape);
mx mx_concatenate(mx_scope *s, const mx *xs, size_t n, int axis);
mx mx_stack(mx_scope *s, const mx *xs, size_t n, int axis);
mx mx_slice(mx x, mx_ints start, mx_ints stop, mx_ints stride);  // MLX rules; stride may be negative
mx mx_slice_axis(mx x, int axis, int start, int stop);           // [start, stop) of one axis, the rest whole
mx mx_slice_at(mx x, mx start, mx_ints axes, mx_ints size);      // start: int32 array, one entry an axis
mx mx_slice_update(mx x, mx update, mx_ints start, mx_ints stop, mx_ints stride);
mx mx_slice_update_at(mx x, mx update, mx start, mx_ints axes);
mx mx_pad(mx x, mx_ints axes, mx_ints low, mx_ints high, mx value, const char *mode);  // constant, edge, reflect, symmetric
mx mx_tile(mx x, mx_ints reps);
mx mx_repeat(mx x, int repeats, int axis);
mx mx_contiguous(mx x);
mx mx_as_strided(mx x, mx_ints shape, const int64_t *strides, size_t offset);  // strides in elements

// ---- indexing (indices of any integer type; negative ones count from the end; out of range is not checked) ----------
mx mx_take(mx x, mx indices, int axis);
mx mx_take_along_axis(mx x, mx indices, int axis);
mx mx_put_along_axis(mx x, mx indices, mx values, int axis);
mx mx_scatter_add_axis(mx x, mx indices, mx values, int axis);
typedef enum { MX_SET = 0, MX_ADD, MX_PROD, MX_MAX, MX_MIN } mx_scatter_mode;
// MLX's scatter: indices[k] address axes.v[k]; updates has shape indices' broadcast shape + slice shape of rank x.
mx mx_scatter(mx x, const mx *indices, size_t n, mx updates, mx_ints axes, mx_scatter_mode mode);
mx mx_gather(mx x, const mx *indices, size_t n, mx_ints axes, mx_ints slice_sizes);

// ---- regular operators: unary, binary, compare, reduce (mx_ops.inc) --------------------------------------------------
#define MX_1(name, fn) mx mx_##name(mx x);
#define MX_2(name, fn) mx mx_##name(mx x, mx y);
#define MX_R(name, fn) mx mx_##name(mx x, mx_ints axes, bool keepdims);
#define MX_A(name, fn) mx mx_##name(mx x, int axis, bool keepdims);
#define MX_S(name, fn) mx mx_##name(mx x, int axis, bool reverse, bool inclusive);
#include "mx/mx_ops.inc"
#undef MX_1
#undef MX_2
#undef MX_R
#undef MX_A
#undef MX_S
mx mx_where(mx cond, mx x, mx y);
mx mx_clip(mx x, mx lo, mx hi);  // lo or hi may be NULL
mx mx_softmax(mx x, int axis);   // accumulates in f32
mx mx_sort(mx x, int axis);      // NaN last; stable
mx mx_argsort(mx x, int axis);   // uint32; NaN last; stable
mx mx_argpartition(mx x, int kth, int axis);
mx mx_arange(mx_scope *s, double start, double stop, double step, dtype t);
mx mx_tri(mx_scope *s, int n, int m, int k, dtype t);  // ones at and below the k-th diagonal

// ---- products and fused forms (each device gives its best) -----------------------------------------------------------
mx mx_matmul(mx x, mx y);  // floats; numpy rules for rank 1 and for batches
mx mx_linear(mx x, mx w, mx bias);  // x [.., k] times w [k, n] plus bias [n] or NULL
mx mx_einsum(mx_scope *s, const char *equation, const mx *xs, size_t n);
// Convolution in MLX's layout: x [N, spatial.., C], w [O, spatial.., C/groups]; pads a pair for each spatial axis.
mx mx_conv(mx x, mx w, mx_ints stride, mx_ints pad_lo, mx_ints pad_hi, mx_ints kernel_dilation, mx_ints input_dilation,
           int groups, bool flip);
mx mx_rms_norm(mx x, mx weight, float eps);              // over the last axis, in f32; weight or NULL
mx mx_layer_norm(mx x, mx weight, mx bias, float eps);   // over the last axis, in f32; weight, bias or NULL
// Fourier transforms of length n along one axis, which is cut or filled with zeros to n; complex64 in single precision.
// The inverse ones divide by n.
mx mx_fft(mx x, int n, int axis, bool inverse);  // real or complex; complex
mx mx_rfft(mx x, int n, int axis);               // real; complex, n / 2 + 1 along the axis
mx mx_irfft(mx x, int n, int axis);              // complex, of which n / 2 + 1 are used; real, n along the axis
// q [B, H, S, D], k [B, Hkv, T, D], v [B, Hkv, T, Dv]; mask NULL, bool (true = attend) or additive, broadcast to [B, H, S, T].
mx mx_attention(mx q, mx k, mx v, float scale, mx mask);

// Attention of S new rows over a cache and over themselves. Nothing is written to the cache.
typedef struct mx_attend_desc {
  mx q;               // [B, H, S, D], float32, float16 or bfloat16
  mx k, v;            // new rows [B, Hkv, S, D] and [B, Hkv, S, Dv], of q's type; H is a multiple of Hkv
  mx past_k, past_v;  // [B, Hkv, P, D] and [B, Hkv, P, Dv] of q's type, or both NULL; P may be 0; any strides
  mx past_len;        // int32 [B]: valid rows of the past, the first ones; NULL: all P. Values outside [0, P] are clamped
  mx mask;            // NULL; bool (true = attend) or additive of q's type or float32; broadcasts to [B, H, S, T], T >= past_len + S
  mx sink;            // float32 [H], a logit that takes part in the softmax's sum only; NULL: none
  float scale, cap;   // cap: products pass through cap * tanh(x / cap); 0: they do not
  int window;         // a query sees itself and the window - 1 tokens before it; 0: no limit
  bool causal;        // new row i sees new rows 0..i; else all S new rows
  bool stock;         // of MLX's operators on the CPU device too, for tests
} mx_attend_desc;
// [B, H, S, Dv] of q's type; softmax and sums in float32; a row that sees nothing is zero. Holds neither P nor T, so that
// a trace of it serves any. Columns of the mask: past row j is j, new row i is past_len + i; what is beyond them is not seen.
mx mx_attend(const mx_attend_desc *d);

// Random numbers of float32, a function of the seed and the shape alone.
mx mx_random_uniform(mx_scope *s, mx_ints shape, uint64_t seed);  // in [0, 1)
mx mx_random_normal(mx_scope *s, mx_ints shape, uint64_t seed);   // mean 0, deviation 1

// Block-quantised weights of MatMulNBits, packed once for the device. Owned; may be used on every thread.
typedef struct mx_nbits mx_nbits;
typedef struct mx_nbits_desc {
  int k, n, bits, block_size;  // w is [n, k]; bits 2, 4 or 8
  int accuracy_level;          // 4: int8 activations allowed; else float arithmetic
  const uint8_t *q;            // [n, ceil(k / block_size), block_size * bits / 8]
  const float *scales;         // [n, ceil(k / block_size)]
  const uint8_t *zero_points;  // packed like q, each row padded to a byte; NULL: 2^(bits-1)
  const float *float_zero_points;  // [n, blocks] instead of the packed ones; NULL if none
  const float *bias;           // [n] or NULL
} mx_nbits_desc;
mx_nbits *mx_nbits_pack(mx_device d, const mx_nbits_desc *desc, err *e);  // copies; NULL with an error
void mx_nbits_free(mx_nbits *w);
mx mx_nbits_matmul(mx x, const mx_nbits *w);  // x [.., k] float; gives [.., n] of x's type

// The host's thread pool for own CPU kernels, set for the calling worker before a run; see cpu/pool.h.
struct cpu_pool;
void mx_set_pool(mx_scope *s, const struct cpu_pool *pool);  // must outlive every evaluation in this scope

// ---- traces -------------------------------------------------------------------------------------------------------
// A body that was run once over placeholders, as a list of MLX's steps. Equal steps are kept once, what depends on no input
// is computed in the trace.
typedef struct mx_fn mx_fn;
typedef struct mx_spec {
  dtype type;
  mx_ints shape;
} mx_spec;
// Fills out[0..n_out), in a scope of its own; the inputs' values cannot be read. A failed scope fails the trace.
typedef void (*mx_body)(void *user, mx_scope *s, const mx *in, size_t n_in, mx *out, size_t n_out);
// For the thread that traces it. NULL with an error.
mx_fn *mx_trace(mx_body body, void *user, const mx_spec *in, size_t n_in, size_t n_out, mx_device d, err *e);
// Are two traces of one body the same but for shapes that a replay infers rightly? Then either may be replayed at sizes
// that neither saw. False with an error that says what depends on a size.
bool mx_fn_same(const mx_fn *a, const mx_fn *b, err *e);
// On the GPU device, the same with elementwise steps joined into kernels; else f. Takes f. other: a trace of the same body at
// another size that it must also serve, or NULL.
mx_fn *mx_fn_join(mx_fn *f, const mx_fn *other, mx_device d);
size_t mx_fn_steps(const mx_fn *f);
// Lazily; inputs of the traced types and ranks. Shapes other than the traced ones need mx_fn_same's word. False: see
// mx_error(s).
bool mx_apply(const mx_fn *f, mx_scope *s, const mx *in, size_t n_in, mx *out);
void mx_fn_free(mx_fn *f);

#ifdef __cplusplus
}
#endif
