// A replica that is sent more than it serves, step by step, with two admissions: the batcher's, and
// the same without expected lengths of answers, so that it counts only the tokens that are there.
// The second must break a bar that the first holds. overload_test and tests/bench/overload hold
// whole plans to the same bars.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "scheduler/answer_lengths.h"
#include "scheduler/batcher.h"

namespace tessera::scheduler {
namespace {

constexpr double kMaxPreempted = 0.01;                      // as tests/bench/overload
constexpr double kStepSeconds = 1, kRowSeconds = 1.0 / 32;  // as weights and products take
constexpr int64_t kPromptTokens = 200, kMeanAnswerTokens = 170, kMaxAnswerTokens = 1024;

struct Request {
  double arrival_seconds = 0;
  int64_t answer_tokens = 0;  // at which it ends by itself
  int64_t known_tokens = kPromptTokens;
  int64_t computed_tokens = 0;
  int64_t held_blocks = 0;

  int64_t emitted() const { return known_tokens - kPromptTokens; }
};

struct Served {
  double tokens_per_second = 0;  // of answers that ended
  double preempted = 0;          // times, per request that came
};

enum class Admission { kKnownTokens, kExpectedTokens };

class Replica {
 public:
  explicit Replica(Admission admission) : admission_(admission) {
    limits_.max_batched_tokens = 512;
    limits_.total_blocks = 400;  // room for 14 mean requests at their mean length, or so
    free_blocks_ = limits_.total_blocks;
  }

  // Once: so many requests come at random, and what ends before the last one is counted.
  Served At(double requests_per_second, int requests) {
    std::mt19937 random(1);
    double seconds = 0;
    std::deque<Request> coming;
    for (int i = 0; i < requests; ++i) {
      const auto draw = [&] { return -std::log1p(-static_cast<double>(random()) / 0x1p32); };
      seconds += draw() / requests_per_second;
      const auto answer = static_cast<int64_t>(std::ceil(draw() * kMeanAnswerTokens));
      coming.push_back({seconds, std::clamp<int64_t>(answer, 1, kMaxAnswerTokens)});
    }
    const double end = seconds;
    double now = 0;
    while (now < end) {
      for (; !coming.empty() && coming.front().arrival_seconds <= now; coming.pop_front())
        waiting_.push_back(coming.front());
      if (running_.empty() && waiting_.empty()) {
        now = coming.front().arrival_seconds;
        continue;
      }
      now += kStepSeconds + kRowSeconds * static_cast<double>(Step());
    }
    return {static_cast<double>(finished_tokens_) / end,
            static_cast<double>(preempted_) / requests};
  }

 private:
  int64_t Expected(const Request& request) const {
    if (admission_ == Admission::kKnownTokens) return 0;
    return kPromptTokens + lengths_.Expected(request.emitted(), kMaxAnswerTokens);
  }

  // Rows of the step.
  int64_t Step() {
    std::vector<RunningSequence> running;
    std::vector<WaitingSequence> waiting;
    for (const Request& r : running_) {
      running.push_back(
          {r.known_tokens, r.computed_tokens, r.held_blocks, r.held_blocks, false, Expected(r)});
    }
    for (size_t i = 0; i < std::min<size_t>(waiting_.size(), kMaxAdmitted); ++i)
      waiting.push_back({waiting_[i].known_tokens, 0, 0, false, Expected(waiting_[i])});
    PlanStep(limits_, {running, waiting, free_blocks_}, &plan_);
    std::vector<Request> next;
    std::vector<Request> back;
    for (size_t i = 0; i < running_.size(); ++i) {
      if (plan_.running_rows[i] == kPreempted) {
        ++preempted_;
        free_blocks_ += running_[i].held_blocks;
        running_[i].held_blocks = running_[i].computed_tokens = 0;
        back.push_back(running_[i]);
      } else {
        Run(running_[i], plan_.running_rows[i], &next);
      }
    }
    for (const int32_t rows : plan_.admitted_rows) {
      Run(waiting_.front(), rows, &next);
      waiting_.pop_front();
    }
    waiting_.insert(waiting_.begin(), back.begin(), back.end());
    running_ = std::move(next);
    return plan_.rows;
  }

  void Run(Request request, int64_t rows, std::vector<Request>* next) {
    request.computed_tokens += rows;
    const int64_t blocks = BlocksFor(request.computed_tokens, limits_.block_tokens);
    free_blocks_ -= blocks - request.held_blocks;
    request.held_blocks = blocks;
    if (request.computed_tokens == request.known_tokens) ++request.known_tokens;
    if (request.emitted() < request.answer_tokens) return next->push_back(request);
    free_blocks_ += request.held_blocks;
    finished_tokens_ += request.answer_tokens;
    lengths_.Note(request.answer_tokens);
  }

  const Admission admission_;
  BatchLimits limits_;
  int64_t free_blocks_ = 0;
  std::deque<Request> waiting_;
  std::vector<Request> running_;  // ranked by arrival
  StepPlan plan_;
  AnswerLengths lengths_;
  int64_t finished_tokens_ = 0, preempted_ = 0;
};

}  // namespace

TEST_CASE("overload: admission by expected lengths keeps the bars, by known tokens it does not") {
  // 0.9 of its capacity.
  const double promise = 0.9 *
                         Replica(Admission::kExpectedTokens).At(0.5, 20'000).tokens_per_second /
                         kMeanAnswerTokens;
  const auto at = [&](Admission admission, double times) {
    return Replica(admission).At(times * promise, static_cast<int>(4000 * times));
  };
  const Served once = at(Admission::kExpectedTokens, 1);
  const Served four = at(Admission::kExpectedTokens, 4), ten = at(Admission::kExpectedTokens, 10);
  const double peak =
      std::max({once.tokens_per_second, four.tokens_per_second, ten.tokens_per_second});
  CHECK(once.preempted <= kMaxPreempted);
  CHECK(four.tokens_per_second >= 0.9 * peak);
  CHECK(ten.tokens_per_second >= 0.9 * peak);
  CHECK(at(Admission::kKnownTokens, 1).preempted > kMaxPreempted);
}

}  // namespace tessera::scheduler
