// The `tessera` command: up, status, complete, plan, simulate.

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "deploy/cluster_client.h"
#include "deploy/complete.h"
#include "deploy/plan_cli.h"
#include "deploy/simulate_command.h"
#include "deploy/up.h"
#include "proto/protocol.h"

namespace tessera::deploy {
namespace {

int Fail(const absl::Status& status) {
  std::cerr << "tessera: " << std::string(status.message()) << "\n";
  return 1;
}

struct UpFlags {
  UpOptions options;
  std::string ask;     // a question to ask once everything is up
  std::string expect;  // what its answer must be
  bool once = false;
};

void AddUp(CLI::App& app, UpFlags& flags) {
  UpOptions& o = flags.options;
  CLI::App* up = app.add_subcommand("up", "Start a coordinator and local workers, until Ctrl-C");
  up->add_option("model", o.model, "Model: a Hugging Face folder, or a name in the local cache")
      ->required();
  up->add_option("--workers", o.workers, "Local CPU workers; 0: one per core, two at most")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  up->add_option("--host", o.host, "Address to listen on")->capture_default_str();
  up->add_option("--port", o.port, "HTTP port, 0 for any free one")->capture_default_str();
  up->add_option("--grpc-port", o.grpc_port, "gRPC port, 0 for any free one")
      ->capture_default_str();
  up->add_option("--cpu-isa", o.cpu_isa, "Kernel path: auto, reference, avx2, avx512, amx")
      ->capture_default_str();
  up->add_option("--bin-dir", o.bin_dir, "Folder of tessera-coordinator and tessera-worker");
  up->add_option("--log-dir", o.log_dir, "Folder for the logs; default: a new one under /tmp");
  up->add_option("--ready-timeout", o.ready_timeout_seconds,
                 "Seconds to wait until all workers serve")
      ->capture_default_str();
  up->add_option("--shutdown-timeout", o.shutdown_timeout_seconds,
                 "Seconds to finish requests after Ctrl-C")
      ->capture_default_str();
  up->add_option("--ask", flags.ask,
                 "A question to send once everything is up; its answer is printed");
  up->add_option("--expect", flags.expect,
                 "What that answer must be; else everything stops with exit code 1")
      ->needs(up->get_option("--ask"));
  up->add_flag("--once", flags.once, "Stop when everything is up and --ask has been answered");
  up->allow_extras();
  up->footer(
      "Further flags are the coordinator's: tessera up MODEL --max-model-len 2048 "
      "(tessera-coordinator --help).");
}

absl::Status AskOnce(const UpFlags& flags, const UpAddresses& addresses) {
  CompleteOptions question;
  question.url = absl::StrCat("http://", flags.options.host, ":", addresses.http_port);
  question.prompt = flags.ask;
  question.temperature = 0;
  std::cout << "\nquestion: " << flags.ask << "\nanswer:   " << std::flush;
  absl::StatusOr<Completion> answer =
      Complete(question, [](const std::string& piece) { std::cout << piece << std::flush; });
  std::cout << "\n";
  if (!answer.ok()) return answer.status();
  absl::StatusOr<v1::GetClusterReply> cluster =
      FetchCluster(absl::StrCat(flags.options.host, ":", addresses.grpc_port), "", 5);
  if (cluster.ok()) {
    for (const v1::WorkerStatus& worker : cluster->workers()) {
      if (worker.load().generation_tokens() > 0)
        std::cout << "answered by worker " << worker.name() << "\n";
    }
  }
  if (flags.expect.empty() || answer->text == flags.expect) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the answer is wrong: \"", flags.expect, "\" was expected"));
}

int RunUp(const UpFlags& flags) {
  auto when_ready = [&flags](const UpAddresses& addresses, const v1::GetClusterReply& cluster) {
    std::cout << "\n" << ShowPlan(cluster);
    if (!flags.ask.empty()) {
      if (absl::Status s = AskOnce(flags, addresses); !s.ok()) return s;
    }
    std::cout << "\nsend the next request to http://" << flags.options.host << ":"
              << addresses.http_port << ", for example:\n  curl http://" << flags.options.host
              << ":" << addresses.http_port
              << R"(/v1/chat/completions -H 'Content-Type: application/json' \
    -d '{"messages": [{"role": "user", "content": "What is 12 + 34?"}], "temperature": 0}')"
              << "\n(gRPC on " << flags.options.host << ":" << addresses.grpc_port << ")\n";
    if (!flags.once) std::cout << "Ctrl-C stops everything\n";
    std::cout << std::flush;
    return absl::OkStatus();
  };
  const absl::Status status = Up(flags.options, flags.once, when_ready);
  return status.ok() || absl::IsCancelled(status) ? 0 : Fail(status);
}

