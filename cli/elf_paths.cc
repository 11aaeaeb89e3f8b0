#include "elf_paths.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

namespace sluice::cli {
namespace {

constexpr std::size_t kMostEntries = 4096;
constexpr std::size_t kLongestPath = 4096;

class ElfReader {
 public:
  explicit ElfReader(const std::string& path) : file_(path, std::ios::binary) {}

  template <class T>
  bool read(std::uint64_t offset, T* out, std::size_t count = 1) {
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(offset));
    file_.read(reinterpret_cast<char*>(out), static_cast<std::streamsize>(sizeof(T) * count));
    return file_.gcount() == static_cast<std::streamsize>(sizeof(T) * count);
  }

  std::string text_at(std::uint64_t offset) {
    std::string text(kLongestPath, '\0');
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(offset));
    file_.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file_.gcount()));
    return text.substr(0, text.find('\0'));
  }

 private:
  std::ifstream file_;
};

}  // namespace

std::string rpath_of(const std::string& path) {
  ElfReader file(path);
  Elf64_Ehdr header;
  if (!file.read(0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr) ||
      header.e_phnum > kMostEntries) {
    return "";
  }
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  if (segments.empty() || !file.read(header.e_phoff, segments.data(), segments.size())) return "";
  std::uint64_t rpath = 0, strings = 0;
  bool has_rpath = false, has_runpath = false;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_DYNAMIC) continue;
    std::vector<Elf64_Dyn> entries(std::min<std::uint64_t>(segment.p_filesz / sizeof(Elf64_Dyn), kMostEntries));
    if (entries.empty() || !file.read(segment.p_offset, entries.data(), entries.size())) return "";
    for (const Elf64_Dyn& entry : entries) {
      if (entry.d_tag == DT_RPATH) rpath = entry.d_un.d_val, has_rpath = true;
      if (entry.d_tag == DT_RUNPATH) has_runpath = true;
      if (entry.d_tag == DT_STRTAB) strings = entry.d_un.d_ptr;
      if (entry.d_tag == DT_NULL) break;
    }
  }
  if (!has_rpath || has_runpath) return "";
  // The string table is given by address: its segment tells the offset.
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type == PT_LOAD && strings >= segment.p_vaddr && strings - segment.p_vaddr < segment.p_filesz) {
      return file.text_at(segment.p_offset + (strings - segment.p_vaddr) + rpath);
    }
  }
  return "";
}

std::string driver_in_rpath(const std::string& path) {
  const std::string rpath = rpath_of(path);
  if (rpath.empty()) return "";
  std::error_code error;
  const std::string origin = std::filesystem::canonical(path, error).parent_path().string();
  for (std::size_t at = 0; at <= rpath.size();) {
    const std::size_t end = std::min(rpath.find(':', at), rpath.size());
    std::string folder = rpath.substr(at, end - at);
    for (const std::string_view token : {"${ORIGIN}", "$ORIGIN"}) {
      for (std::size_t found; (found = folder.find(token)) != folder.npos;) folder.replace(found, token.size(), origin);
    }
    for (const char* name : {"/libcuda.so.1", "/libcuda.so"}) {
      if (!folder.empty() && std::filesystem::exists(folder + name, error)) return folder + name;
    }
    at = end + 1;
  }
  return "";
}

}  // namespace sluice::cli
