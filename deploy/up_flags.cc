#include "deploy/up_flags.h"

#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/local_workers.h"
#include "proto/program_flags.h"
#include "proto/protocol.h"
#include "third_party/cli11/flag_file.h"
#include "third_party/cli11/number_check.h"

namespace tessera::deploy {
namespace {

constexpr char kHandedOn[] =
    "Handed on to the coordinator, which says what they mean (tessera-coordinator --help)";

void AddListening(CLI::App* up, UpOptions& o) {
  up->add_option("--host", o.host, "Address to listen on")->capture_default_str();
  up->add_option("--port", o.port, "HTTP port, 0 for any free one")->capture_default_str();
  up->add_option("--grpc-port", o.grpc_port, "gRPC port, 0 for any free one")
      ->capture_default_str();
  up->add_option("--api-key", o.api_keys,
                 "Key that clients must send; may be given more than once");
  up->add_option(
      "--admin-key-file", o.admin_key_file,
      "File with the key for `tessera status`; default: none on loopback, else a new one");
  up->add_option("--cluster-token-file", o.cluster_token_file,
                 "File with the secret shared with the workers; default: as for the admin key");
}

void AddHandedOn(CLI::App* up) {
  for (const std::string_view name : kHandedOnFlags) {
    up->add_option(absl::StrCat("--", std::string(name)))
        ->type_name("")
        ->expected(1)
        ->group(kHandedOn);
  }
  for (const std::string_view name : kHandedOnLists) {
    up->add_option(absl::StrCat("--", std::string(name)))
        ->type_name("")
        ->expected(1, CLI::detail::expected_max_vector_size)
        ->allow_extra_args(false)
        ->group(kHandedOn);
  }
  for (const std::string_view name : kHandedOnSwitches) {
    const std::string text(name);
    up->add_flag(absl::StrCat("--", text, ",!--no-", text))->group(kHandedOn);
  }
}

void CollectHandedOn(CLI::App& up, std::vector<std::string>& flags) {
  auto collect = [&](std::string_view name) {
    const std::string flag = absl::StrCat("--", std::string(name));
    const CLI::Option* option = up.get_option(flag);
    if (option->count() > 0) flags.push_back(absl::StrCat(flag, "=", option->results().back()));
  };
  for (const std::string_view name : kHandedOnFlags) collect(name);
  for (const std::string_view name : kHandedOnSwitches) collect(name);
  for (const std::string_view name : kHandedOnLists) {
    const std::string flag = absl::StrCat("--", std::string(name));
    for (const std::string& value : up.get_option(flag)->results())
      flags.push_back(absl::StrCat(flag, "=", value));
  }
}

absl::Status ReadKey(const std::string& file, const char* flag, std::string& key) {
  if (file.empty()) return absl::OkStatus();
  absl::StatusOr<std::string> read = ReadTokenFile(file);
  if (!read.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": ", std::string(read.status().message())));
  }
  key = *std::move(read);
  return absl::OkStatus();
}

// The last value of a flag that is handed on; empty: it is not given.
std::string HandedOn(const UpOptions& o, std::string_view flag) {
  std::string value;
  for (const std::string& given : o.coordinator_flags) {
    if (given.starts_with(flag) && given[flag.size()] == '=') value = given.substr(flag.size() + 1);
  }
  return value;
}

// With --cluster or --plan the workers are those that the file names.
absl::Status NameWorkers(UpOptions& o) {
  const std::string cluster = HandedOn(o, "--cluster"), plan = HandedOn(o, "--plan");
  if (cluster.empty() == plan.empty()) return absl::OkStatus();  // both: the coordinator refuses
  auto named = plan.empty() ? WorkersOfCluster(cluster) : WorkersOfPlan(plan);
  if (!named.ok()) return named.status();
  o.named_workers = *std::move(named);
  const auto count = static_cast<int>(o.named_workers.size());
  if (o.workers > count) {
    return absl::InvalidArgumentError(
        absl::StrCat("--workers ", o.workers, ": ", plan.empty() ? "--cluster " : "--plan ",
                     plan.empty() ? cluster : plan, plan.empty() ? " describes " : " uses ", count,
                     " devices, and a worker that it does not name is not used"));
  }
  if (!plan.empty() && o.workers > 0 && o.workers < count) {
    return absl::InvalidArgumentError(absl::StrCat("--workers ", o.workers, ": --plan ", plan,
                                                   " needs its ", count,
                                                   " workers: leave --workers out"));
  }
  return absl::OkStatus();
}

}  // namespace

