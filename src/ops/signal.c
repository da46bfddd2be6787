// Fourier transforms and what goes before them. MLX transforms complex64, so that all of this is float32; complex tensors
// of ONNX have a last axis of (real, imaginary).
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/index.h"

// ---- complex numbers as pairs ---------------------------------------------------------------------------------------
// float32 [.., 1] as real [..], float32 [.., 2] as complex [..].
static mx from_pairs(mx x) {
  int last = mx_ndim(x) - 1;
  if (mx_dim(x, last) == 1) return mx_squeeze(x, MXI(last));
  return mx_squeeze(mx_view(mx_contiguous(x), DT_C64), MXI(last));
}

// complex [..] as float32 [.., 2].
static mx to_pairs(mx z) { return mx_view(mx_expand_dims(z, MXI(mx_ndim(z))), DT_F32); }

static mx first_along(mx x, int axis, int n) { return mx_dim(x, axis) == n ? x : mx_slice_axis(x, axis, 0, n); }

// The transform of length n of pairs x along axis, again as pairs. Half: the first n / 2 + 1 only.
static mx transform(mx x, int n, int axis, bool inverse, bool half) {
  bool real = mx_dim(x, -1) == 1;
  mx z = from_pairs(x);
  if (real && half && !inverse) return to_pairs(mx_rfft(z, n, axis));
  z = mx_fft(z, n, axis, inverse);
  return to_pairs(half ? first_along(z, axis, n / 2 + 1) : z);
}

static bool is_pairs(op *o, mx x) {
  bool ok = mx_ndim(x) >= 2 && (mx_dim(x, -1) == 1 || mx_dim(x, -1) == 2);
  if (!ok) op_fail(o, "the last axis must hold 1 (real) or 2 (complex) numbers");
  return ok && mx_ok(o->s);
}

// ---- DFT ------------------------------------------------------------------------------------------------------------
enum { DFT_LENGTH = 1, DFT_AXIS = 2 };

static bool length_from(op *o, size_t input, int64_t dflt, int *n) {
  int64_t v = dflt;
  if (in(o, input) && !host_int(o, input, &v)) return false;
  if (v < 1) op_fail(o, "a transform of length %lld", (long long)v);
  return v >= 1 && fits_int(o, v, n);
}

// Axis dflt of version 17 is an attribute, of version 20 an input.
static bool dft_axis(op *o, int rank, int *axis) {
  int64_t v = o->n->since < 20 ? attr_i(o->n, "axis", 1) : -2;
  if (o->n->since >= 20 && in(o, DFT_AXIS) && !host_int(o, DFT_AXIS, &v)) return false;
  *axis = norm_axis(o, v, rank);
  if (*axis == rank - 1) op_fail(o, "axis %lld is that of the complex numbers", (long long)v);
  return mx_ok(o->s);
}

static void dft(op *o) {
  mx x = f32_up(in(o, 0));
  int axis = 0, n = 0;
  bool inverse = attr_i(o->n, "inverse", 0) != 0, half = attr_i(o->n, "onesided", 0) != 0, to_real = inverse && half;
  if (!is_pairs(o, x) || !dft_axis(o, mx_ndim(x), &axis)) return;
  if (half && !inverse && mx_dim(x, -1) == 2) {
    op_fail(o, "a onesided transform of complex numbers");
    return;
  }
  int64_t size = mx_dim(x, axis);
  if (!length_from(o, DFT_LENGTH, to_real ? 2 * (size - 1) : size, &n)) return;
  mx_ints shape = mx_shape(x);
  shape.v[axis] = half && !inverse ? n / 2 + 1 : n;
  shape.v[shape.n - 1] = to_real ? 1 : 2;
  if (mx_size(x) == 0) {  // nothing, or a signal of zeros only
    out(o, 0, mx_full(o->s, shape, 0, DT_F32));
  } else if (to_real) {
    out(o, 0, mx_reshape(mx_irfft(from_pairs(x), n, axis), shape));
  } else {
    out(o, 0, transform(x, n, axis, inverse, half));
  }
}

