#include "worker/worker_service.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <utility>

#include "google/protobuf/util/message_differencer.h"
#include "proto/status_wire.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "worker/fences.h"
#include "worker/session.h"
#include "worker/weights/start_thread.h"

namespace tessera::worker {
namespace {

constexpr double kMaxProbeWindowSeconds = 10;
// Without a step for so long, a member that drains leaves.
constexpr double kIdleMemberSeconds = 2;

absl::Status NotConfigured() {
  return absl::FailedPreconditionError("this worker is not configured: send Configure first");
}

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// No memory and no more threads are this plan epoch's failure, not the process's end.
absl::StatusOr<ConfiguredEngine> SetUp(const v1::ConfigureRequest& request,
                                       const SetupOptions& options, const SetupCall& call) {
  try {
    return SetUpEngine(request, options, call);
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(StrCat("setting up for plan epoch ",
                                               request.fence().plan_epoch(), ": ", error.what(),
                                               "; give the process more memory or threads"));
  }
}

}  // namespace

// One Configure stream. Only the newest progress waits while an older one is being written.
class WorkerService::ConfigureCall final : public grpc::ServerWriteReactor<v1::ConfigureProgress>,
                                           public std::enable_shared_from_this<ConfigureCall> {
 public:
  explicit ConfigureCall(v1::ConfigureRequest request) : request_(std::move(request)) {}

  // `work` runs once gRPC has bound the reactor: only then may other threads write.
  void Begin(std::function<void()> work) {
    self_ = shared_from_this();
    work_ = std::move(work);
    StartSendInitialMetadata();
  }
  void OnSendInitialMetadataDone(bool) override { std::exchange(work_, nullptr)(); }

  const v1::ConfigureRequest& request() const { return request_; }

  void Report(v1::ConfigureProgress progress) {
    std::lock_guard lock(mutex_);
    next_ = std::move(progress);
    has_next_ = true;
    if (!writing_) WriteNextLocked();
  }
  // Last: after what was reported, the stream ends.
  void End(const absl::Status& status) {
    std::lock_guard lock(mutex_);
    ended_ = true;
    status_ = status;
    if (!writing_) WriteNextLocked();
  }

  void OnWriteDone(bool) override {
    std::lock_guard lock(mutex_);
    writing_ = false;
    WriteNextLocked();
  }
  void OnDone() override { self_.reset(); }
  void OnCancel() override { cancelled_ = true; }
  // The coordinator no longer waits for the answer.
  bool cancelled() const { return cancelled_; }

 private:
  void WriteNextLocked() {
    if (has_next_) {
      has_next_ = false;
      writing_ = true;
      current_ = std::move(next_);
      StartWrite(&current_);
    } else if (ended_) {
      Finish(ToGrpc(status_));
    }
  }

  const v1::ConfigureRequest request_;
  std::shared_ptr<ConfigureCall> self_;
  std::function<void()> work_;
  std::mutex mutex_;
  v1::ConfigureProgress next_, current_;
  bool has_next_ = false;
  bool writing_ = false;
  bool ended_ = false;
  absl::Status status_;
  std::atomic<bool> cancelled_ = false;
};

WorkerService::WorkerService(WorkerServiceOptions options)
    : options_(std::move(options)),
      began_seconds_(options_.setup.clock()),
      kept_(std::make_shared<KeptAnswers>(options_.setup.clock)) {}

WorkerService::~WorkerService() { Shutdown(0); }

std::shared_ptr<Engine> WorkerService::engine() const {
  std::lock_guard lock(mutex_);
  return engine_;
}

uint64_t WorkerService::plan_epoch() const {
  std::lock_guard lock(mutex_);
  const bool serves = engine_ != nullptr || member_ != nullptr;
  return serves ? configured_.fence().plan_epoch() : 0;
}

v1::EngineLoad WorkerService::load() const {
  kept_->DropOld();  // with each heartbeat
  const std::shared_ptr<Engine> engine = this->engine();
  v1::EngineLoad load = engine == nullptr ? v1::EngineLoad() : engine->load();
  std::lock_guard lock(mutex_);
  if (stopping_) load.set_draining(true);
  return load;
}

v1::WorkerCounters WorkerService::counters() const {
  v1::WorkerCounters counters;
  counters.set_uptime_seconds(options_.setup.clock() - began_seconds_);
  counters.set_busy_seconds(1e-9 * static_cast<double>(busy_nanoseconds_));
  std::lock_guard lock(mutex_);
  counters.set_formation_aborts(formation_aborts_);
  return counters;
}

absl::Status WorkerService::BeginConfigure(const v1::ConfigureRequest& request) {
  const uint64_t epoch = request.fence().plan_epoch();
  std::lock_guard lock(mutex_);
  if (stopping_) return absl::UnavailableError("the worker is shutting down");
  if (epoch == 0) return absl::InvalidArgumentError("fence.plan_epoch is 0; epochs count from 1");
  if (profiling_) return absl::UnavailableError("the worker is being profiled; try again");
  if (configuring_epoch_ != 0) {
    return absl::UnavailableError(StrCat("the worker is being configured for plan epoch ",
                                         configuring_epoch_, "; try again"));
  }
  const bool serves = engine_ != nullptr || member_ != nullptr;
  const uint64_t served = serves ? configured_.fence().plan_epoch() : 0;
  if (epoch == served) {
    if (google::protobuf::util::MessageDifferencer::Equals(configured_, request) &&
        broken_epoch_ != epoch) {
      return absl::AlreadyExistsError("served");
    }
    return absl::FailedPreconditionError(
        StrCat("plan epoch ", epoch,
               " is being served with another configuration: a changed plan "
               "needs a higher epoch"));
  }
  if (epoch < served) {
    return absl::FailedPreconditionError(StrCat("stale Configure: it has plan epoch ", epoch,
                                                ", this worker serves epoch ", served));
  }
  configuring_epoch_ = epoch;
  return absl::OkStatus();
}

grpc::ServerWriteReactor<v1::ConfigureProgress>* WorkerService::Configure(
    grpc::CallbackServerContext* context, const v1::ConfigureRequest* request) {
  auto call = std::make_shared<ConfigureCall>(*request);
  absl::Status status = CheckToken(*context, options_.cluster_token);
  if (status.ok()) status = term_.Check(*context);
  if (status.ok()) status = CheckIncarnation(request->fence(), options_.incarnation);
  ConfigureCall* borrowed = call.get();  // it keeps itself alive until the stream is done
  call->Begin([this, borrowed, status] { AnswerConfigure(borrowed->shared_from_this(), status); });
  return borrowed;
}

void WorkerService::AnswerConfigure(const std::shared_ptr<ConfigureCall>& call,
                                    absl::Status status) {
  if (status.ok()) status = BeginConfigure(call->request());
  if (status.ok()) {
    std::lock_guard lock(mutex_);
    if (configure_thread_.joinable()) configure_thread_.join();  // it has ended
    if (stopping_) return call->End(absl::UnavailableError("the worker is shutting down"));
    auto thread = StartThread("the thread that loads", [this, call] { RunConfigure(call); });
    if (thread.ok()) {
      configure_thread_ = *std::move(thread);
    } else {
      configuring_epoch_ = 0;
      call->End(thread.status());
    }
  } else if (absl::IsAlreadyExists(status)) {
    v1::ConfigureProgress progress;
    progress.set_phase("ready");
    {
      std::lock_guard lock(mutex_);
      *progress.mutable_ready() = ready_;
    }
    call->Report(std::move(progress));
    call->End(absl::OkStatus());
  } else {
    Logger("worker").warn("Configure refused: {}", std::string(StdView(status.message())));
    call->End(status);
  }
}

void WorkerService::StopServing(const absl::Status& reason) {
  std::shared_ptr<Engine> engine;
  std::unique_ptr<Member> member;
  {
    std::lock_guard lock(mutex_);
    engine = std::exchange(engine_, nullptr);
    member = std::exchange(member_, nullptr);
  }
  if (engine == nullptr && member == nullptr) return;
  if (options_.on_ready) options_.on_ready(false);
  if (engine != nullptr) engine->Stop(reason);
  if (member != nullptr) member->Stop(reason);
}

std::shared_ptr<LoadedShare> WorkerService::KeepShare(const v1::ConfigureRequest& request) {
  std::lock_guard lock(mutex_);
  if (share_ == nullptr) return nullptr;
  if (google::protobuf::util::MessageDifferencer::Equals(share_terms_, ShareTerms(request))) {
    return share_;
  }
  share_ = nullptr;
  return nullptr;
}

void WorkerService::OnBroken(uint64_t epoch, const absl::Status& reason) {
  Logger("worker").warn("plan epoch {}: {}; the weights stay loaded", epoch,
                        std::string(StdView(reason.message())));
  if (options_.on_ready) options_.on_ready(false);
  std::lock_guard lock(mutex_);
  broken_epoch_ = epoch;
  // What this worker ends itself, for a newer plan or at its end, is no abort.
  const bool serves = engine_ != nullptr || member_ != nullptr;
  const bool joined = configuring_epoch_ == epoch ||
                      (serves && configured_.fence().plan_epoch() == epoch && !stopping_);
  if (joined) ++formation_aborts_;
}

void WorkerService::RunConfigure(const std::shared_ptr<ConfigureCall>& call) {
  const v1::ConfigureRequest& request = call->request();
  const uint64_t epoch = request.fence().plan_epoch();
  StopServing(
      absl::AbortedError(StrCat("plan epoch ", epoch, " replaces the one that was served")));
  SetupCall setup;
  setup.progress = [&](const std::string& phase, int64_t done, int64_t total) {
    v1::ConfigureProgress progress;
    progress.set_phase(phase);
    progress.set_bytes_done(done);
    progress.set_bytes_total(total);
    call->Report(std::move(progress));
  };
  setup.cancelled = [this, &call] {
    std::lock_guard lock(mutex_);
    return stopping_ || call->cancelled();
  };
  setup.on_broken = [this, epoch](const absl::Status& reason) { OnBroken(epoch, reason); };
  setup.loaded = KeepShare(request);
  setup.busy_nanoseconds = &busy_nanoseconds_;
  setup.on_loaded = [&](std::shared_ptr<LoadedShare> share) {
    std::lock_guard lock(mutex_);
    share_ = std::move(share);
    share_terms_ = ShareTerms(request);
  };
  auto configured = SetUp(request, options_.setup, setup);
  v1::ConfigureProgress last;
  bool serving = false;
  {
    std::lock_guard lock(mutex_);
    configuring_epoch_ = 0;
    if (configured.ok() && !stopping_) {
      engine_ = configured->engine;
      member_ = std::move(configured->member);
      configured_ = request;
      ready_ = configured->ready;
      serving = true;
    }
  }
  if (serving) {
    if (options_.on_ready) options_.on_ready(true);
    last.set_phase("ready");
    *last.mutable_ready() = configured->ready;
    call->Report(std::move(last));
  } else if (!configured.ok()) {
    Logger("worker").error("Configure for plan epoch {} failed: {}", request.fence().plan_epoch(),
                           std::string(StdView(configured.status().message())));
  }
  call->End(configured.ok() && !serving ? absl::UnavailableError("the worker is shutting down")
                                        : configured.status());
}

absl::Status WorkerService::NotALeader() const {
  std::lock_guard lock(mutex_);
  if (member_ == nullptr) return NotConfigured();
  return absl::FailedPreconditionError(
      StrCat("this worker is stage ", configured_.stage(), " rank ", configured_.rank(),
             " of replica ", configured_.replica(), "; sessions go to its leader, stage 0 rank 0"));
}

void WorkerService::ServeSessionsFrom(grpc::ServerCompletionQueue& queue,
                                      std::function<void()> begun) {
  SessionMethod method;
  method.begun = std::move(begun);
  method.kept = kept_;
  method.request = [this, &queue](grpc::ServerContext* context, SessionStream* stream, void* tag) {
    RequestSession(context, stream, &queue, &queue, tag);
  };
  method.engine =
      [this](const grpc::ServerContext& context) -> absl::StatusOr<std::shared_ptr<Engine>> {
    absl::Status status = CheckToken(context, options_.cluster_token);
    if (status.ok()) status = term_.Check(context);
    std::shared_ptr<Engine> engine = this->engine();
    if (status.ok() && engine == nullptr) status = NotALeader();
    if (!status.ok()) return status;
    return engine;
  };
  ServeSessions(queue, method);
}

grpc::ServerUnaryReactor* WorkerService::Profile(grpc::CallbackServerContext* context,
                                                 const v1::ProfileRequest* request,
                                                 v1::ProfileReply* reply) {
  absl::Status status = CheckToken(*context, options_.cluster_token);
  if (status.ok()) status = CheckIncarnation(request->fence(), options_.incarnation);
  if (status.ok() && options_.setup.make_stage) {
    status = absl::FailedPreconditionError("Profile: this device is emulated: it has no rates");
  }
  if (!status.ok()) return Answer(context, status);
  kernels::ProbeOptions probe = options_.probe;
  probe.window_seconds = request->window_seconds();
  probe.products = true;
  if (!(probe.window_seconds >= 0 && probe.window_seconds <= kMaxProbeWindowSeconds)) {
    return Answer(context, absl::InvalidArgumentError(
                               StrCat("Profile: window_seconds is ", probe.window_seconds,
                                      "; it must be from 0 to ", kMaxProbeWindowSeconds)));
  }
  std::lock_guard lock(mutex_);
  if (configuring_epoch_ != 0) {
    return Answer(context, absl::FailedPreconditionError(
                               "Profile: this worker is being configured; call again when it is "
                               "ready"));
  }
  if ((engine_ != nullptr || member_ != nullptr) && !request->while_serving()) {
    return Answer(context, absl::FailedPreconditionError(
                               "Profile: this worker serves, and rates measured while requests run "
                               "are not those of the device; call Profile before Configure, or set "
                               "while_serving"));
  }
  if (profiling_ || stopping_) {
    return Answer(context, absl::ResourceExhaustedError("a Profile is already in progress"));
  }
  profiling_ = true;
  if (profile_thread_.joinable()) profile_thread_.join();  // it has ended
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  profile_thread_ = std::thread([this, probe, reply, reactor] {
    const absl::StatusOr<kernels::DeviceRates> rates =
        kernels::ProbeDevice(*options_.setup.device, probe);
    if (rates.ok()) {
      reply->set_memory_read_bytes_per_second(rates->read_bytes_per_second);
      reply->set_float32_flops_per_second(rates->f32_flops_per_second);
      reply->set_bfloat16_flops_per_second(rates->bf16_flops_per_second);
      reply->set_int8_flops_per_second(rates->int8_flops_per_second);
      for (const kernels::ProductRate& product : rates->products) {
        v1::ProductRate& rate = *reply->add_products();
        rate.set_weights(std::string(product.weights));
        rate.set_rows(static_cast<int32_t>(product.rows));
        rate.set_read_bytes_per_second(product.read_bytes_per_second);
      }
      reply->set_device(options_.setup.device->Describe());
      reply->set_kernel_path(options_.setup.kernel_path);
      if (options_.probe_kv_codec)
        reply->set_kv_codec_bytes_per_second(options_.probe_kv_codec().value_or(0));
      if (rates->read_buffer_bytes < probe.buffer_bytes) {
        Logger("worker").warn(
            "profile: little memory is left, so its rate is that of reading {} bytes again and "
            "again, which caches may hold",
            rates->read_buffer_bytes);
      }
    }
    {
      std::lock_guard lock(mutex_);
      profiling_ = false;
    }
    reactor->Finish(ToGrpc(rates.status()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* WorkerService::ProbeLink(grpc::CallbackServerContext* context,
                                                   const v1::ProbeLinkRequest* request,
                                                   v1::ProbeLinkReply* reply) {
  absl::Status status = CheckToken(*context, options_.cluster_token);
  if (status.ok()) status = CheckIncarnation(request->fence(), options_.incarnation);
  if (status.ok() && !options_.probe_link) {
    status = absl::UnimplementedError("ProbeLink: this worker has no links to other workers");
  }
  if (!status.ok()) return Answer(context, status);
  std::lock_guard lock(mutex_);
  if (configuring_epoch_ != 0) {
    return Answer(context, absl::AbortedError("ProbeLink: this worker is being configured; call "
                                              "again when it is ready"));
  }
  if (probing_ || stopping_) {
    return Answer(context, absl::ResourceExhaustedError("a ProbeLink is already in progress"));
  }
  if (probe_thread_.joinable()) probe_thread_.join();  // it has ended
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto thread = StartThread("the thread that measures a link", [this, request, reply, reactor] {
    const absl::StatusOr<v1::ProbeLinkReply> measured = options_.probe_link(*request);
    if (measured.ok()) *reply = *measured;
    {
      std::lock_guard lock(mutex_);
      probing_ = false;
    }
    reactor->Finish(ToGrpc(measured.status()));
  });
  if (!thread.ok()) {
    reactor->Finish(ToGrpc(thread.status()));
    return reactor;
  }
  probing_ = true;
  probe_thread_ = *std::move(thread);
  return reactor;
}

grpc::ServerUnaryReactor* WorkerService::FindKept(grpc::CallbackServerContext* context,
                                                  const v1::FindKeptRequest* request,
                                                  v1::KeptAnswer* reply) {
  absl::Status status = CheckToken(*context, options_.cluster_token);
  if (status.ok()) status = term_.Check(*context);
  if (!status.ok()) return Answer(context, status);
  absl::StatusOr<v1::KeptAnswer> kept = kept_->Find(*request);
  if (kept.ok()) *reply = *std::move(kept);
  return Answer(context, kept.status());
}

// The leader goes on with what it has; this worker's heartbeats say that it drains, so nothing new
// comes, and steps end.
void WorkerService::DrainMember(double drain_seconds) {
  using std::chrono::steady_clock;
  const auto end = steady_clock::now() + std::chrono::duration<double>(drain_seconds);
  for (; steady_clock::now() < end; std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
    std::lock_guard lock(mutex_);
    if (member_ == nullptr || member_->ended() || member_->idle_seconds() > kIdleMemberSeconds) {
      return;
    }
  }
}

void WorkerService::Shutdown(double drain_seconds) {
  std::shared_ptr<Engine> engine;
  std::thread configuring;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    engine = engine_;
    configuring = std::move(configure_thread_);
  }
  const absl::Status reason = absl::UnavailableError("the worker is shutting down");
  DrainMember(drain_seconds);
  if (engine != nullptr) {
    if (options_.on_ready) options_.on_ready(false);
    engine->RefuseNew(reason);
    if (const int64_t left = engine->WaitIdle(drain_seconds); left > 0 && drain_seconds > 0) {
      Logger("worker").warn("{} sequences did not end within {} s of draining", left,
                            drain_seconds);
    }
    engine->Stop(reason);
  }
  if (configuring.joinable()) configuring.join();
  StopServing(reason);
  std::thread profiling;
  std::thread probing;
  {
    std::lock_guard lock(mutex_);
    engine_ = nullptr;
    share_ = nullptr;
    profiling = std::move(profile_thread_);
    probing = std::move(probe_thread_);
  }
  if (profiling.joinable()) profiling.join();
  if (probing.joinable()) probing.join();
}

}  // namespace tessera::worker
