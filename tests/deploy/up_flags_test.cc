// What `tessera up` makes of a cluster description.
#include "deploy/up_flags.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "proto/cluster.pb.h"
#include "proto/document.h"
#include "tests/temporary_folder.h"

namespace tessera::deploy {
namespace {

using Catch::Contains;

// `tessera up MODEL` with these flags; they are given back in `flags`.
absl::Status Parse(std::vector<std::string> arguments, UpFlags& flags) {
  Program program("", "tessera");
  const Command up = AddUp(program, flags);
  arguments.insert(arguments.begin(), {"up", "MODEL"});
  if (const auto outcome = program.Parse(arguments); !outcome.ok()) return outcome.status();
  return FinishUp(up, flags);
}

// Two stages of a model with two layers and two heads: two ranks, then one.
constexpr char kPlan[] = R"json({
  "model": {"name": "m", "hidden": 8, "vocabulary": 10, "layers": [{"count": 2}],
            "kinds": [{"attention": {"heads": 2, "kv_heads": 2, "head_dim": 4},
                       "ffn": {"width": 16}}]},
  "replicas": [{"name": "r0", "role": "REPLICA_ROLE_BOTH", "stages": [
    {"workers": [
      {"device": "box/3", "weight_bytes": 1000, "kv_bytes": 100, "available_bytes": 5000,
       "share": {"layers": {"end": 1},
                 "kinds": [{"query_heads": {"end": 1}, "kv_heads": {"end": 1},
                            "ffn_columns": {"end": 8}}], "vocabulary_rows": {"end": 5},
                 "holds_embedding": true}},
      {"device": "box/1", "weight_bytes": 600, "kv_bytes": 200, "activation_bytes": 100,
       "share": {"layers": {"end": 1},
                 "kinds": [{"query_heads": {"begin": 1, "end": 2},
                            "kv_heads": {"begin": 1, "end": 2},
                            "ffn_columns": {"begin": 8, "end": 16}}],
                 "vocabulary_rows": {"begin": 5, "end": 10}, "holds_embedding": true}}]},
    {"workers": [
      {"device": "box/0",
       "share": {"layers": {"begin": 1, "end": 2},
                 "kinds": [{"query_heads": {"end": 2}, "kv_heads": {"end": 2},
                            "ffn_columns": {"end": 16}}],
                 "vocabulary_rows": {"end": 10}, "holds_head": true}}]}]}]
})json";

}  // namespace

TEST_CASE("workers are those of the one machine of --cluster, each with its device's memory") {
  const tests::TemporaryFolder folder;
  folder.Write("one.yaml",
               "machines: [{name: box, devices: [{kind: T4, count: 2}, {kind: own, memory: 6 MiB}, "
               "{kind: own}]}]\nkinds: [{name: own, memory: 8 MiB}]\n");
  const std::string file = folder.path() / "one.yaml";
  UpFlags flags;
  REQUIRE(Parse({"--cluster", file, "--devices", "cpu,cpu,cpu,cpu"}, flags).message() == "");
  const std::vector<LocalWorker>& workers = flags.options.named_workers;
  REQUIRE(workers.size() == 4);
  CHECK(workers[0].name == "box/0");
  CHECK(workers[3].name == "box/3");
  CHECK(workers[1].memory_bytes == 0);  // the catalogue's figure is not this card's
  CHECK(workers[2].memory_bytes == 6 << 20);
  CHECK(workers[3].memory_bytes == 8 << 20);
  UpFlags fewer;
  CHECK(Parse({"--cluster", file, "--workers", "2"}, fewer).message() == "");
  UpFlags more;
  CHECK_THAT(std::string(Parse({"--cluster", file, "--workers", "5"}, more).message()),
             Contains("--workers 5") && Contains("describes 4 devices"));
  UpFlags without;
  REQUIRE(Parse({}, without).message() == "");
  CHECK(without.options.named_workers.empty());
}

