#include "boards_variable.h"

#include <cstdlib>
#include <cstring>

namespace sluice::shim {

bool next_place(const char** text, Place* out) {
  while (**text != '\0') {
    const char* const begin = *text;
    const char* end = std::strchr(begin, ',');
    if (end == nullptr) end = begin + std::strlen(begin);
    *text = *end == ',' ? end + 1 : end;
    const char* equals = static_cast<const char*>(std::memchr(begin, '=', static_cast<std::size_t>(end - begin)));
    const char* colon = end;
    while (colon > begin && *colon != ':') --colon;
    if (equals == nullptr || colon <= equals || equals - begin >= static_cast<long>(sizeof out->uuid) ||
        colon - equals - 1 >= static_cast<long>(sizeof out->path)) {
      continue;
    }
    *out = {};
    std::memcpy(out->uuid, begin, static_cast<std::size_t>(equals - begin));
    std::memcpy(out->path, equals + 1, static_cast<std::size_t>(colon - equals - 1));
    out->job = std::atoi(colon + 1);
    return true;
  }
  return false;
}

}  // namespace sluice::shim
