#include "tests/kernels/cuda/driver/fake_nccl.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tessera::tests {
namespace {

struct World;

}  // namespace
}  // namespace tessera::tests

namespace tessera::kernels::cuda {

// What the library keeps behind its handle.
struct NcclCommunicator {
  std::shared_ptr<tests::World> world;
  int rank = 0;
  int pending = 0;  // sends and receives
  NcclResult error = kNcclSuccess;
};

}  // namespace tessera::kernels::cuda

namespace tessera::tests {
namespace {

using namespace kernels::cuda;  // NOLINT: a fake of all of it
using Clock = std::chrono::steady_clock;

constexpr NcclResult kInvalidArgument = 4;
constexpr NcclResult kInvalidUsage = 5;
constexpr NcclResult kRemoteError = 6;

struct Transfer {
  NcclComm comm;
  void* memory;
  size_t bytes;
  Clock::time_point ready;
};

struct World {
  int size = 0;
  std::vector<NcclComm> members;  // by rank; null: not there yet, or gone
  int joined = 0;
  bool lost = false;  // a member that was there is gone
  // From rank to rank, in order.
  std::map<std::pair<int, int>, std::deque<Transfer>> sends, receives;

  void Match();
};

// One call between GroupStart and GroupEnd, or alone.
struct Call {
  bool sends;
  int peer;
  Transfer transfer;
};

FakeNccl* fake = nullptr;
std::mutex mutex;  // of all below
std::condition_variable changed;
std::map<std::string, std::shared_ptr<World>> worlds;  // by id
int ids = 0;
int blocked_aborts = 0;
thread_local int group_depth = 0;
thread_local std::vector<Call> group_calls;

void World::Match() {
  const Clock::time_point now = Clock::now();
  for (auto& [ranks, sent] : sends) {
    std::deque<Transfer>& received = receives[ranks];
    while (!sent.empty() && !received.empty() && sent.front().ready <= now) {
      const Transfer from = sent.front(), to = received.front();
      sent.pop_front();
      received.pop_front();
      if (from.bytes == to.bytes) std::memcpy(to.memory, from.memory, from.bytes);
      for (const Transfer* transfer : {&from, &to}) {
        --transfer->comm->pending;
        if (from.bytes != to.bytes) transfer->comm->error = kInvalidUsage;
      }
    }
  }
}

NcclResult Post() {
  const std::lock_guard<std::mutex> lock(mutex);
  for (const Call& call : std::exchange(group_calls, {})) {
    NcclComm comm = call.transfer.comm;
    World& world = *comm->world;
    auto& queue =
        call.sends ? world.sends[{comm->rank, call.peer}] : world.receives[{call.peer, comm->rank}];
    queue.push_back(call.transfer);
    ++comm->pending;
    world.Match();
  }
  return kNcclInProgress;
}

NcclResult Add(bool sends, const void* memory, size_t count, int type, int peer, NcclComm comm) {
  if (type != kNcclUint8 || comm == nullptr) return kInvalidArgument;
  const auto delay = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(fake->delay_seconds));
  group_calls.push_back(
      {sends, peer, {comm, const_cast<void*>(memory), count, Clock::now() + delay}});
  return group_depth > 0 ? kNcclSuccess : Post();
}

// Takes the communicator's calls back: nobody copies from or to its memory any more.
void Leave(NcclComm comm) {
  World& world = *comm->world;
  for (auto* queues : {&world.sends, &world.receives}) {
    for (auto& [ranks, queue] : *queues) {
      std::erase_if(queue, [&](const Transfer& transfer) { return transfer.comm == comm; });
    }
  }
  world.members[comm->rank] = nullptr;
  world.lost = true;
  delete comm;
  --fake->alive;
  changed.notify_all();
}

NcclResult GetVersion(int* version) {
  *version = 22809;
  return kNcclSuccess;
}

NcclResult GetUniqueId(NcclId* id) {
  const std::lock_guard<std::mutex> lock(mutex);
  *id = {};
  std::memcpy(id->bytes, &++ids, sizeof ids);
  return kNcclSuccess;
}

NcclResult CommInitRankConfig(NcclComm* comm, int ranks, NcclId id, int rank, NcclConfig* config) {
  const NcclConfig known;
  const bool limits = config->version == NcclConfig::kVersionWithCtas;
  if (config->magic != known.magic || config->blocking != 0 ||
      config->size_bytes != (limits ? sizeof known : known.size_bytes)) {
    return kInvalidArgument;
  }
  if (fake->joins_fail) return kInvalidUsage;
  fake->max_ctas = limits ? config->max_ctas : kNcclUndefined;
  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<World>& world = worlds[std::string(id.bytes, sizeof id.bytes)];
  if (world == nullptr) {
    world = std::make_shared<World>();
    world->size = ranks;
    world->members.resize(ranks);
  }
  if (world->size != ranks || rank < 0 || rank >= ranks || world->members[rank] != nullptr) {
    return kInvalidArgument;
  }
  *comm = new NcclCommunicator{world, rank};
  world->members[rank] = *comm;
  if (rank != fake->absent_rank) ++world->joined;
  ++fake->alive;
  return kNcclInProgress;
}

NcclResult CommGetAsyncError(NcclComm comm, NcclResult* state) {
  const std::lock_guard<std::mutex> lock(mutex);
  World& world = *comm->world;
  world.Match();
  const bool waits = world.joined < world.size || comm->pending > 0;
  if (comm->error == kNcclSuccess && waits && world.lost) comm->error = kRemoteError;
  *state = comm->error == kNcclSuccess && waits ? kNcclInProgress : comm->error;
  return kNcclSuccess;
}

NcclResult CommFinalize(NcclComm) { return kNcclInProgress; }

NcclResult CommDestroy(NcclComm comm) {
  const std::lock_guard<std::mutex> lock(mutex);
  Leave(comm);
  ++fake->destroyed;
  return kNcclSuccess;
}

NcclResult CommAbort(NcclComm comm) {
  std::unique_lock<std::mutex> lock(mutex);
  if (fake->aborts_block) {
    ++blocked_aborts;
    changed.wait(lock, [] { return !fake->aborts_block; });
    --blocked_aborts;
  }
  Leave(comm);
  ++fake->aborted;
  return kNcclSuccess;
}

NcclResult Send(const void* in, size_t count, int type, int peer, NcclComm comm,
                NcclStream stream) {
  fake->stream = stream;
  return Add(true, in, count, type, peer, comm);
}

NcclResult Recv(void* out, size_t count, int type, int peer, NcclComm comm, NcclStream stream) {
  fake->stream = stream;
  return Add(false, out, count, type, peer, comm);
}

NcclResult GroupStart() {
  ++group_depth;
  return kNcclSuccess;
}

NcclResult GroupEnd() { return --group_depth > 0 ? kNcclSuccess : Post(); }

NcclResult AllGather(const void* in, void* out, size_t count, int type, NcclComm comm,
                     NcclStream stream) {
  if (comm == nullptr) return kInvalidArgument;
  GroupStart();
  for (int r = 0; r < comm->world->size; ++r) {
    char* const place = static_cast<char*>(out) + static_cast<size_t>(r) * count;
    if (r == comm->rank) {
      if (place != in) std::memcpy(place, in, count);
    } else {
      Send(in, count, type, r, comm, stream);
      Recv(place, count, type, r, comm, stream);
    }
  }
  return GroupEnd();
}

NcclResult Broadcast(const void* in, void* out, size_t count, int type, int root, NcclComm comm,
                     NcclStream stream) {
  if (comm == nullptr) return kInvalidArgument;
  if (comm->rank != root) return Recv(out, count, type, root, comm, stream);
  GroupStart();
  for (int r = 0; r < comm->world->size; ++r) {
    if (r != root) Send(in, count, type, r, comm, stream);
  }
  return GroupEnd();
}

const char* GetErrorString(NcclResult result) {
  return result == kRemoteError ? "remote process exited or there was a network error"
                                : "invalid usage";
}

const char* GetLastError(NcclComm) { return "the fake's last words"; }

}  // namespace

NcclTable TableOf(FakeNccl* described) {
  fake = described;
  NcclTable table;
#define TESSERA_FILL(name, ...) table.name = &name;
  TESSERA_NCCL_FUNCTIONS(TESSERA_FILL)
#undef TESSERA_FILL
  return table;
}

void KillRank(int rank) {
  const std::lock_guard<std::mutex> lock(mutex);
  for (auto& [id, world] : worlds) {
    if (rank < world->size && world->members[rank] != nullptr) world->lost = true;
  }
}

void EndAborts() {
  std::unique_lock<std::mutex> lock(mutex);
  fake->aborts_block = false;
  changed.notify_all();
  changed.wait(lock, [] { return blocked_aborts == 0; });
}

}  // namespace tessera::tests
