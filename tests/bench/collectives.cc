// All-reduce of two processes on one machine, by kind of group, beside the same two processes'
// ping-pong over a link.
//
//   collectives [CALLS]       2000 calls of each kind and size
//
// Prints medians in microseconds and the ratio of an all-reduce to one way of the ping-pong. No
// bar.

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/collectives/shm_group.h"
#include "kernels/collectives/socket_group.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/links/link.h"
#include "kernels/links/link_socket.h"
#include "third_party/linux/cpu_share.h"

namespace tessera::bench {
namespace {

using namespace kernels;  // NOLINT: everything here is theirs

constexpr double kTimeoutSeconds = 60;
constexpr int kBatch = 20;

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "collectives: %s\n", value.status().ToString().c_str());
  std::exit(2);
}

void OrDie(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "collectives: %s\n", status.ToString().c_str());
  std::exit(2);
}

// Median microseconds of one call, over batches of calls.
double MedianMicroseconds(int calls, const std::function<void()>& batch) {
  std::vector<double> times;
  for (int i = 0; i < 10; ++i) batch();
  for (int done = 0; done < calls; done += kBatch) {
    const auto start = std::chrono::steady_clock::now();
    batch();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    times.push_back(time.count() / kBatch);
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

// One way of a ping-pong: half of its round trip.
double PingPong(int rank, Link& link, std::vector<std::byte>& memory, int calls) {
  const auto send = [&] { OrDie(link.Send(kFirstOwnerFrame, memory, kTimeoutSeconds)); };
  const auto receive = [&] {
    OrDie(link.Receive(kFirstOwnerFrame, absl::MakeSpan(memory), kTimeoutSeconds).status());
  };
  return MedianMicroseconds(calls,
                            [&] {
                              for (int i = 0; i < kBatch; ++i) {
                                rank == 0 ? send() : receive();
                                rank == 0 ? receive() : send();
                              }
                            }) /
         2;
}

double AllReduce(Group& group, std::vector<std::byte>& memory, Stream& stream, int calls) {
  const TensorView values(memory.data(), DType::kF32,
                          {static_cast<int64_t>(memory.size() / sizeof(float))});
  return MedianMicroseconds(calls, [&] {
    for (int i = 0; i < kBatch; ++i) OrDie(group.AllReduceSum(values, stream));
    OrDie(stream.Synchronize());
  });
}

std::vector<std::shared_ptr<Link>> LinksOf(int rank, std::shared_ptr<Link> link) {
  std::vector<std::shared_ptr<Link>> links(2);
  links[1 - rank] = std::move(link);
  return links;
}

// A link to the other process, made over the one that is there.
std::shared_ptr<Link> ConnectTcp(int rank, Link& link) {
  if (rank == 0) {
    auto listener = OrDie(LinkListener::Listen({.host = "127.0.0.1"}));
    const int port = listener->address().port;
    const auto* bytes = reinterpret_cast<const std::byte*>(&port);
    OrDie(link.Send(kFirstOwnerFrame, absl::MakeConstSpan(bytes, sizeof port), kTimeoutSeconds));
    return OrDie(listener->Accept(kTimeoutSeconds));
  }
  int port = 0;
  auto* const bytes = reinterpret_cast<std::byte*>(&port);
  OrDie(
      link.Receive(kFirstOwnerFrame, absl::MakeSpan(bytes, sizeof port), kTimeoutSeconds).status());
  return OrDie(ConnectLink({.host = "127.0.0.1", .port = port}, kTimeoutSeconds));
}

// Both processes measure the same in turn; rank 0 prints.
void Measure(int rank, FileDescriptor socket, int calls) {
  const std::vector<int> cores = AffinityCores();
  const bool own_core = cores.size() >= 2;
  // Who sleeps may run on any core; who spins has one of its own.
  const auto shared_pool = OrDie(ThreadPool::Create({.cores = cores, .cores_shared = true}));
  const auto own_pool = OrDie(ThreadPool::Create({.cores = {cores[rank % cores.size()]}}));
  const std::unique_ptr<Stream> stream = OrDie(CpuStream::Create(shared_pool.get()));
  const std::unique_ptr<Stream> pinned = OrDie(CpuStream::Create(own_pool.get()));
  const auto unix_link = std::make_shared<Link>(std::move(socket), "the other process");
  const std::shared_ptr<Link> tcp_link = ConnectTcp(rank, *unix_link);
  if (rank == 0) {
    std::printf("%-10s %-24s %14s %16s %8s\n", "bytes", "", "all-reduce us", "ping-pong us",
                "ratio");
  }
  const auto print = [&](size_t size_bytes, const char* kind, double reduce_us, double way_us) {
    if (rank != 0) return;
    std::printf("%-10zu %-24s %14.1f %16.1f %8.2f\n", size_bytes, kind, reduce_us, way_us,
                reduce_us / way_us);
    std::fflush(stdout);
  };
  double small_unix_us = 0;
  for (const size_t size_bytes : {size_t{4} << 10, size_t{1} << 20}) {
    std::vector<std::byte> memory(size_bytes);
    const int share = size_bytes > 65536 ? std::max(calls / 10, kBatch) : calls;
    const double unix_us = PingPong(rank, *unix_link, memory, share);
    if (small_unix_us == 0) small_unix_us = unix_us;
    const double tcp_us = PingPong(rank, *tcp_link, memory, share);
    // Links of their own: a group's end shuts its links down.
    auto tcp_group =
        OrDie(CreateSocketGroup(rank, LinksOf(rank, ConnectTcp(rank, *unix_link)), {}));
    print(size_bytes, "TCP", AllReduce(*tcp_group, memory, *stream, share), tcp_us);
    for (const int spin_us : {0, 50}) {
      if (spin_us > 0 && !own_core) continue;
      auto shm_group =
          OrDie(CreateShmGroup(rank, LinksOf(rank, unix_link),
                               {.group = {.spin_limit = std::chrono::microseconds(spin_us)}}));
      print(size_bytes, spin_us > 0 ? "shared memory, spinning" : "shared memory, sleeping",
            AllReduce(*shm_group, memory, spin_us > 0 ? *pinned : *stream, share), unix_us);
    }
  }
  // Last, because the group's end shuts the link down.
  std::vector<std::byte> memory(4 << 10);
  auto unix_group = OrDie(CreateSocketGroup(rank, LinksOf(rank, unix_link), {}));
  print(memory.size(), "Unix sockets", AllReduce(*unix_group, memory, *stream, calls),
        small_unix_us);
}

int Main(int argc, char** argv) {
  const int calls = argc > 1 ? std::max(std::atoi(argv[1]), kBatch) : 2000;
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) return 2;
  const pid_t child = fork();
  if (child < 0) return 2;
  if (child == 0) {
    close(fds[0]);
    Measure(1, FileDescriptor(fds[1]), calls);
    std::exit(0);
  }
  close(fds[1]);
  Measure(0, FileDescriptor(fds[0]), calls);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? 0 : 2;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::Main(argc, argv); }
