#include "tests/fakes/fake_worker.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <queue>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "proto/build_version.h"
#include "proto/protocol.h"
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
};

class PacedSession final : public grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionReply> {
 public:
  PacedSession(Pacer& pacer, const v1::Fence& fence) : pacer_(pacer), fence_(fence) {
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
  void OnDone() override { delete this; }

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
    lock.unlock();
    Finish(grpc::Status::OK);
  }

  Pacer& pacer_;
  const v1::Fence fence_;
  v1::SessionRequest incoming_;
  v1::SessionReply reply_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t credit_ = 0;
  bool writing_ = false;
  bool ended_ = false;
  std::thread clock_;
};

class Configured final : public grpc::ServerWriteReactor<v1::ConfigureProgress> {
 public:
  Configured() {
    v1::WorkerReady& ready = *progress_.mutable_ready();
    ready.set_device("fake");
    ready.set_kv_blocks(kBlocks);
    ready.set_block_tokens(kBlockTokens);
    StartWriteAndFinish(&progress_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  v1::ConfigureProgress progress_;
};

class Service final : public v1::Worker::CallbackService {
 public:
  explicit Service(Pacer& pacer) : pacer_(pacer) {}
  grpc::ServerWriteReactor<v1::ConfigureProgress>* Configure(
      grpc::CallbackServerContext*, const v1::ConfigureRequest* request) override {
    std::lock_guard lock(mutex_);
    fence_ = request->fence();
    return new Configured();
  }
  grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionReply>* Session(
      grpc::CallbackServerContext*) override {
    return new PacedSession(pacer_, fence());
  }
  v1::Fence fence() const {
    std::lock_guard lock(mutex_);
    return fence_;
  }

 private:
  Pacer& pacer_;
  mutable std::mutex mutex_;
  v1::Fence fence_;  // of the newest Configure
};

class FakeWorkerImpl final : public FakeWorker {
 public:
  explicit FakeWorkerImpl(const FakeWorkerOptions& options) : pacer_(options), service_(pacer_) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.SetMaxReceiveMessageSize(256 << 20);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    worker::RegistrationOptions registration;
    registration.coordinator = options.coordinator;
    registration.request.set_name(options.name);
    registration.request.set_address("127.0.0.1:" + std::to_string(port));
    registration.request.set_incarnation(static_cast<uint64_t>(NowSeconds() * 1e9));
    registration.request.set_build_version(std::string(BuildVersion()));
    registration.request.set_protocol_version(kProtocolVersion);
    registration.request.mutable_device()->set_kind("cpu");
    registration.request.mutable_device()->set_memory_bytes(int64_t{1} << 40);
    registration.plan_epoch = [this] { return service_.fence().plan_epoch(); };
    registration.load = [] { return v1::EngineLoad(); };
    registration_ = std::make_unique<worker::Registration>(std::move(registration));
  }
  ~FakeWorkerImpl() override {
    registration_->Stop();
    server_->Shutdown(std::chrono::system_clock::now());
  }
  int64_t running() const override { return pacer_.running(); }
  int64_t cancelled() const override { return pacer_.cancelled(); }
  int64_t sent_tokens() const override { return pacer_.sent(); }

 private:
  Pacer pacer_;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<worker::Registration> registration_;
};

}  // namespace

std::unique_ptr<FakeWorker> FakeWorker::Start(const FakeWorkerOptions& options) {
  return std::make_unique<FakeWorkerImpl>(options);
}

}  // namespace tessera
