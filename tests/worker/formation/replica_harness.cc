#include "tests/worker/formation/replica_harness.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <utility>

#include "kernels/collectives/group_maker.h"
#include "kernels/cpu/device/cpu_device.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/links/link.h"
#include "proto/layers/kv_shares.h"
#include "proto/layers/kv_sizes.h"
#include "proto/layers/layers.h"
#include "proto/model/model_folder.h"
#include "scheduler/shares.h"
#include "tests/fakes/capped_sums.h"
#include "tests/fakes/inexact_device.h"
#include "worker/engine/engine.h"
#include "worker/transfer/device_pairs.h"
#include "worker/transfer/kv_inbox.h"
#include "worker/transfer/kv_link_port.h"
#include "worker/transfer/kv_outbox.h"
#include "worker/transfer/staged_kv_coder.h"

namespace tessera::worker {
namespace {

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::chrono::duration<double> Seconds(double seconds) {
  return std::chrono::duration<double>(seconds);
}

v1::ConfigureRequest BaseRequest(const std::string& folder, const v1::Model& model,
                                 const ReplicaOptions& options) {
  v1::ConfigureRequest request;
  request.mutable_fence()->set_plan_epoch(1);
  request.set_model_folder(folder);
  request.set_model_fingerprint("same");
  *request.mutable_model() = model;
  request.set_replica("r0");
  request.set_weight_dtype(options.weight_dtype);
  request.set_block_tokens(PlannedReplica::kBlockTokens);
  request.set_max_sequences(8);
  request.set_max_batched_tokens(options.max_batched_tokens);
  request.set_max_model_len_tokens(120);
  request.set_micro_batches(options.micro_batches);
  request.set_prefix_cache(options.prefix_cache);
  if (options.draft_source) request.set_speculation(v1::SPECULATION_NGRAM);
  if (options.head_drafts) {
    request.set_speculation(v1::SPECULATION_MTP);
    request.mutable_model()->mutable_draft_head()->set_used(true);
  }
  if (!options.draft_model.empty()) {
    const auto draft = ReadModelFolder(options.draft_model);
    REQUIRE(draft.status().message() == "");
    request.set_speculation(v1::SPECULATION_DRAFT_MODEL);
    v1::DraftModel* const drafts = request.mutable_model()->mutable_draft_model();
    *drafts->mutable_model() = *draft;
    drafts->set_folder(options.draft_model);
    drafts->set_fingerprint("same");
  }
  return request;
}

std::vector<v1::ConfigureRequest> Requests(const std::string& folder,
                                           const ReplicaOptions& options) {
  const auto model = ReadModelFolder(folder);
  REQUIRE(model.ok());
  v1::ConfigureRequest request = BaseRequest(folder, *model, options);
  std::vector<StageLayout> stages = options.stages;
  if (stages.empty()) stages.push_back({LayerCount(*model), 1});
  std::vector<v1::ConfigureRequest> requests;
  int64_t layer = 0;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const auto& [layers, width, fractions] = stages[stage];
    const auto shares =
        fractions.empty()
            ? scheduler::StageShares(*model, layer, layer + layers, width, options.weight_dtype)
            : scheduler::UnevenStageShares(*model, layer, layer + layers, fractions,
                                           options.weight_dtype);
    layer += layers;
    for (size_t rank = 0; rank < shares.size(); ++rank) {
      v1::Peer* peer = request.add_peers();
      peer->set_stage(static_cast<int>(stage));
      peer->set_rank(static_cast<int>(rank));
      peer->set_address("worker/" + std::to_string(requests.size()));
      *peer->mutable_kv_share() = KvShareOf(request.model(), shares[rank]);
      v1::ConfigureRequest& mine = requests.emplace_back();
      mine.set_stage(static_cast<int>(stage));
      mine.set_rank(static_cast<int>(rank));
      *mine.mutable_share() = shares[rank];
    }
  }
  REQUIRE(layer == LayerCount(*model));
  for (v1::ConfigureRequest& mine : requests) {
    v1::ConfigureRequest whole = request;
    if (requests.size() == 1) whole.clear_peers();
    whole.MergeFrom(mine);
    mine = std::move(whole);
  }
  return requests;
}

std::unique_ptr<kernels::Device> MakeDevice(const ReplicaOptions& options, int member) {
  constexpr int64_t kMemoryBytes = int64_t{1} << 28;
  const size_t isa = std::min<size_t>(member, options.isas.size() - 1);
  auto device =
      options.gpus.contains(member)
          ? kernels::cuda::emulated::CreateCudaDevice(
                {.memory_bytes = kMemoryBytes,
                 .nccl = options.nccl,
                 .nccl_version = options.nccl_version,
                 .maps_sums = options.maps_sums,
                 .uuid =
                     "GPU-" + std::to_string(options.first_gpu + (options.same_gpu ? 0 : member))})
          : kernels::CreateCpuDevice(
                {.memory_bytes = kMemoryBytes, .isa = options.isas[isa], .cores_shared = true});
  REQUIRE(device.status().message() == "");
  return options.inexact.contains(member) ? MakeInexact(*std::move(device)) : *std::move(device);
}

}  // namespace