TEST_CASE("workers are those that --plan uses, each with the memory that the plan relies on") {
  const tests::TemporaryFolder folder;
  folder.Write("plan.json", kPlan);
  const std::string file = folder.path() / "plan.json";
  UpFlags flags;
  REQUIRE(Parse({"--plan", file}, flags).message() == "");
  const std::vector<LocalWorker>& workers = flags.options.named_workers;
  REQUIRE(workers.size() == 3);
  CHECK(workers[0].name == "box/3");
  CHECK(workers[0].memory_bytes == 5000);
  CHECK(workers[1].memory_bytes == 900);
  CHECK(workers[2].name == "box/0");
  CHECK(workers[2].memory_bytes == 0);
  for (const char* count : {"2", "4"}) {
    UpFlags other;
    CHECK_THAT(std::string(Parse({"--plan", file, "--workers", count}, other).message()),
               Contains("--workers " + std::string(count)) && Contains("plan.json"));
  }
}

// The program of a worker that lists these devices, as JSON.
void WriteWorker(const tests::TemporaryFolder& folder, const std::string& list) {
  folder.Write("list.json", list);
  const std::string program = folder.path() / "tessera-worker";
  folder.Write("tessera-worker", "#!/bin/sh\ncat " + (folder.path() / "list.json").string() + "\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
}

TEST_CASE("a GPU's description is served by GPUs of its kind, or refused, never by CPUs unasked") {
  const tests::TemporaryFolder folder;
  folder.Write("gpus.yaml", "machines: [{name: desk, devices: [{kind: RTX4090, count: 2}]}]\n");
  const std::string file = folder.path() / "gpus.yaml", programs = folder.path();
  WriteWorker(folder, R"({"no_devices": "there is no NVIDIA driver"})");
  UpFlags refused;
  CHECK_THAT(std::string(Parse({"--cluster", file, "--bin-dir", programs}, refused).message()),
             Contains("gpus.yaml describes 2 RTX4090; the workers of this machine are CPUs (there "
                      "is no NVIDIA driver): give --devices"));
  UpFlags asked;
  CHECK(Parse({"--cluster", file, "--devices", "cpu,cuda-emulated"}, asked).message() == "");
  UpFlags counted;
  CHECK(Parse({"--cluster", file, "--workers", "2"}, counted).message() == "");
  WriteWorker(folder, R"({"devices": [
    {"device": "cuda:0", "info": {"kind": "L4"}},
    {"device": "cuda:1", "info": {"kind": "RTX4090"}},
    {"device": "cuda:2", "info": {"kind": "RTX4090"}}]})");
  UpFlags taken;
  REQUIRE(Parse({"--cluster", file, "--bin-dir", programs}, taken).message() == "");
  REQUIRE(taken.options.devices.size() == 2);
  CHECK(taken.options.devices[0].device == "cuda:1");
  CHECK(taken.options.devices[1].device == "cuda:2");
  // A plan names kinds too.
  std::string plan = kPlan;
  for (const char* device : {"box/3", "box/1", "box/0"}) {
    const std::string key = std::string("\"device\": \"") + device + "\"";
    plan.insert(plan.find(key) + key.size(), ", \"kind\": \"RTX4090\"");
  }
  folder.Write("plan.json", plan);
  UpFlags planned;
  CHECK_THAT(
      std::string(
          Parse({"--plan", folder.path() / "plan.json", "--bin-dir", programs}, planned).message()),
      Contains("plan.json describes 3 RTX4090; this machine has cuda:0: L4; cuda:1"));
}

