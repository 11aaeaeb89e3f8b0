#include "channel_groups.h"

#include <errno.h>
#include <time.h>

#include "imports.h"
#include "lock.h"
#include "rm_abi.h"

namespace sluice::shim::channel_groups {
namespace {

struct Group {
  int fd;
  rm::Handle client, parent, object;  // object 0: free
  rm::Handle channels[rm::kMostChannels];
  std::uint32_t channel_count;
  std::uint64_t driver_slice_us;  // what the driver gave it; 0: not known yet
  bool is_off;
  bool is_whole;  // all of its channels are known
};

// The GPU's object that disables channels; one for each client and device.
struct Subdevice {
  int fd;
  rm::Handle client, parent, object;
};

constexpr int kGroups = 32;
Group groups[kGroups];
Subdevice subdevices[kGroups];
std::uint64_t wanted_slice_us = 0;
bool closed = false;  // atomic
Mutex lock;           // the others

bool is_closed() { return __atomic_load_n(&closed, __ATOMIC_RELAXED); }

// Returns whether the kernel module did it.
template <class Object>
bool control(const Object& of, std::uint32_t command, void* parameters, std::uint32_t bytes) {
  rm::Control call{of.client, of.object, command, 0, reinterpret_cast<std::uintptr_t>(parameters), bytes, 0};
  return ioctl(of.fd, rm::request(rm::kControl, sizeof call), &call) >= 0 && call.status == 0;
}

void apply_slice(Group& group) {
  if (group.driver_slice_us == 0) {
    rm::TimeSlice own{0};
    if (!control(group, rm::kGetTimeSlice, &own, sizeof own) || own.us == 0) return;
    if (wanted_slice_us == 0) return;
    group.driver_slice_us = own.us;
  }
  rm::TimeSlice slice{wanted_slice_us != 0 ? wanted_slice_us : group.driver_slice_us};
  control(group, rm::kSetTimeSlice, &slice, sizeof slice);
}

template <class Table, class F>
void for_each(Table& table, F visit) {
  for (auto& entry : table) {
    if (entry.object != 0) visit(entry);
  }
}

bool is_of(const Subdevice& subdevice, const Group& group) {
  return subdevice.client == group.client && subdevice.parent == group.parent;
}

// Returns whether it changed.
bool let_run(Group& group, bool on) {
  if (group.is_off != on || group.channel_count == 0 || (!on && !group.is_whole)) return false;
  rm::DisableChannels call{};
  call.disable = !on;
  call.count = group.channel_count;
  for (std::uint32_t i = 0; i < group.channel_count; ++i) {
    call.clients[i] = group.client;
    call.channels[i] = group.channels[i];
  }
  bool done = false;
  for_each(subdevices, [&](const Subdevice& subdevice) {
    if (done || !is_of(subdevice, group)) return;
    done = control(subdevice, rm::kFifoDisableChannels, &call, sizeof call);
    if (done || on) return;
    call.disable = 0;  // it may have disabled some before it failed
    control(subdevice, rm::kFifoDisableChannels, &call, sizeof call);
    call.disable = 1;
  });
  if (done) group.is_off = !on;
  return done;
}

// Into the first free entry of its table.
template <class Table, class Entry>
void remember(Table& table, const Entry& added) {
  for (auto& entry : table) {
    if (entry.object != 0) continue;
    entry = added;
    return;
  }
}

void allocated(int fd, const rm::Alloc& call) {
  Guard guard(lock);
  if (call.object_class == rm::kSubdevice) {
    remember(subdevices, Subdevice{fd, call.root, call.parent, call.object});
  } else if (call.object_class == rm::kChannelGroup) {
    const auto* parameters = reinterpret_cast<const rm::ChannelGroupAlloc*>(call.parameters);
    if (parameters == nullptr || parameters->engine < rm::kFirstGraphicsEngine ||
        parameters->engine > rm::kLastGraphicsEngine) {
      return;
    }
    remember(groups, Group{fd, call.root, call.parent, call.object, {}, 0, 0, false, true});
  } else {
    for_each(groups, [&](Group& group) {
      if (group.client != call.root || group.object != call.parent) return;
      group.is_whole = group.is_whole && group.channel_count < rm::kMostChannels;
      if (group.is_whole) group.channels[group.channel_count++] = call.object;
    });
  }
}

// Before an object goes, with all that hangs on it. What is off would not come to its end.
void freeing(const rm::Free& call) {
  Guard guard(lock);
  const auto takes = [&call](const auto& entry) {
    return entry.client == call.root &&
           (call.object == entry.object || call.object == entry.parent || call.object == entry.client);
  };
  for_each(groups, [&](Group& group) {
    std::uint32_t channel = 0;
    while (channel < group.channel_count && (group.client != call.root || group.channels[channel] != call.object))
      ++channel;
    const bool has_channel = channel < group.channel_count;
    if (!has_channel && !takes(group)) return;
    let_run(group, true);
    if (has_channel) {
      group.channels[channel] = group.channels[--group.channel_count];
    } else {
      group.object = 0;
    }
  });
  for_each(subdevices, [&](Subdevice& subdevice) {
    if (!takes(subdevice)) return;
    for_each(groups, [&](Group& group) {
      if (is_of(subdevice, group)) let_run(group, true);  // nothing else may be left to do it by
    });
    subdevice.object = 0;
  });
}

// The driver set the slice of a group itself: noted, and replaced where another one is wanted.
void slice_set(const rm::Control& call) {
  Guard guard(lock);
  for_each(groups, [&](Group& group) {
    if (group.client != call.client || group.object != call.object) return;
    group.driver_slice_us = reinterpret_cast<const rm::TimeSlice*>(call.parameters)->us;
    if (wanted_slice_us != 0) apply_slice(group);
  });
}

// What the driver's library calls for ioctl. The third argument is a pointer in every call of its.
int followed_ioctl(int fd, unsigned long request, void* argument) {
  if (_IOC_TYPE(request) != rm::kMagic || argument == nullptr || is_closed()) return ioctl(fd, request, argument);
  const unsigned number = _IOC_NR(request), bytes = _IOC_SIZE(request);
  if (number == rm::kFree && bytes == sizeof(rm::Free)) freeing(*static_cast<rm::Free*>(argument));
  const int result = ioctl(fd, request, argument);
  if (result < 0) return result;
  const int error = errno;
  if (number == rm::kAlloc && (bytes == sizeof(rm::Alloc) || bytes == sizeof(rm::AllocOld))) {
    const auto& call = *static_cast<rm::Alloc*>(argument);
    const std::uint32_t status =
        bytes == sizeof(rm::Alloc) ? call.status : static_cast<rm::AllocOld*>(argument)->status;
    const std::uint32_t kind = call.object_class;
    if (status == 0 && (kind == rm::kSubdevice || kind == rm::kChannelGroup || rm::is_channel(kind)))
      allocated(fd, call);
  } else if (number == rm::kControl && bytes == sizeof(rm::Control)) {
    const auto& call = *static_cast<rm::Control*>(argument);
    if (call.command == rm::kSetTimeSlice && call.status == 0 && call.bytes == sizeof(rm::TimeSlice)) slice_set(call);
  }
  errno = error;
  return result;
}

}  // namespace

bool follow(void* driver) { return replace_import(driver, "ioctl", reinterpret_cast<void*>(&followed_ioctl)); }

int count(bool* one_device) {
  Guard guard(lock);
  int found = 0;
  bool same = true;
  const Group* first = nullptr;
  for_each(groups, [&](Group& group) {
    ++found;
    if (first == nullptr) first = &group;
    same = same && group.client == first->client && group.parent == first->parent;
  });
  if (one_device != nullptr) *one_device = same;
  return found;
}

void set_time_slice(std::uint64_t us) {
  Guard guard(lock);
  // Once closed, frees are not followed: handles may be others' by now.
  if (is_closed() || us == wanted_slice_us) return;
  wanted_slice_us = us;
  for_each(groups, apply_slice);
}

int take_off() {
  Guard guard(lock);
  int changed = 0;
  if (!is_closed()) for_each(groups, [&](Group& group) { changed += let_run(group, false); });
  return changed;
}

int put_on() {
  Guard guard(lock);
  int changed = 0;
  for_each(groups, [&](Group& group) { changed += let_run(group, true); });
  return changed;
}

void close() {
  constexpr int kTries = 1000;
  const timespec pause{0, 1'000'000};
  bool locked = lock.try_lock();
  for (int i = 0; i < kTries && !locked; ++i) {
    nanosleep(&pause, nullptr);
    locked = lock.try_lock();
  }
  if (locked) for_each(groups, [](Group& group) { let_run(group, true); });
  stop_following();
  if (locked) lock.unlock();
}

void stop_following() { __atomic_store_n(&closed, true, __ATOMIC_RELAXED); }

}  // namespace sluice::shim::channel_groups
