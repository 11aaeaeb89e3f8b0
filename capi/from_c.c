/* The header in C99, as a C program uses it. */
#include "from_c.h"

#include <string.h>

#include "sluice.h"

int run_from_c(const char* path, const float* x, int64_t rows, float* y) {
  sluice_model_options options = {sizeof options, "cpu", "fp32", 1, NULL};
  sluice_model* model = NULL;
  sluice_session* session = NULL;
  const int64_t dims[] = {rows, 4};
  int code = sluice_model_load(path, &options, &model);
  if (code == SLUICE_OK) code = sluice_session_create(model, &session);
  sluice_model_release(model); /* the session keeps what it needs */
  if (code == SLUICE_OK) code = sluice_session_set_input(session, "x", SLUICE_FLOAT, 2, dims, x);
  if (code == SLUICE_OK) code = sluice_session_run(session);
  if (code == SLUICE_OK) {
    sluice_dtype dtype;
    size_t rank;
    const int64_t* out_dims;
    const void* data;
    code = sluice_session_output(session, "y", &dtype, &rank, &out_dims, &data);
    if (code == SLUICE_OK && (dtype != SLUICE_FLOAT || rank != 2 || out_dims[0] != rows || out_dims[1] != 4)) code = -1;
    if (code == SLUICE_OK) memcpy(y, data, (size_t)rows * 4 * sizeof *y);
  }
  sluice_session_destroy(session);
  return code;
}
