#include "scheduler/batcher.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "scheduler/answer_lengths.h"

namespace tessera::scheduler {
namespace {

// One that decodes, with `drafts` to try, all of whose blocks of 4 are full but for one token.
RunningSequence Decodes(int64_t known, int64_t drafts) {
  const int64_t blocks = BlocksFor(known, 4);
  return {known, known - 1, blocks, blocks, false, 0, drafts};
}

struct Job {
  int priority = 0;
  int arrival = 0;
  int64_t prompt = 1;
  int64_t outputs_wanted = 1;
  bool needs_all_logits = false;
  int64_t known = 0;
  int64_t computed = 0;
  int64_t blocks = 0;
  int finished_step = -1;
  int failed_step = -1;
};

// Applies plans to jobs with exact bookkeeping, checking every limit on the way. Nothing is shared.
class Replica {
 public:
  explicit Replica(const BatchLimits& limits)
      : limits_(limits), free_blocks_(limits.total_blocks) {}

  void Add(Job job) {
    job.arrival = next_arrival_++;
    job.known = job.prompt;
    jobs_.push_back(job);
    waiting_.push_back(jobs_.size() - 1);
  }

  bool Busy() const { return !waiting_.empty() || !running_.empty(); }
  const std::vector<Job>& jobs() const { return jobs_; }
  const std::vector<int32_t>& last_rows() const { return plan_.running_rows; }
  int step() const { return step_; }
  int64_t preemptions() const { return preemptions_; }
  const std::vector<size_t>& running() const { return running_; }

  void Step() {
    ++step_;
    Rank(&running_);
    Rank(&waiting_);
    std::vector<RunningSequence> running;
    for (size_t j : running_) {
      const Job& job = jobs_[j];
      running.push_back({job.known, job.computed, job.blocks, job.blocks, job.needs_all_logits});
    }
    std::vector<WaitingSequence> waiting;
    for (size_t j : waiting_) waiting.push_back({jobs_[j].known, 0, 0, jobs_[j].needs_all_logits});
    PlanStep(limits_, {running, waiting, free_blocks_}, &plan_);
    Check();
    Apply();
  }

 private:
  void Rank(std::vector<size_t>* jobs) const {
    std::sort(jobs->begin(), jobs->end(), [this](size_t a, size_t b) {
      return std::pair(jobs_[a].priority, jobs_[a].arrival) <
             std::pair(jobs_[b].priority, jobs_[b].arrival);
    });
  }

  void Check() const {
    REQUIRE(plan_.running_rows.size() == running_.size());
    REQUIRE(plan_.admitted_rows.size() <= waiting_.size());
    REQUIRE(plan_.MakesProgress());
    int64_t rows = 0, logit_rows = 0, sequences = 0;
    const auto count = [&](const Job& job, int32_t n) {
      if (n >= 0) ++sequences;
      if (n <= 0) return;
      rows += n;
      REQUIRE(job.computed + n <= job.known);
      logit_rows += job.needs_all_logits ? n : (job.computed + n == job.known ? 1 : 0);
    };
    for (size_t i = 0; i < running_.size(); ++i) count(jobs_[running_[i]], plan_.running_rows[i]);
    for (size_t i = 0; i < plan_.admitted_rows.size(); ++i) {
      REQUIRE(plan_.admitted_rows[i] != 0);
      count(jobs_[waiting_[i]], plan_.admitted_rows[i]);
    }
    REQUIRE(rows == plan_.rows);
    REQUIRE(rows <= limits_.max_batched_tokens);
    REQUIRE(logit_rows <= limits_.max_logit_rows);
    REQUIRE(sequences <= limits_.max_sequences);
  }

  void Finish(Job* job, int* when) {
    *when = step_;
    free_blocks_ += job->blocks;
    job->blocks = 0;
  }

  // Returns whether the job goes on running.
  bool Compute(Job* job, int32_t rows) {
    job->computed += rows;
    const int64_t blocks = BlocksFor(job->computed, limits_.block_tokens);
    if (blocks > job->blocks) {
      free_blocks_ -= blocks - job->blocks;
      job->blocks = blocks;
    }
    REQUIRE(free_blocks_ >= 0);
    if (job->computed < job->known) return true;
    ++job->known;
    const int64_t limit = limits_.total_blocks * limits_.block_tokens;
    if (job->known - job->prompt < job->outputs_wanted && job->known < limit) return true;
    Finish(job, &job->finished_step);
    return false;
  }

