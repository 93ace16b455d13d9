// One of two replicas becomes four times slower under load: what readers and the router see of it.
// Requests and replicas are played in virtual time; the flow, the watch and the router are those of
// the coordinator.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "scheduler/slowdown.h"
#include "tests/coordinator/flow_fixture.h"

namespace tessera::coordinator {
namespace {

constexpr double kNever = 1e18;
constexpr int kPlaces = 8;

// What a step takes: `base`, and more for each sequence and each prompt in it.
struct StepSeconds {
  double base = 0.010, each = 0.0005, each_prompt = 0.002;
};

// A leader that runs steps of up to kPlaces sequences. While it is slow it gets a quarter of the
// time, in turns of 50 ms of each 200 ms; what comes while it stands still waits unmeasured.
class PlayedLeader {
 public:
  PlayedLeader(Flow& flow, const std::string& name, const StepSeconds& step)
      : flow_(flow), step_(step), link_(flow.AddReplica(name)) {}

  double next() const { return std::min(end_, StandsStill() ? NextTurn() : kNever); }
  int64_t asked() const { return static_cast<int64_t>(link_->submits.size()); }
  void SlowDown() { slow_ = true; }

  // Begins a step where there is work and none runs.
  void Begin() {
    if (end_ < kNever || StandsStill()) return;
    while (running_.size() < kPlaces && taken_ < link_->submits.size())
      running_.push_back({taken_++, 0});
    if (running_.empty()) return;
    prompts_ = std::count_if(running_.begin(), running_.end(),
                             [](const auto& sequence) { return sequence.tokens == 0; });
    const auto rows = static_cast<double>(running_.size());
    begin_ = flow_.now;
    end_ = flow_.now + Stretched(step_.base + step_.each * rows +
                                 step_.each_prompt * static_cast<double>(prompts_));
  }

  // Ends the step that ends now.
  void End() {
    if (end_ > flow_.now) return;
    v1::SessionReply reply;
    for (Sequence& sequence : running_) {
      const v1::Submit& submit = link_->submits[sequence.submit];
      v1::TokenEvent event = link_->Token(sequence.submit, 0, 5, 3 + sequence.tokens);
      if (sequence.tokens == 0) event.set_prefill_seconds(end_ - begin_);
      if (++sequence.tokens == submit.max_tokens()) event.set_finish(v1::FINISH_REASON_LENGTH);
      *reply.add_events() = event;
    }
    const double seconds = end_ - begin_;
    totals_.generation_tokens += static_cast<int64_t>(running_.size());
    if (prompts_ > 0) {
      ++totals_.prefill_steps;
      totals_.prefill_seconds += seconds;
      totals_.prompt_tokens += 3 * prompts_;
    } else {
      ++totals_.decode_steps;
      totals_.decode_seconds += seconds;
    }
    std::erase_if(running_, [&](const Sequence& sequence) {
      return sequence.tokens == link_->submits[sequence.submit].max_tokens();
    });
    end_ = kNever;
    reply.mutable_load();
    flow_.flow->OnReply(link_, reply);
  }

  const scheduler::StepTotals& totals() const { return totals_; }

 private:
  struct Sequence {
    size_t submit = 0;
    int32_t tokens = 0;
  };

  bool StandsStill() const { return slow_ && std::fmod(flow_.now, kTurn) >= kPart; }
  double NextTurn() const { return (std::floor(flow_.now / kTurn) + 1) * kTurn + 1e-9; }

  double Stretched(double work) const {
    if (!slow_) return work;
    double at = flow_.now, spent = 0;
    while (work > 1e-9) {
      const double phase = std::fmod(at, kTurn);
      if (phase < kPart) {
        const double part = std::min(work, kPart - phase);
        work -= part;
        spent += part;
        at += part + 1e-9;
      } else {
        spent += kTurn - phase;
        at += kTurn - phase + 1e-9;
      }
    }
    return spent;
  }

  static constexpr double kTurn = 0.2, kPart = 0.05;

