// The emulated driver, plus what NVIDIA's library does besides: calls to the kernel module, which the test plays.
#include <sys/ioctl.h>

extern "C" [[gnu::visibility("default")]] int sluice_test_ioctl(int fd, unsigned long request, void* argument) {
  return ioctl(fd, request, argument);
}
