#include "worker/engine/engine.h"

#include <chrono>
#include <utility>

#include "worker/engine/token_events.h"

namespace tessera::worker {
namespace {

// How often an idle or paused engine looks at the time by itself.
constexpr std::chrono::milliseconds kTick(500);

}  // namespace

Engine::Engine(EngineParts parts, const v1::Fence& fence, Clock clock, double max_stall_seconds,
               std::function<void(const absl::Status& reason)> on_broken)
    : fence_(fence),
      clock_(std::move(clock)),
      max_stall_seconds_(max_stall_seconds),
      on_broken_(std::move(on_broken)),
      parts_(std::move(parts)),
      load_(parts_.core->load()),
      thread_([this] { Loop(); }) {}

void Engine::Post(Command command) {
  std::lock_guard lock(mutex_);
  const bool message = command.sink != nullptr && command.what.index() >= 2;
  if (stopping_) return;
  if (message && mailbox_.size() >= kMaxMailbox) {
    mailbox_overflow_ = true;
  } else {
    mailbox_.push_back(std::move(command));
    // Until the thread takes it, it counts: WaitIdle must not overlook it.
    if (std::holds_alternative<v1::Submit>(mailbox_.back().what)) ++sequences_;
  }
  work_.notify_one();
}

void Engine::Attach(std::shared_ptr<ReplySink> sink) { Post({std::move(sink), Attached{}}); }
void Engine::Detach(std::shared_ptr<ReplySink> sink) { Post({std::move(sink), Detached{}}); }

void Engine::Submit(std::shared_ptr<ReplySink> sink, v1::Submit submit) {
  Post({std::move(sink), std::move(submit)});
}

void Engine::Cancel(std::shared_ptr<ReplySink> sink, v1::Cancel cancel) {
  Post({std::move(sink), std::move(cancel)});
}

void Engine::Reserve(std::shared_ptr<ReplySink> sink, v1::Reserve reserve) {
  Post({std::move(sink), std::move(reserve)});
}

void Engine::OnKvExpected(const KvKey& key, absl::StatusOr<v1::KvTarget> target) {
  Post({nullptr, News([key, target = std::move(target)](EngineCore& core) {
          core.OnKvExpected(key, target);
        })});
}

void Engine::OnKvArrived(const KvKey& key, const absl::Status& status) {
  Post({nullptr, News([key, status](EngineCore& core) { core.OnKvArrived(key, status); })});
}

void Engine::OnKvSent(const KvKey& key, const absl::Status& status,
                      const v1::KvTransfer& transfer) {
  Post({nullptr, News([this, key, status, transfer](EngineCore& core) {
          core.OnKvSent(key, status, transfer, clock_(), &events_);
        })});
}

void Engine::Wake() {
  std::lock_guard lock(mutex_);
  woken_ = true;
  work_.notify_one();
}

void Engine::RefuseNew(const absl::Status& reason) {
  std::lock_guard lock(mutex_);
  refusal_ = reason;
  load_.set_draining(true);
  woken_ = true;
  work_.notify_one();
}

int64_t Engine::WaitIdle(double timeout_seconds) {
  std::unique_lock lock(mutex_);
  idle_.wait_for(lock, std::chrono::duration<double>(timeout_seconds),
                 [this] { return sequences_ == 0 || stopping_; });
  return sequences_;
}

void Engine::Stop(const absl::Status& reason) {
  std::lock_guard once(stop_mutex_);
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    stop_reason_ = reason;
  }
  work_.notify_one();
  idle_.notify_all();
  thread_.join();
}

v1::EngineLoad Engine::load() const {
  std::lock_guard lock(mutex_);
  return load_;
}

bool Engine::MayDeliver() const { return session_ != nullptr && session_->MayDeliver(); }

bool Engine::WaitForWork(std::vector<Command>* commands) {
  const bool goes_on = parts_.core->StepReady() || (parts_.core->MayBegin() && MayDeliver());
  std::unique_lock lock(mutex_);
  if (!goes_on) {
    work_.wait_for(lock, kTick, [this] {
      return stopping_ || woken_ || mailbox_overflow_ || !mailbox_.empty();
    });
  }
  woken_ = false;
  draining_ = !refusal_.ok();
  commands->clear();
  commands->swap(mailbox_);
  return !stopping_;
}

void Engine::Apply(Command& command) {
  if (std::holds_alternative<Attached>(command.what)) {
    if (session_ != nullptr) session_->Close(absl::AbortedError("replaced by a newer session"));
    DropSession();
    session_ = std::move(command.sink);
    return;
  }
  if (const News* news = std::get_if<News>(&command.what)) return (*news)(*parts_.core);
  if (command.sink != session_) return;  // of a session that ended
  if (std::holds_alternative<Detached>(command.what)) {
    DropSession();
  } else if (v1::Submit* submit = std::get_if<v1::Submit>(&command.what)) {
    absl::Status refusal;
    {
      std::lock_guard lock(mutex_);
      refusal = refusal_;
    }
    if (refusal.ok()) {
      parts_.core->Submit(std::move(*submit), clock_(), &events_);
    } else {
      AddRefusal(*submit, refusal, &events_);
    }
  } else if (v1::Reserve* reserve = std::get_if<v1::Reserve>(&command.what)) {
    parts_.core->Reserve(std::move(*reserve));
  } else {
    parts_.core->Cancel(std::get<v1::Cancel>(command.what), &events_);
  }
}

