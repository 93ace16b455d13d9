#include "worker/engine/grammar_compiler.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

// What an entry costs beside the grammar and its text.
constexpr int64_t kEntryBytes = 1024;

// Between two looks at what a compile has taken.
constexpr std::chrono::milliseconds kLook(20);

using Grammar = std::shared_ptr<const TokenGrammar>;

// The clock of this thread; valid while it runs.
std::optional<clockid_t> ClockOfThread() {
  clockid_t clock = {};
  if (pthread_getcpuclockid(pthread_self(), &clock) != 0) return std::nullopt;
  return clock;
}

double SecondsOf(clockid_t clock) {
  timespec time = {};
  if (clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

struct GrammarCompiler::State {
  struct Job {
    std::string text;
    Done done;
  };
  // A compile under way; its thread sets `clock`, and `compiled` before it ends.
  struct Attempt {
    std::optional<clockid_t> clock;
    std::optional<Compiled> compiled;
    bool given_up = false;
  };
  struct Kept {
    Grammar grammar;
    int64_t bytes = 0;
    std::list<std::string>::iterator place;  // in `recent`
  };

  void KeepHouse(const std::shared_ptr<State>& self);
  Compiled CompileWithin(const std::shared_ptr<State>& self, const std::string& text,
                         std::unique_lock<std::mutex>& lock);
  // Until it is compiled, too long, or nobody's. `lock` is let go meanwhile.
  void WaitFor(const Attempt& attempt, std::unique_lock<std::mutex>& lock);
  absl::Status TooLong() const;
  Grammar Find(const std::string& text);
  void Keep(const std::string& text, const Grammar& grammar);

  Compile compile;
  GrammarCompilerOptions options;

  std::mutex mutex;
  std::condition_variable changed;
  bool closed = false;
  std::deque<Job> jobs;
  int given_up = 0;                      // compiles for nobody
  std::set<std::string> given_up_texts;  // theirs
  std::unordered_map<std::string, Kept> kept;
  std::list<std::string> recent;  // keys of `kept`, the last used first
  int64_t kept_bytes = 0;
};

Grammar GrammarCompiler::State::Find(const std::string& text) {
  const auto found = kept.find(text);
  if (found == kept.end()) return nullptr;
  recent.splice(recent.begin(), recent, found->second.place);
  return found->second.grammar;
}

void GrammarCompiler::State::Keep(const std::string& text, const Grammar& grammar) {
  const int64_t bytes = grammar->size_bytes() + 2 * static_cast<int64_t>(text.size()) + kEntryBytes;
  if (bytes > options.max_kept_bytes || kept.contains(text)) return;
  recent.push_front(text);
  kept[text] = {grammar, bytes, recent.begin()};
  kept_bytes += bytes;
  while (kept_bytes > options.max_kept_bytes) {
    const auto oldest = kept.find(recent.back());
    kept_bytes -= oldest->second.bytes;
    kept.erase(oldest);
    recent.pop_back();
  }
}

void GrammarCompiler::State::WaitFor(const Attempt& attempt, std::unique_lock<std::mutex>& lock) {
  using Clock = std::chrono::steady_clock;
  const auto limit = std::chrono::duration<double>(options.max_seconds);
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  while (!closed && !attempt.compiled.has_value() && Clock::now() < end) {
    const bool has_clock = attempt.clock.has_value();
    if (has_clock && SecondsOf(*attempt.clock) > options.max_core_seconds) return;
    changed.wait_until(lock, std::min(end, Clock::now() + kLook));
  }
}

// `lock` is held, and let go while it waits.
GrammarCompiler::Compiled GrammarCompiler::State::CompileWithin(
    const std::shared_ptr<State>& self, const std::string& text,
    std::unique_lock<std::mutex>& lock) {
  if (given_up >= options.max_given_up) {
    return absl::ResourceExhaustedError(
        StrCat(given_up, " grammars that took too long are still being compiled: try again later"));
  }
  if (given_up_texts.contains(text)) return TooLong();
  const auto attempt = std::make_shared<Attempt>();
  std::thread([self, attempt, text] {
    {
      std::lock_guard begun(self->mutex);
      attempt->clock = ClockOfThread();
    }
    Compiled compiled = self->compile(text);
    std::lock_guard done(self->mutex);
    attempt->compiled = std::move(compiled);
    if (attempt->given_up) {
      --self->given_up;
      self->given_up_texts.erase(text);
      if (attempt->compiled->ok()) self->Keep(text, **attempt->compiled);
    }
    self->changed.notify_all();
  }).detach();
  WaitFor(*attempt, lock);
  if (attempt->compiled.has_value()) return *std::move(attempt->compiled);
  attempt->given_up = true;
  ++given_up;
  given_up_texts.insert(text);
  return TooLong();
}

absl::Status GrammarCompiler::State::TooLong() const {
  return absl::ResourceExhaustedError(
      StrCat("the grammar takes longer than ", options.max_core_seconds,
             " seconds to compile: ask again later, when it may be compiled, or make patterns and "
             "bounded texts in it shorter or fewer"));
}

// The keeper's loop. Callbacks run under the lock, so that none runs once State is closed.
void GrammarCompiler::State::KeepHouse(const std::shared_ptr<State>& self) {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return closed || !jobs.empty(); });
    if (closed) return;
    const Job job = std::move(jobs.front());
    jobs.pop_front();
    // Another submission with the same grammar may have been before it in the queue.
    const Grammar found = Find(job.text);
    const Compiled compiled = found != nullptr ? found : CompileWithin(self, job.text, lock);
    if (closed) return;
    if (compiled.ok()) Keep(job.text, *compiled);
    job.done(compiled);
  }
}

