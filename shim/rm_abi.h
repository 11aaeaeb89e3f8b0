// What this needs of the interface between the driver's library and its kernel module, the resource manager (RM).
// Layouts and numbers are those of NVIDIA's open kernel modules: nvos.h, nv_escape.h, ctrla06c.h,
// cl2080_notification.h. They are fixed by the module, which serves libraries of other versions (containers), and
// checked by ioctl's size.
//
// A channel group (class 0xa06c, "TSG") is what the GPU switches between: a context has one for its kernels, and others
// for copy engines. Its owner may set its time slice and disable its channels, without privileges.
#pragma once

#include <sys/ioctl.h>

#include <cstdint>

namespace sluice::shim::rm {

using Handle = std::uint32_t;

struct Free {  // NVOS00_PARAMETERS
  Handle root, parent, object;
  std::uint32_t status;
};

struct Alloc {  // NVOS64_PARAMETERS; older libraries send NVOS21, whose first five fields are the same
  Handle root, parent, object;
  std::uint32_t object_class;
  std::uint64_t parameters;
  std::uint64_t rights;
  std::uint32_t bytes, flags, status;
};
struct AllocOld {  // NVOS21_PARAMETERS
  Handle root, parent, object;
  std::uint32_t object_class;
  std::uint64_t parameters;
  std::uint32_t bytes, status;
};

struct Control {  // NVOS54_PARAMETERS
  Handle client, object;
  std::uint32_t command, flags;
  std::uint64_t parameters;
  std::uint32_t bytes, status;
};

struct ChannelGroupAlloc {  // NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, as far as it is read
  Handle error, ecc_error, address_space;
  std::uint32_t engine;
};

struct TimeSlice {  // NVA06C_CTRL_TIMESLICE_PARAMS
  std::uint64_t us;
};

inline constexpr std::uint32_t kMostChannels = 64;  // NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES

struct DisableChannels {  // NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS; of a subdevice
  std::uint8_t disable;
  std::uint32_t count;
  std::uint8_t only_scheduling, rewind;  // 0: what runs is preempted, nothing is lost
  std::uint64_t event;                   // 0
  Handle clients[kMostChannels], channels[kMostChannels];
};
static_assert(sizeof(DisableChannels) == 536);

inline constexpr unsigned kMagic = 'F';
inline constexpr unsigned kFree = 0x29, kControl = 0x2a, kAlloc = 0x2b;
inline constexpr std::uint32_t kChannelGroup = 0xa06c, kSubdevice = 0x2080;
// The classes of channels, a generation each: 0xc36f (Volta) to 0xc86f (Hopper) and on.
inline constexpr bool is_channel(std::uint32_t object_class) { return (object_class & 0xff) == 0x6f; }
inline constexpr std::uint32_t kFifoDisableChannels = 0x2080110b, kSetTimeSlice = 0xa06c0103,
                               kGetTimeSlice = 0xa06c0104;
inline constexpr std::uint32_t kFirstGraphicsEngine = 1, kLastGraphicsEngine = 8;  // they run kernels, too

inline unsigned long request(unsigned number, std::size_t bytes) {
  return _IOC(_IOC_READ | _IOC_WRITE, kMagic, number, bytes);
}

}  // namespace sluice::shim::rm
