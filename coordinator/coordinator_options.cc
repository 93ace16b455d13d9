#include "coordinator/coordinator_options.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/api_keys.h"
#include "proto/build_version.h"
#include "proto/data_types.h"
#include "proto/http_peer.h"
#include "proto/program_flags.h"
#include "proto/protocol.h"
#include "third_party/cli11/flag_file.h"
#include "third_party/cli11/flags.h"
#include "third_party/cli11/misspelt.h"
#include "third_party/cli11/number_check.h"

namespace tessera::coordinator {
namespace {

absl::Status CheckNames(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  if (!names.empty() && names.front().empty())
    return absl::InvalidArgumentError("--served-model-name is empty: give a name, or leave it out");
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--served-model-name ", *twice, " is given twice: each name needs one"));
}

absl::Status CheckSpeculate(const std::string& value) {
  const std::set<std::string> kinds = {"off", "auto", "ngram", "mtp"};
  const std::string draft = "draft:";
  if (kinds.contains(value) || (value.starts_with(draft) && value.size() > draft.size()))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--speculate is '", value,
      "'; it must be off, auto, ngram, mtp, or draft:PATH with the folder of a draft model"));
}

// As browsers send them in the header Origin: scheme://host[:port] and nothing behind.
absl::Status CheckOrigins(const std::vector<std::string>& origins) {
  for (const std::string& origin : origins) {
    if (origin == "*" || origin == "null") continue;
    const size_t scheme = origin.find("://");
    const bool whole = scheme != std::string::npos && scheme > 0 && origin.size() > scheme + 3 &&
                       origin.find_first_of("/?# ", scheme + 3) == std::string::npos;
    if (whole) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--allowed-origins ", origin,
        " is no origin, as browsers send it: give SCHEME://HOST or SCHEME://HOST:PORT, "
        "without a path, or *"));
  }
  return absl::OkStatus();
}

// As in a URL, without scheme, port and path.
absl::Status CheckHosts(const std::vector<std::string>& hosts) {
  for (const std::string& host : hosts) {
    if (!host.empty() && host.find_first_of("/:@ ,") == std::string::npos) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--allowed-hosts ", host,
        " is no name of a host: give the name alone, without scheme, port and path, or "
        "*.example.com, or *"));
  }
  return absl::OkStatus();
}

// Flags whose values are read on.
struct FileFlags {
  std::vector<std::string> models;
  std::string config;
  std::vector<std::string> api_keys;
  std::string api_key_file;
};

