#include "ld_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace sluice::driver {
namespace {

struct Entry {
  std::uint32_t flags;
  std::string soname;
  std::string path;
};

#if defined(__aarch64__)
constexpr std::uint32_t kHere = 0x0a03;
#else
constexpr std::uint32_t kHere = 0x0303;
#endif

void put(std::string& out, std::uint32_t word) { out.append(reinterpret_cast<const char*>(&word), sizeof word); }

// A cache in the format that ldconfig writes, after an old-style table of `old` entries if that is not negative.
std::string cache_of(const std::vector<Entry>& entries, int old = -1) {
  std::string strings;
  std::string table;
  const auto strings_at = static_cast<std::uint32_t>(48 + 24 * entries.size());
  for (const Entry& entry : entries) {
    put(table, entry.flags);
    for (const std::string& text : {entry.soname, entry.path}) {
      put(table, strings_at + static_cast<std::uint32_t>(strings.size()));
      strings.append(text.c_str(), text.size() + 1);
    }
    table.append(12, '\0');
  }
  std::string out;
  if (old >= 0) {
    out.append("ld.so-1.7.0\0", 12);
    put(out, static_cast<std::uint32_t>(old));
    out.append(static_cast<std::size_t>(12 * old), '\1');
    out.resize((out.size() + 7) / 8 * 8);
  }
  out.append("glibc-ld.so.cache1.1");
  put(out, static_cast<std::uint32_t>(entries.size()));
  put(out, static_cast<std::uint32_t>(strings.size()));
  out.append(20, '\0');
  return out + table + strings;
}

std::string first(const std::string& data, const char* soname) {
  const LdCache cache(data.data(), data.size());
  for (std::uint32_t i = 0; i < cache.size(); ++i) {
    if (const char* path = cache.path_of(i, soname)) return path;
  }
  return "";
}

const std::vector<Entry> kEntries = {{kHere, "libc.so.6", "/lib/libc.so.6"},
                                     {3, "libcuda.so.1", "/lib32/libcuda.so.1"},
                                     {kHere, "libcuda.so.1", "/lib64/libcuda.so.1"}};

TEST(LdCache, FindsTheLibraryOfThisMachine) {
  EXPECT_EQ(first(cache_of(kEntries), "libcuda.so.1"), "/lib64/libcuda.so.1");
  EXPECT_EQ(first(cache_of(kEntries), "libcuda.so"), "");
}

TEST(LdCache, FindsTheNewTableBehindAnOldOne) {
  for (int old : {0, 1, 2, 7}) EXPECT_EQ(first(cache_of(kEntries, old), "libcuda.so.1"), "/lib64/libcuda.so.1") << old;
}

TEST(LdCache, ACutFileNeverLeadsOutside) {
  const std::string whole = cache_of(kEntries, 3);
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const std::vector<char> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
    const LdCache cache(cut.data(), cut.size());
    for (std::uint32_t i = 0; i <= cache.size(); ++i) EXPECT_EQ(cache.path_of(i, "libcuda.so.1"), nullptr) << bytes;
  }
}

TEST(LdCache, OffsetsAndCountsBeyondTheFileAreNoEntries) {
  std::string data = cache_of(kEntries);
  const std::uint32_t far = 0xfffffff0u;
  std::string bad_path = data;
  std::memcpy(bad_path.data() + 48 + 2 * 24 + 8, &far, sizeof far);
  EXPECT_EQ(first(bad_path, "libcuda.so.1"), "");
  std::memcpy(data.data() + 20, &far, sizeof far);
  EXPECT_EQ(LdCache(data.data(), data.size()).size(), 0u);
}

}  // namespace
}  // namespace sluice::driver
