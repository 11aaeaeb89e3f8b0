#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "sluice.h"

double sluice_batch_hint(void) {
  const char* path = std::getenv("SLUICE_BATCH_HINT_FILE");
  if (path == nullptr || *path == '\0') return 1;
  const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return 1;
  char text[32];
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  if (got <= 0) return 1;
  text[got] = '\0';
  char* end = nullptr;
  const double ratio = std::strtod(text, &end);
  return end != text && std::isfinite(ratio) && ratio > 0 && ratio < 1 ? ratio : 1;
}
