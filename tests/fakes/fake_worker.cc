#include "tests/fakes/fake_worker.h"

#include <google/protobuf/util/message_differencer.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <queue>
#include <set>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "proto/build_version.h"
#include "proto/protocol.h"
#include "proto/run_folder.h"
#include "proto/status_wire.h"
#include "proto/worker.grpc.pb.h"
#include "worker/registration.h"

namespace tessera {
namespace {

constexpr int kBlockTokens = 16;
constexpr int64_t kBlocks = 1 << 20;

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Sequence {
  uint64_t submission_id = 0;
  uint32_t attempt = 0;
  int32_t choice = 0;
  int64_t prompt_tokens = 0;
  int64_t sent = 0;
  int64_t max_tokens = 0;
  int32_t top_logprobs = -1;
  double due_seconds = 0;
  double gap_seconds = 1;
};

v1::TokenEvent NextToken(Sequence& sequence) {
  v1::TokenEvent event;
  event.set_submission_id(sequence.submission_id);
  event.set_attempt(sequence.attempt);
  event.set_choice(sequence.choice);
  event.set_has_token(true);
  event.set_token_id(FakeToken(sequence.sent));
  event.set_position(sequence.prompt_tokens + sequence.sent);
  if (sequence.top_logprobs >= 0) {
    v1::PositionLogprobs& logprobs = *event.mutable_logprobs();
    logprobs.mutable_chosen()->set_token_id(event.token_id());
    for (int32_t i = 0; i < sequence.top_logprobs; ++i) {
      v1::TokenLogprob& top = *logprobs.add_top();
      top.set_token_id(event.token_id() + i);
      top.set_logprob(-0.125f * static_cast<float>(i + 1));
      top.set_rank(i + 1);
    }
  }
  if (++sequence.sent == sequence.max_tokens) event.set_finish(v1::FINISH_REASON_LENGTH);
  return event;
}

// All sequences of one session, and what is due when.
class Pacer {
 public:
  explicit Pacer(const FakeWorkerOptions& options) : options_(options) {}

  void Submit(const v1::Submit& submit) {
    std::lock_guard lock(mutex_);
    const bool logprobs = submit.top_logprobs() >= 0;
    const double gap =
        1 / (logprobs ? options_.logprobs_tokens_per_second : options_.tokens_per_second);
    for (int32_t i = 0; i < submit.choice_count(); ++i) {
      Sequence sequence;
      sequence.submission_id = submit.submission_id();
      sequence.attempt = submit.attempt();
      sequence.choice = submit.first_choice() + i;
      sequence.prompt_tokens = submit.prompt_token_ids_size();
      sequence.sent = submit.output_token_ids_size();
      sequence.max_tokens = submit.max_tokens();
      sequence.top_logprobs = submit.top_logprobs();
      sequence.gap_seconds = gap;
      sequence.due_seconds = NowSeconds() + gap;
      const Key key = {sequence.submission_id, sequence.choice};
      due_.emplace(sequence.due_seconds, key);
      sequences_.emplace(key, std::move(sequence));
    }
  }

  void Cancel(const v1::Cancel& cancel) {
    std::lock_guard lock(mutex_);
    const uint64_t id = cancel.submission_id();
    const auto begin = sequences_.lower_bound({id, std::max(cancel.choice(), 0)});
    const auto end = cancel.choice() < 0 ? sequences_.lower_bound({id + 1, 0})
                                         : sequences_.upper_bound({id, cancel.choice()});
    cancelled_ += std::distance(begin, end);
    sequences_.erase(begin, end);
  }

