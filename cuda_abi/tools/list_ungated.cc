// Lists the entry points that give the GPU work and that the shim does not gate: what a low job could do unheld.
//
//   list_ungated [--json] SHIM
//
// SHIM is Sluice's libcuda.so.1. Exit code: 0 all are gated, 1 some are not, 2 bad usage or input.
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
  std::fputs("usage: list_ungated [--json] SHIM\n", stderr);
  return kUsage;
}

void print_json(const std::vector<const Entry*>& ungated, std::size_t gated) {
  std::printf("{\"gated\": %zu, \"ungated\": [", gated);
  for (std::size_t i = 0; i < ungated.size(); ++i) {
    const Entry& e = *ungated[i];
    std::printf("%s\n  {\"symbol\": \"%s\", \"name\": \"%s\", \"version\": %d, \"flags\": %llu}", i ? "," : "",
                e.symbol, e.name, e.version, static_cast<unsigned long long>(e.flags));
  }
  std::printf("%s]}\n", ungated.empty() ? "" : "\n");
}

}  // namespace

int main(int argc, char** argv) {
  bool json = false;
  const char* path = nullptr;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
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
  const auto symbols = reinterpret_cast<const char* const* (*)()>(dlsym(shim, "sluice_shim_gated_symbols"));
  if (!symbols) {
    std::fprintf(stderr, "list_ungated: %s is not Sluice's shim: it has no sluice_shim_gated_symbols\n", path);
    return kUsage;
  }
  std::unordered_set<std::string> gated;
  for (const char* const* s = symbols(); *s; ++s) gated.insert(*s);

  std::vector<const Entry*> ungated;
  for (const Entry& e : sluice::cuda_abi::entries()) {
    if (e.cls == Class::kSubmits && !gated.contains(e.symbol)) ungated.push_back(&e);
  }
  if (json) {
    print_json(ungated, gated.size());
  } else {
    for (const Entry* e : ungated) std::printf("%s\n", e->symbol);
    std::fprintf(stderr, "%zu gated, %zu not\n", gated.size(), ungated.size());
  }
  return ungated.empty() ? kOk : kFailed;
}
