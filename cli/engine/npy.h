// NumPy's .npy files (format versions 1 to 3), read and written. Not read: Fortran order, big-endian numbers, strings,
// records and Python objects.
#pragma once

#include <functional>
#include <string>

#include "arrays.h"

namespace sluice::cli {

// Puts up to `size` bytes at `to` and says how many; fewer than asked is the end or an error.
using ReadBytes = std::function<std::size_t(char* to, std::size_t size)>;

// Reads one array of `size` bytes, its header included. Errors: kInvalidArgument, kResourceExhausted; messages say what
// is wrong, not where.
Result<Array> read_npy(const ReadBytes& read, std::uint64_t size);

// Errors: kNotFound, kInvalidArgument, kResourceExhausted; messages begin with the path.
Result<Array> read_npy_file(const std::string& path);

// What stands before the data. Errors: kUnimplemented (bfloat16, which NumPy lacks).
Result<std::string> npy_header(engine::DType dtype, const engine::Dims& dims);

// Errors: kInvalidArgument (the file cannot be written), kUnimplemented.
Status write_npy_file(const std::string& path, const engine::TensorView& view);

}  // namespace sluice::cli
