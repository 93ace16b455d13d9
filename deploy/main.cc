// The `tessera` command: up, check, status, profile, complete, models, token, plan, simulate,
// rehearse.

#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "deploy/check_command.h"
#include "deploy/cluster_client.h"
#include "deploy/complete.h"
#include "deploy/failure.h"
#include "deploy/models_command.h"
#include "deploy/plan_cli.h"
#include "deploy/profile_command.h"
#include "deploy/rehearse_command.h"
#include "deploy/simulate_command.h"
#include "deploy/token_command.h"
#include "deploy/up.h"
#include "deploy/up_flags.h"
#include "proto/api_keys.h"
#include "proto/build_version.h"
#include "proto/program_flags.h"
#include "proto/protocol.h"
#include "third_party/cli11/flag_file.h"
#include "third_party/cli11/flags.h"
#include "third_party/cli11/misspelt.h"
#include "third_party/cli11/number_check.h"
#include "third_party/grpc/log_lines.h"
#include "tls/client_flags.h"

namespace tessera::deploy {
namespace {

// "r0 (four/0, four/1)".
std::string WithWorkers(const std::string& replica, const v1::GetClusterReply& cluster) {
  for (const v1::ReplicaStatus& r : cluster.replicas()) {
    if (r.name() == replica)
      return absl::StrCat(replica, " (", absl::StrJoin(r.workers(), ", "), ")");
  }
  return replica;
}

void PrintTimings(const CompletionTimings& timings, const v1::GetClusterReply& cluster) {
  std::cout << absl::StrFormat("prefill:  %s, %d tokens in %.3f s\n",
                               WithWorkers(timings.prefill_replica, cluster), timings.prompt_tokens,
                               timings.prefill_seconds);
  if (timings.moved_kv) {
    std::cout << absl::StrFormat(
        "KV:       %d bytes over %s, %s, in %.4f s, %.0f %% of it hidden behind the prefill\n",
        timings.kv_bytes, timings.kv_transport, timings.kv_codec, timings.kv_seconds,
        100 * timings.kv_hidden_share);
  }
  std::cout << absl::StrFormat("decode:   %s, %d tokens",
                               WithWorkers(timings.decode_replica, cluster), timings.decode_tokens);
  if (timings.decode_tokens_per_second > 0)
    std::cout << absl::StrFormat(" at %.0f tokens/s", timings.decode_tokens_per_second);
  std::cout << "\n";
}

absl::Status AskOnce(const UpFlags& flags, const UpAddresses& addresses,
                     const v1::GetClusterReply& up) {
  CompleteOptions question;
  question.model = up.model();  // of several the first
  question.url = addresses.url();
  question.tls = addresses.tls;
  question.api_key = flags.options.first_key;
  question.prompt = flags.ask;
  question.chat = !flags.raw;
  question.temperature = 0;
  question.timings = true;
  std::cout << "\nquestion: " << flags.ask << "\nanswer:   " << std::flush;
  absl::StatusOr<Completion> answer =
      Complete(question, [](const std::string& piece) { std::cout << piece << std::flush; });
  std::cout << "\n";
  if (!answer.ok()) return answer.status();
  const absl::StatusOr<CoordinatorDoor> door = ReadDoor(addresses.coordinator());
  if (!door.ok()) return door.status();
  absl::StatusOr<v1::GetClusterReply> cluster = FetchCluster(*door, 5);
  if (cluster.ok() && answer->timings.has_value()) PrintTimings(*answer->timings, *cluster);
  if (flags.expect.empty() || answer->text == flags.expect) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the answer is wrong: \"", flags.expect, "\" was expected"));
}

