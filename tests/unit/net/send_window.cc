#include "tests/unit/net/send_window.h"

#include <cerrno>
#include <cstring>

#include <linux/tcp.h>  // libc's header lacks the member, and the two headers conflict
#include <sys/socket.h>

#include "gtest/gtest.h"

namespace sluice::testing {
namespace {

constexpr int kTcp = 6;  // IPPROTO_TCP

}  // namespace

uint32_t SendWindow(int fd) {
  tcp_info info{};
  socklen_t bytes = sizeof(info);
  EXPECT_EQ(getsockopt(fd, kTcp, TCP_INFO, &info, &bytes), 0) << std::strerror(errno);
  return info.tcpi_snd_wnd;
}

}  // namespace sluice::testing
