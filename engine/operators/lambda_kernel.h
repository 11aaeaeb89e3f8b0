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
  LambdaKernel(F f, std::size_t scratch) : f_(std::move(f)), scratch_(scratch) {}
  Status run(const KernelRun& run) override {
    if constexpr (std::is_void_v<std::invoke_result_t<F&, const KernelRun&>>) {
      f_(run);
      return {};
    } else {
      return f_(run);
    }
  }
  std::size_t scratch_bytes() const override { return scratch_; }

 private:
  F f_;
  std::size_t scratch_;
};

// `scratch`: bytes that f finds in KernelRun::scratch.
template <class F>
Result<std::unique_ptr<Kernel>> make_kernel(F f, std::size_t scratch = 0) {
  return Result<std::unique_ptr<Kernel>>(std::make_unique<LambdaKernel<F>>(std::move(f), scratch));
}

}  // namespace sluice::engine