int RunUp(const UpFlags& flags) {
  auto when_ready = [&flags](const UpAddresses& addresses, const v1::GetClusterReply& cluster) {
    std::cout << "\n" << ShowPlan(cluster);
    if (!flags.ask.empty()) {
      if (absl::Status s = AskOnce(flags, addresses, cluster); !s.ok()) return s;
    }
    // The key itself is not printed: output ends up in logs.
    std::cout
        << "\nsend the next request to " << addresses.url() << ", for example:\n"
        << "  curl " << addresses.url() << "/v1/chat/completions"
        << (flags.options.first_key.empty() ? "" : " -H \"Authorization: Bearer $API_KEY\"")
        << R"( -H 'Content-Type: application/json' \
    -d '{)"
        << (cluster.models().empty() ? "" : absl::StrCat("\"model\": \"", cluster.model(), "\", "))
        << R"("messages": [{"role": "user", "content": "What is 12 + 34?"}], "temperature": 0}')"
        << "\n(gRPC on " << addresses.grpc << ")\n";
    if (!addresses.admin_key_file.empty()) {
      std::cout << "(tessera status --coordinator " << addresses.grpc << " --admin-key-file "
                << addresses.admin_key_file << ")\n";
    }
    if (!flags.once) std::cout << "Ctrl-C stops everything\n";
    std::cout << std::flush;
    return absl::OkStatus();
  };
  const absl::Status status = Up(flags.options, flags.once, when_ready);
  return status.ok() || absl::IsCancelled(status) ? 0 : Fail(status);
}

struct StatusFlags {
  CoordinatorFlags coordinator;
  bool json = false;
};

void AddStatus(const Command& app, StatusFlags& flags) {
  const Command status =
      app.AddSubcommand("status", "Show workers, their links, replicas and throughput");
  AddCoordinatorFlags(status, flags.coordinator);
  status.AddSwitch("--json", flags.json, "Print JSON");
}

int RunStatus(const StatusFlags& flags) {
  const absl::StatusOr<CoordinatorDoor> door = ReadDoor(flags.coordinator);
  if (!door.ok()) return Fail(door.status());
  absl::StatusOr<v1::GetClusterReply> cluster = FetchCluster(*door, 5);
  if (!cluster.ok()) return Fail(cluster.status());
  std::cout << (flags.json ? ClusterJson(*cluster) : ShowCluster(*cluster));
  if (flags.json) return 0;
  const std::string suggestion = FetchSuggestion(*door, 5);
  if (!suggestion.empty()) std::cout << "\n" << suggestion << "\n";
  return 0;
}

struct CompleteFlags {
  CompleteOptions options;
  std::string api_key_file;
  bool raw = false;
};

void AddComplete(const Command& app, CompleteFlags& flags) {
  CompleteOptions& o = flags.options;
  const Command complete =
      app.AddSubcommand("complete", "Send a prompt, print the answer as it comes");
  complete.AddOption("prompt", o.prompt, "Text to send").Required();
  complete.AddOption("--url", o.url, "The server").ShowDefault();
  AddClientTlsFlags(complete, o.tls);
  complete.AddSwitch("--raw", flags.raw, "Continue the prompt without a chat template");
  complete.AddOption("--model", o.model, "Model name; default: the served one");
  complete.AddOption("--api-key", o.api_key, "Key to send");
  complete.AddOption("--api-key-file", flags.api_key_file,
                     "File with the key to send, instead of --api-key");
  complete.AddOption("--max-tokens", o.max_tokens, "Max tokens of the answer").Check(Positive());
  complete.AddOption("--temperature", o.temperature, "0: always the most likely token")
      .Check(NonNegative());
}

int RunComplete(CompleteFlags& flags) {
  flags.options.chat = !flags.raw;
  if (!flags.api_key_file.empty()) {
    absl::StatusOr<std::vector<ApiKey>> keys = ReadApiKeyFile(flags.api_key_file);
    if (!keys.ok()) return Fail(keys.status());
    flags.options.api_key = keys->front().key;
  }
  bool began = false;
  absl::StatusOr<Completion> answer = Complete(flags.options, [&began](const std::string& piece) {
    began = true;
    std::cout << piece << std::flush;
  });
  if (answer.ok() || began) std::cout << std::endl;
  return answer.ok() ? 0 : Fail(answer.status());
}

struct ModelsFlags {
  std::string model;
  bool markdown = false;
};

void AddModels(const Command& app, ModelsFlags& flags) {
  const Command models = app.AddSubcommand(
      "models", "List the models that can be served, or say what a checkpoint is");
  models.AddOption("model", flags.model, "Model folder, or a cached model's name");
  models.AddSwitch("--markdown", flags.markdown, "Print the families as a table in Markdown");
}

