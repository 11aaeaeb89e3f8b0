// Who may run now: pure decisions from a snapshot of the jobs and the time. No threads, no I/O, no clock of its own.
//
// Strict priority itself needs no policy: a job's shim closes the gates below it. Policies decide what is slow: turns
// among equals, minimum shares. Every registered policy sees the same snapshot; their decisions are united. A new
// policy is one file that ends in one line: `static const Registration r{"name", make};`, and its name in CMakeLists.
// Thread safety: a Policy object belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace sluice::policy {

struct JobView {
  std::uint64_t id = 0;
  std::int32_t priority = 0;
  std::uint32_t share = 1;               // at least 1
  std::uint32_t min_below_permille = 0;  // what jobs of lower priority get at least
  bool active = false;                   // has work submitted that is not done
  std::uint64_t active_since_ns = 0;     // when it last became active
  std::uint64_t progress_ns = 0;         // when its work was last seen to move
  std::uint64_t tail_ns = 0;             // how long it can run on after its gate closes
  std::uint64_t held_ns = 0;             // how long it has been held so far, all causes
  bool held_from_above = false;          // a job of higher priority holds it now
  bool takes_turns = true;               // false: it shares with its equals as the GPU does it
  bool can_be_closed = true;             // false: its gates do not work, so it runs whatever is decided
};

struct Snapshot {
  std::uint64_t now_ns = 0;
  std::vector<JobView> jobs;  // in the order of the board's slots
};

struct Decision {
  std::vector<std::uint64_t> closed;  // ids of jobs whose gate the daemon keeps closed
  struct Mute {
    std::uint64_t id;        // this job holds nobody ...
    std::uint64_t until_ns;  // ... until then
  };
  std::vector<Mute> mutes;
  std::uint64_t next_ns = ~std::uint64_t{0};  // decide again then at the latest, even if nothing changes
};

class Policy {
 public:
  virtual ~Policy() = default;
  // Called with non-decreasing snapshot.now_ns.
  virtual Decision decide(const Snapshot& snapshot) = 0;
};

using Factory = std::unique_ptr<Policy> (*)();

// Adds a policy to the list below, in the order of names.
struct Registration {
  Registration(std::string_view name, Factory factory);
};

struct Entry {
  std::string_view name;
  Factory factory;
};
const std::vector<Entry>& registered();

// All registered policies as one: closed and mutes united, the earliest next_ns.
std::unique_ptr<Policy> make_all();

}  // namespace sluice::policy
