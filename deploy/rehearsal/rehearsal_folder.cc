#include "deploy/rehearsal/rehearsal_folder.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "proto/emulated_kind.h"
#include "proto/json_message.h"
#include "proto/written_file.h"
#include "third_party/absl/str_cat.h"

namespace tessera::deploy {
namespace {

constexpr double kUnknownLinkBytesPerSecond = 25e9 / 8;

// UTF-8 of a character below U+0800.
std::string Utf8(int character) {
  if (character < 0x80) return {static_cast<char>(character)};
  return {static_cast<char>(0xC0 | character >> 6), static_cast<char>(0x80 | (character & 0x3F))};
}

// How byte-level tokenizers spell a byte: printable ones as themselves, others from U+0100 on.
std::string SpellingOf(int byte, int* unprintable) {
  const bool itself =
      (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
  return Utf8(itself ? byte : 256 + (*unprintable)++);
}

// Byte-level BPE without merges: text becomes bytes, tokens behind these are words.
std::string TokenizerJson(int64_t tokens) {
  nlohmann::json vocabulary = nlohmann::json::object();
  int unprintable = 0;
  for (int byte = 0; byte < 256 && byte < tokens; ++byte)
    vocabulary[SpellingOf(byte, &unprintable)] = byte;
  for (int64_t id = 256; id < tokens; ++id) vocabulary[StrCat("\u0120word", id)] = id;
  const nlohmann::json bytes = {{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", true}};
  return nlohmann::json({{"version", "1.0"},
                         {"added_tokens", nlohmann::json::array()},
                         {"normalizer", nullptr},
                         {"pre_tokenizer", bytes},
                         {"post_processor", nullptr},
                         {"decoder", bytes},
                         {"model",
                          {{"type", "BPE"},
                           {"vocab", std::move(vocabulary)},
                           {"merges", nlohmann::json::array()}}}})
      .dump();
}

constexpr const char* kTokenizerConfig = R"({"chat_template":
"{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"}
)";

}  // namespace

int64_t RehearsedTokens(const v1::Model& model) {
  return std::min<int64_t>(kRehearsedTokens, model.vocabulary());
}

absl::Status WriteRehearsalFolder(const std::string& folder, const v1::DeploymentPlan& plan,
                                  const v1::Cluster& cluster) {
  const auto file = [&](std::string_view name) { return StrCat(folder, "/", name); };
  absl::Status status = WriteJsonMessage(file(kRehearsedPlanFile), plan);
  status.Update(WriteJsonMessage(file(kRehearsedModelFile), plan.model()));
  status.Update(WriteJsonMessage(file(kRehearsedClusterFile), cluster));
  status.Update(
      WriteFileText(file("tokenizer.json"), TokenizerJson(RehearsedTokens(plan.model()))));
  status.Update(WriteFileText(file("tokenizer_config.json"), kTokenizerConfig));
  return status;
}

std::string MachineOf(const std::string& device) { return device.substr(0, device.rfind('/')); }

int IndexOf(const std::string& device) {
  return static_cast<int>(std::strtol(device.c_str() + device.rfind('/') + 1, nullptr, 10));
}

v1::Cluster ClusterOfPlan(const v1::DeploymentPlan& plan) {
  std::map<std::string, std::map<int, std::string>> machines;  // kinds by index
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers())
        machines[MachineOf(worker.device())][IndexOf(worker.device())] = worker.kind();
    }
  }
  v1::Cluster cluster;
  for (const auto& [name, devices] : machines) {
    v1::Machine& machine = *cluster.add_machines();
    machine.set_name(name);
    // Devices before one that the plan uses are of its kind: nothing depends on what they are.
    int next = 0;
    for (const auto& [index, kind] : devices) {
      v1::DeviceGroup& group = *machine.add_devices();
      group.set_kind(kind);
      group.set_count(index + 1 - next);
      next = index + 1;
    }
  }
  if (machines.size() < 2) return cluster;
  cluster.mutable_tiers()->mutable_site()->set_bandwidth_bytes_per_second(
      kUnknownLinkBytesPerSecond);
  for (const v1::LinkLoad& load : plan.links()) {
    if (!machines.contains(load.from()) || !machines.contains(load.to())) continue;
    v1::PairLink& pair = *cluster.add_links();
    pair.set_from(load.from());
    pair.set_to(load.to());
    pair.set_one_way(true);
    pair.mutable_link()->set_bandwidth_bytes_per_second(load.capacity_bytes_per_second());
  }
  return cluster;
}

}  // namespace tessera::deploy
