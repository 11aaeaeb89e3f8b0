// A kernel from a callable: Status f(const KernelRun&), or void.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "operators/schema.h"

namespace sluice::engine {

template <class F>
class LambdaKernel final : public Kernel {
 public:
  explicit LambdaKernel(F f) : f_(std::move(f)) {}
  Status run(const KernelRun& run) override {
    if constexpr (std::is_void_v<std::invoke_result_t<F&, const KernelRun&>>) {
      f_(run);
      return {};
    } else {
      return f_(run);
    }
  }

 private:
  F f_;
};

template <class F>
Result<std::unique_ptr<Kernel>> make_kernel(F f) {
  return Result<std::unique_ptr<Kernel>>(std::make_unique<LambdaKernel<F>>(std::move(f)));
}

}  // namespace sluice::engine
