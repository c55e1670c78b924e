#include "lib/rpc/receive_window.h"

#include <algorithm>
#include <memory>

#include <grpc/support/sync.h>
#include <grpcpp/version_info.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

// gRPC has a channel argument for the socket mutator, but keeps its type to itself; the two structs below repeat what
// src/core/lib/iomgr/socket_mutator.h says. They are the same in these versions; another one does without the bound
// until somebody has looked. Rejected: setting the option on the sockets in /proc/self/fd once they are connected, by
// when the window is agreed and the first answers come; and sockets of our own (CreateCustomInsecureChannelFromFd),
// which gRPC does not connect again.
#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR >= 51 && GRPC_CPP_VERSION_MINOR <= 67
#define SLUICE_HAS_SOCKET_MUTATOR 1
#else
#define SLUICE_HAS_SOCKET_MUTATOR 0
#endif

#if SLUICE_HAS_SOCKET_MUTATOR

struct grpc_socket_mutator_vtable {
  bool (*mutate_fd)(int fd, grpc_socket_mutator* mutator);
  int (*compare)(grpc_socket_mutator* a, grpc_socket_mutator* b);
  void (*destroy)(grpc_socket_mutator* mutator);
  bool (*mutate_fd_2)(const void* info, grpc_socket_mutator* mutator);  // instead of mutate_fd, where there is one
};

struct grpc_socket_mutator {
  const grpc_socket_mutator_vtable* vtable;
  gpr_refcount refcount;
};

#endif

namespace sluice {
namespace {

// With fewer packets in its window TCP was seen to wait for delayed acknowledgements.
constexpr int64_t kMinPackets = 8;

#if SLUICE_HAS_SOCKET_MUTATOR

constexpr int kTimestampBytes = 12;  // of every packet; TCP's maximum segment size includes them

// One for each set of channel arguments. gRPC counts its references and destroys it.
struct WindowMutator : grpc_socket_mutator {
  ReceiveWindow window;
};

bool SetOption(int fd, int level, int option, int64_t value) {
  const int number = static_cast<int>(value);
  return setsockopt(fd, level, option, &number, sizeof(number)) == 0;
}

bool IsTcpOverIp(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && (domain == AF_INET || domain == AF_INET6);
}

// Before it is connected: then the kernel leaves the buffer at that size. It advertises no more than the buffer, and
// less by what it thinks packets cost in memory. It doubles what it is told.
//
// Rejected: TCP_WINDOW_CLAMP, which is exact; but from Linux 6.6 the kernel sets it anew from the buffer's size.
bool Mutate(int fd, grpc_socket_mutator* mutator) {
  const ReceiveWindow& window = static_cast<WindowMutator*>(mutator)->window;
  if (!IsTcpOverIp(fd)) return true;
  // Refused where the packets are larger than any (a profile of loopback): then there is nothing to limit.
  SetOption(fd, IPPROTO_TCP, TCP_MAXSEG, window.packet_payload_bytes + kTimestampBytes);
  return SetOption(fd, SOL_SOCKET, SO_RCVBUF, window.bytes / 2);
}

int Compare(grpc_socket_mutator* a, grpc_socket_mutator* b) {
  return a == b ? 0 : (a < b ? -1 : 1);
}

void Destroy(grpc_socket_mutator* mutator) {
  delete static_cast<WindowMutator*>(mutator);
}

constexpr grpc_socket_mutator_vtable kVtable = {
    .mutate_fd = Mutate, .compare = Compare, .destroy = Destroy, .mutate_fd_2 = nullptr};

#endif

}  // namespace

bool CanBoundReceiveWindow() {
  return SLUICE_HAS_SOCKET_MUTATOR;
}

int64_t DefaultReceiveWindowBytes(const LinkProfile& profile, int64_t budget_bytes) {
  const int64_t packets = std::max(budget_bytes / 3 * 2 / profile.frame_bytes, kMinPackets);
  const int64_t packets_at_most =
      std::min(budget_bytes / profile.frame_bytes, kMaxReceiveWindowBytes / profile.packet_payload_bytes);
  if (packets > packets_at_most) return 0;
  const int64_t bytes = packets * profile.packet_payload_bytes;
  return bytes < kMinReceiveWindowBytes ? 0 : bytes;
}

void BoundReceiveWindow([[maybe_unused]] const ReceiveWindow& window,
                        [[maybe_unused]] grpc::ChannelArguments& arguments) {
#if SLUICE_HAS_SOCKET_MUTATOR
  auto mutator = std::make_unique<WindowMutator>();
  mutator->vtable = &kVtable;
  gpr_ref_init(&mutator->refcount, 1);
  mutator->window = window;
  arguments.SetSocketMutator(mutator.release());  // takes over the one reference
#endif
}

}  // namespace sluice
