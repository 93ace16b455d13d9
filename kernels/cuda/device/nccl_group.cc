#include "kernels/cuda/device/nccl_group.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/device/nccl_pair.h"
#include "kernels/cuda/plain/plain_kernels.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// Sums up to this size are one gather: a step of decoding is bound by the number of exchanges.
constexpr size_t kOneGatherValues = (256 << 10) / sizeof(float);
constexpr size_t kChunkValues = (4 << 20) / sizeof(float);
// One slice of a chunk, or one small sum, from each rank.
constexpr size_t kScratchValues = kChunkValues + kMaxGroupSize;
static_assert(kMaxGroupSize * kOneGatherValues <= kChunkValues);
static_assert(kMaxGroupSize <= kMaxSumRanks);

absl::Span<const std::byte> ReadOnly(absl::Span<const float> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}

absl::Span<std::byte> Writable(absl::Span<float> values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Group>> NcclGroup::Create(std::unique_ptr<BoundedComm> comm,
                                                         const std::string& library,
                                                         const GroupOptions& options) {
  std::unique_ptr<NcclGroup> group(new NcclGroup(std::move(comm), library, options));
  const auto scratch = group->comm_->Allocate(kScratchValues * sizeof(float));
  if (!scratch.ok()) return scratch.status();
  group->scratch_ = reinterpret_cast<float*>(*scratch);
  return group;
}

NcclGroup::~NcclGroup() {
  const std::lock_guard<std::mutex> lock(call_mutex_);
  cudaFree(scratch_);
}

absl::Status NcclGroup::Usable() const {
  if (comm_->comm() != nullptr) return absl::OkStatus();
  return absl::CancelledError(StrCat(library_, ": the communicator was aborted"));
}

absl::Status NcclGroup::SumNow(absl::Span<float> values) {
  const std::lock_guard<std::mutex> lock(call_mutex_);
  absl::Status status = Usable();
  const Deadline deadline = DeadlineAfter(options_.timeout_seconds);
  if (status.ok() && values.size() <= kOneGatherValues) return SumInOneGather(values, deadline);
  for (size_t begin = 0; status.ok() && begin < values.size(); begin += kChunkValues) {
    status = SumBySlices(values.subspan(begin, kChunkValues), deadline);
  }
  return status;
}

absl::Status NcclGroup::AddRanks(const std::array<const float*, kMaxGroupSize>& in,
                                 absl::Span<float> out) {
  SumRanksParams params;
  params.out = out.data();
  params.count = static_cast<int64_t>(out.size());
  params.ranks = size();
  for (int r = 0; r < size(); ++r) params.in[r] = in[r];
  return comm_->health().Check(LaunchSumRanks(params, comm_->stream()), "a sum of ranks",
                               comm_->stream());
}

absl::Status NcclGroup::SumInOneGather(absl::Span<float> values, Deadline deadline) {
  absl::Status status =
      comm_->Enqueued(comm_->table().AllGather(values.data(), scratch_, ReadOnly(values).size(),
                                               kNcclUint8, comm_->comm(), comm_->stream()),
                      "a sum", deadline);
  if (!status.ok()) return status;
  std::array<const float*, kMaxGroupSize> in = {};
  for (int r = 0; r < size(); ++r) in[r] = scratch_ + static_cast<size_t>(r) * values.size();
  status = AddRanks(in, values);
  return status.ok() ? comm_->Settle(kNcclSuccess, "a sum", deadline) : status;
}

absl::Status NcclGroup::SumBySlices(absl::Span<float> values, Deadline deadline) {
  const auto count = static_cast<int64_t>(values.size());
  const auto slice = [&](int r) {
    const int64_t begin = count * r / size();
    return values.subspan(begin, count * (r + 1) / size() - begin);
  };
  const absl::Span<float> own = slice(rank());
  const auto place = [&](int r) {
    return absl::Span<float>(scratch_ + static_cast<size_t>(r) * own.size(), own.size());
  };
  absl::Status status = comm_->Enqueued(Exchange([&](int r) { return ReadOnly(slice(r)); },
                                                 [&](int r) { return Writable(place(r)); }),
                                        "a sum", deadline);
  if (!status.ok()) return status;
  std::array<const float*, kMaxGroupSize> in = {};
  for (int r = 0; r < size(); ++r) in[r] = r == rank() ? own.data() : place(r).data();
  status = AddRanks(in, own);
  if (!status.ok()) return status;
  return comm_->Settle(
      Exchange([&](int) { return ReadOnly(own); }, [&](int r) { return Writable(slice(r)); }),
      "a sum", deadline);
}

absl::Status NcclGroup::BroadcastNow(absl::Span<std::byte> bytes, int root) {
  const std::lock_guard<std::mutex> lock(call_mutex_);
  if (absl::Status status = Usable(); !status.ok()) return status;
  return comm_->Settle(comm_->table().Broadcast(bytes.data(), bytes.data(), bytes.size(),
                                                kNcclUint8, root, comm_->comm(), comm_->stream()),
                       "a broadcast", DeadlineAfter(options_.timeout_seconds));
}

absl::Status NcclGroup::ExchangeSizes(int64_t own, Deadline deadline) {
  // In the scratch as on the host, which waits for it: a copy may outlast a wait that fails.
  auto* const on_gpu = reinterpret_cast<std::byte*>(scratch_);
  const size_t all_bytes = static_cast<size_t>(size()) * sizeof(int64_t);
  sizes_[kMaxGroupSize] = own;
  CudaHealth& health = comm_->health();
  absl::Status status =
      health.Check(cudaMemcpyAsync(on_gpu + all_bytes, &sizes_[kMaxGroupSize], sizeof(int64_t),
                                   cudaMemcpyHostToDevice, comm_->stream()),
                   "a gather", comm_->stream());
  if (!status.ok()) return status;
  status = comm_->Enqueued(comm_->table().AllGather(on_gpu + all_bytes, on_gpu, sizeof(int64_t),
                                                    kNcclUint8, comm_->comm(), comm_->stream()),
                           "a gather", deadline);
  if (!status.ok()) return status;
  status = health.Check(
      cudaMemcpyAsync(sizes_.data(), on_gpu, all_bytes, cudaMemcpyDeviceToHost, comm_->stream()),
      "a gather", comm_->stream());
  return status.ok() ? comm_->Settle(kNcclSuccess, "a gather", deadline) : status;
}

absl::Status NcclGroup::GatherNow(absl::Span<const std::byte> in, absl::Span<std::byte> out,
                                  int root) {
  const std::lock_guard<std::mutex> lock(call_mutex_);
  absl::Status status = Usable();
  const Deadline deadline = DeadlineAfter(options_.timeout_seconds);
  if (status.ok()) status = ExchangeSizes(static_cast<int64_t>(in.size()), deadline);
  if (!status.ok()) return status;
  std::array<size_t, kMaxGroupSize + 1> offsets = {};
  for (int r = 0; r < size(); ++r) offsets[r + 1] = offsets[r] + static_cast<size_t>(sizes_[r]);
  if (Receives(root) && offsets[size()] != out.size()) {
    return absl::FailedPreconditionError(StrCat("gather: the ranks have ", offsets[size()],
                                                " bytes, rank ", rank(), " expects ", out.size()));
  }
  if (Receives(root) && !in.empty()) {
    status =
        comm_->health().Check(cudaMemcpyAsync(out.data() + offsets[rank()], in.data(), in.size(),
                                              cudaMemcpyDeviceToDevice, comm_->stream()),
                              "a gather", comm_->stream());
    if (!status.ok()) return status;
  }
  const auto outgoing = [&](int r) {
    return root == kEveryRank || root == r ? in : absl::Span<const std::byte>();
  };
  const auto incoming = [&](int r) {
    return Receives(root) ? out.subspan(offsets[r], static_cast<size_t>(sizes_[r]))
                          : absl::Span<std::byte>();
  };
  return comm_->Settle(Exchange(outgoing, incoming), "a gather", deadline);
}

template <typename Outgoing, typename Incoming>
NcclResult NcclGroup::Exchange(const Outgoing& outgoing, const Incoming& incoming) {
  const NcclTable& nccl = comm_->table();
  NcclResult result = nccl.GroupStart();
  const auto keep = [&result](NcclResult of_call) {
    if (result == kNcclSuccess && of_call != kNcclInProgress) result = of_call;
  };
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const absl::Span<const std::byte> sent = outgoing(r);
    const absl::Span<std::byte> received = incoming(r);
    if (!sent.empty()) {
      keep(nccl.Send(sent.data(), sent.size(), kNcclUint8, r, comm_->comm(), comm_->stream()));
    }
    if (!received.empty()) {
      keep(nccl.Recv(received.data(), received.size(), kNcclUint8, r, comm_->comm(),
                     comm_->stream()));
    }
  }
  const NcclResult ended = nccl.GroupEnd();
  return result == kNcclSuccess ? ended : result;
}

