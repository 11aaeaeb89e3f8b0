/* A whole use of the interface, compiled as C99. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs a model with the input x and the output y, both float[rows, 4]. A sluice_code, or -1 if y is something else. */
int run_from_c(const char* path, const float* x, int64_t rows, float* y);

#ifdef __cplusplus
}
#endif