static void dft_claim(claim *c) {
  int64_t last = in_dim(c, 0, -1);
  REQUIRE(c, last < 0 || last == 1 || last == 2, "the last axis has %lld numbers, not 1 or 2", (long long)last);
  REQUIRE(c, in_rank(c, 0) < 0 || in_rank(c, 0) >= 2, "the signal has no axis beside that of the complex numbers");
}

// ---- STFT -----------------------------------------------------------------------------------------------------------
enum { STFT_SIGNAL, STFT_STEP, STFT_WINDOW, STFT_LENGTH };

static bool stft_length(op *o, int *n) {
  mx window = in(o, STFT_WINDOW);
  if (window && mx_ndim(window) != 1) op_fail(o, "the window has rank %d, not 1", mx_ndim(window));
  if (!window && !in(o, STFT_LENGTH)) op_fail(o, "neither a window nor a frame length is given");
  if (!mx_ok(o->s) || !length_from(o, STFT_LENGTH, window ? mx_dim(window, 0) : 0, n)) return false;
  if (window && mx_dim(window, 0) != *n) op_fail(o, "a window of %d for frames of %d", mx_dim(window, 0), *n);
  return mx_ok(o->s);
}

// Signal [batch, length, 1 or 2] as [batch, frames, n, 1 or 2].
static mx frames_of(mx x, int frames, int n, int step) {
  int64_t pair = mx_dim(x, 2), strides[4] = {mx_dim(x, 1) * pair, step * pair, pair, 1};
  return mx_as_strided(x, MXI(mx_dim(x, 0), frames, n, (int)pair), strides, 0);
}

static void stft(op *o) {
  mx x = f32_up(in(o, STFT_SIGNAL)), window = in(o, STFT_WINDOW);
  bool half = attr_i(o->n, "onesided", 1) != 0;
  int n = 0, step = 0;
  int64_t v = 0;
  if (mx_ndim(x) == 2) x = mx_expand_dims(x, MXI(2));
  if (!is_pairs(o, x) || !stft_length(o, &n) || !host_int(o, STFT_STEP, &v) || !fits_int(o, v, &step)) return;
  if (mx_ndim(x) != 3) op_fail(o, "the signal has rank %d, not 3", mx_ndim(x));
  if (step < 1) op_fail(o, "a frame step of %d", step);
  if (n > mx_dim(x, 1)) op_fail(o, "frames of %d in a signal of %d", n, mx_dim(x, 1));
  if (!mx_ok(o->s)) return;
  int frames = (mx_dim(x, 1) - n) / step + 1;
  if (mx_size(x) == 0) {
    out(o, 0, mx_full(o->s, MXI(mx_dim(x, 0), frames, half ? n / 2 + 1 : n, 2), 0, DT_F32));
    return;
  }
  x = frames_of(x, frames, n, step);
  if (window) x = mx_mul(x, mx_reshape(f32_up(window), MXI(n, 1)));
  out(o, 0, transform(x, n, 2, false, half));
}

static void stft_claim(claim *c) {
  REQUIRE(c, has_in(c, STFT_WINDOW) || has_in(c, STFT_LENGTH), "neither a window nor a frame length is given");
  // MLX 0.32.4 gives wrong numbers there.
  bool real = in_rank(c, STFT_SIGNAL) == 2 || in_dim(c, STFT_SIGNAL, -1) == 1;
  REQUIRE(c, c->device == MX_CPU || real, "a signal that may be complex, on this device");
}

