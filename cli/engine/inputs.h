// A model's inputs from files, from a seeded generator, or both.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "images.h"

namespace sluice::cli {

struct InputOptions {
  std::vector<std::string> files;  // NAME=FILE; FILE alone for the only input, or an .npz file with arrays by name
  bool random = false;             // inputs that no file gives are drawn
  std::uint64_t seed = 0;
  std::optional<std::int64_t> batch;           // of inputs whose first dimension is open
  std::map<std::string, std::int64_t> dims;    // values of open dimensions that have a name
  std::map<std::string, engine::Dims> shapes;  // of inputs by name
  ImageOptions image;
};

struct Inputs {
  std::vector<Array> arrays;  // one for each input of the model, in its order
  std::int64_t batch = 1;     // of the first input whose first dimension is open; 1 if there is none
};

// "1x3x224x224" or "1,3,224,224". Errors: kInvalidArgument.
Result<engine::Dims> parse_shape(const std::string& text);

// How an input is drawn: each element from splitmix64, seeded by `seed` and the input's name, so that an input's values
// do not depend on the other inputs. float and double: uniform in [-1, 1), from 24 bits; float16 and bfloat16: of
// either sign, magnitude in [0.5, 1); integers and bool: 0 or 1, which are valid indices almost everywhere.
// Errors: kInvalidArgument, kResourceExhausted (the shape).
Result<Array> random_array(const std::string& name, engine::DType dtype, const engine::Dims& dims, std::uint64_t seed);

// Errors: kInvalidArgument (an input without a source, a file without an input, a shape that does not fit, a dimension
// that is open), and those of the readers.
Result<Inputs> gather_inputs(const std::vector<engine::TensorSpec>& specs, const InputOptions& options);

}  // namespace sluice::cli