void Engine::DropSession() {
  parts_.core->EndAll(absl::CancelledError("its session ended"), &events_);
  parts_.core->TakeReserved();
  events_.clear();
  session_ = nullptr;
  stalled_since_seconds_ = -1;
  told_draining_ = false;
}

void Engine::EndIfBroken() {
  const absl::Status reason = parts_.core->Broken();
  if (reason.ok()) return;
  if (session_ != nullptr) {
    session_->Close(reason);
    DropSession();
  }
  if (!std::exchange(broken_, true) && on_broken_) on_broken_(reason);
}

v1::EngineLoad Engine::LoadNow() const {
  v1::EngineLoad load = parts_.core->load();
  load.set_draining(draining_);
  return load;
}

void Engine::DeliverEvents() {
  const bool news = (draining_ && !told_draining_) || parts_.core->has_reserved();
  if ((events_.empty() && !news) || !MayDeliver()) return;
  told_draining_ = draining_;
  v1::SessionReply reply;
  *reply.mutable_fence() = fence_;
  *reply.mutable_load() = LoadNow();
  reply.set_step(reply.load().steps());
  for (v1::TokenEvent& event : events_) *reply.add_events() = std::move(event);
  for (v1::Reserved& answer : parts_.core->TakeReserved()) {
    *reply.add_reserved() = std::move(answer);
  }
  events_.clear();
  session_->Deliver(std::move(reply));
}

void Engine::CloseIfStalled() {
  bool overflow = false;
  {
    std::lock_guard lock(mutex_);
    overflow = std::exchange(mailbox_overflow_, false);
  }
  if (session_ == nullptr) return;
  const bool wants = parts_.core->Busy() || !events_.empty();
  absl::Status reason;
  if (overflow || events_.size() > kMaxMailbox) {
    reason = absl::ResourceExhaustedError("the session sends faster than the engine reads");
  } else if (!wants || session_->MayDeliver()) {
    stalled_since_seconds_ = -1;
  } else if (const double now = clock_(); stalled_since_seconds_ < 0) {
    stalled_since_seconds_ = now;
  } else if (now - stalled_since_seconds_ > max_stall_seconds_) {
    reason = absl::DeadlineExceededError("the session gave no credit for too long");
  }
  if (reason.ok()) return;
  session_->Close(reason);
  DropSession();
}

void Engine::Publish() {
  std::lock_guard lock(mutex_);
  draining_ = !refusal_.ok();
  load_ = LoadNow();
  sequences_ = parts_.core->sequences();
  for (const Command& command : mailbox_) {
    if (std::holds_alternative<v1::Submit>(command.what)) ++sequences_;
  }
  if (sequences_ == 0 && events_.empty()) idle_.notify_all();
}

void Engine::Compile(const KvKey& key, const std::string& grammar) {
  parts_.grammars->Start(grammar, [this, key](const GrammarCompiler::Compiled& compiled) {
    Post({nullptr, News([this, key, compiled](EngineCore& core) {
            core.OnGrammar(key, compiled, &events_);
          })});
  });
}

void Engine::Loop() {
  std::vector<Command> commands;
  parts_.core->SetWake([this] { Wake(); });
  if (parts_.grammars != nullptr) {
    parts_.core->SetCompile(
        [this](const KvKey& key, const std::string& grammar) { Compile(key, grammar); });
  }
  if (parts_.mover != nullptr) {
    parts_.mover->SetListener(this);
    parts_.core->SetMover(parts_.mover.get());
  }
  while (WaitForWork(&commands)) {
    for (Command& command : commands) Apply(command);
    if (MayDeliver()) parts_.core->BeginSteps(clock_(), &events_);
    if (parts_.core->StepReady()) parts_.core->EndStep(clock_, &events_);
    EndIfBroken();
    DeliverEvents();
    CloseIfStalled();
    Publish();
  }
  if (session_ != nullptr) session_->Close(stop_reason_);
  DropSession();
  Publish();
  commands.clear();
  {
    std::lock_guard lock(mutex_);
    commands.swap(mailbox_);
  }
  commands.clear();  // what is left in the mailbox holds sessions, and these hold the engine
  // Nothing is held when Stop returns, whoever still holds the engine.
  parts_.core->SetMover(nullptr);
  parts_.mover.reset();
  parts_.grammars.reset();
  parts_.core.reset();
  parts_.kv_port.reset();
  parts_.formation.reset();
  parts_.share.reset();
}

}  // namespace tessera::worker