// ---- windows --------------------------------------------------------------------------------------------------------
// n values, as integers cut toward zero where the output is of integers.
static mx from_doubles(op *o, double *v, size_t n, mx_ints shape) {
  dtype t = want_type(o, 0);
  if (t == DT_F64) return mx_from(o->s, v, t, shape);
  float *f = mem_alloc((n + 1) * sizeof *f);
  for (size_t i = 0; f && i < n; i++) {
    f[i] = (float)v[i];
    if (!dtype_is_float(t)) f[i] = isnan(v[i]) ? 0 : truncf(f[i]);
  }
  mx x = f ? mx_from(o->s, f, DT_F32, shape) : mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %zu values", n);
  mem_free(f);
  return x;
}

typedef struct cosines {
  double a0, a1, a2;  // a0 - a1 cos t + a2 cos 2t
} cosines;

static cosines window_form(const op *o) {
  if (!strcmp(o->n->op_type, "HannWindow")) return (cosines){0.5, 0.5, 0};
  if (!strcmp(o->n->op_type, "HammingWindow")) return (cosines){25.0 / 46.0, 21.0 / 46.0, 0};
  return (cosines){0.42, 0.5, 0.08};
}

static mx window_make(op *o) {
  int64_t v = 0;
  int n = 0;
  if (!host_int(o, 0, &v) || !fits_int(o, v, &n)) return in(o, 0);
  if (n < 0) return op_fail(o, "a window of size %d", n);
  double *w = mem_alloc(((size_t)n + 1) * sizeof *w), steps = attr_i(o->n, "periodic", 1) ? n : n - 1;
  if (!w) return mx_fail(o->s, ERR_NO_MEMORY, "out of memory for a window of %d", n);
  cosines a = window_form(o);
  for (int i = 0; i < n; i++) {
    double t = 2 * 3.14159265358979323846 * i / steps;
    w[i] = a.a0 - a.a1 * cos(t) + a.a2 * cos(2 * t);
  }
  mx x = from_doubles(o, w, (size_t)n, MXI(n));
  mem_free(w);
  return x;
}

static void window(op *o) { out(o, 0, is_const(o, 0) ? memo(o, 0, window_make) : window_make(o)); }

// ---- MelWeightMatrix ------------------------------------------------------------------------------------------------
enum { MEL_BINS, MEL_LENGTH, MEL_RATE, MEL_LOW, MEL_HIGH };

static double mel_of(double hz) { return 2595 * log10(1 + hz / 700); }
static double hz_of(double mel) { return 700 * (pow(10, mel / 2595) - 1); }

typedef struct mel {
  int64_t bins, length, rate, rows;
  double low, high;
} mel;

static bool mel_read(op *o, mel *m) {
  if (!host_int(o, MEL_BINS, &m->bins) || !host_int(o, MEL_LENGTH, &m->length) || !host_int(o, MEL_RATE, &m->rate) ||
      !host_float(o, MEL_LOW, &m->low) || !host_float(o, MEL_HIGH, &m->high))
    return false;
  if (m->bins < 0 || m->bins > INT_MAX / 8 || m->length < 1 || m->length > INT_MAX / 8 || m->rate < 1)
    op_fail(o, "%lld bins, length %lld, rate %lld", (long long)m->bins, (long long)m->length, (long long)m->rate);
  m->rows = m->length / 2 + 1;
  double scale = ((double)m->length + 1) / (double)m->rate;
  bool inside = m->low >= 0 && floor(m->low * scale) < (double)m->rows && m->high >= m->low && floor(m->high * scale) < (double)m->rows;
  if (mx_ok(o->s) && !inside) op_fail(o, "edges %g and %g are out of range for the rate and the length", m->low, m->high);
  return mx_ok(o->s);
}

// The spectrogram bin where triangle i begins.
static int64_t mel_bin(const mel *m, int64_t i) {
  double low = mel_of(m->low), step = (mel_of(m->high) - low) / (double)(m->bins + 2);
  double bin = floor(((double)m->length + 1) * hz_of(low + step * (double)i) / (double)m->rate);
  return bin < 0 ? 0 : bin > (double)(m->rows - 1) ? m->rows - 1 : (int64_t)bin;
}

