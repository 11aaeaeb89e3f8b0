#include "inputs.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "../suggest.h"
#include "npy.h"
#include "npz.h"

namespace sluice::cli {
namespace {

using engine::DType;
using engine::TensorSpec;

bool has_open_batch(const TensorSpec& spec) { return spec.has_rank && !spec.dims.empty() && spec.dims[0] < 0; }

std::string symbol(const TensorSpec& spec, std::size_t axis) {
  return axis < spec.symbols.size() ? spec.symbols[axis] : "";
}

std::uint64_t splitmix64(std::uint64_t& state) {  // https://prng.di.unimi.it/splitmix64.c
  std::uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

template <class T, class Draw>
void fill(Array& array, const Draw& draw) {
  auto* values = reinterpret_cast<T*>(array.data.data());
  for (std::size_t i = 0; i < array.data.size() / sizeof(T); ++i) {
    values[i] = static_cast<T>(draw());
  }
}

class Gatherer {
 public:
  Gatherer(const std::vector<TensorSpec>& specs, const InputOptions& options) : specs_(specs), options_(options) {}

  Result<Inputs> gather() {
    for (const auto& [name, unused] : options_.shapes) {
      if (find(name) == nullptr) {
        return no_input(name);
      }
    }
    for (const std::string& file : options_.files) {
      if (Status status = read(file); !status.ok()) {
        return status;
      }
    }
    Inputs inputs;
    bool batch_known = false;
    for (const TensorSpec& spec : specs_) {
      auto array = take(spec);
      if (!array.ok()) {
        return array.status();
      }
      if (has_open_batch(spec) && !batch_known && !array->dims.empty()) {
        inputs.batch = array->dims[0];
        batch_known = true;
      }
      inputs.arrays.push_back(std::move(*array));
    }
    return inputs;
  }

 private:
  const TensorSpec* find(const std::string& name) const {
    const auto found = std::find_if(specs_.begin(), specs_.end(), [&](const TensorSpec& s) { return s.name == name; });
    return found == specs_.end() ? nullptr : &*found;
  }

  Status no_input(const std::string& name) const {
    std::vector<std::string> names;
    std::string list;
    for (const TensorSpec& spec : specs_) {
      names.push_back(spec.name);
      list += (list.empty() ? "" : ", ") + spec.name;
    }
    const std::string hint = did_you_mean(name, names);
    return Status::error(Code::kInvalidArgument, "the model has no input '%.60s'%s", name.c_str(),
                         hint.empty() ? ("; its inputs: " + list.substr(0, 120)).c_str() : hint.c_str());
  }

  // One --input. A name may itself hold '=' or '/', so that the longest name before a '=' that the model has wins.
  Status read(const std::string& argument) {
    for (std::size_t at = argument.rfind('='); at != std::string::npos && at > 0; at = argument.rfind('=', at - 1)) {
      if (const TensorSpec* spec = find(argument.substr(0, at)); spec != nullptr) {
        return read_one(*spec, argument.substr(at + 1));
      }
    }
    if (argument.ends_with(".npz")) {
      return read_all(argument);
    }
    if (const std::size_t at = argument.find('='); at != std::string::npos) {
      return no_input(argument.substr(0, at));
    }
    if (specs_.size() != 1) {
      return Status::error(Code::kInvalidArgument, "the model has %zu inputs; say which one with --input NAME=%.80s",
                           specs_.size(), argument.c_str());
    }
    return read_one(specs_[0], argument);
  }

  Status read_all(const std::string& path) {
    auto arrays = read_npz_file(path);
    if (!arrays.ok()) {
      return arrays.status();
    }
    for (auto& [name, array] : *arrays) {
      if (find(name) == nullptr) {
        const Status status = no_input(name);
        return Status::error(Code::kInvalidArgument, "%s: %s", path.c_str(), status.message());
      }
      arrays_[name] = std::move(array);
    }
    return {};
  }

  Status read_one(const TensorSpec& spec, const std::string& path) {
    Result<Array> array = Status();
    if (path.ends_with(".npz")) {
      auto arrays = read_npz_file(path);
      if (!arrays.ok()) {
        return arrays.status();
      }
      const auto found = arrays->size() == 1 ? arrays->begin() : arrays->find(spec.name);
      if (found == arrays->end()) {
        return Status::error(Code::kInvalidArgument, "%s has no array '%.60s'", path.c_str(), spec.name.c_str());
      }
      array = std::move(found->second);
    } else {
      array = is_image(path) ? read_image(path, spec, options_.image) : read_npy_file(path);
    }
    if (!array.ok()) {
      return array.status();
    }
    arrays_[spec.name] = std::move(*array);
    return {};
  }

  Result<Array> take(const TensorSpec& spec) {
    const auto found = arrays_.find(spec.name);
    if (found != arrays_.end()) {
      return to_batch(spec, std::move(found->second));
    }
    if (!options_.random) {
      return Status::error(Code::kInvalidArgument, "no value for input '%.60s' (%s %s); add --input or --random",
                           spec.name.c_str(), engine::dtype_name(spec.dtype), shape_text(spec).c_str());
    }
    if (spec.decides_shapes) {
      return Status::error(Code::kInvalidArgument,
                           "input '%.60s' decides shapes, so --random cannot draw it; give it "
                           "with --input",
                           spec.name.c_str());
    }
    auto dims = shape_of(spec);
    return dims.ok() ? random_array(spec.name, spec.dtype, *dims, options_.seed) : Result<Array>(dims.status());
  }

  // One sample is repeated to fill the batch that is asked for.
  Result<Array> to_batch(const TensorSpec& spec, Array array) const {
    if (!options_.batch || !has_open_batch(spec) || array.dims.empty() || array.dims[0] == *options_.batch) {
      return array;
    }
    if (array.dims[0] != 1) {
      return Status::error(Code::kInvalidArgument, "input '%.60s' holds a batch of %lld, and --batch asks for %lld",
                           spec.name.c_str(), static_cast<long long>(array.dims[0]),
                           static_cast<long long>(*options_.batch));
    }
    array.dims[0] = *options_.batch;
    auto bytes = array_bytes(array.dtype, array.dims);
    if (!bytes.ok()) {
      return bytes.status();
    }
    const std::size_t sample = array.data.size();
    array.data.resize(*bytes);
    for (std::size_t at = sample; at < *bytes; at += sample) {
      std::copy_n(array.data.begin(), sample, array.data.begin() + static_cast<std::ptrdiff_t>(at));
    }
    return array;
  }

  // The batch dimension's name: it may stand elsewhere too.
  bool is_batch(const TensorSpec& spec, std::size_t axis) const {
    const std::string name = symbol(spec, axis);
    return axis == 0 || (!name.empty() && std::any_of(specs_.begin(), specs_.end(), [&](const TensorSpec& other) {
             return has_open_batch(other) && symbol(other, 0) == name;
           }));
  }

  Result<engine::Dims> shape_of(const TensorSpec& spec) const {
    if (const auto given = options_.shapes.find(spec.name); given != options_.shapes.end()) {
      return given->second;
    }
    if (!spec.has_rank) {
      return Status::error(Code::kInvalidArgument, "the model does not say the shape of input '%.60s'; use --shape",
                           spec.name.c_str());
    }
    engine::Dims dims = spec.dims;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const std::string name = symbol(spec, i);
      if (dims[i] >= 0) {
        continue;
      }
      if (const auto given = options_.dims.find(name); !name.empty() && given != options_.dims.end()) {
        dims[i] = given->second;
      } else if (is_batch(spec, i)) {
        dims[i] = options_.batch.value_or(1);
      } else {
        return Status::error(Code::kInvalidArgument, "dimension %zu of input '%.60s' (%s) is open; use %s%.60s=N", i,
                             spec.name.c_str(), shape_text(spec).c_str(), name.empty() ? "--shape " : "--dim ",
                             name.empty() ? spec.name.c_str() : name.c_str());
      }
    }
    return dims;
  }

  const std::vector<TensorSpec>& specs_;
  const InputOptions& options_;
  std::map<std::string, Array> arrays_;
};

}  // namespace

Result<engine::Dims> parse_shape(const std::string& text) {
  engine::Dims dims;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::int64_t dim = 0;
    const auto [rest, error] = std::from_chars(at, end, dim);
    if (error != std::errc() || dim < 0 || (rest != end && *rest != 'x' && *rest != ',') || rest + 1 == end) {
      return Status::error(Code::kInvalidArgument, "'%.60s' is no shape; write 1x3x224x224", text.c_str());
    }
    dims.push_back(dim);
    if (rest == end) {
      return dims;
    }
    at = rest + 1;
  }
}