// Link pairs between the members: the first of two that asks makes the pair.
class PlannedReplica::PairTable {
 public:
  absl::StatusOr<std::unique_ptr<kernels::Link>> Open(int self, int member, v1::LinkKind kind) {
    std::lock_guard lock(mutex_);
    auto& waiting = ends_[{std::min(self, member), std::max(self, member), kind}];
    if (waiting != nullptr) return std::move(waiting);
    auto pair = kernels::CreateLinkPair("first", "second");
    if (!pair.ok()) return pair.status();
    waiting = std::move(pair->second);
    return std::move(pair->first);
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<int, int, v1::LinkKind>, std::unique_ptr<kernels::Link>> ends_;
};

struct PlannedReplica::Worker {
  absl::Status OpenKv(uint64_t incarnation, const ReplicaOptions& options, SetupOptions* setup) {
    KvCoder* const coder = staged == nullptr ? &HostKvCoder() : staged.get();
    outbox.reset();
    inbox.reset();
    kernels::GroupMaker* const maker = device->group_maker();
    if (maker != nullptr && maker->has_library())
      pairs = std::make_unique<DevicePairs>(DevicePairOptions{.maker = maker});
    auto started = KvInbox::Start({{"127.0.0.1:0"}, "secret", incarnation, coder, pairs.get()});
    if (!started.ok()) return started.status();
    inbox = *std::move(started);
    outbox = std::make_unique<KvOutbox>(KvOutboxOptions{.cluster_token = "secret",
                                                        .incarnation = incarnation,
                                                        .wait_seconds = options.kv_wait_seconds,
                                                        .transport = options.kv_transport,
                                                        .coder = coder,
                                                        .pairs = pairs.get()});
    setup->open_kv_port =
        OpenKvLinkPorts({inbox.get(), outbox.get(), inbox->addresses(), incarnation});
    return absl::OkStatus();
  }

