#include "kernels/cuda/device/nccl_group.h"

#include <algorithm>
#include <cstring>

#include "kernels/collectives/group_arguments.h"
#include "kernels/cuda/device/cuda_stream.h"
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
// Sums that wait are ended before the device counts as lost: the part of that time that they have.
constexpr double kPartOfMaxWait = 0.7;
// So many sums, and what lies between them, are enqueued until one is waited for: less than the
// work that CUDA takes for a stream before a launch blocks.
constexpr int64_t kSumsAhead = 16;

absl::Span<const std::byte> ReadOnly(absl::Span<const float> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}

absl::Span<std::byte> Writable(absl::Span<float> values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

// What streams know of the group, which may end before they do.
class NcclGroup::Reports final : public KernelReports {
 public:
  explicit Reports(NcclGroup* group) : group_(group) {}

  absl::Status failure() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return reason_;
  }
  void WhileWaiting(double seconds) const override {
    const std::lock_guard<std::mutex> lock(group_mutex_);
    if (group_ == nullptr) return;
    if (!group_->status().ok()) return group_->EndAborted();
    if (absl::Status wrong = group_->Look(seconds); !wrong.ok()) group_->Abort(wrong);
  }
  void Fail(const absl::Status& reason) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (reason_.ok()) reason_ = reason;
  }
  void Leave() {
    const std::lock_guard<std::mutex> lock(group_mutex_);
    group_ = nullptr;
  }

 private:
  mutable std::mutex group_mutex_, mutex_;
  NcclGroup* group_;  // null: it has ended
  absl::Status reason_;
};

NcclGroup::NcclGroup(std::unique_ptr<BoundedComm> comm, const std::string& library,
                     const GroupOptions& options)
    : HostGroup(comm->place().rank, comm->place().size),
      library_(library),
      options_(options),
      comm_(std::move(comm)),
      reports_(std::make_shared<Reports>(this)) {}

absl::StatusOr<std::unique_ptr<Group>> NcclGroup::Create(std::unique_ptr<BoundedComm> comm,
                                                         const std::string& library,
                                                         const GroupOptions& options) {
  std::unique_ptr<NcclGroup> group(new NcclGroup(std::move(comm), library, options));
  const auto scratch = group->comm_->Allocate(kScratchValues * sizeof(float));
  if (!scratch.ok()) return scratch.status();
  group->scratch_.reset(reinterpret_cast<float*>(*scratch));
  return group;
}

NcclGroup::~NcclGroup() {
  reports_->Leave();
  const std::lock_guard<std::mutex> lock(call_mutex_);  // until a call has ended
}

absl::Status NcclGroup::Usable() const {
  if (comm_->comm() != nullptr) return absl::OkStatus();
  return absl::CancelledError(StrCat(library_, ": the communicator was aborted"));
}

absl::Status NcclGroup::AllReduceSum(const TensorView& values, Stream& stream) {
  if (size() == 1 || stream.owner() != &comm_->health()) {
    return HostGroup::AllReduceSum(values, stream);
  }
  if (absl::Status status = CheckSum(values); !status.ok()) return status;
  if (values.Elements() == 0) return absl::OkStatus();
  struct Sum {
    NcclGroup* group;
    float* values;
    size_t count;
  };
  auto& own = static_cast<CudaStream&>(stream);
  own.Watch(reports_);
  own.EnqueueStreamWork<Sum>(
      [](const Sum& sum, cudaStream_t on) {
        NcclGroup& group = *sum.group;
        absl::Status status = group.status();
        if (!status.ok()) return status;
        status = group.SumOn({sum.values, sum.count}, on);
        if (status.ok()) return status;
        group.Abort(status);
        return group.status();
      },
      {this, values.As<float>(), static_cast<size_t>(values.Elements())});
  return absl::OkStatus();
}

absl::Status NcclGroup::SumNow(absl::Span<float> values) {
  const absl::Status status = SumOn(values, comm_->stream());
  const std::lock_guard<std::mutex> lock(call_mutex_);
  return status.ok() ? comm_->Settle(kNcclSuccess, "a sum", DeadlineAfter(options_.timeout_seconds))
                     : status;
}

