#include "coordinator/coordinator_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "proto/build_version.h"
#include "proto/program_flags.h"
#include "proto/protocol.h"
#include "third_party/cli11/flag_file.h"
#include "third_party/cli11/misspelt.h"
#include "third_party/cli11/number_check.h"

namespace tessera::coordinator {
namespace {

void AddOptions(CLI::App& app, CoordinatorOptions& o, std::string& config) {
  app.add_option("model", o.model, "Model: a Hugging Face folder, or a name in the local cache");
  app.add_option("--served-model-name", o.served_model_names,
                 "Name that clients use, default: the folder's; may be given more than once, "
                 "answers report the first")
      ->allow_extra_args(false);
  app.add_option("--host", o.host, "Address to listen on")->capture_default_str();
  app.add_option("--port", o.port, "HTTP port, 0 for any free one")->capture_default_str();
  app.add_option("--grpc-port", o.grpc_port, "gRPC port, 0 for any free one")
      ->capture_default_str();
  app.add_option("--port-file", o.port_file, "File to write the ports of the listeners to");
  app.add_option("--api-key", o.api_keys,
                 "Key that clients must send; may be given more than once");
  app.add_option("--allowed-origins", o.allowed_origins,
                 "Origins whose pages may call the HTTP port from a browser (CORS), separated by "
                 "commas or given more than once; * for any")
      ->allow_extra_args(false)
      ->delimiter(',');
  app.add_option("--admin-key-file", o.admin_key_file, "File with the key for cluster endpoints");
  app.add_option("--cluster-token-file", o.cluster_token_file,
                 "File with the secret shared with the workers");
  app.add_option("--plan", o.plan_file, "Deployment plan (JSON); default: one replica per worker");
  app.add_option("--cluster", o.cluster_file,
                 "Description of the cluster: plan for those of its workers that register")
      ->excludes(app.get_option("--plan"));
  app.add_option(
         "--workload", o.workload_file,
         "Requests to plan for: description (YAML, JSON) or trace (.csv, .jsonl); default: prompts "
         "of 1155, answers of 211 tokens")
      ->needs(app.get_option("--cluster"));
  app.add_option("--plan-wait", o.plan_wait_seconds,
                 "Seconds to wait for workers that --cluster names before planning without them")
      ->check(NonNegative())
      ->capture_default_str();
  app.add_option("--dtype", o.dtype, "Weights: auto, float32, float16, bfloat16")
      ->check(CLI::IsMember({"auto", "float32", "float16", "bfloat16"}))
      ->capture_default_str();
  app.add_option("--kv-cache-dtype", o.kv_cache_dtype, "KV cache: auto, float32, bfloat16")
      ->check(CLI::IsMember({"auto", "float32", "bfloat16"}))
      ->capture_default_str();
  app.add_option("--quantization", o.quantization, "Weights: int8")->check(CLI::IsMember({"int8"}));
  app.add_option("--max-model-len", o.max_model_len_tokens,
                 "Max tokens of prompt and output together; 0: the model's")
      ->check(NonNegative())
      ->capture_default_str();
  app.add_option("--max-num-seqs", o.max_sequences,
                 "Max concurrent sequences of a worker; 0: the plan's, else 64")
      ->check(CLI::Range(0, 65536))
      ->capture_default_str();
  app.add_option("--max-num-batched-tokens", o.max_batched_tokens,
                 "Max rows of one step; 0: the plan's, else 512")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-waiting", o.max_waiting, "Max requests that wait at one worker")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--block-size", o.block_tokens, "Tokens per KV block")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--kv-cache-memory-bytes", o.kv_cache_bytes,
                 "KV pool per worker, in bytes or as 8GiB; 0: half of the memory left by weights")
      ->transform(CLI::AsSizeValue(true));
  app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", o.prefix_cache,
               "Reuse KV of equal prefixes");
  app.add_option("--io-threads", o.io_threads, "Threads for HTTP connections")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--shutdown-timeout", o.shutdown_timeout_seconds,
                 "Max seconds to finish requests after SIGTERM")
      ->check(NonNegative())
      ->capture_default_str();
  app.add_option("--progress-timeout", o.progress_timeout_seconds,
                 "Seconds without a step after which a replica with requests is named as stalled; "
                 "0: never")
      ->check(NonNegative())
      ->capture_default_str();
  app.add_option("--log-level", o.log_level, "Lowest level of the lines to log")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}))
      ->capture_default_str();
  app.add_option("--log-format", o.log_format, "One line for people, or one JSON object")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_option("--config", config, "YAML file with these flags' long names as keys");
}

}  // namespace

absl::StatusOr<ParsedOptions> ParseCoordinatorOptions(int argc, const char* const* argv) {
  ParsedOptions parsed;
  std::string config;
  CLI::App app("Tessera's coordinator: HTTP and gRPC front door, tokenizer, router, membership.",
               "tessera-coordinator");
  app.set_version_flag("--version", std::string(BuildVersion()));
  AddOptions(app, parsed.options, config);
  NameEnvironment(app);
  const std::string unknown = UnknownArgument(app, {argv + 1, static_cast<size_t>(argc - 1)});
  if (!unknown.empty()) return absl::InvalidArgumentError(unknown);
  CLI::App* const apps[] = {&app};
  parsed.warnings = UnknownVariables(apps, kProcessFlags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    parsed.exit_code = app.exit(asked);
    return parsed;
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(absl::StrCat(error.what(), " (see --help)"));
  }
  if (!config.empty()) {
    if (absl::Status s = ApplyFlagFile(config, app); !s.ok()) return s;
  }
  if (!parsed.options.quantization.empty() && parsed.options.dtype != "auto") {
    return absl::InvalidArgumentError(
        absl::StrCat("--quantization ", parsed.options.quantization, " and --dtype ",
                     parsed.options.dtype, " both set the type of the weights: give one of them"));
  }
  if (parsed.options.kv_cache_bytes < 0) {
    return absl::InvalidArgumentError(
        "--kv-cache-memory-bytes is too large: give fewer bytes, or 0");
  }
  // A key that was meant to be there and is empty must not leave the door open.
  const char* const key = std::getenv("TESSERA_API_KEY");
  const std::vector<std::string>& keys = parsed.options.api_keys;
  if ((keys.empty() && key != nullptr) || std::find(keys.begin(), keys.end(), "") != keys.end()) {
    return absl::InvalidArgumentError(
        "--api-key (or TESSERA_API_KEY) is empty: give a key, or leave it out to ask for none");
  }
  if (parsed.options.model.empty()) {
    return absl::InvalidArgumentError("no model is named: tessera-coordinator MODEL (see --help)");
  }
  return parsed;
}

}  // namespace tessera::coordinator