  // What is due by now.
  void Take(v1::SessionReply& reply) {
    std::lock_guard lock(mutex_);
    const double now = NowSeconds();
    while (!due_.empty() && due_.top().first <= now) {
      const Key key = due_.top().second;
      due_.pop();
      auto found = sequences_.find(key);
      if (found == sequences_.end()) continue;
      Sequence& sequence = found->second;
      *reply.add_events() = NextToken(sequence);
      ++sent_;
      if (sequence.sent >= sequence.max_tokens) {
        sequences_.erase(found);
        continue;
      }
      sequence.due_seconds += sequence.gap_seconds;
      due_.emplace(sequence.due_seconds, key);
    }
    reply.mutable_load()->set_running(static_cast<int32_t>(sequences_.size()));
    reply.mutable_load()->set_kv_blocks_total(kBlocks);
    reply.mutable_load()->set_draining(draining_);
  }

  void Drain() {
    std::lock_guard lock(mutex_);
    draining_ = true;
  }
  bool draining() const {
    std::lock_guard lock(mutex_);
    return draining_;
  }

  int64_t running() const {
    std::lock_guard lock(mutex_);
    return static_cast<int64_t>(sequences_.size());
  }
  int64_t cancelled() const {
    std::lock_guard lock(mutex_);
    return cancelled_;
  }
  int64_t sent() const {
    std::lock_guard lock(mutex_);
    return sent_;
  }

 private:
  using Key = std::pair<uint64_t, int32_t>;  // submission, choice
  using Due = std::pair<double, Key>;
  const FakeWorkerOptions options_;
  mutable std::mutex mutex_;
  std::map<Key, Sequence> sequences_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  int64_t cancelled_ = 0;
  int64_t sent_ = 0;
  bool draining_ = false;
};

class PacedSession final : public grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionReply> {
 public:
  PacedSession(Pacer& pacer, const v1::Fence& fence, std::function<void(PacedSession*)> gone)
      : pacer_(pacer), fence_(fence), gone_(std::move(gone)) {
    StartSendInitialMetadata();
    StartRead(&incoming_);
    clock_ = std::thread([this] { Loop(); });
  }
  ~PacedSession() override { clock_.join(); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      std::lock_guard lock(mutex_);
      ended_ = true;
      changed_.notify_all();
      return;
    }
    if (incoming_.has_submit()) pacer_.Submit(incoming_.submit());
    if (incoming_.has_cancel()) pacer_.Cancel(incoming_.cancel());
    if (incoming_.has_credit()) {
      std::lock_guard lock(mutex_);
      credit_ += incoming_.credit().messages();
      changed_.notify_all();
    }
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    writing_ = false;
    ended_ |= !ok;
    changed_.notify_all();
  }
  void OnDone() override {
    gone_(this);
    delete this;
  }
  void End(const grpc::Status& status) {
    std::lock_guard lock(mutex_);
    ended_ = true;
    status_ = status;
    changed_.notify_all();
  }

 private:
  void Loop() {
    std::unique_lock lock(mutex_);
    while (!ended_) {
      changed_.wait(lock, [this] { return ended_ || (!writing_ && credit_ > 0); });
      if (ended_) break;
      reply_.Clear();
      pacer_.Take(reply_);
      if (reply_.events_size() > 0) {
        *reply_.mutable_fence() = fence_;
        writing_ = true;
        --credit_;
        StartWrite(&reply_);
      }
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      lock.lock();
    }
    changed_.wait(lock, [this] { return !writing_; });
    const grpc::Status status = status_;
    lock.unlock();
    Finish(status);
  }

