// Lists the entry points that give the GPU work and that the shim does not gate: what a low job could do unheld. With
// --memory: those that take or give back memory and that the shim does not count, except where the table says why not.
//
//   list_ungated [--memory] [--json] SHIM
//
// SHIM is Sluice's libcuda.so.1. Exit code: 0 all are gated (counted), 1 some are not, 2 bad usage or input.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <unordered_set>
#include <vector>

#include "sluice/cuda_abi.h"

using sluice::cuda_abi::Class;
using sluice::cuda_abi::Entry;

namespace {

enum Exit { kOk = 0, kFailed = 1, kUsage = 2 };

int usage() {
  std::fputs("usage: list_ungated [--memory] [--json] SHIM\n", stderr);
  return kUsage;
}

struct Uncounted {
  const char* symbol;
  const char* reason;
};
constexpr Uncounted kUncounted[] = {
#define SLUICE_ALLOCATE(symbol, road, params, args)
#define SLUICE_UNCOUNTED(symbol, reason) {#symbol, reason},
#include "sluice/cuda_abi/allocates.inc"
};

const char* reason_of(const char* symbol) {
  for (const Uncounted& entry : kUncounted) {
    if (std::strcmp(entry.symbol, symbol) == 0) return entry.reason;
  }
  return nullptr;
}

void print_json(const std::vector<const Entry*>& ungated, std::size_t gated, bool memory) {
  std::printf("{\"%s\": %zu, \"%s\": [", memory ? "counted" : "gated", gated, memory ? "uncounted" : "ungated");
  for (std::size_t i = 0; i < ungated.size(); ++i) {
    const Entry& e = *ungated[i];
    std::printf("%s\n  {\"symbol\": \"%s\", \"name\": \"%s\", \"version\": %d, \"flags\": %llu}", i ? "," : "",
                e.symbol, e.name, e.version, static_cast<unsigned long long>(e.flags));
  }
  std::printf("%s]", ungated.empty() ? "" : "\n");
  if (memory) {
    std::printf(", \"not_counted_by_design\": [");
    bool first = true;
    for (const Uncounted& entry : kUncounted) {
      std::printf("%s\n  {\"symbol\": \"%s\", \"reason\": \"%s\"}", first ? "" : ",", entry.symbol, entry.reason);
      first = false;
    }
    std::printf("]");
  }
  std::printf("}\n");
}

}  // namespace

int main(int argc, char** argv) {
  bool json = false, memory = false;
  const char* path = nullptr;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else if (std::strcmp(argv[i], "--memory") == 0) {
      memory = true;
    } else if (argv[i][0] == '-' || path) {
      return usage();
    } else {
      path = argv[i];
    }
  }
  if (!path) return usage();

  // A path without a slash would make dlopen search, and find the installed driver.
  const std::string file = std::strchr(path, '/') ? path : std::string("./") + path;
  void* shim = dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!shim) {
    std::fprintf(stderr, "list_ungated: %s\n", dlerror());
    return kUsage;
  }
  const char* function = memory ? "sluice_shim_counted_symbols" : "sluice_shim_gated_symbols";
  const auto symbols = reinterpret_cast<const char* const* (*)()>(dlsym(shim, function));
  if (!symbols) {
    std::fprintf(stderr, "list_ungated: %s is not Sluice's shim: it has no %s\n", path, function);
    return kUsage;
  }
  std::unordered_set<std::string> gated;
  for (const char* const* s = symbols(); *s; ++s) gated.insert(*s);

  std::vector<const Entry*> ungated;
  for (const Entry& e : sluice::cuda_abi::entries()) {
    if (e.cls != (memory ? Class::kAllocates : Class::kSubmits) || gated.contains(e.symbol)) continue;
    if (!memory || reason_of(e.symbol) == nullptr) ungated.push_back(&e);
  }
  if (json) {
    print_json(ungated, gated.size(), memory);
  } else {
    for (const Entry* e : ungated) std::printf("%s\n", e->symbol);
    std::fprintf(stderr, memory ? "%zu counted, %zu not\n" : "%zu gated, %zu not\n", gated.size(), ungated.size());
    for (const Uncounted& entry : kUncounted) {
      if (memory) std::fprintf(stderr, "by design not: %s (%s)\n", entry.symbol, entry.reason);
    }
  }
  return ungated.empty() ? kOk : kFailed;
}
