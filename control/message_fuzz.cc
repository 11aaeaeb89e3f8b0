// Whatever bytes arrive on the socket are parsed or refused, and what was parsed can be sent again.
#include <cstdint>
#include <cstdlib>

#include "sluice/control.h"

extern "C" __attribute__((visibility("default"))) int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                                                             std::size_t size) {
  using namespace sluice::control;
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  const auto request = parse_request(line);
  if (request.ok()) {
    const auto again = to_line(*request);
    if (again.ok() && !parse_request(std::string_view(*again).substr(0, again->size() - 1)).ok()) std::abort();
  }
  const auto reply = parse_reply(line);
  if (!reply.ok() && reply.status().message()[0] == '\0') std::abort();
  return 0;
}