void AddOptions(const Command& app, CoordinatorOptions& o, FileFlags& files) {
  app.AddOption(
         "model,--model", files.models,
         "Model: a Hugging Face folder, or a name in the local cache, or NAME=FOLDER to call "
         "it NAME; given more than once, the model that a request names answers it")
      .OneValuePerUse();
  app.AddOption("--served-model-name", o.served_model_names,
                "Model name in the API; default: the folder's name; may be given more than once "
                "(answers report the first)")
      .OneValuePerUse();
  app.AddOption("--chat-template", o.chat_template_file,
                "File with a chat template (Jinja) to use in place of the model's own");
  app.AddOption(
      "--tool-call-parser", o.tool_call_parser,
      "Format of the model's tool calls, such as hermes, llama3_json or mistral (default: "
      "found from the chat template)");
  app.AddOption("--pooling", o.pooling,
                "What embeddings are made of: last, mean or cls, of the rows of a text's tokens "
                "(default: as the model's files for sentence-transformers say, else last)");
  app.AddOption("--host", o.host, "Address to listen on").ShowDefault();
  app.AddOption("--port", o.port, "HTTP port; 0: any free port").Range(0, 65535).ShowDefault();
  app.AddOption("--grpc-port", o.grpc_port, "gRPC port; 0: any free port")
      .Range(0, 65535)
      .ShowDefault();
  app.AddOption("--port-file", o.port_file, "File to write the listening ports to");
  app.AddOption("--tls-cert", o.tls.certificate,
                "File with the certificate that both ports show (PEM, intermediates behind it): "
                "they then speak TLS only; read again when it changes");
  app.AddOption("--tls-key", o.tls.key, "File with the key of --tls-cert (PEM, no passphrase)")
      .Needs(*app.FindFlag("--tls-cert"));
  app.AddOption("--tls-client-ca", o.tls.client_ca,
                "File with the authorities (PEM) one of which must have signed the certificate of "
                "each client and worker; keys and tokens are asked for all the same")
      .Needs(*app.FindFlag("--tls-cert"));
  app.AddOption("--api-key", files.api_keys,
                "Key that clients must send; may be given more than once");
  app.AddOption("--api-key-file", files.api_key_file,
                "File with keys that clients must send, one a line; unlike --api-key it shows them "
                "to no other user of the machine. Behind a key come name=, weight= (its part "
                "where others want one), requests-per-minute=, tokens-per-minute= and concurrent=");
  app.AddOption("--allowed-hosts", o.allowed_hosts,
                "Names under which a proxy or tunnel reaches the HTTP port on loopback, separated "
                "by commas or given more than once; *.example.com: all below it; *: any")
      .OneValuePerUse()
      .Delimiter(',');
  app.AddOption("--allowed-origins", o.allowed_origins,
                "Origins of web pages that may call the HTTP port (CORS), separated by commas or "
                "given more than once; *: any")
      .OneValuePerUse()
      .Delimiter(',');
  app.AddOption("--admin-key-file", o.admin_key_file,
                "File with the key for cluster endpoints; default on loopback: a new one in the "
                "folder of the run");
  app.AddOption("--cluster-tls", o.cluster_tls_file,
                "File with a key, its certificate and the cluster's authority (PEM), as `tessera "
                "token create` writes: workers need such a file too, and all that the cluster's "
                "processes say to each other is inside TLS; without --tls-cert the gRPC port shows "
                "this certificate, and asks for one");
  app.AddOption("--cluster-token-file", o.cluster_token_file,
                "File with the secret shared with the workers; default on loopback: a new one in "
                "the folder of the run");
  app.AddSwitch(
      "--open-loopback,!--no-open-loopback", o.open_loopback,
      "On a loopback --host, without these files, let every user of this machine register "
      "workers, see the cluster and change its plan");
  app.AddOption(
         "--plan", o.plan_files,
         "Deployment plan (JSON), of several models one each; default: one replica per worker")
      .OneValuePerUse();
  app.AddOption("--cluster", o.cluster_file,
                "Cluster description: the coordinator plans for its devices that register")
      .Excludes(*app.FindFlag("--plan"));
  app.AddOption("--workload", o.workload_file,
                "Workload to plan for: description (YAML, JSON) or trace (.csv, .jsonl); default: "
                "prompts of 1155 tokens, answers of 211")
      .Needs(*app.FindFlag("--cluster"));
  app.AddSwitch("--split,!--no-split", o.split,
                "Plan for --cluster so that every replica only prefills or only decodes; "
                "--no-split: so that every one does both; default: the better of both")
      .Needs(*app.FindFlag("--cluster"));
  app.AddOption("--prefer", o.prefer,
                "Which plan for --cluster to take: latency (the soonest answer for one user "
                "alone), balanced, throughput (the most requests); default: balanced")
      .OneOf({"latency", "balanced", "throughput"})
      .Needs(*app.FindFlag("--cluster"))
      .Excludes(*app.FindFlag("--split"));
  app.AddOption("--plan-wait", o.plan_wait_seconds,
                "Seconds to wait for workers that --cluster names before planning without them")
      .Check(NonNegative())
      .ShowDefault();
  app.AddOption("--replan-after", o.replan_after_seconds,
                "Seconds after which a lost worker is planned without, with --cluster; 0: never")
      .Check(NonNegative())
      .ShowDefault();
  app.AddOption("--replan", o.replan,
                "What changes, with --cluster, where requests are no longer those that the plan "
                "was made for: roles (of replicas, and routes; a whole plan is suggested), auto "
                "(the whole plan where that serves more), off")
      .OneOf({"off", "roles", "auto"})
      .Needs(*app.FindFlag("--cluster"))
      .ShowDefault();
  app.AddOption("--dtype", o.dtype, "Type of weights: auto, float32, float16, bfloat16")
      .OneOf(kStoredTypeNames)
      .ShowDefault();
  app.AddOption("--kv-cache-dtype", o.kv_cache_dtype,
                std::string("Type of the KV cache: ") + kKvTypesText)
      .OneOf(kKvTypeNames)
      .ShowDefault();
  app.AddOption("--quantization", o.quantization, "Quantization of weights: int8").OneOf({"int8"});
  app.AddOption("--max-model-len", o.max_model_len_tokens,
                "Max tokens of prompt and output together; 0: the model's limit")
      .Check(NonNegative())
      .ShowDefault();
  app.AddOption("--max-num-seqs", o.max_sequences,
                "Max concurrent sequences of a worker; 0: the plan's, else 64, or 256 on a GPU of "
                "16 GB or more")
      .Range(0, 65536)
      .ShowDefault();
  app.AddOption("--max-num-batched-tokens", o.max_batched_tokens,
                "Max tokens computed in one step; 0: the plan's, else 512, or 2048 on a GPU of 16 "
                "GB or more")
      .Range(0, 1 << 20)
      .ShowDefault();
  app.AddOption("--max-waiting", o.max_waiting, "Max waiting requests per worker")
      .Range(1, 1 << 20)
      .ShowDefault();
  app.AddOption(
         "--queue-timeout", o.queue_timeout_seconds,
         "Max seconds a request waits until a worker begins it; then it is answered 503 with "
         "Retry-After; 0: no limit")
      .Check(NonNegative())
      .ShowDefault();
  app.AddOption("--block-size", o.block_tokens, "Tokens per KV block").Range(1, 1024).ShowDefault();
  app.AddOption(
         "--kv-cache-memory-bytes", o.kv_cache_bytes,
         "KV pool per worker, in bytes or as 8GiB; 0: half of the memory left after the weights")
      .Size();
  app.AddSwitch("--enable-prefix-caching,!--no-enable-prefix-caching", o.prefix_cache,
                "Reuse the KV of prompt prefixes that requests share");
  app.AddOption(
         "--speculate", o.speculate,
         "Tokens that a step tries ahead; no answer depends on them: off; ngram: what followed "
         "the last 8 tokens earlier in prompt or answer; mtp: what the model's own head "
         "for further tokens predicts; draft:PATH: what a small model with the same tokens "
         "predicts; or auto: mtp, else ngram, where float32 keeps every token")
      .ShowDefault();
  app.AddOption("--speculate-tokens", o.speculate_tokens,
                "Max tokens that --speculate tries ahead of one sequence in a step")
      .Range(1, 6)
      .ShowDefault();
  app.AddOption("--max-body-memory-bytes", o.max_body_memory_bytes,
                "Memory for the bodies of all HTTP requests together, in bytes or as 256MiB; a "
                "request beyond it gets status 503")
      .Size();
  app.AddOption("--io-threads", o.io_threads, "Threads for HTTP connections")
      .Range(1, 256)
      .ShowDefault();
  app.AddOption(
         "--shutdown-timeout", o.shutdown_timeout_seconds,
         "Max seconds from SIGTERM to the end: requests are finished, and the last tenth (0.5 "
         "to 2 s) is for readers to take the errors of those that are not")
      .Check(NonNegative())
      .ShowDefault();
  app.AddOption("--progress-timeout", o.progress_timeout_seconds,
                "Seconds without a step after which a replica with requests is reported as "
                "stalled; 0: never")
      .Check(NonNegative())
      .ShowDefault();
  app.AddSwitch("--rehearsal", o.rehearsal,
                "Take emulated devices, which compute nothing, and no others; the model's folder "
                "is that of a rehearsal (tessera rehearse), and answers say so");
  app.AddOption("--ha", o.ha,
                "Store that several coordinators share, of which one leads and the others are its "
                "spares, as etcd://HOST:PORT[,HOST:PORT][/CLUSTER][?login=FILE], or inside TLS as "
                "etcds://...?ca=FILE; workers are given the addresses of all of them");
  app.AddOption("--ha-lease", o.ha_lease_seconds,
                "Seconds after which a leader that is not heard of is replaced")
      .Range(2, 3600)
      .Needs(*app.FindFlag("--ha"))
      .ShowDefault();
  app.AddOption("--otlp-endpoint", o.otlp_endpoint,
                "Collector of traces, as http://HOST:PORT (OTLP over HTTP, in JSON): each request "
                "gets spans for queue, prefill, hand-over and decode; none by default");
  app.AddOption("--log-level", o.log_level, "Min level of the lines to log")
      .OneOf({"trace", "debug", "info", "warning", "error", "off"})
      .ShowDefault();
  app.AddOption("--log-format", o.log_format,
                "Format of log lines: plain text, or one JSON object per line")
      .OneOf({"text", "json"})
      .ShowDefault();
  app.AddOption("--config", files.config, "YAML file with these flags' long names as keys");
}

