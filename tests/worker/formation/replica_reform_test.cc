// A replica that is formed again and again: what its members hold stays what it was.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "tests/temporary_folder.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/formation/made_checkpoint.h"
#include "tests/worker/formation/replica_harness.h"
#include "tests/worker/model/tiny_model.h"

namespace tessera::worker {
namespace {

// Before the first look: pools of memory and threads that libraries keep have been made by then.
constexpr int kRoundsBefore = 3;
// Pieces of the heap that are free and not given back; one formation's links alone take more.
constexpr int64_t kHeapSlackBytes = int64_t{12} << 20;

int64_t OpenFiles() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

// "Threads", "VmRSS" (KiB), ... of this process.
int64_t OfProcess(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1));
  }
  return -1;
}

// A sanitizer keeps what was freed.
bool KnowsMemory() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;
#else
  return true;
#endif
}

v1::Submit Question(uint64_t id) {
  v1::Submit submit = MakeSubmit(id, Prompt(11, 5, 90), 12);
  submit.set_ignore_eos(true);
  return submit;
}

// Some formations end idle, some in the middle of a request, some because a member is gone.
void EndSomehow(int round, PlannedReplica* replica) {
  if (round % 3 == 0) return;
  replica->Submit(Question(1000));
  if (round % 3 == 1) replica->Kill(1 + round / 3 % (replica->members() - 1));
}

}  // namespace

TEST_CASE("a replica that is formed again holds no more than before") {
  const int rounds = std::stoi(std::getenv("TESSERA_REFORMATIONS"));
  ReplicaOptions options;
  options.stages = {{1, 2}, {1, 1}, {1, 1}};
  PlannedReplica replica(GoldenFolder("llama_bf16").string(), options);
  std::vector<int32_t> tokens;
  int64_t files = 0, threads = 0, resident_bytes = 0;
  for (int round = 0; round < kRoundsBefore + rounds; ++round) {
    INFO("round " << round);
    if (round == kRoundsBefore) {
      files = OpenFiles();
      threads = OfProcess("Threads");
      resident_bytes = OfProcess("VmRSS") << 10;
    }
    replica.Submit(Question(1));
    const ChoiceEvents answer = replica.WaitAll().at({1, 0});
    REQUIRE(answer.finish == v1::FINISH_REASON_LENGTH);
    if (round == 0) tokens = answer.tokens;
    REQUIRE(answer.tokens == tokens);
    EndSomehow(round, &replica);
    replica.Reform();
  }
  CHECK(OpenFiles() == files);
  CHECK(OfProcess("Threads") == threads);
  if (KnowsMemory()) CHECK((OfProcess("VmRSS") << 10) - resident_bytes <= kHeapSlackBytes);
  for (int member = 0; member < replica.members(); ++member) CHECK(replica.loads(member) == 1);
}

// As behind a coordinator that restarted: another epoch, another session, the same shares.
TEST_CASE("a replica of experts and one of int8 weights go on with what they have loaded") {
  const struct {
    MadeModel model;
    v1::DataType weight_dtype;
  } cases[] = {{MadeModel::kExperts, v1::DATA_TYPE_FLOAT32},
               {MadeModel::kExperts, v1::DATA_TYPE_INT8},
               {MadeModel::kDense, v1::DATA_TYPE_INT8}};
  for (const auto& c : cases) {
    INFO(Name(c.model) << ", " << v1::DataType_Name(c.weight_dtype));
    const tests::TemporaryFolder folder;
    WriteMadeCheckpoint(folder.path(), c.model);
    ReplicaOptions options;
    options.stages = {{2, 2}, {3, 1}};
    options.weight_dtype = c.weight_dtype;
    PlannedReplica replica(folder.path().string(), options);
    replica.Submit(Question(1));
    const ChoiceEvents before = replica.WaitAll().at({1, 0});
    REQUIRE(before.finish == v1::FINISH_REASON_LENGTH);
    replica.Reform();
    replica.Submit(Question(1));
    CHECK(replica.WaitAll().at({1, 0}).tokens == before.tokens);
    for (int member = 0; member < replica.members(); ++member) CHECK(replica.loads(member) == 1);
  }
}

}  // namespace tessera::worker
