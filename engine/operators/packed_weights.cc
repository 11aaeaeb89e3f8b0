#include "operators/packed_weights.h"

namespace sluice::engine {

Result<std::shared_ptr<const void>> PackedWeights::get(const Tensor& tensor, const std::string& form,
                                                       const Make& make) {
  // Held while packing: a second session that compiles meanwhile wants the same weights, not a second copy.
  const std::lock_guard lock(mutex_);
  const auto key = std::make_pair(tensor.data(), form);
  if (const auto found = entries_.find(key); found != entries_.end()) {
    return found->second.packed;
  }
  auto packed = make();
  if (packed.ok()) {
    entries_.emplace(key, Entry{tensor.owner(), *packed});
    tensor.drop_pages();
  }
  return packed;
}

}  // namespace sluice::engine