static void mel_fill(const mel *m, double *w) {
  for (int64_t i = 0; i < m->bins; i++) {
    int64_t left = mel_bin(m, i), centre = mel_bin(m, i + 1), right = mel_bin(m, i + 2);
    if (centre == left) w[centre * m->bins + i] = 1;
    for (int64_t j = left; j <= centre && centre > left; j++)
      w[j * m->bins + i] = (double)(j - left) / (double)(centre - left);
    for (int64_t j = centre; j < right; j++) w[j * m->bins + i] = (double)(right - j) / (double)(right - centre);
  }
}

static mx mel_make(op *o) {
  mel m = {0};
  size_t n = 0, bytes = 0;
  if (!mel_read(o, &m)) return in(o, 0);
  bool fits = size_mul((size_t)m.rows, (size_t)m.bins, &n) && size_mul(n + 1, sizeof(double), &bytes);
  double *w = fits ? mem_alloc(bytes) : NULL;
  if (!w) return mx_fail(o->s, ERR_NO_MEMORY, "out of memory for a matrix of %lld by %lld", (long long)m.rows, (long long)m.bins);
  mel_fill(&m, w);
  mx x = from_doubles(o, w, n, MXI((int)m.rows, (int)m.bins));
  mem_free(w);
  return x;
}

static void mel_weights(op *o) {
  bool fixed = true;
  for (size_t i = 0; i <= MEL_HIGH; i++) fixed = fixed && is_const(o, i);
  out(o, 0, fixed ? memo(o, 0, mel_make) : mel_make(o));
}

// ---- com.microsoft --------------------------------------------------------------------------------------------------
static void fourier_claim(claim *c) {
  REQUIRE(c, attr_i(c->n, "onesided", 1) == 1, "onesided is not 1");
  REQUIRE(c, attr_i(c->n, "normalized", 0) == 0, "normalized is not 0");
  int64_t n = attr_i(c->n, "signal_ndim", 1);
  REQUIRE(c, n >= 1 && n <= 3, "signal_ndim is %lld", (long long)n);
}

// Rfft over the last signal_ndim axes.
static void rfft(op *o) {
  mx x = f32_up(in(o, 0));
  int rank = mx_ndim(x), n = (int)attr_i(o->n, "signal_ndim", 1);
  if (rank < n) op_fail(o, "the input has rank %d, which is below signal_ndim %d", rank, n);
  if (mx_ok(o->s) && mx_dim(x, -1) < 1) op_fail(o, "a transform of length 0");
  if (!mx_ok(o->s)) return;
  mx_ints shape = mx_shape(x);
  shape.v[rank - 1] = shape.v[rank - 1] / 2 + 1;
  shape.v[shape.n++] = 2;
  if (shape.n > MX_MAX_RANK) op_fail(o, "the output would have rank %d", shape.n);
  if (!mx_ok(o->s)) return;
  if (mx_size(x) == 0) {
    out(o, 0, mx_full(o->s, shape, 0, DT_F32));
    return;
  }
  mx z = mx_rfft(x, mx_dim(x, -1), rank - 1);
  for (int a = rank - 2; a >= rank - n; a--) z = mx_fft(z, mx_dim(z, a), a, false);
  out(o, 0, to_pairs(z));
}

// The length of the real signal is n or n + 1 for n / 2 + 1 numbers: only the declared shape tells which.
static int64_t irfft_length(const node *n) {
  const value *y = n->n_out ? n->out[0] : NULL;
  return y && y->rank > 0 ? y->dims[y->rank - 1] : -1;
}

static void irfft_claim(claim *c) {
  fourier_claim(c);
  CLAIM_GOES_ON(c);
  REQUIRE(c, irfft_length(c->n) > 0, "the length of the output is not declared");
}