  std::unique_ptr<kernels::Device> device;
  std::unique_ptr<CappedMaker> capped;    // null: its device's own makes groups
  std::unique_ptr<StagedKvCoder> staged;  // null: the host reads the device's memory
  std::unique_ptr<DevicePairs> pairs;     // null: it joins no other
  std::unique_ptr<KvInbox> inbox;
  std::unique_ptr<KvOutbox> outbox;
  std::shared_ptr<LoadedShare> share;
  int loads = 0;
  std::atomic<int64_t> busy_nanoseconds{0};
  const std::shared_ptr<kernels::LinkTally> bulk = std::make_shared<kernels::LinkTally>();
  ConfiguredEngine configured;
};

// A coordinator's session that takes everything, unless it is held.
class PlannedReplica::Sink final : public ReplySink {
 public:
  bool MayDeliver() override { return !held_; }
  void Hold(bool hold) { held_ = hold; }
  void Deliver(v1::SessionReply reply) override {
    std::lock_guard lock(mutex_);
    for (v1::TokenEvent& event : *reply.mutable_events()) {
      ChoiceEvents& choice = choices_[{event.submission_id(), event.choice()}];
      if (event.has_token()) {
        choice.tokens.push_back(event.token_id());
        choice.logprobs.push_back(event.logprobs().chosen().logprob());
        choice.token_logprobs.push_back(std::move(*event.mutable_logprobs()));
      }
      choice.cached_tokens = std::max(choice.cached_tokens, event.cached_tokens());
      for (v1::PositionLogprobs& position : *event.mutable_prompt_logprobs()) {
        choice.prompt_logprobs.push_back(std::move(position));
      }
      choice.finish = event.finish();
      choice.kv_transfer = event.kv_transfer();
      choice.error = event.error();
      if (event.finish() != v1::FINISH_REASON_UNSPECIFIED) ++ended_;
    }
    for (v1::Reserved& answer : *reply.mutable_reserved()) {
      reserved_[answer.submission_id()] = std::move(answer);
    }
    changed_.notify_all();
  }
  v1::Reserved WaitReserved(uint64_t id, double seconds) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, Seconds(seconds), [&] { return reserved_.contains(id); }));
    return reserved_[id];
  }
  void Close(const absl::Status& reason) override {
    std::lock_guard lock(mutex_);
    if (!closed_) reason_ = reason;
    closed_ = true;
    changed_.notify_all();
  }

  std::map<std::pair<uint64_t, int32_t>, ChoiceEvents> WaitEnded(int64_t count, double seconds) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, Seconds(seconds), [&] { return ended_ >= count || closed_; });
    return choices_;
  }
  absl::Status WaitClosed(double seconds) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, Seconds(seconds), [&] { return closed_; });
    return reason_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<uint64_t, int32_t>, ChoiceEvents> choices_;
  std::map<uint64_t, v1::Reserved> reserved_;
  int64_t ended_ = 0;
  std::atomic<bool> held_ = false;
  bool closed_ = false;
  absl::Status reason_;
};

PlannedReplica::PlannedReplica(const std::string& model_folder, const ReplicaOptions& options)
    : options_(options), requests_(Requests(model_folder, options)) {
  for (size_t i = 0; i < requests_.size(); ++i) {
    Worker& worker = *members_.emplace_back(std::make_unique<Worker>());
    worker.device = MakeDevice(options, static_cast<int>(i));
    if (options.gpus.contains(static_cast<int>(i)) && options.moves_kv) {
      auto staged = StagedKvCoder::Create(worker.device.get());
      REQUIRE(staged.status().message() == "");
      worker.staged = *std::move(staged);
    }
    v1::ConfigureRequest& request = requests_[i];
    const v1::WorkerShare& share = request.share();
    const bool codes = options.kv_dtype != v1::DATA_TYPE_FLOAT32;
    const KvBlockBytes bytes =
        BlockBytesOf(request.model(), share, codes ? KvCodeElement() : KvElement(4), kBlockTokens,
                     /*windows_apart=*/false);
    const KvBlocks blocks(options.kv_blocks + static_cast<int64_t>(i), 0,
                          bytes.seat > 0 ? request.max_sequences() : 0);
    request.set_kv_cache_bytes(BytesOf(blocks, bytes));
    request.set_kv_dtype(options.kv_dtype);
  }
  Form();
}

PlannedReplica::~PlannedReplica() { End(); }

