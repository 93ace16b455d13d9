// As many drafts as give the most tokens a second.
#include "worker/drafts/draft_lengths.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "worker/drafts/drafter.h"

namespace tessera::worker {
namespace {

Acceptance Of(int64_t tried, int64_t accepted) {
  Acceptance acceptance;
  for (int i = 0; i < 50; ++i) acceptance.Note(tried, accepted);
  return acceptance;
}

// Steps that take `base` and `row` seconds for each row.
DraftLengths Measured(double base, double row) {
  DraftLengths lengths;
  for (int64_t rows = 1; rows <= 200; ++rows) {
    lengths.NoteStep(rows, base + row * static_cast<double>(rows));
  }
  return lengths;
}

int64_t Chosen(const DraftLengths& lengths, const Acceptance& own, int64_t most, int64_t before,
               int64_t sequences = 1) {
  DraftedStep step{static_cast<double>(sequences), sequences};
  return lengths.Choose(own, most, before, &step);
}

TEST_CASE("acceptance is of those places that a draft reached, and follows the newest") {
  const Acceptance two = Of(4, 2);
  CHECK(two.At(0, 0) == Approx(1).margin(0.3));
  CHECK(two.At(1, 0) > 0.7);
  CHECK(two.At(2, 0) == 0);
  CHECK(two.At(3, 0.6) == Approx(0.6));  // never reached: as it is elsewhere
  Acceptance turned = Of(1, 1);
  for (int i = 0; i < 30; ++i) turned.Note(1, 0);
  CHECK(turned.At(0, 0) < 0.1);
}

TEST_CASE("times of rows in between are interpolated, beyond as the nearest") {
  StepTimes times;
  CHECK(times.At(3) == 0);
  times.Note(2, 1.0);
  CHECK(times.At(1) == 1.0);
  CHECK(times.At(9) == 1.0);
  times.Note(6, 2.0);
  CHECK(times.At(3) == Approx(1.25));
  CHECK(times.At(100'000) == 2.0);
  times.Note(100'000, 5.0);
  CHECK(times.At(StepTimes::kMaxRows) == 5.0);
  for (int i = 0; i < 200; ++i) times.Note(2, 3.0);
  CHECK(times.At(2) == Approx(3.0));
}

TEST_CASE("where nothing else is measured, a step goes without drafts now and then") {
  DraftLengths lengths;
  int64_t plain = 0;
  for (int i = 0; i < 1000; ++i) {  // a source that always proposes three
    const bool without = lengths.WantsPlainStep(2);
    plain += without ? 1 : 0;
    lengths.NoteStep(without ? 2 : 8, without ? 1.0 : 4.0);
    CHECK_FALSE((i == 0 && !without));
  }
  CHECK(plain >= 3);
  CHECK(plain < 10);
  // Three of which none stands cost four times as much.
  CHECK(Chosen(lengths, Of(3, 0), 3, 3, 2) == 0);
}

TEST_CASE("rows that hide cost nothing; dear rows end the drafts; nothing known: as proposed") {
  const Acceptance good = Of(6, 6), bad = Of(6, 0), half = Of(6, 2);
  CHECK(Chosen({}, bad, 6, 0) == 6);
  CHECK(Chosen(Measured(1, 0.001), good, 6, 0) == 6);
  CHECK(Chosen(Measured(1, 0.001), good, 5, 6) == 4);
  CHECK(Chosen(Measured(0.001, 1), good, 6, 6) == 0);
  CHECK(Chosen(Measured(1, 0.1), half, 6, 6) == 2);
  DraftLengths refused = Measured(1, 0.001);
  for (int i = 0; i < 50; ++i) refused.NoteList(6, 0);
  CHECK(Chosen(refused, bad, 6, 6) == 0);
  CHECK(Chosen(refused, {}, 6, 6) > 0);  // another sequence may have better luck
}

TEST_CASE("more drafts than before, or any at all, are worth 5 % at least") {
  const Acceptance good = Of(6, 6);
  const DraftLengths lengths = Measured(0.5, 1);  // six give 9 % more than two, 3 % more than four
  CHECK(Chosen(lengths, good, 6, 2) == 6);
  CHECK(Chosen(lengths, good, 6, 4) == 4);
  CHECK(Chosen(lengths, good, 6, 6) == 6);
  CHECK(Chosen(Measured(0.02, 1), good, 6, 6) == 0);
}

TEST_CASE("many sequences leave less for each: their rows are the next one's, too") {
  const Acceptance good = Of(6, 4);
  DraftLengths lengths;
  for (int64_t rows = 1; rows <= 200; ++rows) {  // free up to 16 rows
    lengths.NoteStep(rows, rows <= 16 ? 1.0 : static_cast<double>(rows) / 16);
  }
  CHECK(Chosen(lengths, good, 6, 6, 1) >= 4);
  CHECK(Chosen(lengths, good, 6, 0, 32) == 0);
  DraftedStep step{4, 4};
  int64_t all = 0;
  for (int i = 0; i < 4; ++i) all += lengths.Choose(good, 6, 0, &step);
  CHECK(all <= 16);
  CHECK(step.rows == 4 + all);
  CHECK(step.tokens > 4 + static_cast<double>(all) / 2);
}

TEST_CASE("where rows hide, each of many sequences has drafts") {
  for (const int64_t sequences : {16, 64, 128}) {
    const DraftLengths lengths = Measured(1, 0.0001);
    DraftedStep step{static_cast<double>(sequences), sequences};
    for (int64_t i = 0; i < sequences; ++i) CHECK(lengths.Choose(Of(3, 2), 3, 0, &step) >= 2);
    // Where they do not, hardly any difference of what was measured makes one worth it.
    DraftLengths dear = Measured(0, 1);
    for (int i = 0; i < 50; ++i) dear.NoteList(3, 0);
    dear.NoteStep(sequences + 1, 0.99 * static_cast<double>(sequences));
    step = {static_cast<double>(sequences), sequences};
    CHECK(dear.Choose({}, 3, 0, &step) == 0);
  }
}

class Endless final : public DraftSource {
 public:
  void Propose(std::span<const int32_t>, int64_t most, std::vector<int32_t>* drafts) override {
    drafts->assign(most, 1);
  }
  bool MayProposeNext(std::span<const int32_t>) override { return true; }
};

TEST_CASE("where no draft pays few are tried, and that ends where they pay again") {
  Drafter drafter(std::make_unique<Endless>());
  const auto tried = [&](double base, double row, int64_t accepted, int steps) {
    DraftLengths lengths = Measured(base, row);
    int64_t sum = 0;
    std::vector<int32_t> drafts;
    for (int i = 0; i < steps; ++i) {
      lengths.NoteStep(1, base + row);
      drafter.Propose({}, 6, &drafts);
      if (drafts.empty()) continue;
      DraftedStep step{1, 1};
      const int64_t chosen = drafter.Choose(lengths, 6, &step);
      if (chosen > 0) drafter.Note(chosen, std::min(chosen, accepted));
      if (chosen > 0) lengths.NoteList(chosen, std::min(chosen, accepted));
      sum += chosen;
    }
    return sum;
  };
  CHECK(tried(0.001, 1, 6, 1000) < 1000 / 40);
  CHECK(tried(1, 0.001, 6, 1000) > 5000);
  CHECK(tried(1, 0.001, 0, 2000) < 250);
}

// What a head has proposed: as many as it was asked for.
class Asked final : public DraftSource {
 public:
  explicit Asked(const int64_t* count) : count_(*count) {}
  void Propose(std::span<const int32_t>, int64_t most, std::vector<int32_t>* drafts) override {
    drafts->assign(std::min(most, count_), 1);
  }
  bool MayProposeNext(std::span<const int32_t>) override { return true; }

 private:
  const int64_t& count_;
};

// Sequences whose drafts a head proposes, of which a new one comes every fifth step.
class Headed {
 public:
  explicit Headed(DraftLengths lengths) : lengths_(std::move(lengths)) {}  // a second a row

  struct Steps {
    int wanted = 0;  // in which any proposal is wanted
    int64_t drafts = 0;
  };
  // So many steps, of drafts of which each list's first `stand` do.
  Steps Run(int steps, int64_t stand) {
    Steps done;
    std::vector<int32_t> drafts;
    for (int i = 0; i < steps; ++i) {
      if (i % 5 == 0 && sequences_.size() < 16) sequences_.push_back(std::make_unique<Sequence>());
      const auto rows = std::ssize(sequences_);
      DraftedStep step{static_cast<double>(rows), rows}, next = step;
      int64_t wanted = 0;
      for (const auto& sequence : sequences_) {
        Drafter& drafter = sequence->drafter;
        drafter.Propose({}, 3, &drafts);
        const int64_t tried =
            drafts.empty() || refuses_ ? 0 : drafter.Choose(lengths_, std::ssize(drafts), &step);
        if (!drafts.empty() && refuses_) drafter.NoteRefused(lengths_);
        sequence->proposed = drafter.WantNext(lengths_, 3, &next);
        wanted = std::max(wanted, sequence->proposed);
        if (tried == 0) continue;
        drafter.Note(tried, std::min(tried, stand));
        lengths_.NoteList(tried, std::min(tried, stand));
        done.drafts += tried;
      }
      // A head proposes for all, or for none.
      for (const auto& sequence : sequences_) sequence->proposed = wanted;
      done.wanted += wanted > 0 ? 1 : 0;
      lengths_.NoteStep(step.rows, step_seconds_ + row_seconds_ * static_cast<double>(step.rows));
    }
    return done;
  }
  // No draft may stand from now on, as where a grammar forbids all.
  void RefuseAll() { refuses_ = true; }
  // Steps take this long from now on, of any number of rows, and have done so for a while.
  void SetSeconds(double seconds) {
    row_seconds_ = 0;
    step_seconds_ = seconds;
    for (int64_t i = 0; i < 100 * 200; ++i) lengths_.NoteStep(1 + i % 200, seconds);
  }

 private:
  struct Sequence {
    int64_t proposed = 0;
    Drafter drafter{std::make_unique<Asked>(&proposed)};
  };

  DraftLengths lengths_;
  double step_seconds_ = 0, row_seconds_ = 1;
  bool refuses_ = false;
  std::vector<std::unique_ptr<Sequence>> sequences_;
};

TEST_CASE("where no draft may stand, a head proposes in few steps, too") {
  Headed heads(Measured(0, 1));
  heads.RefuseAll();
  heads.Run(120, 0);
  CHECK(heads.Run(640, 0).wanted <= 2 * (640 / 64 + 1));
}

TEST_CASE("where no draft pays, a head proposes in few steps, the same for all sequences") {
  Headed heads(Measured(0, 1));
  // A new sequence begins with what pays for the others: here nothing.
  CHECK(heads.Run(60, 0).wanted <= 2);
  heads.Run(60, 0);
  const Headed::Steps later = heads.Run(640, 0);
  CHECK(later.wanted >= 640 / 64);
  CHECK(later.wanted <= 2 * (640 / 64 + 1));  // one that tries a draft goes on with the next step
  CHECK(later.drafts <= 16 * (640 / 64 + 1));
  // Rows have become cheap, and drafts right: they are tried again soon, by all, in each step.
  heads.SetSeconds(1);
  heads.Run(200, 3);
  CHECK(heads.Run(100, 3).drafts > 100 * 16 * 2);
}

TEST_CASE("64 lists in a row of which nothing stood are the last") {
  Drafter drafter(std::make_unique<Endless>());
  std::vector<int32_t> drafts;
  for (int i = 0; i < 63; ++i) drafter.Note(6, 0);
  drafter.Note(6, 1);
  for (int i = 0; i < 64; ++i) {
    drafter.Propose({}, 6, &drafts);
    CHECK(drafts.size() == 6);
    CHECK(drafter.MayProposeNext({}));
    drafter.Note(6, 0);
  }
  drafter.Propose({}, 6, &drafts);
  CHECK(drafts.empty());
  CHECK_FALSE(drafter.MayProposeNext({}));
}

}  // namespace
}  // namespace tessera::worker