TEST_CASE("a description of several machines is refused with what to start instead") {
  const tests::TemporaryFolder folder;
  folder.Write("two.yaml",
               "machines:\n- {name: a, devices: [{kind: T4}]}\n- {name: b, devices: [{kind: "
               "T4}]}\n");
  folder.Write("rented.yaml", "machines: [{name: a, available: 2, devices: [{kind: T4}]}]\n");
  for (const char* name : {"two.yaml", "rented.yaml"}) {
    INFO(name);
    UpFlags flags;
    const absl::Status status = Parse({"--cluster", folder.path() / name}, flags);
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()),
               Contains("describes 2 machines") &&
                   Contains("tessera-coordinator MODEL --cluster") &&
                   Contains("tessera-worker --coordinator HOST:PORT --name MACHINE/INDEX"));
  }
  UpFlags flags;
  CHECK_THAT(std::string(Parse({"--cluster", "/nowhere.yaml"}, flags).message()),
             Contains("/nowhere.yaml"));
}

TEST_CASE("a port that cannot be is refused with its range") {
  for (const char* flag : {"--port", "--grpc-port"}) {
    UpFlags flags;
    CHECK_THAT(std::string(Parse({flag, "99999"}, flags).message()),
               Contains(flag) && Contains("0 to 65535"));
  }
}

TEST_CASE("--devices names one worker each, as many as --cluster describes") {
  const tests::TemporaryFolder folder;
  folder.Write("two.yaml", "machines: [{name: box, devices: [{kind: T4}, {kind: cpu}]}]\n");
  const std::string file = folder.path() / "two.yaml";
  UpFlags flags;
  REQUIRE(Parse({"--devices", "cuda-emulated,cpu", "--cluster", file}, flags).message() == "");
  REQUIRE(flags.options.devices.size() == 2);
  CHECK(flags.options.devices[0].device == "cuda-emulated");
  const auto refusal = [](std::vector<std::string> arguments) {
    UpFlags other;
    return std::string(Parse(std::move(arguments), other).message());
  };
  CHECK_THAT(refusal({"--devices", "cpu", "--cluster", file}),
             Contains("names 1 devices") && Contains("--cluster or --plan 2"));
  CHECK_THAT(refusal({"--devices", "cpu,cpu", "--workers", "3"}),
             Contains("--workers 3 with --devices") && Contains("leave --workers out"));
  CHECK_THAT(refusal({"--devices", "gpu"}), Contains("\"gpu\" is no device"));
  CHECK_THAT(refusal({"--devices", "all", "--bin-dir", "/nowhere"}), Contains("/nowhere"));
}

TEST_CASE("to plan without a description, the devices that start are described") {
  UpFlags flags;
  REQUIRE(Parse({"--devices", "cuda-emulated,cpu,cpu", "--split"}, flags).message() == "");
  const UpOptions& o = flags.options;
  REQUIRE(o.named_workers.size() == 3);
  CHECK(o.named_workers[0].name == "local/0");
  CHECK(o.named_workers[2].name == "local/2");
  v1::Cluster cluster;
  REQUIRE(ReadDocument(o.description, "cluster.yaml", &cluster).message() == "");
  REQUIRE(cluster.machines_size() == 1);
  CHECK(cluster.machines(0).name() == "local");
  REQUIRE(cluster.machines(0).devices_size() == 3);
  CHECK(cluster.machines(0).devices(0).kind() == "cuda-emulated");
  CHECK(cluster.machines(0).devices(2).kind() == "cpu");
  UpFlags workers;
  REQUIRE(Parse({"--workers", "2", "--no-split"}, workers).message() == "");
  CHECK(workers.options.named_workers.size() == 2);
  CHECK_FALSE(workers.options.description.empty());
  UpFlags preferred;
  REQUIRE(Parse({"--workers", "2", "--prefer", "latency"}, preferred).message() == "");
  CHECK_FALSE(preferred.options.description.empty());
  UpFlags replicas;
  REQUIRE(Parse({"--devices", "cuda-emulated,cpu"}, replicas).message() == "");
  CHECK(replicas.options.description.empty());
  UpFlags one;
  CHECK_THAT(std::string(Parse({"--devices", "cpu", "--split"}, one).message()),
             Contains("--split needs two devices") && Contains("--devices"));
}

}  // namespace tessera::deploy
