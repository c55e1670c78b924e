#include "lib/rpc/socket_setup.h"

#include <memory>
#include <utility>

#include <grpc/support/sync.h>
#include <grpcpp/version_info.h>
#include <netinet/in.h>
#include <sys/socket.h>

// gRPC has a channel argument for the socket mutator, but keeps its type to itself; the two structs below repeat what
// src/core/lib/iomgr/socket_mutator.h says. They are the same in these versions; another one does without the setup
// until somebody has looked. Rejected: setting options on the sockets in /proc/self/fd once they are connected, by when
// the window is agreed and the first answers come; and sockets of our own (CreateCustomInsecureChannelFromFd), which
// gRPC does not connect again.
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

#if SLUICE_HAS_SOCKET_MUTATOR

// One for each set of channel arguments. gRPC counts its references and destroys it.
struct SetupMutator : grpc_socket_mutator {
  SocketSetup setup;
};

bool Mutate(int fd, grpc_socket_mutator* mutator) {
  return static_cast<SetupMutator*>(mutator)->setup(fd);
}

int Compare(grpc_socket_mutator* a, grpc_socket_mutator* b) {
  return a == b ? 0 : (a < b ? -1 : 1);
}

void Destroy(grpc_socket_mutator* mutator) {
  delete static_cast<SetupMutator*>(mutator);
}

constexpr grpc_socket_mutator_vtable kVtable = {
    .mutate_fd = Mutate, .compare = Compare, .destroy = Destroy, .mutate_fd_2 = nullptr};

#endif

}  // namespace

bool CanSetUpSockets() {
  return SLUICE_HAS_SOCKET_MUTATOR;
}

void SetUpSockets([[maybe_unused]] SocketSetup setup, [[maybe_unused]] grpc::ChannelArguments& arguments) {
#if SLUICE_HAS_SOCKET_MUTATOR
  auto mutator = std::make_unique<SetupMutator>();
  mutator->vtable = &kVtable;
  gpr_ref_init(&mutator->refcount, 1);
  mutator->setup = std::move(setup);
  arguments.SetSocketMutator(mutator.release());  // takes over the one reference
#endif
}

bool SetSocketOption(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

bool IsTcpOverIp(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && (domain == AF_INET || domain == AF_INET6);
}

}  // namespace sluice
