// Steps that would read or move on the wrong state are refused by name, and note nothing.
#include "worker/step/seat_ledger.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "kvcache/block_pool.h"
#include "kvcache/seat_pool.h"

namespace tessera::worker {
namespace {

constexpr int64_t kSeats = 3;

struct Rows {
  int64_t first = 0, rows = 1;
  int32_t seat = 0;
  uint64_t owner = 1;
  std::vector<int32_t> drafts = {};  // the last of these rows
};

class Worker {
 public:
  // "" where the step is accepted.
  std::string Run(const std::vector<Rows>& sequences, const std::vector<StateCopy>& restores = {}) {
    const std::vector<int32_t> tokens(64, 5);
    arrays_.Begin();
    for (const Rows& rows : sequences) {
      arrays_.AddSequence({.tokens = tokens,
                           .prompt_tokens = 64,
                           .first = rows.first,
                           .rows = rows.rows,
                           .blocks = &blocks_,
                           .drafts = rows.drafts,
                           .seat = rows.seat,
                           .seat_owner = rows.owner});
    }
    arrays_.Seal();
    return std::string(ledger_.Advance(arrays_, restores).message());
  }

 private:
  static StepLimits Limits() {
    StepLimits limits;
    limits.max_tokens = limits.max_logit_rows = 64;
    limits.max_sequences = 4;
    limits.max_blocks_per_sequence = 1;
    return limits;
  }

  kvcache::BlockPool pool_{1, 64};
  kvcache::BlockTable blocks_ = [this] {
    kvcache::BlockTable table(&pool_);
    table.Grow(64);
    return table;
  }();
  StepArrays arrays_{Limits()};
  SeatLedger ledger_{kSeats};
};

bool Names(const std::string& refusal, const std::string& what) {
  INFO(refusal);
  return refusal.find(what) != std::string::npos;
}

TEST_CASE("a sequence goes on where its state stands") {
  Worker worker;
  CHECK(worker.Run({{.rows = 5, .seat = 2}}) == "");
  CHECK(worker.Run({{.first = 5, .seat = 2}, {.rows = 3, .seat = 0, .owner = 2}}) == "");
  CHECK(worker.Run({{.first = 3, .rows = 7, .seat = 0, .owner = 2}, {.first = 6, .seat = 2}}) ==
        "");
}

TEST_CASE("a seat stays before the rows of drafts, whichever of them were right") {
  Worker worker;
  CHECK(worker.Run({{.rows = 5}}) == "");
  CHECK(worker.Run({{.first = 5, .rows = 4, .drafts = {7, 8, 9}}}) == "");
  CHECK(Names(worker.Run({{.first = 8, .rows = 1}}), "its state is at position 6"));
  CHECK(worker.Run({{.first = 6, .rows = 3, .drafts = {9}}}) == "");
  CHECK(worker.Run({{.first = 8, .rows = 1}}) == "");
}

TEST_CASE("a seat whose states come from elsewhere stands where the step says") {
  Worker worker;
  REQUIRE(worker.Run({{.rows = 5, .seat = 1}}) == "");
  CHECK(Names(worker.Run({{.first = 16, .seat = 1, .owner = 2}}), "another sequence's"));
  CHECK(worker.Run({{.rows = 5, .seat = 2, .owner = 3}, {.first = 16, .seat = 1, .owner = 2}},
                   {{.sequence = 1, .position = 16}}) == "");
  CHECK(worker.Run({{.first = 17, .seat = 1, .owner = 2}}) == "");
}

TEST_CASE("a step that is off by one is refused, and the next right one is not") {
  Worker worker;
  REQUIRE(worker.Run({{.rows = 5, .seat = 1}}) == "");
  CHECK(Names(worker.Run({{.first = 6, .seat = 1}}),
              "seat 1: its state is at position 5, the "
              "sequence's first row is at 6"));
  CHECK(Names(worker.Run({{.first = 4, .seat = 1}}), "seat 1: its state is at position 5"));
  // Nothing is noted of a step of which any sequence is refused.
  CHECK(
      Names(worker.Run({{.first = 5, .seat = 1}, {.first = 1, .seat = 0}}), "sequence 1, seat 0"));
  CHECK(worker.Run({{.first = 5, .seat = 1}}) == "");
}

TEST_CASE("a seat of another sequence is refused, and one that is not there") {
  Worker worker;
  REQUIRE(worker.Run({{.rows = 5, .seat = 1, .owner = 7}}) == "");
  CHECK(Names(worker.Run({{.first = 5, .seat = 1, .owner = 8}}),
              "seat 1: the state in it is "
              "another sequence's"));
  CHECK(Names(worker.Run({{.first = 5, .seat = 0, .owner = 7}}), "seat 0"));
  CHECK(Names(worker.Run({{.seat = kSeats}}), "this worker has 3"));
  CHECK(Names(worker.Run({{.seat = kvcache::Seat::kNone}}), "no such seat"));
  CHECK(Names(worker.Run({{.seat = 0, .owner = 8}, {.seat = 0, .owner = 9}}),
              "another sequence of the step has it"));
}

TEST_CASE("a sequence that was preempted begins at its start again; its old state is nobody's") {
  kvcache::SeatPool pool(kSeats);
  kvcache::Seat one(&pool), other(&pool);
  REQUIRE(one.Take());
  const int32_t number = one.number();
  const uint64_t owner = one.owner();
  Worker worker;
  REQUIRE(worker.Run({{.rows = 9, .seat = number, .owner = owner}}) == "");
  one.Clear();
  REQUIRE(other.Take());
  REQUIRE(other.number() == number);  // the seat that became free last
  CHECK(other.owner() != owner);
  CHECK(Names(worker.Run({{.first = 9, .seat = number, .owner = other.owner()}}),
              "another sequence's"));
  CHECK(worker.Run({{.rows = 2, .seat = number, .owner = other.owner()}}) == "");
  CHECK(Names(worker.Run({{.first = 9, .seat = number, .owner = owner}}), "another sequence's"));
}

TEST_CASE("seats are given out once each, and come back") {
  kvcache::SeatPool pool(2);
  kvcache::Seat first(&pool), second(&pool), third(&pool);
  CHECK(first.Take());
  CHECK(second.Take());
  CHECK(first.number() != second.number());
  CHECK_FALSE(third.Take());
  CHECK(pool.free_seats() == 0);
  kvcache::Seat moved = std::move(first);
  moved.Clear();
  moved.Clear();
  CHECK(pool.free_seats() == 1);
  CHECK(third.Take());
  kvcache::Seat none(nullptr);
  CHECK(none.Take());
  CHECK(none.number() == kvcache::Seat::kNone);
}

}  // namespace
}  // namespace tessera::worker