int RunModels(const ModelsFlags& flags) {
  if (flags.model.empty()) {
    std::cout << (flags.markdown ? ModelsMarkdown() : ListModels());
    return 0;
  }
  const absl::StatusOr<std::string> text = DescribeModel(flags.model);
  if (!text.ok()) return Fail(text.status());
  std::cout << *text;
  return 0;
}

int RunToken(const TokenFlags& flags) {
  const absl::StatusOr<std::string> text = CreateToken(flags);
  if (!text.ok()) return Fail(text.status());
  std::cout << *text;
  return 0;
}

int RunSimulate(const SimulateFlags& flags) {
  const absl::StatusOr<std::string> summary = SimulateFromFiles(flags);
  if (!summary.ok()) return Fail(summary.status());
  std::cout << *summary;
  return 0;
}

int RunRehearse(const RehearseFlags& flags) {
  const absl::StatusOr<std::string> report = Rehearse(flags);
  if (!report.ok()) return Fail(report.status());
  std::cout << *report;
  return 0;
}

// The flags that the named subcommand reads come from the environment too.
void ReadEnvironment(const Command& app, std::span<const char* const> arguments) {
  const std::vector<Command> commands = NamedCommands(app, arguments);
  for (const Command& named : commands) NameEnvironment(named);
  std::vector<std::string_view> others(std::begin(kProcessFlags), std::end(kProcessFlags));
  others.insert(others.end(), std::begin(kHandedOnFlags), std::end(kHandedOnFlags));
  others.insert(others.end(), std::begin(kHandedOnLists), std::end(kHandedOnLists));
  others.insert(others.end(), std::begin(kHandedOnSwitches), std::end(kHandedOnSwitches));
  // Variables of the other subcommands are no mistakes.
  std::vector<std::string> names;
  for (const Command& sub : app.subcommands()) {
    for (const Flag& flag : sub.flags()) {
      for (const std::string& name : flag.long_names()) names.push_back(name);
    }
  }
  others.insert(others.end(), names.begin(), names.end());
  for (const std::string& line : UnknownVariables(commands, others))
    std::cerr << "tessera: warning: " << line << "\n";
}

int Main(int argc, char** argv) {
  TakeGrpcLines();
  Program app("Tessera: large language models on whatever devices you have.", "tessera");
  app.AddVersion(std::string(BuildVersion()));
  app.RequireSubcommands(1, 1);
  UpFlags up;
  CheckFlags check;
  StatusFlags status;
  ProfileFlags profile;
  CompleteFlags complete;
  ModelsFlags models;
  TokenFlags token;
  const Command up_app = AddUp(app, up);
  AddCheck(app, check);
  AddStatus(app, status);
  AddProfile(app, profile);
  AddComplete(app, complete);
  AddModels(app, models);
  AddToken(app, token);
  PlanCli plan(app);
  SimulateFlags simulate;
  AddSimulate(app, &simulate);
  RehearseFlags rehearse;
  AddRehearse(app, &rehearse);
  const std::span<const char* const> arguments(argv + 1, argc - 1);
  if (const std::string unknown = UnknownArgument(app, arguments); !unknown.empty())
    return FailUsage(unknown);
  if (arguments.empty()) {
    const int code = FailUsage("a subcommand is needed");
    std::cerr << app.Help();
    return code;
  }
  ReadEnvironment(app, arguments);
  const absl::StatusOr<ParseOutcome> outcome = app.Parse(argc, argv);
  if (!outcome.ok()) return FailParse(NamedCommands(app, arguments).back(), outcome.status());
  if (*outcome == ParseOutcome::kPrinted) return 0;
  HideKeys(argc, argv);
  if (app.Named("check")) return RunCheck(check);
  if (app.Named("status")) return RunStatus(status);
  if (app.Named("profile")) return RunProfile(profile);
  if (app.Named("complete")) return RunComplete(complete);
  if (app.Named("models")) return RunModels(models);
  if (app.Named("token")) return RunToken(token);
  if (app.Named("plan")) return plan.Run();
  if (app.Named("simulate")) return RunSimulate(simulate);
  if (app.Named("rehearse")) return RunRehearse(rehearse);
  if (absl::Status s = FinishUp(up_app, up); !s.ok()) {
    Fail(s);
    return 2;
  }
  return RunUp(up);
}

}  // namespace
}  // namespace tessera::deploy

int main(int argc, char** argv) { return tessera::deploy::Main(argc, argv); }
