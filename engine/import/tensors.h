// TensorProto -> Tensor, external data included.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "import/mapped_file.h"
#include "import/wire.h"
#include "ir/tensor.h"

namespace onnx {
class TensorProto;
}

namespace sluice::engine {

class TensorReader {
 public:
  TensorReader(std::string directory, std::shared_ptr<const MappedFile> file, const SlimModel& slim,
               const Limits& limits)
      : directory_(std::move(directory)), file_(std::move(file)), slim_(slim), limits_(limits) {}

  // Errors: kUnimplemented (types), kInvalidArgument (sizes that do not agree), kPermissionDenied, kNotFound,
  // kResourceExhausted. The message names the tensor.
  Result<Tensor> read(const onnx::TensorProto& proto);

 private:
  Result<Tensor> read_external(const onnx::TensorProto& proto, DType dtype, Dims dims, std::size_t bytes);

  std::string directory_;
  std::shared_ptr<const MappedFile> file_;
  const SlimModel& slim_;
  const Limits& limits_;
  std::map<std::string, std::shared_ptr<const MappedFile>> external_;
  std::uint64_t external_bytes_ = 0;
};

}  // namespace sluice::engine
