#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/opts.h"
#include "base/text.h"
#include "unit.h"

static void first_error_wins(void) {
  err e = {0};
  CHECK(!FAIL(&e, ERR_INVALID, "shape %d", 3));
  FAIL(&e, ERR_MLX, "later");
  err_add(&e, "node '%s': ", "a");
  CHECK(e.code == ERR_INVALID);
  CHECK_STR(e.msg, "node 'a': shape 3");
}

static void long_messages_are_cut(void) {
  err e = {0};
  char big[2000];
  memset(big, 'x', sizeof big - 1);
  big[sizeof big - 1] = '\0';
  FAIL(&e, ERR_INVALID, "%s", big);
  err_add(&e, "%s", big);
  CHECK(strlen(e.msg) == sizeof e.msg - 1);
}

static void sizes_are_checked(void) {
  size_t n = 0;
  CHECK(dims_count((int64_t[]){2, 3, 4}, 3, &n) && n == 24);
  CHECK(dims_count(NULL, 0, &n) && n == 1);
  CHECK(!dims_count((int64_t[]){-1, 3}, 2, &n));
  CHECK(!dims_count((int64_t[]){INT64_MAX, 3}, 2, &n));
  arena *a = arena_new();
  CHECK(arena_alloc(a, SIZE_MAX / 2, 4) == NULL);
  arena_free(a);
}

static void arena_memory_is_zeroed_and_aligned(void) {
  arena *a = arena_new();
  for (size_t i = 1; i < 3000; i += 7) {
    unsigned char *p = arena_alloc(a, i, 1);
    CHECK(p && (uintptr_t)p % 16 == 0 && p[0] == 0 && p[i - 1] == 0);
    if (p) memset(p, 0xff, i);
  }
  arena_free(a);
}

static void allocations_can_fail(void) {
  mem_fail_after(1);
  CHECK(arena_new() == NULL);
  mem_fail_after(2);
  void *first = mem_alloc(8), *second = mem_alloc(8);
  CHECK(first && !second);
  mem_fail_after(0);
  mem_free(first);
}

static void options_are_checked(void) {
  opts o;
  err e = {0};
  setenv("ONNX_GENAI_MLX_NO_COMPILE", "1", 1);
  setenv("MLX_EP_NO_GENERAL_COMPILE", "0", 1);
  opts_init(&o);
  CHECK(o.no_compile && !o.no_general_compile);
  unsetenv("ONNX_GENAI_MLX_NO_COMPILE");
  unsetenv("MLX_EP_NO_GENERAL_COMPILE");
  opts_init(&o);
  CHECK(!o.no_compile);
  CHECK(opts_set(&o, "device", "cpu", &e) && o.device == DEVICE_CPU);
  CHECK(!opts_set(&o, "device", "tpu", &e));
  CHECK_HAS(e.msg, "auto, cpu or gpu");
  e = (err){0};
  CHECK(!opts_set(&o, "devise", "cpu", &e));
  CHECK_HAS(e.msg, "unknown option 'devise'");
}

static void json_text_is_escaped(void) {
  text t = {0};
  text_json(&t, "a\"b\\\n");
  CHECK_STR(t.s, "\"a\\\"b\\\\\\u000a\"");
  text_free(&t);
}

static void elements_that_share_a_byte(void) {
  static const struct {
    dtype t;
    uint8_t packed[2], codes[5];
    size_t n;
  } CASES[] = {{DT_I4, {0x8f, 0x07}, {0xff, 0xf8, 7}, 3}, {DT_U4, {0x8f, 0x07}, {15, 8, 7}, 3}, {DT_F4E2M1, {0xf8, 0x01}, {8, 15, 1}, 3},
               {DT_I2, {0xe4, 0x03}, {0, 1, 0xfe, 0xff, 0xff}, 5}, {DT_U2, {0xe4, 0x03}, {0, 1, 2, 3, 3}, 5}};
  for (size_t k = 0; k < sizeof CASES / sizeof CASES[0]; k++) {
    uint8_t codes[5] = {0}, packed[2] = {0xaa, 0xaa};
    dtype_unpack(CASES[k].t, CASES[k].packed, codes, CASES[k].n);
    dtype_pack(CASES[k].t, codes, packed, CASES[k].n);
    CHECK(!memcmp(codes, CASES[k].codes, CASES[k].n));
    CHECK(!memcmp(packed, CASES[k].packed, 2));
  }
  CHECK(dtype_shared(DT_F8E8M0) == 1 && dtype_code(DT_F8E8M0) == DT_U8 && dtype_code(DT_F16) == DT_F16);
}

void base_tests(void) {
  first_error_wins();
  long_messages_are_cut();
  sizes_are_checked();
  arena_memory_is_zeroed_and_aligned();
  allocations_can_fail();
  options_are_checked();
  json_text_is_escaped();
  elements_that_share_a_byte();
  CHECK_STR(dtype_name(DT_BF16), "bfloat16");
  CHECK(dtype_size(DT_I64) == 8 && dtype_size(DT_STRING) == 0 && dtype_size((dtype)99) == 0);
}