  void Apply() {
    std::vector<size_t> running, preempted;
    for (size_t i = 0; i < running_.size(); ++i) {  // first what is given back
      Job* job = &jobs_[running_[i]];
      if (plan_.running_rows[i] == kNeverFits) Finish(job, &job->failed_step);
      if (plan_.running_rows[i] != kPreempted) continue;
      free_blocks_ += job->blocks;
      job->blocks = job->computed = 0;
      preempted.push_back(running_[i]);
      ++preemptions_;
    }
    for (size_t i = 0; i < running_.size(); ++i) {
      if (plan_.running_rows[i] < 0) continue;
      if (Compute(&jobs_[running_[i]], plan_.running_rows[i])) running.push_back(running_[i]);
    }
    for (size_t i = 0; i < plan_.admitted_rows.size(); ++i) {
      Job* job = &jobs_[waiting_[i]];
      if (plan_.admitted_rows[i] == kNeverFits) {
        Finish(job, &job->failed_step);
      } else if (Compute(job, plan_.admitted_rows[i])) {
        running.push_back(waiting_[i]);
      }
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + plan_.admitted_rows.size());
    waiting_.insert(waiting_.end(), preempted.begin(), preempted.end());
    running_ = running;
  }

  BatchLimits limits_;
  int64_t free_blocks_;
  std::vector<Job> jobs_;
  std::vector<size_t> running_, waiting_;
  StepPlan plan_;
  int step_ = 0;
  int next_arrival_ = 0;
  int64_t preemptions_ = 0;
};

BatchLimits Limits(int64_t rows, int64_t sequences, int64_t blocks) {
  return {rows, sequences, sequences, 4, blocks};
}

TEST_CASE("drafts take rows, logit rows and blocks that nobody else takes") {
  const auto plan = [](const BatchLimits& limits, const std::vector<RunningSequence>& running,
                       const std::vector<WaitingSequence>& waiting, int64_t free_blocks) {
    StepPlan plan;
    PlanStep(limits, {running, waiting, free_blocks}, &plan);
    return plan;
  };
  const std::vector<RunningSequence> two = {Decodes(10, 6), Decodes(6, 3)};
  using Rows = std::vector<int32_t>;
  BatchLimits limits = {.max_batched_tokens = 32,
                        .max_sequences = 8,
                        .max_logit_rows = 16,
                        .block_tokens = 4,
                        .total_blocks = 100};
  StepPlan all = plan(limits, two, {}, 50);
  CHECK(all.running_rows == Rows{1, 1});
  CHECK(all.draft_rows == Rows{6, 3});
  CHECK(all.rows == 11);

  limits.max_logit_rows = 10;  // two are of the decodes
  CHECK(plan(limits, two, {}, 50).draft_rows == Rows{6, 2});
  limits.max_logit_rows = 16;

  // A prompt in chunks goes before them, and so does one that is admitted.
  std::vector<RunningSequence> three = two;
  three.push_back({100, 10, 3, 3});
  CHECK(plan(limits, three, {}, 50).draft_rows == Rows{0, 0, 0});
  const std::vector<WaitingSequence> waiting = {{25}};
  const StepPlan admits = plan(limits, two, waiting, 50);
  CHECK(admits.admitted_rows == Rows{25});
  CHECK(admits.draft_rows == Rows{5, 0});
  CHECK(admits.rows == 32);

  // Tokens 11 and 12 fit into the third block of the first, the others want one more each.
  CHECK(plan(limits, two, {}, 0).draft_rows == Rows{2, 2});
  CHECK(plan(limits, two, {}, 1).draft_rows == Rows{6, 2});
  // What a running prompt still needs is not theirs.
  three[2] = {40, 10, 3, 3};
  limits.max_batched_tokens = 20;
  CHECK(plan(limits, three, {}, 7).draft_rows == Rows{0, 0, 0});
  limits.max_batched_tokens = 40;
  CHECK(plan(limits, three, {}, 7).draft_rows == Rows{2, 2, 0});
  // Nobody is preempted for drafts, and none are tried where somebody is.
  const std::vector<RunningSequence> full = {Decodes(9, 6), Decodes(6, 3)};
  const std::vector<RunningSequence> grows = {{13, 12, 3, 3, false, 0, 6}, Decodes(6, 3)};
  const StepPlan preempts = plan(limits, grows, {}, 0);
  CHECK(preempts.running_rows == Rows{1, kPreempted});
  CHECK(preempts.draft_rows == Rows{0, 0});
  CHECK(plan(limits, full, {}, 0).draft_rows == Rows{3, 2});
}

TEST_CASE("drafts that stood and are computed once more do not wait behind a prompt") {
  const BatchLimits limits = {.max_batched_tokens = 32,
                              .max_sequences = 8,
                              .max_logit_rows = 16,
                              .block_tokens = 4,
                              .total_blocks = 300};
  // A prompt of the best rank, in chunks; answers behind it, of which the third had six drafts.
  const std::vector<RunningSequence> running = {
      {1000, 16, 4, 4}, Decodes(10, 0), {20, 13, 5, 5}, {20, 18, 5, 5}};
  StepPlan plan;
  PlanStep(limits, {running, {}, 50}, &plan);
  CHECK(plan.running_rows == std::vector<int32_t>{32 - 1 - 7 - 2, 1, 7, 2});
}

TEST_CASE("random loads stay within every budget, progress in each step and all end") {
  int64_t preemptions = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    BatchLimits limits = Limits(draw(1, 40), draw(1, 12), draw(1, 60));
    limits.block_tokens = draw(1, 8);
    limits.max_logit_rows = draw(1, 12);
    Replica replica(limits);
    const int jobs = draw(1, 40);
    int added = 0;
    while (added < jobs || replica.Busy()) {
      for (int burst = draw(0, 3); burst > 0 && added < jobs; --burst, ++added) {
        replica.Add({draw(0, 2), 0, draw(1, 120), draw(1, 40), draw(0, 4) == 0});
      }
      if (replica.Busy()) replica.Step();
      REQUIRE(replica.step() < 100000);
    }
    for (const Job& job : replica.jobs()) {
      const bool fits = BlocksFor(job.prompt, limits.block_tokens) <= limits.total_blocks;
      CHECK((job.finished_step > 0) == fits);
      CHECK((job.failed_step > 0) == !fits);
    }
    preemptions += replica.preemptions();
  }
  CHECK(preemptions > 100);  // the loads do exhaust pools
}

TEST_CASE("decoding streams get a row in every step while a long prompt is computed") {
  Replica replica(Limits(64, 16, 4000));
  for (int i = 0; i < 8; ++i) replica.Add({0, 0, 4, 1000});
  replica.Step();
  replica.Add({0, 0, 8192, 4});
  replica.Step();
  int steps = 0;
  while (replica.jobs()[8].known == 8192) {
    replica.Step();
    for (int i = 0; i < 8; ++i) REQUIRE(replica.last_rows()[i] == 1);
    ++steps;
  }
  CHECK(steps <= 8192 / (64 - 8) + 1);  // and the prompt gets all the rest
}

TEST_CASE(
    "nobody of equal rank overtakes and a stream of short prompts does not starve a long one") {
  Replica replica(Limits(16, 8, 40));
  for (int i = 0; i < 4; ++i) replica.Add({0, 0, 20, 20});
  replica.Add({0, 0, 150, 2});  // nearly the whole pool
  for (int i = 0; i < 400; ++i) {
    replica.Add({0, 0, 4, 3});
    replica.Step();
  }
  const Job& large = replica.jobs()[4];
  REQUIRE(large.finished_step > 0);
  CHECK(large.finished_step < 120);
  while (replica.Busy()) replica.Step();
  for (const Job& job : replica.jobs()) CHECK(job.finished_step > 0);
}

TEST_CASE("a lower priority value is admitted first, and preempted last") {
  Replica replica(Limits(32, 2, 8));
  replica.Add({5, 0, 8, 16});
  replica.Add({5, 0, 8, 16});
  replica.Add({-1, 0, 8, 16});
  replica.Step();
  REQUIRE(replica.running().size() == 2);
  CHECK(replica.running()[0] == 2);
  while (replica.Busy()) replica.Step();
  CHECK(replica.preemptions() > 0);
  CHECK(replica.jobs()[2].finished_step < replica.jobs()[0].finished_step);
  CHECK(replica.jobs()[0].finished_step < replica.jobs()[1].finished_step);
}

TEST_CASE("the last-ranked is preempted when blocks run out, and gives back what it was granted") {
  const std::vector<RunningSequence> running = {
      {9, 8, 2, 2, false}, {9, 8, 2, 2, false}, {9, 8, 2, 2, false}};
  StepPlan plan;
  PlanStep(Limits(16, 8, 6), {running, {}, 0}, &plan);
  CHECK(plan.running_rows == std::vector<int32_t>{1, 1, kPreempted});
  CHECK(plan.rows == 2);

  // The older prompt takes the row and the block already granted to the younger stream.
  const std::vector<RunningSequence> mixed = {{12, 4, 1, 1, false}, {9, 8, 2, 2, false}};
  PlanStep(Limits(16, 8, 4), {mixed, {}, 1}, &plan);
  CHECK(plan.running_rows == std::vector<int32_t>{8, kPreempted});
  CHECK(plan.rows == 8);
}

TEST_CASE("with nobody behind it, a sequence without a block stalls and keeps its blocks") {
  const std::vector<RunningSequence> running = {{6, 5, 2, 2, false}, {9, 8, 2, 2, false}};
  StepPlan plan;
  PlanStep(Limits(16, 8, 4), {running, {}, 0}, &plan);
  CHECK(plan.running_rows == std::vector<int32_t>{1, 0});
}

TEST_CASE("a sequence that can never fit is named and those behind it start") {
  const std::vector<WaitingSequence> waiting = {{100, 0, 0, false}, {4, 0, 0, false}};
  StepPlan plan;
  PlanStep(Limits(16, 8, 10), {{}, waiting, 10}, &plan);
  CHECK(plan.admitted_rows == std::vector<int32_t>{kNeverFits, 4});
  const std::vector<RunningSequence> running = {{41, 40, 10, 10, false}};
  PlanStep(Limits(16, 8, 10), {running, {}, 0}, &plan);
  CHECK(plan.running_rows == std::vector<int32_t>{kNeverFits});
}

TEST_CASE("cached blocks need no room unless they were idle, and idle ones are not counted twice") {
  StepPlan plan;
  const std::vector<WaitingSequence> held = {{17, 16, 0, false}};
  PlanStep(Limits(16, 8, 10), {{}, held, 1}, &plan);
  CHECK(plan.admitted_rows == std::vector<int32_t>{1});
  const std::vector<WaitingSequence> idle = {{17, 16, 4, false}};
  PlanStep(Limits(16, 8, 10), {{}, idle, 4}, &plan);
  CHECK(plan.admitted_rows.empty());
  PlanStep(Limits(16, 8, 10), {{}, idle, 5}, &plan);
  CHECK(plan.admitted_rows == std::vector<int32_t>{1});
}

TEST_CASE("a prompt whose every row needs logits is cut to the logit rows that are left") {
  BatchLimits limits = Limits(64, 4, 100);
  const std::vector<RunningSequence> running = {{9, 8, 3, 3, false}, {40, 0, 0, 0, true}};
  StepPlan plan;
  PlanStep(limits, {running, {}, 90}, &plan);
  CHECK(plan.running_rows == std::vector<int32_t>{1, 3});
}

TEST_CASE("a chunk that is to end somewhere leaves the step's other rows to those behind it") {
  BatchLimits limits = Limits(64, 4, 100);
  std::vector<RunningSequence> running(2);
  running[0] = {.known_tokens = 50, .chunk_rows = 24};
  running[1] = {.known_tokens = 20};
  std::vector<WaitingSequence> waiting(2);
  waiting[0] = {.known_tokens = 30, .cached_tokens = 16, .chunk_rows = 8};
  waiting[1] = {.known_tokens = 90};
  StepPlan plan;
  PlanStep(limits, {running, waiting, 90}, &plan);
  CHECK(plan.running_rows == std::vector<int32_t>{24, 20});
  CHECK(plan.admitted_rows == std::vector<int32_t>{8, 12});
}

TEST_CASE("a micro-batch has its part of the sequences and all rows of a step") {
  const BatchLimits own = LimitsOfMicroBatch(Limits(64, 10, 100), 3);
  CHECK(own.max_sequences == 4);
  CHECK(own.max_batched_tokens == 64);
  CHECK(own.total_blocks == 100);
}

TEST_CASE("admission counts what running sequences will grow to") {
  BatchLimits limits;
  limits.total_blocks = 100;
  // Four that hold 10 blocks each, and one that waits for 10; 60 are free.
  const auto admitted = [&](int64_t expected_of_running, int64_t expected_of_waiting,
                            std::vector<GrowingSequence> beside = {}) {
    std::vector<RunningSequence> running(4, {161, 160, 10, 10, false, expected_of_running});
    const std::vector<WaitingSequence> waiting = {{160, 0, 0, false, expected_of_waiting}};
    StepPlan plan;
    PlanStep(limits, {running, waiting, 60, beside}, &plan);
    return plan.admitted_rows.size() == 1;
  };
  CHECK(admitted(0, 0));
  CHECK(admitted(200, 200));
  CHECK_FALSE(admitted(16 * 24, 16 * 24));  // 5 times 24 blocks are more than 100
  // What ends soon gives its blocks back before the others need them.
  CHECK(admitted(170, 16 * 60));
  CHECK_FALSE(admitted(170, 16 * 150));
  // Those of other micro-batches grow in the same pool.
  CHECK(admitted(200, 200, {{16 * 10, 0, 16 * 40}}));
  CHECK_FALSE(admitted(200, 200, {{16 * 10, 0, 16 * 120}}));
}

TEST_CASE("with nobody running growth is no reason to wait") {
  BatchLimits limits;
  limits.total_blocks = 20;
  const std::vector<WaitingSequence> waiting = {{160, 0, 0, false, 16 * 50}};
  StepPlan plan;
  PlanStep(limits, {{}, waiting, 20}, &plan);
  CHECK(plan.admitted_rows.size() == 1);
}

TEST_CASE("an answer is expected to be as long as recent ones that were longer") {
  AnswerLengths answers;
  CHECK(answers.Expected(0, 500) == 500);  // nothing is known: what it may emit
  for (const int64_t length : {10, 20, 60}) answers.Note(length);
  CHECK(answers.Expected(0, 500) == 30);
  CHECK(answers.Expected(0, 25) == 25);
  CHECK(answers.Expected(15, 500) == 40);
  CHECK(answers.Expected(20, 500) == 60);
  CHECK(answers.Expected(100, 500) == 200);  // longer than any: as much again
  CHECK(answers.Expected(400, 500) == 500);
  CHECK(answers.Expected(500, 500) == 500);
  int64_t before = 0;
  for (int64_t emitted = 0; emitted < 300; ++emitted) {
    const int64_t now = answers.Expected(emitted, 1000);
    CHECK(now >= before);
    CHECK(now > emitted);
    before = now;
  }
  for (size_t i = 0; i < AnswerLengths::kRecent; ++i) answers.Note(7);
  CHECK(answers.Expected(0, 500) == 7);  // the old ones are forgotten
}

TEST_CASE("an answer is expected to get as long as the longer ones on average, however long") {
  AnswerLengths answers;
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 200; ++i) {
    lengths.push_back(1 + i * 7919 % (2 * AnswerLengths::kTabled));
    answers.Note(lengths.back());
  }
  for (int64_t emitted = 0; emitted < 2 * AnswerLengths::kTabled; emitted += 13) {
    int64_t sum = 0, longer = 0;
    for (const int64_t length : lengths) {
      if (length <= emitted) continue;
      sum += length;
      ++longer;
    }
    const int64_t mean = longer == 0 ? 2 * emitted : (sum + longer - 1) / longer;
    CHECK(answers.Expected(emitted, 100'000) == std::max(mean, emitted + 1));
  }
}

}  // namespace
}  // namespace tessera::scheduler
