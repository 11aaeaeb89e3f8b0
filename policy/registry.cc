#include <algorithm>
#include <utility>

#include "sluice/policy.h"

namespace sluice::policy {
namespace {

std::vector<Entry>& entries() {
  static std::vector<Entry> all;
  return all;
}

class United : public Policy {
 public:
  explicit United(std::vector<std::unique_ptr<Policy>> parts) : parts_(std::move(parts)) {}

  Decision decide(const Snapshot& snapshot) override {
    Decision all;
    for (const auto& part : parts_) {
      Decision one = part->decide(snapshot);
      all.closed.insert(all.closed.end(), one.closed.begin(), one.closed.end());
      all.mutes.insert(all.mutes.end(), one.mutes.begin(), one.mutes.end());
      all.next_ns = std::min(all.next_ns, one.next_ns);
    }
    std::sort(all.closed.begin(), all.closed.end());
    all.closed.erase(std::unique(all.closed.begin(), all.closed.end()), all.closed.end());
    return all;
  }

 private:
  std::vector<std::unique_ptr<Policy>> parts_;
};

}  // namespace

Registration::Registration(std::string_view name, Factory factory) {
  auto& all = entries();
  const auto after = std::upper_bound(all.begin(), all.end(), name,
                                      [](std::string_view left, const Entry& right) { return left < right.name; });
  all.insert(after, Entry{name, factory});
}

const std::vector<Entry>& registered() { return entries(); }

std::unique_ptr<Policy> make_all() {
  std::vector<std::unique_ptr<Policy>> parts;
  for (const Entry& entry : registered()) parts.push_back(entry.factory());
  return std::make_unique<United>(std::move(parts));
}

}  // namespace sluice::policy