  Pacer& pacer_;
  const v1::Fence fence_;
  const std::function<void(PacedSession*)> gone_;
  grpc::Status status_;
  v1::SessionRequest incoming_;
  v1::SessionReply reply_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t credit_ = 0;
  bool writing_ = false;
  bool ended_ = false;
  std::thread clock_;
};

// One Configure stream; progress and its end from any thread, in the order in which they are given.
class Configuring final : public grpc::ServerWriteReactor<v1::ConfigureProgress>,
                          public std::enable_shared_from_this<Configuring> {
 public:
  // `begin` runs once other threads may write, `gone` last.
  void Start(std::function<void()> begin, std::function<void()> gone) {
    self_ = shared_from_this();
    begin_ = std::move(begin);
    gone_ = std::move(gone);
    StartSendInitialMetadata();
  }
  void OnSendInitialMetadataDone(bool) override { begin_(); }

  void Report(const std::string& phase, int64_t bytes_done, int64_t bytes_total) {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    v1::ConfigureProgress& progress = waiting_.emplace_back();
    progress.set_phase(phase);
    progress.set_bytes_done(bytes_done);
    progress.set_bytes_total(bytes_total);
    WriteNextLocked();
  }
  void End(const absl::Status& status) {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
    status_ = status;
    if (status.ok()) {
      v1::WorkerReady& ready = *waiting_.emplace_back().mutable_ready();
      ready.set_device("fake");
      ready.set_kv_blocks(kBlocks);
      ready.set_block_tokens(kBlockTokens);
    }
    WriteNextLocked();
  }
  bool succeeded() const {
    std::lock_guard lock(mutex_);
    return ended_ && status_.ok();
  }
  void OnCancel() override { End(absl::CancelledError("cancelled")); }
  void OnWriteDone(bool) override {
    std::lock_guard lock(mutex_);
    writing_ = false;
    WriteNextLocked();
  }
  void OnDone() override {
    const std::shared_ptr<Configuring> self = std::move(self_);
    gone_();
  }

 private:
  void WriteNextLocked() {
    if (writing_) return;
    if (!waiting_.empty()) {
      writing_ = true;
      current_ = std::move(waiting_.front());
      waiting_.pop_front();
      StartWrite(&current_);
    } else if (ended_) {
      Finish(ToGrpc(status_));
    }
  }

  std::shared_ptr<Configuring> self_;
  std::function<void()> begin_, gone_;
  mutable std::mutex mutex_;
  std::deque<v1::ConfigureProgress> waiting_;
  v1::ConfigureProgress current_;
  bool writing_ = false;
  bool ended_ = false;
  absl::Status status_;
};

class Rendezvous final : public FakeRendezvous {
 public:
  void Join(const v1::ConfigureRequest& request, Done done) override {
    std::vector<Done> ready;
    absl::Status failed;
    {
      std::lock_guard lock(mutex_);
      Meeting& meeting = meetings_[Key(request)];
      failed = meeting.failed;
      meeting.waiting.push_back(std::move(done));
      const bool all = static_cast<int>(meeting.waiting.size()) == request.peers_size();
      if (all || !failed.ok()) ready = std::exchange(meeting.waiting, {});
    }
    for (const Done& end : ready) end(failed);
  }

  void Fail(const v1::ConfigureRequest& request, const absl::Status& reason) override {
    std::vector<Done> waiting;
    const absl::Status failed = absl::AbortedError("stage " + std::to_string(request.stage()) +
                                                   ", rank " + std::to_string(request.rank()) +
                                                   " failed: " + std::string(reason.message()));
    {
      std::lock_guard lock(mutex_);
      Meeting& meeting = meetings_[Key(request)];
      if (meeting.failed.ok()) meeting.failed = failed;
      waiting = std::exchange(meeting.waiting, {});
    }
    for (const Done& end : waiting) end(failed);
  }

 private:
  struct Meeting {
    std::vector<Done> waiting;
    absl::Status failed;
  };
  static std::pair<std::string, uint64_t> Key(const v1::ConfigureRequest& request) {
    return {request.replica(), request.fence().plan_epoch()};
  }
  std::mutex mutex_;
  std::map<std::pair<std::string, uint64_t>, Meeting> meetings_;
};

class Service final : public v1::Worker::CallbackService {
 public:
  Service(const FakeWorkerOptions& options, Pacer& pacer)
      : rendezvous_(options.rendezvous), pacer_(pacer), epoch_(options.plan_epoch) {}