struct StatusFlags {
  std::string coordinator = "127.0.0.1:8001";
  std::string admin_key_file;
  bool json = false;
};

void AddStatus(CLI::App& app, StatusFlags& flags) {
  CLI::App* status = app.add_subcommand("status", "Show workers, replicas and throughput");
  status->add_option("--coordinator", flags.coordinator, "Its gRPC address")->capture_default_str();
  status->add_option("--admin-key-file", flags.admin_key_file,
                     "File with the coordinator's admin key");
  status->add_flag("--json", flags.json, "For programs");
}

int RunStatus(const StatusFlags& flags) {
  std::string admin_key;
  if (!flags.admin_key_file.empty()) {
    absl::StatusOr<std::string> key = ReadTokenFile(flags.admin_key_file);
    if (!key.ok()) return Fail(key.status());
    admin_key = *key;
  }
  absl::StatusOr<v1::GetClusterReply> cluster = FetchCluster(flags.coordinator, admin_key, 5);
  if (!cluster.ok()) return Fail(cluster.status());
  std::cout << (flags.json ? ClusterJson(*cluster) : ShowCluster(*cluster));
  return 0;
}

struct CompleteFlags {
  CompleteOptions options;
  bool raw = false;
};

void AddComplete(CLI::App& app, CompleteFlags& flags) {
  CompleteOptions& o = flags.options;
  CLI::App* complete =
      app.add_subcommand("complete", "Send a prompt, print the answer as it comes");
  complete->add_option("prompt", o.prompt, "What to say")->required();
  complete->add_option("--url", o.url, "The server")->capture_default_str();
  complete->add_flag("--raw", flags.raw,
                     "Continue the prompt as it stands, without a chat template");
  complete->add_option("--model", o.model, "Model name; default: the served one");
  complete->add_option("--api-key", o.api_key, "Key to send")->envname("TESSERA_API_KEY");
  complete->add_option("--max-tokens", o.max_tokens, "Longest answer, tokens")
      ->check(CLI::PositiveNumber);
  complete->add_option("--temperature", o.temperature, "0: always the likeliest token")
      ->check(CLI::NonNegativeNumber);
}

int RunComplete(CompleteFlags& flags) {
  flags.options.chat = !flags.raw;
  absl::StatusOr<Completion> answer =
      Complete(flags.options, [](const std::string& piece) { std::cout << piece << std::flush; });
  std::cout << "\n";
  return answer.ok() ? 0 : Fail(answer.status());
}

int RunSimulate(const SimulateFlags& flags) {
  const absl::StatusOr<std::string> summary = SimulateFromFiles(flags);
  if (!summary.ok()) return Fail(summary.status());
  std::cout << *summary;
  return 0;
}

int Main(int argc, char** argv) {
  CLI::App app("Tessera: large language models on whatever devices you have.");
  app.set_version_flag("--version", std::string(kBuildVersion));
  app.require_subcommand(1);
  UpFlags up;
  StatusFlags status;
  CompleteFlags complete;
  AddUp(app, up);
  AddStatus(app, status);
  AddComplete(app, complete);
  PlanCli plan(app);
  SimulateFlags simulate;
  AddSimulate(app, &simulate);
  CLI11_PARSE(app, argc, argv);
  if (app.got_subcommand("status")) return RunStatus(status);
  if (app.got_subcommand("complete")) return RunComplete(complete);
  if (app.got_subcommand("plan")) return plan.Run();
  if (app.got_subcommand("simulate")) return RunSimulate(simulate);
  up.options.coordinator_flags = app.get_subcommand("up")->remaining();
  return RunUp(up);
}

}  // namespace
}  // namespace tessera::deploy

int main(int argc, char** argv) { return tessera::deploy::Main(argc, argv); }