static void irfft(op *o) {
  mx x = f32_up(in(o, 0));
  int rank = mx_ndim(x) - 1, n = (int)attr_i(o->n, "signal_ndim", 1), length = 0;
  if (!is_pairs(o, x) || !fits_int(o, irfft_length(o->n), &length)) return;
  if (rank < n || mx_dim(x, -1) != 2) op_fail(o, "the input must have %d axes of complex numbers", n);
  if (mx_dim(x, rank - 1) != length / 2 + 1) op_fail(o, "%d numbers for a signal of %d", mx_dim(x, rank - 1), length);
  if (!mx_ok(o->s)) return;
  mx_ints shape = mx_shape(x);
  shape.n = rank;
  shape.v[rank - 1] = length;
  if (mx_size(x) == 0) {
    out(o, 0, mx_full(o->s, shape, 0, DT_F32));
    return;
  }
  mx z = from_pairs(x);
  for (int a = rank - n; a < rank - 1; a++) z = mx_fft(z, mx_dim(z, a), a, true);
  out(o, 0, mx_irfft(z, length, rank - 1));
}

static mx real_of(mx x) { return mx_slice_axis(x, mx_ndim(x) - 1, 0, 1); }
static mx imaginary_of(mx x) { return mx_slice_axis(x, mx_ndim(x) - 1, 1, 2); }

static void complex_times(op *o, double sign) {
  mx a = f32_up(in(o, 0)), b = f32_up(in(o, 1));
  if (mx_ndim(a) < 1 || mx_ndim(b) < 1 || mx_dim(a, -1) != 2 || mx_dim(b, -1) != 2) {
    op_fail(o, "the last axis must hold two numbers");
    return;
  }
  mx ar = real_of(a), ai = imaginary_of(a), br = real_of(b), bi = mx_mul(imaginary_of(b), mx_scalar(b, sign));
  mx parts[2] = {mx_sub(mx_mul(ar, br), mx_mul(ai, bi)), mx_add(mx_mul(ar, bi), mx_mul(ai, br))};
  int last = mx_ndim(parts[0]) - 1;
  out(o, 0, mx_concatenate(o->s, parts, 2, last));
}

static void complex_mul(op *o) { complex_times(o, 1); }
static void complex_mul_conj(op *o) { complex_times(o, -1); }

const op_row ops_signal[] = {
    OP("", "DFT", 17, ANY, dft_claim, dft, .types = DTS_FLOAT, .host_in = IN(DFT_LENGTH) | IN(DFT_AXIS),
       .limits = "rank 2 or more, with 1 or 2 numbers along the last axis"),
    OP("", "STFT", 17, ANY, stft_claim, stft, .types = DTS_FLOAT, .host_in = IN(STFT_STEP) | IN(STFT_LENGTH),
       .limits = "a window or a frame length is given; on the GPU device no signal that may be complex"),
    OP("", "HannWindow", 17, ANY, NULL, window, .host_in = IN(0), .traits = OP_CHEAP),
    OP("", "HammingWindow", 17, ANY, NULL, window, .host_in = IN(0), .traits = OP_CHEAP),
    OP("", "BlackmanWindow", 17, ANY, NULL, window, .host_in = IN(0), .traits = OP_CHEAP),
    OP("", "MelWeightMatrix", 17, ANY, NULL, mel_weights,
       .host_in = IN(MEL_BINS) | IN(MEL_LENGTH) | IN(MEL_RATE) | IN(MEL_LOW) | IN(MEL_HIGH), .traits = OP_CHEAP),
    OP("com.microsoft", "Rfft", 1, ANY, fourier_claim, rfft, .types = DTS_FLOAT,
       .limits = "onesided is 1; normalized is 0; signal_ndim is 1 to 3"),
    OP("com.microsoft", "Irfft", 1, ANY, irfft_claim, irfft, .types = DTS_FLOAT,
       .limits = "as Rfft; the length of the output is declared"),
    OP("com.microsoft", "ComplexMul", 1, ANY, NULL, complex_mul, .host_in = 0),
    OP("com.microsoft", "ComplexMulConj", 1, ANY, NULL, complex_mul_conj, .host_in = 0),
    {0}};