void NcclGroup::WakeAll(const absl::Status&) {
  comm_->Stop();
  // A call that waits aborts by itself, on its thread.
  const std::unique_lock<std::mutex> lock(call_mutex_, std::try_to_lock);
  if (lock.owns_lock()) comm_->Abort();
}

absl::StatusOr<std::string> NcclGroupMaker::NewId() {
  NcclId id = {};
  const NcclResult result = table_.GetUniqueId(&id);
  if (result == kNcclSuccess) return std::string(id.bytes, sizeof id.bytes);
  return absl::UnavailableError(StrCat(health_->device(), ": ", library_,
                                       ": no id for a group: ", table_.GetErrorString(result), " (",
                                       table_.GetLastError(nullptr), ")"));
}

absl::StatusOr<std::unique_ptr<BoundedComm>> NcclGroupMaker::Open(
    NcclPlace place, const std::string& id, double join_seconds,
    const std::function<bool()>& cancelled) const {
  NcclId nccl_id = {};
  if (id.size() != sizeof nccl_id.bytes || place.size < 1 || place.size > kMaxGroupSize ||
      place.rank < 0 || place.rank >= place.size) {
    return absl::InvalidArgumentError(StrCat(library_, ": rank ", place.rank, " of ", place.size,
                                             " with an id of ", id.size(), " bytes"));
  }
  std::memcpy(nccl_id.bytes, id.data(), id.size());
  return BoundedComm::Create(table_, health_, place, nccl_id, DeadlineAfter(join_seconds),
                             cancelled);
}

absl::StatusOr<std::unique_ptr<Group>> NcclGroupMaker::Join(
    int rank, int size, const std::string& id, const GroupOptions& options, double join_seconds,
    const std::function<bool()>& cancelled) {
  auto comm = Open({.device_index = device_index_, .rank = rank, .size = size}, id, join_seconds,
                   cancelled);
  if (!comm.ok()) return comm.status();
  return NcclGroup::Create(*std::move(comm), library_, options);
}

absl::StatusOr<std::unique_ptr<DevicePair>> NcclGroupMaker::JoinPair(
    int rank, const std::string& id, int64_t memory_bytes, double join_seconds,
    const std::function<bool()>& cancelled) {
  auto comm =
      Open({.device_index = device_index_, .rank = rank, .size = 2, .max_ctas = NcclPair::kMaxCtas},
           id, join_seconds, cancelled);
  if (!comm.ok()) return comm.status();
  return NcclPair::Create(*std::move(comm), memory_bytes);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