// All members at once, each on a thread of its own.
void PlannedReplica::Form() {
  PairTable pairs;
  std::vector<absl::Status> failures(members_.size());
  std::atomic<bool> failed = false;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < members_.size(); ++i) {
    threads.emplace_back([&, i] {
      failures[i] = SetUp(static_cast<int>(i), pairs, [&failed] { return failed.load(); });
      if (!failures[i].ok()) failed = true;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < failures.size(); ++i)
    UNSCOPED_INFO("member " << i << ": " << failures[i].ToString());
  REQUIRE_FALSE(failed);
  REQUIRE(members_[0]->configured.engine != nullptr);
  sink_ = std::make_shared<Sink>();
  choices_ = 0;
  members_[0]->configured.engine->Attach(sink_);
}

absl::Status PlannedReplica::SetUp(int member, PairTable& pairs,
                                   const std::function<bool()>& cancelled) {
  Worker& worker = *members_[member];
  SetupOptions setup;
  setup.device = worker.device.get();
  setup.kernel_path = "test";
  setup.load_model = Model::Load;
  setup.fingerprint = [](const auto&) { return absl::StatusOr<std::string>("same"); };
  setup.clock = NowSeconds;
  setup.state_cache_bytes = options_.state_cache_bytes;
  setup.draft_source = options_.draft_source;
  setup.join = [&](const v1::ConfigureRequest& request, KvBlocks kv, const FormationTimes& times,
                   const JoinWatch& watch) {
    const auto open = [&](int peer, v1::LinkKind kind) {
      auto link = pairs.Open(member, peer, kind);
      if (link.ok() && kind == v1::LINK_KIND_BULK) (*link)->CountInto(worker.bulk);
      return link;
    };
    kernels::GroupMaker* maker = worker.device->group_maker();
    if (maker != nullptr && options_.sum_bytes > 0) {
      worker.capped = std::make_unique<CappedMaker>(maker, options_.sum_bytes);
      maker = worker.capped.get();
    }
    return Formation::Join(request, kv, open, times, watch.cancelled, maker);
  };
  setup.formation_times.join_seconds = options_.close_after_seconds;
  if (options_.moves_kv) {
    const absl::Status opened =
        worker.OpenKv(1000 + static_cast<uint64_t>(member), options_, &setup);
    if (!opened.ok()) return opened;
  }
  SetupCall call;
  call.progress = [](const std::string&, int64_t, int64_t) {};
  call.cancelled = cancelled;
  call.busy_nanoseconds = &worker.busy_nanoseconds;
  call.loaded = worker.share;
  call.on_loaded = [&worker](std::shared_ptr<LoadedShare> share) {
    worker.share = std::move(share);
    ++worker.loads;
  };
  auto configured = SetUpEngine(requests_[member], setup, call);
  if (configured.ok()) worker.configured = *std::move(configured);
  return configured.status();
}

void PlannedReplica::End() {
  if (!members_.empty() && members_[0]->configured.engine != nullptr) {
    members_[0]->configured.engine->Stop(absl::UnavailableError("the test is over"));
  }
  for (const auto& member : members_) member->configured = {};
}

void PlannedReplica::Reform() {
  End();
  for (v1::ConfigureRequest& request : requests_)
    request.mutable_fence()->set_plan_epoch(request.fence().plan_epoch() + 1);
  Form();
}

void PlannedReplica::Submit(v1::Submit submit) {
  choices_ += submit.choice_count();
  members_[0]->configured.engine->Submit(sink_, std::move(submit));
}

void PlannedReplica::Cancel(uint64_t submission_id) {
  v1::Cancel cancel;
  cancel.set_submission_id(submission_id);
  cancel.set_attempt(1);
  cancel.set_choice(-1);
  members_[0]->configured.engine->Cancel(sink_, std::move(cancel));
}

v1::Reserved PlannedReplica::Reserve(const v1::Submit& submit, const v1::WorkerReady& ready) {
  v1::Reserve reserve;
  reserve.set_submission_id(submit.submission_id());
  reserve.set_attempt(submit.attempt());
  *reserve.mutable_prompt_token_ids() = submit.prompt_token_ids();
  *reserve.mutable_senders() = ready.kv_shares();
  reserve.set_codec(options_.kv_codec);
  members_[0]->configured.engine->Reserve(sink_, std::move(reserve));
  return sink_->WaitReserved(submit.submission_id(), options_.close_after_seconds);
}

void PlannedReplica::HoldReplies(bool hold) {
  sink_->Hold(hold);
  members_[0]->configured.engine->Wake();
}

std::map<std::pair<uint64_t, int32_t>, ChoiceEvents> PlannedReplica::WaitAll() {
  return sink_->WaitEnded(choices_, options_.close_after_seconds);
}

absl::Status PlannedReplica::WaitClosed() {
  return sink_->WaitClosed(options_.close_after_seconds);
}

void PlannedReplica::Kill(int member) { members_[member]->configured.member.reset(); }

v1::EngineLoad PlannedReplica::load() const { return members_[0]->configured.engine->load(); }

const v1::WorkerReady& PlannedReplica::ready(int member) const {
  return members_[member]->configured.ready;
}

double PlannedReplica::busy_seconds(int member) const {
  return 1e-9 * static_cast<double>(members_[member]->busy_nanoseconds);
}

int PlannedReplica::loads(int member) const { return members_[member]->loads; }

int64_t PlannedReplica::bulk_bytes_sent(int member) const {
  return members_[member]->bulk->Read().bytes_sent;
}

}  // namespace tessera::worker
