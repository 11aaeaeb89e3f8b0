#include "backing.h"

#include <algorithm>
#include <string>

#include "sluice/base/units.h"

namespace sluice::memory {
namespace {

constexpr std::size_t kNone = ~std::size_t{0};
constexpr std::uint64_t kAddressesPerByte = 3;  // free addresses are never all in one piece
// Chunks are as small as the driver allows, up to this many: each costs a call when the pool is made, some 50 us.
constexpr std::uint64_t kMaxChunks = 4096;

std::uint64_t up(std::uint64_t value, std::uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

Result<std::unique_ptr<Backing>> Backing::create(const DriverCalls& driver, CUdevice device, std::uint64_t bytes,
                                                 bool exportable) {
  std::size_t free = 0, total = 0;
  if (CUresult code = driver.memory_info(&free, &total); code != CUDA_SUCCESS)
    return Status::error(Code::kInternal, "cuMemGetInfo: %s", driver.name_of(code));
  if (bytes > free) {
    return Status::error(Code::kResourceExhausted, "a pool of %s does not fit: the device has %s free of %s",
                         format_bytes(bytes).c_str(), format_bytes(free).c_str(), format_bytes(total).c_str());
  }
  int has_virtual = 0;
  driver.device_attribute(&has_virtual, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
  std::unique_ptr<Backing> backing(new Backing(driver));
  const Status status =
      has_virtual != 0 && !exportable ? backing->create_virtual(device, bytes) : backing->create_plain(bytes);
  if (!status.ok()) return status;
  return backing;
}

Status Backing::create_plain(std::uint64_t bytes) {
  CUdeviceptr address = 0;
  bytes = up(bytes, Heap::kGrain);
  if (CUresult code = driver_.allocate(&address, bytes); code != CUDA_SUCCESS) {
    return Status::error(Code::kResourceExhausted, "a pool of %s: cuMemAlloc: %s", format_bytes(bytes).c_str(),
                         driver_.name_of(code));
  }
  addresses_ = {address, bytes};
  bytes_ = chunk_bytes_ = bytes;
  return {};
}

Status Backing::create_virtual(CUdevice device, std::uint64_t bytes) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  access_ = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  std::size_t granularity = 0;
  if (CUresult code = driver_.granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
      code != CUDA_SUCCESS)
    return Status::error(Code::kInternal, "cuMemGetAllocationGranularity: %s", driver_.name_of(code));
  chunk_bytes_ = up(std::max<std::uint64_t>(bytes / kMaxChunks, 1), granularity);
  bytes = up(bytes, chunk_bytes_);
  CUdeviceptr address = 0;
  if (CUresult code = driver_.reserve(&address, bytes * kAddressesPerByte, 0, 0, 0); code != CUDA_SUCCESS)
    return Status::error(Code::kResourceExhausted, "cuMemAddressReserve: %s", driver_.name_of(code));
  addresses_ = {address, bytes * kAddressesPerByte};
  mapped_.assign(addresses_.bytes / chunk_bytes_, kNone);
  unmapped_[address] = addresses_.bytes;

  std::vector<std::size_t> all;
  for (; bytes_ < bytes; bytes_ += chunk_bytes_) {
    CUmemGenericAllocationHandle chunk = 0;
    if (CUresult code = driver_.create(&chunk, chunk_bytes_, &properties, 0); code != CUDA_SUCCESS) {
      return Status::error(Code::kResourceExhausted, "a pool of %s: cuMemCreate gave %s, then %s",
                           format_bytes(bytes).c_str(), format_bytes(bytes_).c_str(), driver_.name_of(code));
    }
    all.push_back(chunks_.size());
    chunks_.push_back(chunk);
  }
  return map(address, all);
}

// On failure nothing of it is mapped.
Status Backing::map(std::uint64_t address, const std::vector<std::size_t>& chunks) {
  CUresult code = CUDA_SUCCESS;
  std::size_t done = 0;
  const std::uint64_t length = chunks.size() * chunk_bytes_;
  for (; done < chunks.size() && code == CUDA_SUCCESS; ++done)
    code = driver_.map(address + done * chunk_bytes_, chunk_bytes_, 0, chunks_[chunks[done]], 0);
  if (code != CUDA_SUCCESS) --done;  // the last one was not mapped
  if (code == CUDA_SUCCESS) code = driver_.set_access(address, length, &access_, 1);
  if (code != CUDA_SUCCESS) {
    for (std::size_t i = 0; i < done; ++i) driver_.unmap(address + i * chunk_bytes_, chunk_bytes_);
    return Status::error(Code::kInternal, "cuMemMap: %s", driver_.name_of(code));
  }
  for (std::size_t i = 0; i < chunks.size(); ++i) mapped_[place_of(address) + i] = chunks[i];
  const auto piece = std::prev(unmapped_.upper_bound(address));
  const Heap::Range before = {piece->first, piece->second};
  unmapped_.erase(piece);
  add_unmapped({before.address, address - before.address});
  add_unmapped({address + length, before.address + before.bytes - address - length});
  return {};
}

void Backing::add_unmapped(Heap::Range range) {
  if (range.bytes == 0) return;
  auto after = unmapped_.lower_bound(range.address);
  if (after != unmapped_.end() && after->first == range.address + range.bytes) {
    range.bytes += after->second;
    after = unmapped_.erase(after);
  }
  if (after != unmapped_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == range.address) {
      before->second += range.bytes;
      return;
    }
  }
  unmapped_[range.address] = range.bytes;
}

bool Backing::is_mapped(std::uint64_t address) const { return mapped_.empty() || mapped_[place_of(address)] != kNone; }

Result<Heap::Range> Backing::gather(const std::vector<Heap::Range>& pieces) {
  std::vector<std::size_t> chunks;
  for (const Heap::Range& piece : pieces) {
    for (std::uint64_t at = 0; at < piece.bytes; at += chunk_bytes_)
      chunks.push_back(mapped_[place_of(piece.address + at)]);
  }
  const std::uint64_t length = chunks.size() * chunk_bytes_;
  const auto place =
      std::find_if(unmapped_.begin(), unmapped_.end(), [&](const auto& piece) { return piece.second >= length; });
  if (place == unmapped_.end())
    return Status::error(Code::kResourceExhausted, "no %s of free addresses in one piece",
                         format_bytes(length).c_str());
  const std::uint64_t to = place->first;

  for (const Heap::Range& piece : pieces) {
    for (std::uint64_t at = 0; at < piece.bytes; at += chunk_bytes_) {
      driver_.unmap(piece.address + at, chunk_bytes_);
      mapped_[place_of(piece.address + at)] = kNone;
    }
  }
  // Their addresses are free only when the chunks have new ones: until then the way back must be open.
  Status status = map(to, chunks);
  std::size_t next = 0;
  for (const Heap::Range& piece : pieces) {
    add_unmapped(piece);
    const auto count = static_cast<std::ptrdiff_t>(piece.bytes / chunk_bytes_);
    if (!status.ok()) {
      const auto first = chunks.begin() + static_cast<std::ptrdiff_t>(next);
      if (Status back = map(piece.address, {first, first + count}); !back.ok()) return back;
    }
    next += static_cast<std::size_t>(count);
  }
  if (!status.ok()) return status;
  return Heap::Range{to, length};
}

Backing::~Backing() {
  for (std::size_t i = 0; i < mapped_.size(); ++i) {
    if (mapped_[i] != kNone) driver_.unmap(addresses_.address + i * chunk_bytes_, chunk_bytes_);
  }
  for (CUmemGenericAllocationHandle chunk : chunks_) driver_.release(chunk);
  if (chunk_bytes_ == 0 || addresses_.bytes == 0) return;
  if (mapped_.empty()) {
    driver_.free(addresses_.address);
  } else {
    driver_.unreserve(addresses_.address, addresses_.bytes);
  }
}

}  // namespace sluice::memory