  Flow& flow_;
  const StepSeconds step_;
  const std::shared_ptr<FakeLink> link_;
  std::vector<Sequence> running_;
  size_t taken_ = 0;
  int64_t prompts_ = 0;
  double begin_ = 0, end_ = kNever;
  bool slow_ = false;
  scheduler::StepTotals totals_;
};

struct Answered {
  double arrival = 0, seconds = 0;
};

struct Outcome {
  std::vector<double> before, after;  // seconds of answers that were asked for in the two periods
  int64_t asked_after = 0, answered_after = 0;
  double factor = 1;       // that the watch gave the slow one in the end
  double share_after = 0;  // of the slow one
};

double P95(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() * 95 / 100];
}

// `rate` requests a second for a minute, then one of the two is slow for another minute and a half.
// `watched`: the watch tells the flow what it finds.
Outcome Play(double rate, bool watched, const StepSeconds& step = {}) {
  constexpr double kSlowFrom = 60, kCountedFrom = 65, kCountedTo = 140, kEnd = 150;
  Flow f([](RequestFlowOptions& options) { options.max_requests = 100'000; });
  f.now = 0;
  PlayedLeader a(f, "a", step), b(f, "b", step);
  scheduler::SlowdownWatch watch;
  std::mt19937_64 random(7);
  const auto draw = [&](double from, double to) {
    return from + (to - from) * static_cast<double>(random() >> 11) * 0x1p-53;
  };
  std::vector<std::pair<double, std::shared_ptr<Recorder>>> open;
  Outcome outcome;
  double arrival = 0, tick = 0;
  int64_t asked_before = 0, slow_before = 0;
  while (f.now < kEnd) {
    a.Begin();
    b.Begin();
    f.now = std::min({a.next(), b.next(), arrival, tick});
    if (f.now >= kSlowFrom) b.SlowDown();
    if (a.next() <= f.now) a.End();
    if (b.next() <= f.now) b.End();
    if (arrival <= f.now) {
      open.emplace_back(f.now, f.Start(Ask(static_cast<int32_t>(draw(20, 60)))));
      arrival = f.now - std::log(1 - draw(0, 1)) / rate;
      if (f.now < kCountedFrom) asked_before = a.asked() + b.asked(), slow_before = b.asked();
    }
    if (tick <= f.now) {
      tick += 0.1;
      watch.Observe("a", a.totals(), f.now);
      watch.Observe("b", b.totals(), f.now);
      watch.Judge(f.now);
      if (watched) f.flow->SetSlowdowns({{"a", watch.Of("a")}, {"b", watch.Of("b")}});
      f.flow->Tick();
    }
    std::erase_if(open, [&](const auto& entry) {
      if (entry.second->ends == 0) return false;
      const double from = entry.first;
      if (from >= 10 && from < kSlowFrom - 5) outcome.before.push_back(f.now - from);
      if (from >= kCountedFrom && from < kCountedTo) {
        outcome.after.push_back(f.now - from);
        outcome.answered_after += f.now < kCountedTo + 3 ? 1 : 0;
      }
      entry.second->handle.reset();
      return true;
    });
    if (arrival > f.now && f.now >= kCountedFrom && f.now < kCountedTo) {
      outcome.share_after = static_cast<double>(b.asked() - slow_before) /
                            static_cast<double>(a.asked() + b.asked() - asked_before);
    }
  }
  outcome.asked_after = static_cast<int64_t>(outcome.after.size());
  for (const auto& [from, sink] : open)
    outcome.asked_after += from >= kCountedFrom && from < kCountedTo ? 1 : 0;
  outcome.factor = watch.Of("b");
  return outcome;
}

// Both replicas with all places taken: 8 tokens in 14 ms, 40 tokens an answer.
constexpr double kCapacity = 2 * (8 / 0.014) / 40;

}  // namespace

TEST_CASE("at a quarter of the load a slow replica costs later requests little") {
  const Outcome with = Play(kCapacity / 4, /*watched=*/true);
  CHECK(with.factor > 3);
  CHECK(with.share_after < 0.05);
  CHECK(P95(with.after) <= 1.5 * P95(with.before));
  const Outcome without = Play(kCapacity / 4, /*watched=*/false);
  INFO("with " << P95(with.after) << " without " << P95(without.after) << " before "
               << P95(with.before));
  CHECK(P95(without.after) > 1.5 * P95(without.before));
}

TEST_CASE("answers shorter than a stop do not make a slow replica look well between two of them") {
  const StepSeconds quick = {.base = 0.0008, .each = 0.0002, .each_prompt = 0.0003};
  const double capacity = 2 * (8 / 0.0024) / 40;
  const Outcome with = Play(capacity / 4, /*watched=*/true, quick);
  INFO("factor " << with.factor << ", share of the slow one " << with.share_after << ", P95 "
                 << P95(with.before) << " and " << P95(with.after));
  CHECK(with.share_after < 0.06);
  // With all of them at the other replica it is 1.5 times: its batches are larger.
  CHECK(P95(with.after) <= 1.7 * P95(with.before));
  const Outcome half = Play(capacity / 2, /*watched=*/true, quick);
  CHECK(static_cast<double>(half.answered_after) >= 0.95 * static_cast<double>(half.asked_after));
}

TEST_CASE("at half the load the slow replica takes what the other one cannot") {
  const Outcome with = Play(kCapacity / 2, /*watched=*/true);
  INFO("share of the slow one " << with.share_after << ", P95 " << P95(with.before) << " and "
                                << P95(with.after));
  CHECK(static_cast<double>(with.answered_after) >= 0.95 * static_cast<double>(with.asked_after));
  CHECK(with.share_after > 0);
}

TEST_CASE("a slow replica that has nothing to do is asked now and then") {
  Flow f;
  const auto a = f.AddReplica("a"), b = f.AddReplica("b");
  const auto ask = [&] {
    const size_t before = b->submits.size();
    f.Start(Ask(5))->handle.reset();
    return b->submits.size() - before;
  };
  // The first one computes; so the second one would be sooner, were it not slow.
  f.Start(Ask(50));
  REQUIRE(a->submits.size() == 1);
  CHECK(ask() == 1);
  f.flow->SetSlowdowns({{"b", 8}});
  CHECK(ask() == 0);
  f.now += 29;
  CHECK(ask() == 0);
  f.now += 2;
  CHECK(ask() == 1);
  CHECK(ask() == 0);
  f.flow->SetSlowdowns({});
  CHECK(ask() == 1);
}

}  // namespace tessera::coordinator
