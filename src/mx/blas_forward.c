// Matrix products of libmlx, on Linux, sent to OpenBLAS. The wheel's libmlx is linked to the reference BLAS, which is 40
// times slower. libmlx is loaded as a dependency of this library, so the dynamic linker resolves its cblas_* to the
// definitions below; they hand on to the scipy-openblas32 package, or to the library that libmlx came with when that
// package is missing. Without effect when the host process had loaded libmlx before.
// Linked into the shared library only: an archive member that nobody names would be left out.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

// CBLAS: order and transposes are enums (int), sizes are 32-bit ints, scalars of complex products come by pointer.
typedef void sgemm_fn(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
typedef void dgemm_fn(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);
typedef void cgemm_fn(int, int, int, int, int, int, const void *, const void *, int, const void *, int, const void *,
                      void *, int);
EXPORT sgemm_fn cblas_sgemm;
EXPORT dgemm_fn cblas_dgemm;
EXPORT cgemm_fn cblas_cgemm;

static struct {
  sgemm_fn *s;
  dgemm_fn *d;
  cgemm_fn *c;
} to;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *open_beside(const char *relative) {
  Dl_info self;
  char path[4096];
  if (!dladdr((void *)&to, &self) || !self.dli_fname) return NULL;
  const char *slash = strrchr(self.dli_fname, '/');
  int dir = slash ? (int)(slash - self.dli_fname) : 1;
  int n = snprintf(path, sizeof path, "%.*s/%s", dir, slash ? self.dli_fname : ".", relative);
  return n > 0 && (size_t)n < sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static void *open_blas(void) {
  void *lib = open_beside("../scipy_openblas32/lib/libscipy_openblas.so");
#ifdef MLXEP_OPENBLAS  // where the build found the package
  if (!lib) lib = dlopen(MLXEP_OPENBLAS, RTLD_NOW | RTLD_LOCAL);
#endif
  return lib;
}

// A function pointer out of dlsym's void *, as POSIX allows.
static void find(void *lib, const char *ours, const char *theirs, void *slot) {
  void *f = lib ? dlsym(lib, theirs) : NULL;
  if (!f) f = dlsym(RTLD_NEXT, ours);
  memcpy(slot, &f, sizeof f);
}

static void resolve(void) {
  void *lib = open_blas();
  find(lib, "cblas_sgemm", "scipy_cblas_sgemm", &to.s);
  find(lib, "cblas_dgemm", "scipy_cblas_dgemm", &to.d);
  find(lib, "cblas_cgemm", "scipy_cblas_cgemm", &to.c);
}

EXPORT void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                        int ldb, float beta, float *c, int ldc) {
  pthread_once(&once, resolve);
  to.s(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

EXPORT void cblas_dgemm(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a, int lda,
                        const double *b, int ldb, double beta, double *c, int ldc) {
  pthread_once(&once, resolve);
  to.d(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

EXPORT void cblas_cgemm(int order, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int lda,
                        const void *b, int ldb, const void *beta, void *c, int ldc) {
  pthread_once(&once, resolve);
  to.c(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
