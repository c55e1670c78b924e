// Makes the reads of a program fail, slow or hang, as a disk does. A program is started with this in LD_PRELOAD, and
// with the path of a file in CHAOS_DISK; the 4 bytes of that file are the fault in force.

#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

constexpr int32_t kNone = 0;
constexpr int32_t kError = -1;
constexpr int32_t kHang = -2;  // until another fault is in force; above 0: microseconds that each read takes
constexpr useconds_t kLookMicroseconds = 1000;

const volatile int32_t* Open() {
  static const int32_t none = kNone;
  const char* const path = std::getenv("CHAOS_DISK");
  const int fd = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return &none;
  void* const map = mmap(nullptr, sizeof(int32_t), PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  return map == MAP_FAILED ? &none : static_cast<const int32_t*>(map);
}

const volatile int32_t* const fault = Open();

// Returns whether the disk returns the bytes.
bool Wait() {
  while (*fault == kHang) usleep(kLookMicroseconds);
  if (*fault > 0) usleep(static_cast<useconds_t>(*fault));
  if (*fault != kError) return true;
  errno = EIO;
  return false;
}

}  // namespace

extern "C" {

ssize_t pread(int fd, void* buffer, size_t bytes, off_t offset) {
  static const auto real = reinterpret_cast<decltype(&pread)>(dlsym(RTLD_NEXT, "pread"));
  return Wait() ? real(fd, buffer, bytes, offset) : -1;
}

ssize_t pread64(int fd, void* buffer, size_t bytes, off64_t offset) {
  static const auto real = reinterpret_cast<decltype(&pread64)>(dlsym(RTLD_NEXT, "pread64"));
  return Wait() ? real(fd, buffer, bytes, offset) : -1;
}

// Reads of bytes that the kernel has in memory. During a fault it has none.
ssize_t preadv2(int fd, const iovec* buffers, int count, off_t offset, int flags) {
  static const auto real = reinterpret_cast<decltype(&preadv2)>(dlsym(RTLD_NEXT, "preadv2"));
  if (*fault == kNone) return real(fd, buffers, count, offset, flags);
  errno = EAGAIN;
  return -1;
}

}  // extern "C"
