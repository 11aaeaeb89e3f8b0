#include "imports.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "sluice/base/glibc_compat.h"

namespace sluice::shim {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kJumpSlot = R_X86_64_JUMP_SLOT, kGlobalData = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
constexpr std::uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT, kGlobalData = R_AARCH64_GLOB_DAT;
#endif

struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const ElfW(Rela) * calls = nullptr;  // DT_JMPREL
  const ElfW(Rela) * data = nullptr;   // DT_RELA
  std::size_t calls_bytes = 0, data_bytes = 0;
};

Tables tables_of(const link_map* map) {
  // glibc has made these addresses absolute; another loader may not have.
  const auto address = [map](ElfW(Addr) value) { return value < map->l_addr ? value + map->l_addr : value; };
  Tables tables;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    switch (entry->d_tag) {
      case DT_SYMTAB:
        tables.symbols = reinterpret_cast<const ElfW(Sym)*>(address(entry->d_un.d_ptr));
        break;
      case DT_STRTAB:
        tables.strings = reinterpret_cast<const char*>(address(entry->d_un.d_ptr));
        break;
      case DT_JMPREL:
        tables.calls = reinterpret_cast<const ElfW(Rela)*>(address(entry->d_un.d_ptr));
        break;
      case DT_PLTRELSZ:
        tables.calls_bytes = entry->d_un.d_val;
        break;
      case DT_RELA:
        tables.data = reinterpret_cast<const ElfW(Rela)*>(address(entry->d_un.d_ptr));
        break;
      case DT_RELASZ:
        tables.data_bytes = entry->d_un.d_val;
        break;
      default:
        break;
    }
  }
  return tables;
}

// The whole pages of the library that the loader has made read-only. Of the last one, where pages are larger than the
// linker thought, it leaves the rest writable, as there are variables behind.
struct ReadOnly {
  std::uintptr_t base = 0, begin = 0, end = 0;
};

int find_read_only(dl_phdr_info* info, std::size_t, void* data) {
  auto* found = static_cast<ReadOnly*>(data);
  if (info->dlpi_addr != found->base) return 0;
  const std::uintptr_t mask = ~(static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE)) - 1);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_GNU_RELRO) continue;
    const std::uintptr_t begin = found->base + header.p_vaddr;
    found->begin = begin & mask;
    found->end = (begin + header.p_memsz) & mask;
  }
  return 1;
}

bool write_slot(void** slot, void* value, const ReadOnly& read_only) {
  const auto page_bytes = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(slot);
  void* page = reinterpret_cast<void*>(at & ~(page_bytes - 1));
  const bool is_read_only = at >= read_only.begin && at < read_only.end;
  if (is_read_only && mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  __atomic_store_n(slot, value, __ATOMIC_RELEASE);
  if (is_read_only) mprotect(page, page_bytes, PROT_READ);
  return true;
}

}  // namespace

bool replace_import(void* library, const char* symbol, void* replacement) {
#if defined(__x86_64__) || defined(__aarch64__)
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return false;
  const Tables tables = tables_of(map);
  if (tables.symbols == nullptr || tables.strings == nullptr) return false;
  ReadOnly read_only;
  read_only.base = map->l_addr;
  if (dl_iterate_phdr(find_read_only, &read_only) == 0) return false;
  bool replaced = false;
  const auto search = [&](const ElfW(Rela) * first, std::size_t bytes) {
    for (const ElfW(Rela)* entry = first; bytes >= sizeof *entry; ++entry, bytes -= sizeof *entry) {
      const std::uint32_t type = static_cast<std::uint32_t>(ELF64_R_TYPE(entry->r_info));
      if (type != kJumpSlot && type != kGlobalData) continue;
      const ElfW(Sym)& imported = tables.symbols[ELF64_R_SYM(entry->r_info)];
      if (std::strcmp(tables.strings + imported.st_name, symbol) != 0) continue;
      replaced |= write_slot(reinterpret_cast<void**>(map->l_addr + entry->r_offset), replacement, read_only);
    }
  };
  if (tables.calls != nullptr) search(tables.calls, tables.calls_bytes);
  if (tables.data != nullptr) search(tables.data, tables.data_bytes);
  return replaced;
#else
  (void)library, (void)symbol, (void)replacement;
  return false;
#endif
}

}  // namespace sluice::shim