  grpc::ServerWriteReactor<v1::ConfigureProgress>* Configure(
      grpc::CallbackServerContext*, const v1::ConfigureRequest* request) override {
    auto call = std::make_shared<Configuring>();
    Configuring* raw = call.get();
    call->Start([this, raw, request = *request] { Begin(raw->shared_from_this(), request); },
                [this, raw, request = *request] { Gone(raw, request); });
    return raw;
  }

  grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionReply>* Session(
      grpc::CallbackServerContext*) override {
    std::lock_guard lock(mutex_);
    auto* session = new PacedSession(pacer_, configured_.fence(), [this](PacedSession* gone) {
      std::lock_guard lock(mutex_);
      sessions_.erase(gone);
    });
    sessions_.insert(session);
    ++opened_;
    return session;
  }

  uint64_t epoch() const {
    std::lock_guard lock(mutex_);
    return epoch_;
  }
  v1::ConfigureRequest configured() const {
    std::lock_guard lock(mutex_);
    return configured_;
  }
  int64_t configures() const {
    std::lock_guard lock(mutex_);
    return configures_;
  }
  int64_t taken_up() const {
    std::lock_guard lock(mutex_);
    return taken_up_;
  }
  int64_t opened() const {
    std::lock_guard lock(mutex_);
    return opened_;
  }
  void Hold() {
    std::lock_guard lock(mutex_);
    hold_ = true;
  }
  void Report(const std::string& phase, int64_t bytes_done, int64_t bytes_total) {
    std::lock_guard lock(mutex_);
    for (auto& [raw, held] : held_) held.call->Report(phase, bytes_done, bytes_total);
  }
  void Release() {
    std::map<Configuring*, Held> held;
    {
      std::lock_guard lock(mutex_);
      hold_ = false;
      held = std::exchange(held_, {});
    }
    for (auto& [raw, one] : held) Answer(one.call, one.request);
  }
  void FailConfigures(const absl::Status& reason) {
    std::lock_guard lock(mutex_);
    failure_ = reason;
  }
  void Break(const absl::Status& reason, bool forget_plan) {
    std::lock_guard lock(mutex_);
    if (forget_plan) epoch_ = 0;
    for (PacedSession* session : sessions_) session->End(ToGrpc(reason));
  }

 private:
  struct Held {
    std::shared_ptr<Configuring> call;
    v1::ConfigureRequest request;
  };

  void Begin(const std::shared_ptr<Configuring>& call, const v1::ConfigureRequest& request) {
    {
      std::lock_guard lock(mutex_);
      if (request.fence().plan_epoch() == epoch_ && epoch_ > 0) {
        const bool same = google::protobuf::util::MessageDifferencer::Equals(configured_, request);
        taken_up_ += same ? 1 : 0;
        call->End(same ? absl::OkStatus()
                       : absl::FailedPreconditionError("another configuration is served"));
        return;
      }
      ++configures_;
      configured_ = request;
      if (hold_) {
        held_[call.get()] = {call, request};
        return;
      }
    }
    Answer(call, request);
  }

  void Gone(Configuring* call, const v1::ConfigureRequest& request) {
    {
      std::lock_guard lock(mutex_);
      held_.erase(call);
    }
    if (!call->succeeded() && rendezvous_ != nullptr)
      rendezvous_->Fail(request, absl::CancelledError("its Configure was cancelled"));
  }

  void Answer(const std::shared_ptr<Configuring>& call, const v1::ConfigureRequest& request) {
    absl::Status failure;
    {
      std::lock_guard lock(mutex_);
      failure = failure_;
    }
    const bool alone = rendezvous_ == nullptr || request.peers_size() <= 1;
    if (!failure.ok()) {
      if (!alone) rendezvous_->Fail(request, failure);
      call->End(failure);
      return;
    }
    const auto end = [this, call,
                      epoch = request.fence().plan_epoch()](const absl::Status& status) {
      if (status.ok()) {
        std::lock_guard lock(mutex_);
        epoch_ = epoch;
      }
      call->End(status);
    };
    if (alone) {
      end(absl::OkStatus());
    } else {
      rendezvous_->Join(request, end);
    }
  }

