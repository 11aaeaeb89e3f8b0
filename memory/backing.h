// The device memory behind a pool: chunks of it, mapped to one range of addresses that is larger than they are, so that
// chunks which lie apart can be mapped again next to each other.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "driver_calls.h"
#include "heap.h"

namespace sluice::memory {

// Not thread safe. The context of the device is current when its functions are called.
class Backing {
 public:
  // `bytes` of memory, rounded up to whole chunks, the first ones of addresses() mapped. Errors: as Pool::create.
  static Result<std::unique_ptr<Backing>> create(const DriverCalls& driver, CUdevice device, std::uint64_t bytes,
                                                 bool exportable);
  ~Backing();
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;

  Heap::Range addresses() const { return addresses_; }  // all that may ever be mapped
  std::uint64_t bytes() const { return bytes_; }        // of memory
  std::uint64_t chunk_bytes() const { return chunk_bytes_; }
  bool can_gather() const { return !chunks_.empty(); }
  bool is_mapped(std::uint64_t address) const;

  // Maps the chunks of `pieces` to one piece of addresses, which it returns; the old addresses are no longer mapped.
  // REQUIRES: can_gather(), whole mapped chunks, and that the device is done with them. Errors: kResourceExhausted when
  // no range of addresses is long enough, kInternal when the driver refused; the pieces are then where they were, or,
  // if the driver refused that as well, not is_mapped().
  Result<Heap::Range> gather(const std::vector<Heap::Range>& pieces);

 private:
  explicit Backing(const DriverCalls& driver) : driver_(driver) {}
  Status create_virtual(CUdevice device, std::uint64_t bytes);
  Status create_plain(std::uint64_t bytes);
  Status map(std::uint64_t address, const std::vector<std::size_t>& chunks);
  void add_unmapped(Heap::Range range);
  std::size_t place_of(std::uint64_t address) const { return (address - addresses_.address) / chunk_bytes_; }

  const DriverCalls& driver_;
  CUmemAccessDesc access_ = {};
  Heap::Range addresses_;
  std::uint64_t bytes_ = 0;
  std::uint64_t chunk_bytes_ = 0;
  std::vector<CUmemGenericAllocationHandle> chunks_;  // none for a plain allocation
  std::vector<std::size_t> mapped_;                   // for each chunk of addresses, which chunk of memory; or kNone
  std::map<std::uint64_t, std::uint64_t> unmapped_;   // pieces of addresses_: their bytes by where they begin
};

}  // namespace sluice::memory
