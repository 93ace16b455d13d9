#include "worker/engine/engine_setup.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "proto/kv_blocks.h"
#include "proto/layers/kv_shares.h"
#include "proto/layers/kv_sizes.h"
#include "proto/layers/layers.h"
#include "proto/layers/state_room.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "worker/engine/draft_setup.h"
#include "worker/engine/kv_messages.h"
#include "worker/engine/kv_pool.h"
#include "worker/engine/kv_port_pools.h"
#include "worker/engine/ready_report.h"
#include "worker/engine/state_cache_size.h"
#include "worker/engine/warm_up.h"
#include "worker/formation/group_executor.h"
#include "worker/model/model_dtypes.h"
#include "worker/step/local_executor.h"
#include "worker/step/step_memory.h"
#include "worker/step/threaded_executor.h"
#include "worker/weights/model_share.h"

namespace tessera::worker {
namespace {

using kernels::DType;

// Seconds of each part of Configure; what is not named goes to the part it follows.
class PhaseTimer {
 public:
  PhaseTimer(const Engine::Clock& clock, const SetupProgress& progress, v1::WorkerReady* ready)
      : clock_(clock), progress_(progress), ready_(ready), since_seconds_(clock()) {}

  void Begin(const std::string& name) {
    End();
    name_ = name;
    progress_(name, 0, 0);
  }
  void End() {
    const double now = clock_();
    if (!name_.empty()) {
      v1::StartupPhase* phase = ready_->add_startup();
      phase->set_name(name_);
      phase->set_seconds(now - since_seconds_);
    }
    since_seconds_ = now;
    name_.clear();
  }

 private:
  const Engine::Clock& clock_;
  const SetupProgress& progress_;
  v1::WorkerReady* ready_;
  double since_seconds_;
  std::string name_;
};

absl::Status CheckFingerprint(const std::string& folder, const std::string& wanted,
                              const FingerprintReader& fingerprint) {
  const auto ours = fingerprint(folder);
  if (!ours.ok()) return ours.status();
  if (*ours == wanted) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("the model in ", folder, " on this machine has fingerprint ", *ours,
             ", the coordinator's has ", wanted,
             ": put the same checkpoint on every machine, or name its folder (--model-folder)"));
}

// Checks what a worker without peers is to hold.
absl::Status CheckAlone(const v1::ConfigureRequest& request) {
  const v1::WorkerShare& share = request.share();
  const v1::Model& model = request.model();
  const bool all_layers = share.layers().begin() == 0 &&
                          share.layers().end() == LayerCount(model) && share.holds_embedding() &&
                          share.holds_head();
  if (request.peers_size() > 1 || all_layers) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(
      "replica ", request.replica(), " names no other workers, but this one's share is layers ",
      share.layers().begin(), " to ", share.layers().end(), " of ", LayerCount(model),
      share.holds_embedding() ? "" : ", without the embedding",
      share.holds_head() ? "" : ", without the head"));
}

// Bytes of the checkpoint, from its files to where the device computes with them.
void LogLoading(int64_t bytes, double seconds) {
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  Logger("worker").info("weights: {:.3f} GB loaded in {:.3f} s, {:.2f} GB/s", gigabytes, seconds,
                        seconds > 0 ? gigabytes / seconds : 0.0);
}

absl::Status CheckKvPool(int64_t bytes, bool planned, int64_t left_bytes, int64_t block_bytes,
                         const SetupOptions& setup, const EngineOptions& options) {
  std::string left = StrCat(left_bytes, " of the device's ", setup.device->memory_bytes(),
                            " bytes are left after weights and activations");
  if (setup.memory_left) left += StrCat(", the machine has ", setup.memory_left(), " free");
  if (bytes < block_bytes) {
    return absl::ResourceExhaustedError(
        StrCat("the KV pool has ", bytes, " bytes, but one block of ", options.limits.block_tokens,
               " tokens", options.seats > 0 ? " and a sequence's states take " : " takes ",
               block_bytes, " (", left, "): ",
               planned ? StrCat("give it at least ", block_bytes, " in the plan (kv_bytes)")
                       : "raise --kv-cache-memory-bytes, or --memory where that is not given"));
  }
  if (bytes > left_bytes) {
    return absl::ResourceExhaustedError(StrCat(
        "the KV pool is to have ", bytes, " bytes, but ", left, ": lower ",
        planned ? "kv_bytes in the plan" : "--kv-cache-memory-bytes", ", or raise --memory"));
  }
  return absl::OkStatus();
}

