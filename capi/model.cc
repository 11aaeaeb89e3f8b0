#include <algorithm>
#include <cstring>
#include <string_view>

#include "error.h"
#include "handles.h"

namespace {

using sluice::Code;
using sluice::Status;
using sluice::capi::guarded;
using sluice::capi::null_argument;
namespace engine = sluice::engine;

static_assert(static_cast<int>(engine::DType::kFloat) == SLUICE_FLOAT);
static_assert(static_cast<int>(engine::DType::kFloat16) == SLUICE_FLOAT16);
static_assert(static_cast<int>(engine::DType::kUint64) == SLUICE_UINT64);

// The caller's struct as this library knows it: an older caller's is shorter, and what a newer one has behind the end
// of ours must be zero, the default.
Status read_options(const sluice_model_options* from, sluice_model_options& options) {
  options = {};
  if (from == nullptr) {
    return {};
  }
  const std::size_t size = from->size;
  if (size < sizeof(std::size_t) || size > 4096) {
    return Status::error(Code::kInvalidArgument, "the options' size is %zu; set it to sizeof(sluice_model_options)",
                         size);
  }
  std::memcpy(&options, from, std::min(size, sizeof options));
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  if (size > sizeof options && std::any_of(bytes + sizeof options, bytes + size, [](auto byte) { return byte != 0; })) {
    return Status::error(Code::kInvalidArgument, "the options have a field that libsluice %s does not know",
                         sluice_version());
  }
  return {};
}

Status to_engine(const sluice_model_options& from, engine::Options& options) {
  if (from.device != nullptr) {
    options.device = from.device;
  }
  options.threads = from.threads;
  const std::string_view precision = from.precision == nullptr ? "fp32" : from.precision;
  if (precision == "fp16") {
    options.precision = engine::Precision::kFp16;
  } else if (precision != "fp32") {
    return Status::error(Code::kInvalidArgument, "there is no precision '%.40s'; use fp32 or fp16", from.precision);
  }
  std::string_view passes = from.passes_off == nullptr ? "" : from.passes_off;
  while (!passes.empty()) {
    const std::size_t comma = std::min(passes.find(','), passes.size());
    if (comma > 0) {
      options.passes_off.emplace_back(passes.substr(0, comma));
    }
    passes.remove_prefix(std::min(comma + 1, passes.size()));
  }
  return {};
}

Status check_index(std::size_t index, std::size_t count, const char* what) {
  if (index < count) {
    return {};
  }
  return Status::error(Code::kInvalidArgument, "there is no %s %zu; the model has %zu", what, index, count);
}

}  // namespace

int sluice_model_load(const char* path, const sluice_model_options* options, sluice_model** out) {
  return guarded([&] {
    if (path == nullptr || out == nullptr) {
      return null_argument("sluice_model_load", path == nullptr ? "path" : "out");
    }
    sluice_model_options known;
    engine::Options wanted;
    if (Status status = read_options(options, known); !status.ok()) {
      return status;
    }
    if (Status status = to_engine(known, wanted); !status.ok()) {
      return status;
    }
    auto model = engine::Model::load(path, wanted);
    if (!model.ok()) {
      return model.status();
    }
    *out = new sluice_model{std::move(*model)};
    return Status();
  });
}

void sluice_model_release(sluice_model* model) { delete model; }

size_t sluice_model_input_count(const sluice_model* model) {
  return model == nullptr ? 0 : model->model->inputs().size();
}

size_t sluice_model_output_count(const sluice_model* model) {
  return model == nullptr ? 0 : model->model->outputs().size();
}

int sluice_model_input(const sluice_model* model, size_t index, const char** name, sluice_dtype* dtype, size_t* rank,
                       const int64_t** dims) {
  return guarded([&] {
    if (model == nullptr || name == nullptr) {
      return null_argument("sluice_model_input", model == nullptr ? "model" : "name");
    }
    if (Status status = check_index(index, model->model->inputs().size(), "input"); !status.ok()) {
      return status;
    }
    const engine::TensorSpec& spec = model->model->inputs()[index];
    *name = spec.name.c_str();
    if (dtype != nullptr) {
      *dtype = static_cast<sluice_dtype>(spec.dtype);
    }
    if (rank != nullptr) {
      *rank = spec.has_rank ? spec.dims.size() : SLUICE_ANY_RANK;
    }
    if (dims != nullptr) {
      *dims = spec.dims.data();
    }
    return Status();
  });
}

int sluice_model_output(const sluice_model* model, size_t index, const char** name) {
  return guarded([&] {
    if (model == nullptr || name == nullptr) {
      return null_argument("sluice_model_output", model == nullptr ? "model" : "name");
    }
    if (Status status = check_index(index, model->model->outputs().size(), "output"); !status.ok()) {
      return status;
    }
    *name = model->model->outputs()[index].name.c_str();
    return Status();
  });
}