  const std::shared_ptr<FakeRendezvous> rendezvous_;
  Pacer& pacer_;
  mutable std::mutex mutex_;
  uint64_t epoch_ = 0;               // that it serves
  v1::ConfigureRequest configured_;  // the newest
  int64_t configures_ = 0;
  int64_t taken_up_ = 0;
  int64_t opened_ = 0;
  bool hold_ = false;
  absl::Status failure_;
  std::map<Configuring*, Held> held_;
  std::set<PacedSession*> sessions_;
};

class FakeWorkerImpl final : public FakeWorker {
 public:
  explicit FakeWorkerImpl(const FakeWorkerOptions& options)
      : pacer_(options), service_(options, pacer_) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.SetMaxReceiveMessageSize(256 << 20);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    worker::RegistrationOptions registration;
    registration.coordinator = options.coordinator;
    // A coordinator process of this user has a token; one within a test has none.
    if (const auto port = LoopbackPort(options.coordinator); port.has_value()) {
      if (auto run = RunFolder::Find(*port); run.has_value())
        registration.cluster_token = std::move(run->cluster_token);
    }
    registration.request.set_name(options.name);
    registration.request.set_address(options.address.empty() ? "127.0.0.1:" + std::to_string(port)
                                                             : options.address);
    registration.request.set_incarnation(static_cast<uint64_t>(NowSeconds() * 1e9));
    registration.request.set_build_version(std::string(BuildVersion()));
    registration.request.set_protocol_version(kProtocolVersion);
    registration.request.mutable_device()->set_kind("cpu");
    registration.request.mutable_device()->set_memory_bytes(options.memory_bytes);
    registration.request.mutable_device()->set_gpu_name(options.gpu_name);
    registration.request.add_link_addresses("unix:/" + options.name);
    registration.plan_epoch = [this] { return service_.epoch(); };
    registration.load = [this] {
      v1::EngineLoad load;
      load.set_draining(pacer_.draining());
      return load;
    };
    registration_ = std::make_unique<worker::Registration>(std::move(registration));
  }
  ~FakeWorkerImpl() override {
    registration_->Stop();
    server_->Shutdown(std::chrono::system_clock::now());
  }
  int64_t running() const override { return pacer_.running(); }
  int64_t cancelled() const override { return pacer_.cancelled(); }
  int64_t sent_tokens() const override { return pacer_.sent(); }
  int64_t configures() const override { return service_.configures(); }
  v1::ConfigureRequest configured() const override { return service_.configured(); }
  int64_t taken_up() const override { return service_.taken_up(); }
  int64_t sessions() const override { return service_.opened(); }
  void HoldConfigures() override { service_.Hold(); }
  void Report(const std::string& phase, int64_t bytes_done, int64_t bytes_total) override {
    service_.Report(phase, bytes_done, bytes_total);
  }
  void Release() override { service_.Release(); }
  void FailConfigures(const absl::Status& reason) override { service_.FailConfigures(reason); }
  void Drain() override { pacer_.Drain(); }
  void BreakFormation(const absl::Status& reason) override { service_.Break(reason, true); }
  void EndSessions(const absl::Status& reason) override { service_.Break(reason, false); }

 private:
  Pacer pacer_;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<worker::Registration> registration_;
};

}  // namespace

std::shared_ptr<FakeRendezvous> FakeRendezvous::Make() { return std::make_shared<Rendezvous>(); }

std::unique_ptr<FakeWorker> FakeWorker::Start(const FakeWorkerOptions& options) {
  return std::make_unique<FakeWorkerImpl>(options);
}

}  // namespace tessera
