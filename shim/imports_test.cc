// Replaced imports of a library whose read-only part ends within a page, as it does where pages are larger than the
// linker thought.
#include "imports.h"

#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace sluice::shim {
namespace {

int replacement(int, unsigned long, void*) { return 77; }

// A copy whose read-only part is 8 bytes shorter, and so not of whole pages. Returns where it ends.
std::uintptr_t make_copy(const std::string& path) {
  std::ifstream in(SLUICE_EMULATOR, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  ElfW(Ehdr) header;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::uintptr_t end = 0;
  for (int i = 0; i < header.e_phnum; ++i) {
    const std::size_t at = header.e_phoff + static_cast<std::size_t>(i) * header.e_phentsize;
    ElfW(Phdr) part;
    std::memcpy(&part, bytes.data() + at, sizeof part);
    if (part.p_type != PT_GNU_RELRO) continue;
    part.p_memsz -= 8;
    end = part.p_vaddr + part.p_memsz;
    std::memcpy(bytes.data() + at, &part, sizeof part);
  }
  std::ofstream(path, std::ios::binary) << bytes;
  return end;
}

TEST(ImportsTest, WhatSharesTheLastReadOnlyPageStaysWritable) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("sluice_imports_test_" + std::to_string(getpid()))).string();
  const std::uintptr_t end = make_copy(path);
  ASSERT_NE(end, 0u);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  std::filesystem::remove(path);
  ASSERT_NE(library, nullptr) << dlerror();
  ASSERT_TRUE(replace_import(library, "ioctl", reinterpret_cast<void*>(&replacement)));
  int (*call)(int, unsigned long, void*) = nullptr;
  *reinterpret_cast<void**>(&call) = dlsym(library, "sluice_test_ioctl");
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(call(-1, 0, nullptr), 77);
  link_map* map = nullptr;
  ASSERT_EQ(dlinfo(library, RTLD_DI_LINKMAP, &map), 0);
  auto* variable = reinterpret_cast<volatile std::uint64_t*>(map->l_addr + end);
  *variable = *variable;  // or it dies here
}

TEST(ImportsTest, WhatIsNotImportedIsNotReplaced) {
  void* library = dlopen(SLUICE_EMULATOR, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_FALSE(replace_import(library, "no_such_function", reinterpret_cast<void*>(&replacement)));
}

}  // namespace
}  // namespace sluice::shim