Result<Array> random_array(const std::string& name, DType dtype, const engine::Dims& dims, std::uint64_t seed) {
  auto bytes = array_bytes(dtype, dims);
  if (!bytes.ok()) {
    return Status::error(bytes.status().code(), "input '%.60s': %s", name.c_str(), bytes.status().message());
  }
  Array array{dtype, dims, std::vector<std::byte>(*bytes)};
  std::uint64_t state = seed ^ fnv1a(name);
  const auto real = [&] { return static_cast<double>(splitmix64(state) >> 40) * 0x1p-23 - 1; };
  const auto bit = [&] { return splitmix64(state) >> 63; };
  if (dtype == DType::kFloat) {
    fill<float>(array, real);
  } else if (dtype == DType::kDouble) {
    fill<double>(array, real);
  } else if (dtype == DType::kFloat16) {
    fill<std::uint16_t>(array, [&] { return 0x3800u | (splitmix64(state) >> 48 & 0x83ffu); });
  } else if (dtype == DType::kBFloat16) {
    fill<std::uint16_t>(array, [&] { return 0x3f00u | (splitmix64(state) >> 48 & 0x807fu); });
  } else if (engine::dtype_bytes(dtype) == 1) {
    fill<std::uint8_t>(array, bit);
  } else if (engine::dtype_bytes(dtype) == 2) {
    fill<std::uint16_t>(array, bit);
  } else if (engine::dtype_bytes(dtype) == 4) {
    fill<std::uint32_t>(array, bit);
  } else {
    fill<std::uint64_t>(array, bit);
  }
  return array;
}

Result<Inputs> gather_inputs(const std::vector<TensorSpec>& specs, const InputOptions& options) {
  return Gatherer(specs, options).gather();
}

}  // namespace sluice::cli
