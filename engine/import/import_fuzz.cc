// Any bytes as an ONNX file: loaded, optimised and, where its inputs have small shapes, compiled; or refused with
// a reason. Within small limits, so that what a file may ask for shows as memory that libFuzzer bounds.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "sluice/engine.h"

namespace {

using namespace sluice;

constexpr std::int64_t kMostElements = 4096;

void check(const Status& status) {
  if (!status.ok() && status.message()[0] == '\0') std::abort();
}

// Runs it on zeros, open dimensions being 2.
void run(const std::shared_ptr<engine::Model>& model) {
  auto session = engine::Session::create(model);
  std::vector<std::vector<std::uint64_t>> memory;
  for (const engine::TensorSpec& spec : model->inputs()) {
    engine::Dims dims = spec.dims;
    std::int64_t elements = 1;
    for (std::int64_t& dim : dims) {
      dim = dim < 0 ? 2 : dim;
      if (dim > kMostElements || (elements *= dim) > kMostElements) return;
    }
    memory.emplace_back(static_cast<std::size_t>(elements) * 2 + 1);
    const Status status = (*session)->set_input(spec.name, spec.dtype, dims, memory.back().data());
    check(status);
    if (!status.ok()) return;
  }
  check((*session)->run());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int file = memfd_create("model", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) return 0;
  engine::Options options;
  options.threads = 1;
  options.limits.structure_bytes = 1u << 20;
  options.limits.external_bytes = 1u << 20;
  options.limits.tensor_bytes = 1u << 16;  // also bounds the time that one operator takes
  options.limits.memory_bytes = 8u << 20;
  options.limits.elements = 20'000;
  options.limits.nodes = 256;
  options.limits.tensors = 1'000;
  const auto model = engine::Model::load(path, options);
  check(model.status());
  if (model.ok()) run(*model);
  return 0;
}
