#include "sluice/driver.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "ld_cache.h"
#include "sluice/base/glibc_compat.h"

namespace sluice::driver {
namespace {

constexpr char kSoname[] = "libcuda.so.1";
constexpr char kLinkerCache[] = "/etc/ld.so.cache";
constexpr const char* kUsualDirectories[] = {
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",          "/run/opengl-driver/lib",     "/usr/lib"};
constexpr const char* kSkippedDirectories[] = {"/sluice/shim", "/sluice/emulator", "/stubs"};

bool is_skipped(const char* directory, std::size_t length) {
  while (length > 1 && directory[length - 1] == '/') --length;
  for (const char* suffix : kSkippedDirectories) {
    const std::size_t tail = std::strlen(suffix);
    if (length >= tail && std::memcmp(directory + length - tail, suffix, tail) == 0) return true;
  }
  return false;
}

// A driver, and neither of Sluice's two. One that is stays open: it is about to be used.
bool is_driver(void* handle) {
  if (handle == nullptr) return false;
  if (!is_shim(handle) && !is_emulator(handle) && symbol_address(handle, "cuInit") != nullptr) return true;
  dlclose(handle);
  return false;
}

// Whether `path` can be opened and is a driver.
bool try_path(const char* path) {
  const char* slash = std::strrchr(path, '/');
  if (path[0] != '/' || is_skipped(path, static_cast<std::size_t>(slash - path))) return false;
  return access(path, R_OK) == 0 && is_driver(dlopen(path, RTLD_LAZY | RTLD_LOCAL));
}

bool try_directory(const char* directory, std::size_t length, char* out, std::size_t bytes) {
  const int written = snprintf(out, bytes, "%.*s/%s", static_cast<int>(length), directory, kSoname);
  return written > 0 && static_cast<std::size_t>(written) < bytes && try_path(out);
}

bool try_library_path(char* out, std::size_t bytes) {
  const char* at = getenv("LD_LIBRARY_PATH");
  while (at != nullptr && *at != '\0') {
    const std::size_t length = std::strcspn(at, ":;");
    if (length < PATH_MAX && try_directory(at, length, out, bytes)) return true;
    at += length;
    if (*at != '\0') ++at;
  }
  return false;
}

bool try_linker_cache(char* out, std::size_t bytes) {
  const int fd = open(kLinkerCache, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const off_t size = lseek(fd, 0, SEEK_END);
  void* data = size > 0 ? mmap(nullptr, static_cast<std::size_t>(size), PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  close(fd);
  if (data == MAP_FAILED) return false;
  const LdCache cache(data, static_cast<std::size_t>(size));
  bool found = false;
  for (std::uint32_t i = 0; i < cache.size() && !found; ++i) {
    const char* path = cache.path_of(i, kSoname);
    if (path == nullptr) continue;
    const int written = snprintf(out, bytes, "%s", path);
    found = written > 0 && static_cast<std::size_t>(written) < bytes && try_path(out);
  }
  munmap(data, static_cast<std::size_t>(size));
  return found;
}

// The dynamic linker's own answer, for set-ups that none of the above knows; outside the shim only, whose soname it is.
bool try_linker(char* out, std::size_t bytes) {
  void* handle = dlopen(kSoname, RTLD_LAZY | RTLD_LOCAL);
  if (!is_driver(handle)) return false;
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return false;
  const int written = snprintf(out, bytes, "%s", map->l_name);
  return written > 0 && static_cast<std::size_t>(written) < bytes && out[0] == '/';
}

const char* last_dl_error() {
  const char* text = dlerror();
  return text != nullptr ? text : "unknown error";
}

}  // namespace

Status find_library(char* out, std::size_t bytes) {
  if (const char* set = getenv("SLUICE_DRIVER"); set != nullptr && set[0] != '\0') {
    const int written = snprintf(out, bytes, "%s", set);
    if (set[0] != '/' || written < 0 || static_cast<std::size_t>(written) >= bytes) {
      return Status::error(Code::kUnavailable, "SLUICE_DRIVER is '%.120s'; it must be an absolute path", set);
    }
    if (access(set, R_OK) == 0) return {};
    return Status::error(Code::kUnavailable, "SLUICE_DRIVER names %.120s, which cannot be read", set);
  }
  if (try_library_path(out, bytes) || try_linker_cache(out, bytes)) return {};
  for (const char* directory : kUsualDirectories) {
    if (try_directory(directory, std::strlen(directory), out, bytes)) return {};
  }
  if (try_linker(out, bytes)) return {};
  if (bytes != 0) out[0] = '\0';
  return Status::error(Code::kUnavailable,
                       "no NVIDIA driver: %s was not found; install the driver or set SLUICE_DRIVER to its path",
                       kSoname);
}

Result<void*> open_library(const char* path) {
  char found[PATH_MAX];
  if (path == nullptr) {
    if (Status status = find_library(found, sizeof found); !status.ok()) return status;
    path = found;
  }
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return Status::error(Code::kUnavailable, "cannot open the driver: %.200s", last_dl_error());
  if (is_shim(handle)) {
    dlclose(handle);
    return Status::error(Code::kUnavailable, "%.160s is Sluice's shim, not a driver; set SLUICE_DRIVER to the driver",
                         path);
  }
  if (symbol_address(handle, "cuInit") == nullptr) {
    dlclose(handle);
    return Status::error(Code::kUnavailable, "%.180s is no CUDA driver: it has no cuInit", path);
  }
  return handle;
}

Result<void*> open_process_library() {
  // What is loaded already is what the program's other libraries call.
  if (void* loaded = dlopen(kSoname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return loaded;
  if (void* found = dlopen(kSoname, RTLD_NOW | RTLD_LOCAL)) {
    if (is_shim(found)) return found;
    dlclose(found);
  }
  return open_library();
}

bool is_shim(void* handle) { return symbol_address(handle, "sluice_shim_version") != nullptr; }

bool is_emulator(void* handle) { return symbol_address(handle, "sluice_emulator_version") != nullptr; }

void* symbol_address(void* handle, const char* name) {
  void* address = dlsym(handle, name);
  // A failed look-up leaves its text for the program's next dlerror(), which is not about us.
  if (address == nullptr) dlerror();
  return address;
}

}  // namespace sluice::driver