GrammarCompiler::GrammarCompiler(Compile compile, const GrammarCompilerOptions& options)
    : state_(std::make_shared<State>()) {
  state_->compile = std::move(compile);
  state_->options = options;
  keeper_ = std::thread([state = state_] { state->KeepHouse(state); });
}

GrammarCompiler::~GrammarCompiler() {
  {
    std::lock_guard lock(state_->mutex);
    state_->closed = true;
  }
  state_->changed.notify_all();
  keeper_.join();
}

void GrammarCompiler::Start(const std::string& grammar, Done done) {
  std::lock_guard lock(state_->mutex);
  if (const Grammar found = state_->Find(grammar); found != nullptr) return done(found);
  if (state_->jobs.size() >= state_->options.max_queued) {
    return done(absl::ResourceExhaustedError(
        StrCat(state_->jobs.size(), " grammars wait to be compiled: try again later")));
  }
  state_->jobs.push_back({grammar, std::move(done)});
  state_->changed.notify_all();
}

int64_t GrammarCompiler::kept_bytes() const {
  std::lock_guard lock(state_->mutex);
  return state_->kept_bytes;
}

GrammarCompiler::Compile CompileFor(std::vector<std::string> vocabulary, int64_t size) {
  // The one compile that is not given up, or of several of these.
  struct Prepared {
    std::mutex mutex;
    std::vector<std::string> bytes;
    std::shared_ptr<const TokenVocabulary> vocabulary;
  };
  const auto prepared = std::make_shared<Prepared>();
  prepared->bytes = std::move(vocabulary);
  return [prepared, size](const std::string& grammar) -> GrammarCompiler::Compiled {
    std::shared_ptr<const TokenVocabulary> known;
    {
      std::lock_guard lock(prepared->mutex);
      if (prepared->vocabulary == nullptr) {
        auto made = TokenVocabulary::Create(prepared->bytes, size);
        if (!made.ok()) return made.status();
        prepared->vocabulary = *std::move(made);
        prepared->bytes = {};
      }
      known = prepared->vocabulary;
    }
    return TokenGrammar::Compile(std::move(known), grammar);
  };
}

}  // namespace tessera::worker
