// The CPU's own kernels. An operator that has none, or whose every maker returns nullptr, runs its reference kernel.
//
// A family is a file with a function `register_cpu_<name>`, named in cpu/CMakeLists.txt.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "operators/schema.h"

namespace sluice::engine::cpu {

class Kernels {
 public:
  static const Kernels& get();

  // `maker` may return nullptr for a node it does not take. Those added first are asked first. `implementation` is what
  // profiles show.
  void add(std::string_view domain, std::string_view op, const char* implementation, MakeKernel maker);

  struct Choice {
    std::shared_ptr<Kernel> kernel;
    std::string implementation;
  };
  // `reference`: the operator's reference kernel in any case. Errors: a maker's; kUnimplemented if not even a reference
  // kernel is there.
  Result<Choice> make(KernelContext& context, bool reference) const;

 private:
  struct Maker {
    const char* implementation;
    MakeKernel make;
  };
  std::map<std::string, std::vector<Maker>, std::less<>> makers_;
};

}  // namespace sluice::engine::cpu