CLI::App* AddUp(CLI::App& app, UpFlags& flags) {
  UpOptions& o = flags.options;
  CLI::App* up = app.add_subcommand("up", "Start a coordinator and local workers, until Ctrl-C");
  up->add_option("model", o.model, "Model: a Hugging Face folder, or a name in the local cache");
  up->add_option("--workers", o.workers,
                 "Local CPU workers; 0: one per core, two at most, or those of --cluster or --plan")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  AddListening(up, o);
  up->add_option(
        "--cpu-isa", o.cpu_isa,
        "Kernel path: auto (the last of these that the processor has), reference, avx2, avx512, "
        "avx512_bf16 or amx")
      ->capture_default_str();
  up->add_option("--bin-dir", o.bin_dir, "Folder of tessera-coordinator and tessera-worker");
  up->add_option("--log-dir", o.log_dir, "Folder for the logs; default: a new one under /tmp");
  up->add_option("--ready-timeout", o.ready_timeout_seconds,
                 "Seconds to wait until all workers serve")
      ->check(NonNegative())
      ->capture_default_str();
  up->add_option("--shutdown-timeout", o.shutdown_timeout_seconds,
                 "Seconds to finish requests after Ctrl-C")
      ->check(NonNegative())
      ->capture_default_str();
  up->add_option("--ask", flags.ask,
                 "A question to send once everything is up; its answer is printed");
  up->add_option("--expect", flags.expect,
                 "What that answer must be; else everything stops with exit code 1")
      ->needs(up->get_option("--ask"));
  up->add_flag("--once", flags.once, "Stop when everything is up and --ask has been answered");
  up->add_option("--config", flags.config, "YAML file with these flags' long names as keys");
  AddHandedOn(up);
  return up;
}

absl::Status FinishUp(CLI::App& up, UpFlags& flags) {
  UpOptions& o = flags.options;
  if (!flags.config.empty()) {
    if (absl::Status s = ApplyFlagFile(flags.config, up); !s.ok()) return s;
  }
  if (o.model.empty()) {
    return absl::InvalidArgumentError("no model is named: tessera up MODEL (see --help)");
  }
  const char* const key = getenv("TESSERA_API_KEY");
  if ((o.api_keys.empty() && key != nullptr) ||
      std::find(o.api_keys.begin(), o.api_keys.end(), "") != o.api_keys.end()) {
    return absl::InvalidArgumentError(
        "--api-key (or TESSERA_API_KEY) is empty: give a key, or leave it out to ask for none");
  }
  if (absl::Status s = ReadKey(o.admin_key_file, "--admin-key-file", o.admin_key); !s.ok())
    return s;
  std::string token;  // read so that a file that is not there is named here, not in a log
  if (absl::Status s = ReadKey(o.cluster_token_file, "--cluster-token-file", token); !s.ok())
    return s;
  CollectHandedOn(up, o.coordinator_flags);
  if (absl::Status s = NameWorkers(o); !s.ok()) return s;
  for (const CLI::Option* option : up.get_options()) {
    if (!option->get_envname().empty()) unsetenv(option->get_envname().c_str());
  }
  // These would give all workers the same.
  for (const char* flag :
       {"listen", "advertise", "name", "port-file", "coordinator", "cpus", "memory"}) {
    unsetenv(EnvironmentName(flag).c_str());
  }
  return absl::OkStatus();
}

}  // namespace tessera::deploy