// Each is FOLDER or NAME=FOLDER, where no folder has such a name.
absl::Status ReadModels(const std::vector<std::string>& given, CoordinatorOptions& options) {
  for (const std::string& text : given) {
    const size_t equals = text.find('=');
    std::error_code ignored;
    if (equals == std::string::npos || std::filesystem::exists(text, ignored)) {
      options.models.push_back({.model = text, .name = ""});
    } else {
      options.models.push_back({.model = text.substr(equals + 1), .name = text.substr(0, equals)});
    }
    const ModelFlag& model = options.models.back();
    if (!model.model.empty() && (equals != 0 || model.model == text)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--model ", text, ": FOLDER or NAME=FOLDER is expected"));
  }
  if (options.models.empty())
    return absl::InvalidArgumentError("no model is named: tessera-coordinator MODEL (see --help)");
  if (options.models.size() == 1) return absl::OkStatus();
  // What cannot be said for each of several models.
  const std::pair<const char*, bool> single[] = {
      {"--served-model-name", !options.served_model_names.empty()},
      {"--chat-template", !options.chat_template_file.empty()},
      {"--tool-call-parser", !options.tool_call_parser.empty()},
      {"--pooling", !options.pooling.empty()},
      {"--cluster", !options.cluster_file.empty()}};
  for (const auto& [flag, given_too] : single) {
    if (!given_too) continue;
    const std::string_view instead =
        flag == std::string_view("--served-model-name") ? "name each with --model NAME=FOLDER"
        : flag == std::string_view("--cluster")
            ? "plan for all with `tessera plan --model ... --model ...`, and give each plan with "
              "--plan"
            : "it would hold for all of them; write it into the folder of the one";
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " with several models: ", std::string(instead)));
  }
  return absl::OkStatus();
}

