#include "say.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sluice::shim {

void say_once(std::atomic<bool>* once, const char* format, ...) {
  if (once->exchange(true)) return;
  const char* level = std::getenv("SLUICE_LOG");
  if (level != nullptr && std::strcmp(level, "error") == 0) return;
  char line[512] = "sluice: ";
  std::va_list args;
  va_start(args, format);
  int length = std::vsnprintf(line + 8, sizeof line - 10, format, args);
  va_end(args);
  if (length < 0) return;
  std::size_t bytes =
      8 + (static_cast<std::size_t>(length) < sizeof line - 11 ? static_cast<std::size_t>(length) : sizeof line - 11);
  line[bytes++] = '\n';
  // Whoever closed standard error does not want the line.
  if (write(STDERR_FILENO, line, bytes) < 0) return;
}

}  // namespace sluice::shim
