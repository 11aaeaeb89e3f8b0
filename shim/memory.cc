// Counting, and the table of what is held; see memory.h.
#include "memory.h"

#include "memory_report.h"
#include "real.h"
#include "say.h"

namespace sluice::shim {
namespace {

// Open addressing with linear probing; a key is the address or handle with its kind in the upper bits, 0 is free.
struct Entry {
  std::uint64_t key;
  Held held;
};
constexpr std::uint64_t kEntries = 1 << 17;
constexpr std::uint64_t kMost = kEntries / 4 * 3;
Entry entries[kEntries];  // untouched pages cost nothing
std::uint64_t entry_count = 0;
std::uint64_t next_block = 1;
CUcontext primaries[kSessions];
CUdevice primary_devices[kSessions];
int primary_count = 0;
Mutex table_lock;
std::atomic<bool> said_full{false};

std::uint64_t key_of(Holder kind, std::uint64_t value) { return static_cast<std::uint64_t>(kind) << 60 | value; }
std::uint64_t home_of(std::uint64_t key) { return key * 0x9e3779b97f4a7c15ull >> 47; }
static_assert(kEntries == std::uint64_t{1} << (64 - 47));

// All below REQUIRE table_lock.
Entry* find(std::uint64_t key) {
  for (std::uint64_t i = home_of(key); entries[i].key != 0; i = (i + 1) % kEntries) {
    if (entries[i].key == key) return &entries[i];
  }
  return nullptr;
}

bool insert(std::uint64_t key, const Held& held) {
  if (entry_count >= kMost) return false;
  std::uint64_t i = home_of(key);
  while (entries[i].key != 0 && entries[i].key != key) i = (i + 1) % kEntries;
  if (entries[i].key == 0) ++entry_count;
  entries[i] = {key, held};
  return true;
}

// Moves later ones of the same run into the gap, so that no probe stops short.
void erase(Entry* entry) {
  std::uint64_t gap = static_cast<std::uint64_t>(entry - entries);
  for (std::uint64_t i = (gap + 1) % kEntries; entries[i].key != 0; i = (i + 1) % kEntries) {
    const std::uint64_t distance = (i - home_of(entries[i].key)) % kEntries;
    if (distance < (i - gap) % kEntries) continue;
    entries[gap] = entries[i];
    gap = i;
  }
  entries[gap] = {};
  --entry_count;
}

// Gives the block's memory back if nothing refers to it any more.
void drop_block_if_unused(Entry* block) {
  if (block->held.handles != 0 || block->held.mappings != 0) return;
  const Held held = block->held;
  erase(block);
  give_memory(held.session, held.bytes);
}

void unmap_one(Entry* mapping) {
  const std::uint64_t id = mapping->held.block;
  erase(mapping);
  Entry* block = find(key_of(Holder::kBlock, id));
  if (block == nullptr) return;
  --block->held.mappings;
  drop_block_if_unused(block);
}

}  // namespace

bool take_memory(Session* session, std::uint64_t bytes) {
  if (session == nullptr || board::reserve_memory(session->board, session->client, bytes)) return true;
  if (trim_pools() && board::reserve_memory(session->board, session->client, bytes)) return true;
  session->board->jobs[session->job].memory_refusals.fetch_add(1);
  report_memory(session, bytes, Shortage::kLimit);
  return false;
}

void give_memory(Session* session, std::uint64_t bytes) {
  if (session != nullptr) board::release_memory(session->board, session->client, bytes);
}

void note_out_of_memory(Session* session, std::uint64_t bytes) {
  if (session != nullptr) report_memory(session, bytes, Shortage::kDevice);
}

bool remember(Holder kind, std::uint64_t key, const Held& held) {
  {
    Guard guard(table_lock);
    if (insert(key_of(kind, key), held)) return true;
  }
  say_once(&said_full, "more than %llu allocations at once: those beyond are not counted",
           static_cast<unsigned long long>(kMost));
  return false;
}

bool forget_held(Holder kind, std::uint64_t key, Held* out) {
  Guard guard(table_lock);
  Entry* entry = find(key_of(kind, key));
  if (entry == nullptr) return false;
  *out = entry->held;
  erase(entry);
  return true;
}

void add_block(std::uint64_t handle, Session* session, std::uint64_t bytes) {
  Held block;
  block.bytes = bytes;
  block.session = session;
  block.handles = 1;
  Guard guard(table_lock);
  Held named;
  named.block = next_block;
  if (!insert(key_of(Holder::kBlock, next_block), block)) {
    give_memory(session, bytes);
    return;
  }
  if (!insert(key_of(Holder::kHandle, handle), named)) {
    erase(find(key_of(Holder::kBlock, next_block)));
    give_memory(session, bytes);
    return;
  }
  ++next_block;
}

void retain_block(std::uint64_t handle) {
  Guard guard(table_lock);
  const Entry* named = find(key_of(Holder::kHandle, handle));
  Entry* block = named != nullptr ? find(key_of(Holder::kBlock, named->held.block)) : nullptr;
  if (block != nullptr) ++block->held.handles;
}

void map_block(std::uint64_t address, std::uint64_t bytes, std::uint64_t handle) {
  Guard guard(table_lock);
  const Entry* named = find(key_of(Holder::kHandle, handle));
  if (named == nullptr) return;  // of another process, or of the host
  Held mapping;
  mapping.bytes = bytes;
  mapping.block = named->held.block;
  if (!insert(key_of(Holder::kMapping, address), mapping)) return;
  if (Entry* block = find(key_of(Holder::kBlock, mapping.block))) ++block->held.mappings;
}

void release_block(std::uint64_t handle) {
  Guard guard(table_lock);
  Entry* named = find(key_of(Holder::kHandle, handle));
  if (named == nullptr) return;
  const std::uint64_t id = named->held.block;
  Entry* block = find(key_of(Holder::kBlock, id));
  if (block == nullptr) return;
  if (--block->held.handles != 0) return;
  erase(named);
  drop_block_if_unused(find(key_of(Holder::kBlock, id)));
}

void unmap_blocks(std::uint64_t address, std::uint64_t bytes) {
  Guard guard(table_lock);
  const std::uint64_t end = address + bytes;
  std::uint64_t at = address;
  while (at < end) {
    Entry* mapping = find(key_of(Holder::kMapping, at));
    if (mapping == nullptr || mapping->held.bytes == 0) break;
    at += mapping->held.bytes;
    unmap_one(mapping);
  }
  if (at >= end || entry_count == 0) return;
  // With a gap, or of memory that is not counted: look at all. An entry may move into the place just looked at.
  for (std::uint64_t i = 0; i < kEntries; ++i) {
    while (entries[i].key >= key_of(Holder::kMapping, at) && entries[i].key < key_of(Holder::kMapping, end))
      unmap_one(&entries[i]);
  }
}

void context_gone(CUcontext context) {
  if (context == nullptr) return;
  Guard guard(table_lock);
  if (entry_count == 0) return;
  for (std::uint64_t i = 0; i < kEntries; ++i) {
    while (entries[i].key != 0 && entries[i].held.context == context) {
      const Held held = entries[i].held;
      erase(&entries[i]);
      give_memory(held.session, held.bytes);
    }
  }
}

void note_primary(CUdevice device, CUcontext context) {
  Guard guard(table_lock);
  for (int i = 0; i < primary_count; ++i) {
    if (primary_devices[i] != device) continue;
    primaries[i] = context;
    return;
  }
  if (primary_count == kSessions) return;
  primary_devices[primary_count] = device;
  primaries[primary_count++] = context;
}

void primary_gone(CUdevice device) {
  CUcontext context = nullptr;
  {
    Guard guard(table_lock);
    for (int i = 0; i < primary_count; ++i) {
      if (primary_devices[i] == device) context = primaries[i];
    }
  }
  context_gone(context);
  settle_pools();
}

}  // namespace sluice::shim