absl::Status NcclGroup::SumOn(absl::Span<float> values, cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(call_mutex_);
  absl::Status status = Usable();
  const Deadline deadline = DeadlineAfter(options_.timeout_seconds);
  if (status.ok() && values.size() <= kOneGatherValues) {
    status = SumInOneGather(values, deadline, stream);
  } else {
    for (size_t begin = 0; status.ok() && begin < values.size(); begin += kChunkValues)
      status = SumBySlices(values.subspan(begin, kChunkValues), deadline, stream);
  }
  const bool ahead = stream != comm_->stream();
  if (status.ok() && ahead && ++sums_ % kSumsAhead == 0)
    status = comm_->Drain(stream, "a sum", deadline);
  if (comm_->is_stopped()) comm_->Abort();  // whoever stopped it found this call at work
  return status;
}

void NcclGroup::EndAborted() {
  const std::unique_lock<std::mutex> lock(call_mutex_, std::try_to_lock);
  if (lock.owns_lock()) comm_->Abort();
}

absl::Status NcclGroup::Look(double waited_seconds) {
  const std::unique_lock<std::mutex> lock(call_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || comm_->comm() == nullptr)
    return absl::OkStatus();  // a call looks itself
  const double most =
      std::min(options_.timeout_seconds, kPartOfMaxWait * comm_->health().max_wait_seconds());
  // No longer than it takes to ask: what was enqueued is NCCL's already.
  const double left = most - waited_seconds;
  return left > 0 ? comm_->Look("a sum") : comm_->Late("a sum");
}

absl::Status NcclGroup::AddRanks(const std::array<const float*, kMaxGroupSize>& in,
                                 absl::Span<float> out, cudaStream_t stream) {
  SumRanksParams params;
  params.out = out.data();
  params.count = static_cast<int64_t>(out.size());
  params.ranks = size();
  for (int r = 0; r < size(); ++r) params.in[r] = in[r];
  return comm_->health().Check(LaunchSumRanks(params, stream), "a sum of ranks", stream);
}

absl::Status NcclGroup::SumInOneGather(absl::Span<float> values, Deadline deadline,
                                       cudaStream_t stream) {
  absl::Status status = comm_->Enqueued(
      comm_->table().AllGather(values.data(), scratch_.get(), ReadOnly(values).size(), kNcclUint8,
                               comm_->comm(), stream),
      "a sum", deadline);
  if (!status.ok()) return status;
  std::array<const float*, kMaxGroupSize> in = {};
  for (int r = 0; r < size(); ++r) in[r] = scratch_.get() + static_cast<size_t>(r) * values.size();
  return AddRanks(in, values, stream);
}

absl::Status NcclGroup::SumBySlices(absl::Span<float> values, Deadline deadline,
                                    cudaStream_t stream) {
  const auto count = static_cast<int64_t>(values.size());
  const auto slice = [&](int r) {
    const int64_t begin = count * r / size();
    return values.subspan(begin, count * (r + 1) / size() - begin);
  };
  const absl::Span<float> own = slice(rank());
  const auto place = [&](int r) {
    return absl::Span<float>(scratch_.get() + static_cast<size_t>(r) * own.size(), own.size());
  };
  absl::Status status = comm_->Enqueued(Exchange([&](int r) { return ReadOnly(slice(r)); },
                                                 [&](int r) { return Writable(place(r)); }, stream),
                                        "a sum", deadline);
  if (!status.ok()) return status;
  std::array<const float*, kMaxGroupSize> in = {};
  for (int r = 0; r < size(); ++r) in[r] = r == rank() ? own.data() : place(r).data();
  status = AddRanks(in, own, stream);
  if (!status.ok()) return status;
  return comm_->Enqueued(Exchange([&](int) { return ReadOnly(own); },
                                  [&](int r) { return Writable(slice(r)); }, stream),
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
  auto* const on_gpu = reinterpret_cast<std::byte*>(scratch_.get());
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
  return comm_->Settle(Exchange(outgoing, incoming, comm_->stream()), "a gather", deadline);
}

template <typename Outgoing, typename Incoming>
NcclResult NcclGroup::Exchange(const Outgoing& outgoing, const Incoming& incoming,
                               cudaStream_t stream) {
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
      keep(nccl.Send(sent.data(), sent.size(), kNcclUint8, r, comm_->comm(), stream));
    }
    if (!received.empty()) {
      keep(nccl.Recv(received.data(), received.size(), kNcclUint8, r, comm_->comm(), stream));
    }
  }
  const NcclResult ended = nccl.GroupEnd();
  return result == kNcclSuccess ? ended : result;
}

void NcclGroup::WakeAll(const absl::Status& reason) {
  reports_->Fail(reason.ok() ? absl::CancelledError("the group was ended") : reason);
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