// Those of the flag or the variable, which must not be empty, and those of the file.
absl::Status ReadApiKeys(const FileFlags& flags, ParsedOptions& parsed) {
  const std::vector<std::string>& given = flags.api_keys;
  const std::string& file = flags.api_key_file;
  std::vector<ApiKey>& keys = parsed.options.keys;
  // A key that was meant to be there and is empty must not leave the door open.
  if ((given.empty() && std::getenv("TESSERA_API_KEY") != nullptr) ||
      std::find(given.begin(), given.end(), "") != given.end()) {
    return absl::InvalidArgumentError(
        "--api-key (or TESSERA_API_KEY) is empty: give a key, or leave the flag out if clients "
        "need none");
  }
  for (const std::string& key : given) keys.push_back({.key = key, .name = ""});
  if (file.empty()) return absl::OkStatus();
  absl::StatusOr<std::vector<ApiKey>> read = ReadApiKeyFile(file);
  if (!read.ok()) return read.status();
  keys.insert(keys.end(), read->begin(), read->end());
  if (std::string warning = KeyFileWarning(file); !warning.empty())
    parsed.warnings.push_back(std::move(warning));
  return absl::OkStatus();
}

absl::Status CheckHa(const CoordinatorOptions& options) {
  if (options.ha.empty()) return absl::OkStatus();
  if (options.port == 0 || options.grpc_port == 0) {
    return absl::InvalidArgumentError(
        "--ha with --port 0 or --grpc-port 0: clients and workers must know the ports of each "
        "coordinator: choose them");
  }
  if (options.cluster_token_file.empty() && !options.open_loopback) {
    return absl::InvalidArgumentError(
        "--ha without --cluster-token-file: workers know one token: give it to all coordinators, "
        "and to the workers");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ParsedOptions> ParseCoordinatorOptions(int argc, const char* const* argv) {
  ParsedOptions parsed;
  FileFlags files;
  Program app("Tessera's coordinator: HTTP and gRPC front door, tokenizer, router, membership.",
              "tessera-coordinator");
  app.AddVersion(std::string(BuildVersion()));
  AddOptions(app, parsed.options, files);
  NameEnvironment(app);
  const std::string unknown = UnknownArgument(app, {argv + 1, static_cast<size_t>(argc - 1)});
  if (!unknown.empty()) return absl::InvalidArgumentError(unknown);
  const Command apps[] = {app};
  parsed.warnings = UnknownVariables(apps, kProcessFlags);
  const absl::StatusOr<ParseOutcome> outcome = app.Parse(argc, argv);
  if (!outcome.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(outcome.status().message(), " (see --help)"));
  }
  if (*outcome == ParseOutcome::kPrinted) {
    parsed.exit_code = 0;
    return parsed;
  }
  if (!files.config.empty()) {
    if (absl::Status s = ApplyFlagFile(files.config, app); !s.ok()) return s;
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
  if (parsed.options.max_body_memory_bytes <= 0) {
    return absl::InvalidArgumentError(
        "--max-body-memory-bytes must be at least 1 byte, and fewer than 2^63");
  }
  if (parsed.options.tls.certificate.empty() != parsed.options.tls.key.empty())
    return absl::InvalidArgumentError("--tls-cert needs --tls-key, the file with its key");
  parsed.options.host = WithoutBrackets(parsed.options.host);
  if (absl::Status s = ReadApiKeys(files, parsed); !s.ok()) return s;
  if (absl::Status s = CheckNames(parsed.options.served_model_names); !s.ok()) return s;
  if (absl::Status s = CheckSpeculate(parsed.options.speculate); !s.ok()) return s;
  if (absl::Status s = CheckHosts(parsed.options.allowed_hosts); !s.ok()) return s;
  if (absl::Status s = CheckOrigins(parsed.options.allowed_origins); !s.ok()) return s;
  if (absl::Status s = ReadModels(files.models, parsed.options); !s.ok()) return s;
  if (absl::Status s = CheckHa(parsed.options); !s.ok()) return s;
  return parsed;
}

}  // namespace tessera::coordinator
