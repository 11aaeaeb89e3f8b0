// Weights in the form that kernels want, made once for a model and shared by its programs and sessions.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "ir/tensor.h"

namespace sluice::engine {

// Thread safe.
class PackedWeights {
 public:
  using Make = std::function<Result<std::shared_ptr<const void>>()>;

  // What was made of `tensor` under `form` ("conv:OIhw8i8o"), else what `make` makes now. The tensor's bytes are its
  // identity and stay alive as long as the entry, but take no memory where a file has them. Errors: make's.
  Result<std::shared_ptr<const void>> get(const Tensor& tensor, const std::string& form, const Make& make);

 private:
  struct Entry {
    std::shared_ptr<const void> owner;
    std::shared_ptr<const void> packed;
  };
  std::mutex mutex_;
  std::map<std::pair<const std::byte*, std::string>, Entry> entries_;
};

}  // namespace sluice::engine