// Chooses and allocates the KV pool.
// `step_bytes` of the device are promised beside it.
absl::Status AllocateKv(const v1::ConfigureRequest& request, const SetupOptions& setup,
                        const ModelOptions& model, const EngineOptions& options, int64_t step_bytes,
                        LoadedShare* share) {
  const KvBlockBytes block = PoolBlockBytes(*share->model, model, options);
  const int64_t block_bytes = block.common + block.window + block.seat;
  const int64_t left = setup.device->memory_bytes() - share->model->weight_bytes() -
                       share->model->activation_bytes() - step_bytes - setup.kv_staging_bytes;
  int64_t bytes = request.kv_cache_bytes();
  if (bytes == 0) bytes = setup.kv_cache_bytes;
  if (bytes == 0) {
    // What packed weights hold is taken by now; the rest and activations are promised.
    const int64_t promised =
        share->model->activation_bytes() + share->model->waiting_weight_bytes();
    const int64_t free =
        setup.memory_left ? setup.memory_left() - promised : std::numeric_limits<int64_t>::max();
    const bool shares = block.seat > 0 && setup.device->host_reads_memory();
    const int64_t states = shares ? setup.state_cache_bytes : 0;
    bytes = KvPoolBytes(std::min(left, free) - states, block, KvLimitsOf(model.model, options),
                        setup.pool_takes_rest);
  }
  absl::Status fits =
      CheckKvPool(bytes, request.kv_cache_bytes_planned(), left, block_bytes, setup, options);
  if (!fits.ok()) return fits;
  const KvBlocks blocks =
      CutPool(bytes, block, KvLimitsOf(model.model, options), options.window.tokens > 0);
  const bool apart = blocks.window > 0 || blocks.seats > 0;
  auto memory =
      setup.device->Allocate(apart ? BytesOf(blocks, block) : blocks.common * block_bytes);
  if (!memory.ok()) return memory.status();
  share->kv_memory = *std::move(memory);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EngineOptions> ReadEngineOptions(const v1::ConfigureRequest& request) {
  EngineOptions options;
  scheduler::BatchLimits& limits = options.limits;
  const auto read = [](int64_t value, int64_t fallback) { return value == 0 ? fallback : value; };
  limits.block_tokens = read(request.block_tokens(), kDefaultBlockTokens);
  limits.max_sequences = read(request.max_sequences(), limits.max_sequences);
  limits.max_batched_tokens = read(request.max_batched_tokens(), limits.max_batched_tokens);
  limits.max_logit_rows = limits.max_sequences;
  options.max_waiting = read(request.max_waiting(), 1024);
  options.max_model_len_tokens =
      read(request.max_model_len_tokens(), request.model().max_positions());
  options.vocabulary = request.model().vocabulary();
  options.prefix_cache = request.prefix_cache();
  options.eos_token_ids.assign(request.eos_token_ids().begin(), request.eos_token_ids().end());
  options.dynamic_rope_original_tokens = DynamicRopeTokens(request.model());
  const struct {
    const char* name;
    int64_t value;
    int64_t most;
  } checks[] = {{"block_tokens", limits.block_tokens, 1024},
                {"max_sequences", limits.max_sequences, 65536},
                {"max_batched_tokens", limits.max_batched_tokens, 1 << 20},
                {"max_waiting", options.max_waiting, 1 << 24},
                {"max_model_len_tokens", options.max_model_len_tokens, 1 << 28},
                {"model.vocabulary", options.vocabulary, 1 << 24},
                {"micro_batches", read(request.micro_batches(), 1), 64}};
  for (const auto& check : checks) {
    if (check.value >= 1 && check.value <= check.most) continue;
    return absl::InvalidArgumentError(
        StrCat(check.name, " is ", check.value, "; it must be between 1 and ", check.most));
  }
  for (const int32_t id : options.eos_token_ids) {
    if (id >= 0 && id < options.vocabulary) continue;
    return absl::InvalidArgumentError(StrCat("eos_token_ids names the token ", id,
                                             "; the vocabulary has ids 0 to ",
                                             options.vocabulary - 1));
  }
  if (absl::Status drafts = ReadDrafts(request, &options); !drafts.ok()) return drafts;
  return options;
}

absl::StatusOr<ModelOptions> ReadModelOptions(const v1::ConfigureRequest& request,
                                              const HalfTypes& computed) {
  ModelOptions options;
  options.folder = request.model_folder();
  options.model = request.model();
  options.share = request.share();
  options.pack_later = true;
  options.max_model_len_tokens = request.max_model_len_tokens();
  const auto types =
      ResolveDTypes(request.model(), request.weight_dtype(), request.kv_dtype(), computed);
  if (!types.ok()) return types.status();
  options.weight_dtype = types->weight_dtype;
  options.kv_dtype = types->kv_dtype;
  options.product_dtype = types->product_dtype;
  if (absl::Status s = ReadDraftTypes(request, computed, &options); !s.ok()) return s;
  Logger("worker").info("dtype: {}", types->reason);
  return options;
}

v1::ConfigureRequest ShareTerms(const v1::ConfigureRequest& request) {
  v1::ConfigureRequest terms = request;
  terms.clear_fence();
  terms.clear_replica();
  terms.clear_role();
  terms.clear_stage();
  terms.clear_rank();
  terms.clear_peers();
  terms.clear_max_waiting();
  terms.clear_micro_batches();
  terms.clear_kv_cache_bytes_planned();
  terms.clear_prefix_cache();
  terms.clear_vocabulary();
  terms.clear_eos_token_ids();
  return terms;
}

namespace {

// One call of SetUpEngine, phase by phase.
class Setup {
 public:
  Setup(const v1::ConfigureRequest& request, const SetupOptions& setup, const SetupCall& call)
      : request_(request),
        setup_(setup),
        call_(call),
        timer_(setup.clock, call.progress, &configured_.ready) {}

  absl::StatusOr<ConfiguredEngine> Run() {
    absl::Status status = Check();
    if (status.ok()) status = Load();
    if (status.ok()) status = request_.peers_size() > 1 ? SetUpMember() : SetUpAlone();
    if (!status.ok()) return status;
    timer_.End();
    if (!std::exchange(share_->packs, true)) share_->model->PackWeights();
    configured_.ready.set_kernel_path(setup_.kernel_path);
    DescribeWorker(*setup_.device, model_options_, options_, *share_, staging_bytes_,
                   &configured_.ready);
    if (!sums_.empty())
      configured_.ready.set_device(StrCat(configured_.ready.device(), "; ranks sum by ", sums_));
    LogReady(request_, options_, configured_.ready);
    return std::move(configured_);
  }

 private:
  absl::Status Check() {
    timer_.Begin("check model");
    auto options = ReadEngineOptions(request_);
    if (!options.ok()) return options.status();
    options_ = *std::move(options);
    if (setup_.draft_source) options_.draft_source = setup_.draft_source;
    options_.all_drafts = setup_.draft_source != nullptr;
    if (KeepsWindowsApart(request_.model(), options_)) {
      options_.window.tokens = LongestWindow(request_.model());
    }
    if (request_.peers_size() > 1 && !setup_.join) {
      return absl::FailedPreconditionError(StrCat("replica ", request_.replica(), " has ",
                                                  request_.peers_size(),
                                                  " workers, and this one has no links to others"));
    }
    if (KeepsStates(request_.model())) options_.seats = options_.limits.max_sequences;
    absl::Status status = CheckAlone(request_);
    if (status.ok()) status = CheckFingerprints();
    if (!status.ok()) return status;
    const kernels::Ops& ops = setup_.device->ops();
    auto model_options =
        ReadModelOptions(request_, {ops.ComputesIn(DType::kF16), ops.ComputesIn(DType::kBF16)});
    if (!model_options.ok()) return model_options.status();
    model_options_ = *std::move(model_options);
    model_options_.folder = ModelFolder();
    model_options_.limits = EngineCore::LimitsOf(options_);
    return absl::OkStatus();
  }

  absl::Status CheckFingerprints() const {
    absl::Status status =
        CheckFingerprint(ModelFolder(), request_.model_fingerprint(), setup_.fingerprint);
    if (!status.ok() || !HoldsDraftModel(request_.model(), request_.share())) return status;
    const v1::DraftModel& draft = request_.model().draft_model();
    return CheckFingerprint(draft.folder(), draft.fingerprint(), setup_.fingerprint);
  }

  // No more sequences than have seats.
  void LimitSeats(int64_t seats) {
    if (options_.seats == 0 || seats == 0) return;
    options_.limits.max_sequences = std::min(options_.limits.max_sequences, seats);
    options_.seats = options_.limits.max_sequences;
  }

  absl::Status Load() {
    share_ = call_.loaded;
    if (share_ == nullptr) {
      timer_.Begin("read weights");
      const double begin_seconds = setup_.clock();
      int64_t read_bytes = 0;
      auto model =
          setup_.load_model(model_options_, *setup_.device, [&](int64_t done, int64_t total) {
            read_bytes = done;
            call_.progress("read weights", done, total);
          });
      if (!model.ok()) return model.status();
      LogLoading(read_bytes, setup_.clock() - begin_seconds);
      share_ = std::make_shared<LoadedShare>();
      share_->model = *std::move(model);
      timer_.Begin("allocate");
      const auto steps = StepBytes();
      if (!steps.ok()) return steps.status();
      absl::Status status =
          AllocateKv(request_, setup_, model_options_, options_, *steps, share_.get());
      if (status.ok()) status = AttachPool();
      if (status.ok() && call_.on_loaded) call_.on_loaded(share_);
      return status;
    }
    return AttachPool();
  }

  // Cuts the pool as this replica needs it, which a share that was kept need not have been.
  absl::Status AttachPool() {
    const KvBlocks cut = CutPool(
        share_->kv_memory.size_bytes(), PoolBlockBytes(*share_->model, model_options_, options_),
        KvLimitsOf(request_.model(), options_), options_.window.tokens > 0);
    options_.limits.total_blocks = cut.common;
    options_.window.total_blocks = cut.window;
    LimitSeats(cut.seats);
    model_options_.limits = EngineCore::LimitsOf(options_);
    if (share_->kv_blocks == cut) return absl::OkStatus();
    share_->kv_blocks = cut;
    return share_->model->AttachKv(share_->kv_memory.data(), cut, options_.limits.block_tokens);
  }

  std::string ModelFolder() const {
    return setup_.model_folder.empty() ? request_.model_folder() : setup_.model_folder;
  }

  SamplerLimits Sampling() const {
    return {options_.limits.max_logit_rows, options_.vocabulary, options_.max_model_len_tokens};
  }

  // What steps take of the device beside the model; 0 where the pool leaves room anyway.
  absl::StatusOr<int64_t> StepBytes() const {
    if (!setup_.pool_takes_rest) return 0;
    const auto memory = MeasureStepMemory(
        {.limits = model_options_.limits, .sampler = Sampling(), .first = true, .samples = true},
        IsWholeStage(request_.model(), request_.share()), options_.limits.block_tokens,
        share_->model.get(), setup_.device);
    if (!memory.ok()) return memory.status();
    Logger("worker").info("beside the KV pool: {} bytes for steps, {} for those kept as graphs",
                          memory->staging_bytes, memory->kept_bytes);
    return memory->staging_bytes + memory->kept_bytes;
  }

  // Places for states on their way to other replicas, or from there.
  int64_t Exchanges() const {
    const bool moves = setup_.open_kv_port && request_.role() != v1::REPLICA_ROLE_BOTH &&
                       CheckOneKvShape(request_.model()).ok();
    return moves ? ExchangesOf(options_.seats) : 0;
  }

  // States of prompts that this worker can keep; of a CPU worker's memory, what the pool leaves.
  int64_t OwnSnapshots() const {
    if (options_.seats == 0) return 0;
    int64_t bytes = setup_.state_cache_bytes;
    if (setup_.device->host_reads_memory()) {
      const Model& model = *share_->model;
      bytes = std::min(bytes, setup_.device->memory_bytes() - model.weight_bytes() -
                                  model.activation_bytes() - share_->kv_memory.size_bytes() -
                                  setup_.kv_staging_bytes - Exchanges() * model.SeatBytes());
    }
    return SnapshotsIn(bytes, share_->model->SeatBytes());
  }

  void SetSnapshots(int64_t snapshots) {
    if (options_.seats == 0) return;
    options_.snapshots = snapshots;
    const int64_t bytes = share_->model->SeatBytes();
    configured_.ready.set_state_cache_bytes(snapshots * bytes);
    if (bytes > 0) LogStateCache(snapshots, bytes);
  }

  StageOptions StageTerms(bool first, bool samples) const {
    return {.limits = model_options_.limits,
            .sampler = Sampling(),
            .first = first,
            .samples = samples,
            .block_tokens = options_.limits.block_tokens,
            .snapshots = options_.snapshots,
            .exchange = exchange_,
            .kv_sender = Sender(),
            .busy_nanoseconds = call_.busy_nanoseconds};
  }

  absl::StatusOr<std::unique_ptr<Stage>> MakeStage(bool first, bool samples,
                                                   const StageLinks& links) const {
    const StageOptions options = StageTerms(first, samples);
    if (setup_.make_stage) return setup_.make_stage(request_, options, links);
    return StageRunner::Create(options, links, share_->model.get(), setup_.device);
  }

  absl::Status SetUpAlone() {
    SetSnapshots(OwnSnapshots());
    if (absl::Status opened = OpenKvPort(0); !opened.ok()) return opened;
    auto executor = setup_.make_stage ? MadeExecutor() : ComputingExecutor();
    if (!executor.ok()) return executor.status();
    return StartEngine(nullptr, *std::move(executor), nullptr);
  }

  // A group of this worker alone.
  absl::StatusOr<std::unique_ptr<StepExecutor>> MadeExecutor() const {
    auto stage = MakeStage(true, true, {});
    if (!stage.ok()) return stage.status();
    GroupOptions alone;
    alone.fence = request_.fence();
    return std::make_unique<GroupExecutor>(std::move(alone), *std::move(stage));
  }

  absl::StatusOr<std::unique_ptr<StepExecutor>> ComputingExecutor() const {
    auto executor =
        LocalExecutor::Create(model_options_.limits, Sampling(), share_->model.get(), setup_.device,
                              call_.busy_nanoseconds, Sender(), options_.snapshots, exchange_,
                              options_.limits.block_tokens);
    if (executor.ok() && (*executor)->runs_ahead()) {
      Logger("worker").info("steps: the next one is enqueued while one runs");
    }
    const bool apart =
        request_.role() == v1::REPLICA_ROLE_PREFILL || request_.role() == v1::REPLICA_ROLE_DECODE;
    if (executor.ok() && apart) executor = ThreadedExecutor::Create(*std::move(executor));
    return executor;
  }

  absl::Status SetUpMember() {
    timer_.Begin("join");
    JoinWatch watch;
    watch.cancelled = [this] { return call_.cancelled && call_.cancelled(); };
    watch.blocked = [this](const std::string& reason) {
      call_.progress(reason.empty() ? "join" : StrCat("join: ", reason), 0, 0);
    };
    KvBlocks own = share_->kv_blocks;
    own.snapshots = OwnSnapshots();
    auto formation = setup_.join(request_, own, setup_.formation_times, watch);
    if (absl::IsUnavailable(formation.status())) {  // another member ended; it says why itself
      return absl::AbortedError(formation.status().message());
    }
    if (!formation.ok()) return formation.status();
    sums_ = (*formation)->DescribeSums();
    const FormationPlace& place = (*formation)->place();
    const KvBlocks kv = (*formation)->kv();
    options_.limits.total_blocks = kv.common;
    options_.window.total_blocks = kv.window;
    LimitSeats(kv.seats);
    model_options_.limits =
        EngineCore::LimitsOf(options_);  // by which all members pad a step alike
    SetSnapshots(kv.snapshots);
    if (absl::Status opened = OpenKvPort(place.self); !opened.ok()) return opened;
    auto stage =
        MakeStage(request_.stage() == 0, place.self == place.sampler, (*formation)->stage_links());
    if (!stage.ok()) return stage.status();
    if (place.self == place.leader) {
      auto executor =
          std::make_unique<GroupExecutor>(GroupOptionsOf(request_, **formation), *std::move(stage));
      if (!setup_.device->host_reads_memory()) LogStepsAhead(request_, **formation, *executor);
      KvNotes* notes = executor.get();
      return StartEngine(*std::move(formation), std::move(executor), notes);
    }
    staging_bytes_ = (*stage)->device_bytes();
    configured_.member =
        std::make_unique<Member>(MemberOptions{.fence = request_.fence(),
                                               .limits = model_options_.limits,
                                               .kv_blocks = kv,
                                               .block_tokens = options_.limits.block_tokens,
                                               .control = (*formation)->control(place.leader),
                                               .bulk = (*formation)->bulk(),
                                               .kv_part = KvPart(),
                                               .on_end = call_.on_broken},
                                 share_, *std::move(formation), *std::move(stage));
    return absl::OkStatus();
  }

  kvcache::KvPool PoolOf(const LoadedShare& share) const {
    const v1::Model& model = request_.model();
    const v1::KvShare held = KvShareOf(model, request_.share());
    kvcache::KvPool pool = {share.kv_memory.data(),
                            {ToIndexRange(held.layers()), ToIndexRange(held.kv_heads())},
                            model_options_.kv_dtype,
                            share.kv_blocks.common,
                            options_.limits.block_tokens,
                            KvHeadDim(model),
                            KvPlanes(model)};
    pool.window_blocks = share.kv_blocks.window;
    for (int32_t i = pool.share.layers.begin; i < pool.share.layers.end && pool.window_blocks > 0;
         ++i)
      pool.windowed.push_back(i < LayerCount(model) && KindOf(model, i).attention().window() > 0);
    return pool;
  }

  absl::Status OpenKvPort(int self) {
    const v1::Model& model = request_.model();
    if (!setup_.open_kv_port || !CheckOneKvShape(model).ok()) return absl::OkStatus();
    if (options_.seats > 0) {
      options_.exchanges = Exchanges();
      if (options_.exchanges == 0) return absl::OkStatus();
      auto exchange = MakeExchange(model, request_.share(), options_.exchanges, share_->model.get(),
                                   setup_.device);
      if (!exchange.ok()) return exchange.status();
      exchange_ = *std::move(exchange);
    }
    const int64_t seat_bytes = share_->kv_blocks.seats * share_->model->SeatBytes();
    const auto owner =
        std::make_shared<std::pair<std::shared_ptr<LoadedShare>, std::shared_ptr<StateExchange>>>(
            share_, exchange_);
    kv_port_ = setup_.open_kv_port(PortPoolsOf(model, PoolOf(*share_), seat_bytes, exchange_.get()),
                                   self, owner);
    return absl::OkStatus();
  }
  KvSender* Sender() const { return kv_port_ == nullptr ? nullptr : kv_port_->sender(); }
  // Keeps the port, which the member's stage pushes to.
  std::function<std::unique_ptr<KvMemberPart>(KvPort::Answer)> KvPart() const {
    if (kv_port_ == nullptr) return nullptr;
    return [port = kv_port_](KvPort::Answer answer) { return port->Follow(std::move(answer)); };
  }

  void DescribeKvShares() {
    for (const v1::Peer& peer : request_.peers()) {
      *configured_.ready.add_kv_shares() = peer.kv_share();
    }
    if (request_.peers_size() > 0) return;
    *configured_.ready.add_kv_shares() = KvShareOf(request_.model(), request_.share());
  }

  absl::Status StartEngine(std::unique_ptr<Formation> formation,
                           std::unique_ptr<StepExecutor> executor, KvNotes* notes) {
    EngineParts parts;
    parts.share = share_;
    parts.kv_port = kv_port_;
    parts.formation = std::move(formation);
    parts.core = std::make_unique<EngineCore>(options_, std::move(executor));
    if (HasTokenGrammars() && request_.vocabulary_size() > 0) {
      parts.grammars = std::make_unique<GrammarCompiler>(CompileFor(
          {request_.vocabulary().begin(), request_.vocabulary().end()}, options_.vocabulary));
    }
    DescribeKvShares();
    if (kv_port_ != nullptr) {
      KvPort::Replica replica;
      for (const v1::KvShare& share : configured_.ready.kv_shares())
        replica.shares.push_back(ToKvShare(share));
      replica.notes = notes;
      parts.mover = kv_port_->Lead(std::move(replica));
    }
    timer_.Begin("warm up");
    absl::Status status = WarmUp(parts.core.get(), setup_.clock);
    if (!status.ok()) return status;
    staging_bytes_ = parts.core->device_bytes();
    configured_.engine = std::make_shared<Engine>(std::move(parts), request_.fence(), setup_.clock,
                                                  setup_.max_stall_seconds, call_.on_broken);
    return absl::OkStatus();
  }

  const v1::ConfigureRequest& request_;
  const SetupOptions& setup_;
  const SetupCall& call_;
  ConfiguredEngine configured_;
  PhaseTimer timer_;
  EngineOptions options_;
  ModelOptions model_options_;
  std::shared_ptr<LoadedShare> share_;
  std::shared_ptr<StateExchange> exchange_;  // null: no states go to other replicas
  std::shared_ptr<KvPort> kv_port_;          // null: there is none
  int64_t staging_bytes_ = 0;
  std::string sums_;  // how the ranks of this stage sum; empty: there is one
};

}  // namespace

absl::StatusOr<ConfiguredEngine> SetUpEngine(const v1::ConfigureRequest& request,
                                             const SetupOptions& setup, const SetupCall& call) {
  return Setup(request, setup, call).Run();
}

}  // namespace tessera::worker
