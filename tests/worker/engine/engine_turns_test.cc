// A request of many prompts among others: whose turn it is.

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "tests/worker/engine/engine_harness.h"
#include "worker/engine/fair_turns.h"

namespace tessera::worker {
namespace {

v1::Submit OfGroup(uint64_t group, uint64_t id, int32_t priority = 0) {
  v1::Submit submit = MakeSubmit(id, Prompt(5, static_cast<uint32_t>(id)), 2);
  submit.set_request_group(group);
  submit.set_priority(priority);
  return submit;
}

EngineOptions OneAtATime() {
  EngineOptions options = SmallOptions();
  options.limits.max_sequences = 1;
  return options;
}

// Runs until nothing is left; `after_step` may submit more. Returns the ids by when they ended.
template <typename AfterStep>
std::vector<uint64_t> OrderOfEnds(Harness& h, const AfterStep& after_step) {
  std::vector<uint64_t> order;
  while (h.core->Busy()) {
    h.Step();
    for (const auto& [choice, told] : h.told) {
      const bool known = std::find(order.begin(), order.end(), choice.first) != order.end();
      if (told.finish != v1::FINISH_REASON_UNSPECIFIED && !known) order.push_back(choice.first);
    }
    after_step();
  }
  return order;
}
std::vector<uint64_t> OrderOfEnds(Harness& h) {
  return OrderOfEnds(h, [] {});
}

}  // namespace

TEST_CASE("the prompts of one request take turns with other requests") {
  Harness h(OneAtATime());
  for (uint64_t id = 1; id <= 5; ++id) h.Submit(OfGroup(7, id));
  for (uint64_t id = 11; id <= 13; ++id) h.Submit(OfGroup(8, id));
  h.Submit(OfGroup(0, 21));
  h.Submit(OfGroup(0, 22));
  CHECK(OrderOfEnds(h) == std::vector<uint64_t>{1, 11, 21, 22, 2, 12, 3, 13, 4, 5});
}

TEST_CASE("a turn that the sender chose goes before arrival and behind priority") {
  Harness h(OneAtATime());
  const auto submit = [&](uint64_t id, uint64_t turn, int32_t priority = 0) {
    v1::Submit of = OfGroup(0, id, priority);
    of.set_turn(turn);
    h.Submit(std::move(of));
  };
  submit(1, 900);
  submit(2, 800);
  submit(3, 100);
  submit(4, 800);
  submit(5, 50, /*priority=*/1);
  CHECK(OrderOfEnds(h) == std::vector<uint64_t>{3, 2, 4, 1, 5});
}

TEST_CASE("a request that comes later waits for one prompt of a large one, not for all") {
  Harness h(OneAtATime());
  for (uint64_t id = 1; id <= 300; ++id) h.Submit(OfGroup(7, id));
  h.Step();  // the first is running
  h.Submit(OfGroup(0, 1001));
  h.Submit(OfGroup(9, 1002));
  const std::vector<uint64_t> order = OrderOfEnds(h);
  REQUIRE(order.size() == 302);
  CHECK(std::vector<uint64_t>(order.begin(), order.begin() + 5) ==
        std::vector<uint64_t>{1, 2, 1001, 1002, 3});
}

TEST_CASE("a large request is not starved by a stream of small ones") {
  Harness h(OneAtATime());
  for (uint64_t id = 1; id <= 5; ++id) h.Submit(OfGroup(7, id));
  uint64_t next = 1000;
  for (int i = 0; i < 2; ++i) h.Submit(OfGroup(0, next++));
  int64_t left = 40;
  size_t ended = 0;
  const std::vector<uint64_t> order = OrderOfEnds(h, [&] {
    // As many come as are served.
    size_t now_ended = 0;
    for (const auto& [choice, told] : h.told)
      now_ended += told.finish != v1::FINISH_REASON_UNSPECIFIED;
    for (; ended < now_ended; ++ended) {
      if (left-- > 0) h.Submit(OfGroup(0, next++));
    }
  });
  const auto last = std::find(order.begin(), order.end(), uint64_t{5});
  CHECK(last - order.begin() < 25);
}

TEST_CASE("alone, a request of many prompts fills every place; by priority, all of it waits") {
  EngineOptions options = SmallOptions();
  options.limits.max_sequences = 4;
  Harness h(options);
  for (uint64_t id = 1; id <= 8; ++id) h.Submit(OfGroup(7, id));
  h.Step();
  CHECK(h.core->load().running() == 4);
  CHECK(h.core->load().waiting() == 4);
  h.RunAll();

  Harness late(OneAtATime());
  for (uint64_t id = 1; id <= 3; ++id) late.Submit(OfGroup(7, id, 5));
  for (uint64_t id = 11; id <= 13; ++id) late.Submit(OfGroup(8, id));
  CHECK(OrderOfEnds(late) == std::vector<uint64_t>{11, 12, 13, 1, 2, 3});
}

TEST_CASE("a request whose prompts were cancelled leaves the order of the others alone") {
  Harness h(OneAtATime());
  for (uint64_t id = 1; id <= 5; ++id) h.Submit(OfGroup(7, id));
  for (uint64_t id = 11; id <= 13; ++id) h.Submit(OfGroup(8, id));
  for (uint64_t id = 2; id <= 5; ++id) h.Cancel(id);
  h.Submit(OfGroup(7, 6));
  const std::vector<uint64_t> order = OrderOfEnds(h);
  CHECK(std::vector<uint64_t>(order.end() - 5, order.end()) ==
        std::vector<uint64_t>{1, 11, 12, 13, 6});
}

TEST_CASE("turns: what is known of a request goes with its last waiting prompt") {
  FairTurns turns;
  CHECK(turns.Enter(0, 7) == 1);
  CHECK(turns.Enter(0, 7) == 2);
  CHECK(turns.Enter(0, 0) == 1);
  turns.Leave(0, 7, 1, true);
  CHECK(turns.Enter(0, 0) == 2);
  CHECK(turns.Enter(3, 7) == 1);  // another queue
  turns.Leave(0, 7, 2, true);
  CHECK(turns.Enter(0, 7) == 3);
  turns.Leave(0, 7, 3, false);
  CHECK(turns.Enter(0, 7) == 3);  // as one that comes anew
  turns.Leave(0, 7, 3, false);
  turns.Leave(0, 0, 1, true);
  turns.Leave(0, 0, 2, true);
  CHECK(turns.Enter(0, 0) == 1);  // nothing waited: it begins anew
}

}  // namespace tessera::worker
