#include "scheduler/slowdown.h"

#include <catch2/catch.hpp>
#include <string>

#include "scheduler/pair_router.h"

namespace tessera::scheduler {
namespace {

// Plays replicas whose decode steps take `base + rows x each`, some of them stretched.
struct Played {
  // One second of steps of so many rows.
  void Run(const std::string& name, double rows, double stretch) {
    StepTotals& of = totals[name];
    const double step = (0.010 + 0.001 * rows) * stretch;
    const auto steps = static_cast<int64_t>(busy / step);
    of.decode_steps += steps;
    of.decode_seconds += static_cast<double>(steps) * step;
    of.generation_tokens += static_cast<int64_t>(static_cast<double>(steps) * rows);
  }
  void Tick() {
    now += 0.25;
    for (const auto& [name, of] : totals) watch.Observe(name, of, now);
    watch.Judge(now);
  }
  // `seconds` in which each of both has its rows and its stretch.
  void Both(double seconds, double rows_a, double stretch_a, double rows_b, double stretch_b) {
    for (int i = 0; i < static_cast<int>(4 * seconds); ++i) {
      if (rows_a > 0) Run("a", rows_a, stretch_a);
      if (rows_b > 0) Run("b", rows_b, stretch_b);
      Tick();
    }
  }
  double busy = 0.25;  // of each quarter second
  double now = 100;
  std::map<std::string, StepTotals> totals;
  SlowdownWatch watch;
};

}  // namespace

TEST_CASE("a replica whose steps take four times as long is slow within three seconds") {
  Played p;
  p.Both(60, 4, 1, 4, 1);
  CHECK(p.watch.Of("a") == 1);
  p.Both(3, 4, 4, 4, 1);
  CHECK(p.watch.Of("a") > 3.5);
  CHECK(p.watch.Of("a") < 4.5);
  CHECK(p.watch.Of("b") == 1);
  // It stays so for minutes, also with less to do.
  p.Both(120, 1, 4, 6, 1);
  CHECK(p.watch.Of("a") > 2.5);
  // Without steps nothing is known of it.
  p.Both(60, 0, 1, 6, 1);
  CHECK(p.watch.Of("a") > 2.5);
  p.Both(10, 1, 1, 6, 1);
  CHECK(p.watch.Of("a") == 1);
}

TEST_CASE("a replica that is slow at times stays slow in between, and is well where that ends") {
  Played p;
  p.Both(60, 4, 1, 4, 1);
  p.Both(3, 4, 4, 4, 1);
  REQUIRE(p.watch.Of("a") > 3.5);
  for (int i = 0; i < 20; ++i) {
    p.Both(3, 1, 4, 6, 1);
    CHECK(p.watch.Of("a") > 2.5);
    p.Both(4, 1, 1, 6, 1);  // longer than what is looked at
    CHECK(p.watch.Of("a") > 1.2);
  }
  p.Both(12, 1, 1, 6, 1);
  CHECK(p.watch.Of("a") == 1);
}

TEST_CASE("fewer requests, or larger batches, make no replica slow") {
  Played p;
  p.Both(30, 1, 1, 4, 1);
  p.Both(30, 2, 1, 2, 1);
  p.Both(30, 16, 1, 1, 1);  // never seen before
  p.busy = 0.05;
  p.Both(30, 8, 1, 1, 1);
  CHECK(p.watch.Of("a") == 1);
  CHECK(p.watch.Of("b") == 1);
}

TEST_CASE("what slows all replicas alike makes none slow, and the slower of two is") {
  Played p;
  p.Both(60, 4, 1, 4, 1);
  p.Both(20, 4, 2, 4, 2);
  CHECK(p.watch.Of("a") == 1);
  CHECK(p.watch.Of("b") == 1);
  p.Both(5, 4, 2, 4, 5);
  CHECK(p.watch.Of("a") == 1);
  CHECK(p.watch.Of("b") > 2);
}

TEST_CASE("a replica that starts again has no past, and prompts count as decoding does") {
  Played p;
  p.Both(60, 4, 1, 4, 1);
  p.totals["a"] = {};
  p.Both(5, 4, 4, 4, 1);
  CHECK(p.watch.Of("a") == 1);
  const auto prompts = [&](double seconds, double stretch) {
    for (int i = 0; i < static_cast<int>(4 * seconds); ++i) {
      StepTotals& of = p.totals["b"];
      of.prefill_steps += 5;
      of.prompt_tokens += 5 * 512;
      of.prefill_seconds += 5 * 0.05 * stretch;
      p.Tick();
    }
  };
  prompts(30, 1);
  CHECK(p.watch.Of("b") == 1);
  prompts(4, 3);
  CHECK(p.watch.Of("b") > 2.5);
  p.watch.Forget("b");
  CHECK(p.watch.Of("b") == 1);
}

TEST_CASE("a slow replica's part of a plan's traffic falls, and the others take the rest") {
  ReplicaLoad usual;
  usual.ready = true;
  usual.prefill_tokens_per_second = 1000;
  usual.decode_tokens_per_second = 100;
  std::vector<ReplicaLoad> replicas = {usual, usual};
  std::vector<PairLoad> pairs = {{.prefill = 0, .decode = 0, .share = 0.5},
                                 {.prefill = 1, .decode = 1, .share = 0.5}};
  const RouteRequest request = {.prompt_tokens = 10, .expected_output_tokens = 10};
  const auto share_of_second = [&] {
    int second = 0;
    for (int i = 0; i < 1000; ++i) {
      const Route route = ChoosePair(replicas, pairs, request);
      NoteRouted(route.pair, pairs);
      second += route.decode_replica == 1;
    }
    return second / 1000.0;
  };
  CHECK(share_of_second() > 0.45);
  replicas[1].slowdown = 4;
  replicas[1].prefill_tokens_per_second /= 4;
  replicas[1].decode_tokens_per_second /= 4;
  CHECK(share_of_second() == 0);  // the other one does it sooner
  // Where the other one is crowded, the slow one takes no more than it can.
  replicas[0].queued_prompt_tokens = 100'000;
  const double share = share_of_second();
  CHECK(share > 0.08);
  CHECK(share < 0.2);
  // Where both are slow the plan's shares hold.
  replicas[0] = replicas[1];
  CHECK(share_of_second() > 0.45);
}

}  // namespace tessera::scheduler
