// The coordinator's flags. Names are vLLM's where the meaning is. Precedence: command line, then
// environment (TESSERA_PORT for --port), then the YAML file of --config, then the default. Thread
// rule: pure but for reading the environment and the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/api_keys.h"
#include "proto/kv_blocks.h"
#include "tls/certificates.h"

namespace tessera::coordinator {

// One model to serve: a folder or a cached Hugging Face name, and what it is called for clients;
// without a name as its folder.
struct ModelFlag {
  std::string model;
  std::string name;
};

struct CoordinatorOptions {
  std::vector<ModelFlag> models;                // at least one
  std::string model;                            // the one that is loaded now (served_model.h)
  std::vector<std::string> served_model_names;  // the first is reported; none: the folder's name
  std::string chat_template_file;               // "": the model's own
  std::string tool_call_parser;                 // format's name; "": found from the template
  std::string pooling;  // of embeddings: last, mean, cls; "": as the model's files say
  std::string host = "127.0.0.1";
  uint16_t port = 8000;       // 0: any
  uint16_t grpc_port = 8001;  // 0: any
  std::string port_file;
  CertificateFiles tls;                      // of both ports; without a certificate: plain
  std::vector<ApiKey> keys;                  // of --api-key and --api-key-file
  std::vector<std::string> allowed_hosts;    // beside this machine's names, on loopback; "*": any
  std::vector<std::string> allowed_origins;  // of browsers' pages; "*": any
  std::string admin_key_file;
  std::string cluster_token_file;
  std::string cluster_tls_file;  // tls/cluster_tls.h; empty: workers are called plainly
  bool open_loopback = false;    // on loopback, asks for neither, but for what the two files hold
  std::vector<std::string> plan_files;  // one for each model; none: another source of plans
  std::string cluster_file;             // plan at start, from the workers that register
  std::string workload_file;            // for that plan
  double plan_wait_seconds = 30;
  double replan_after_seconds = 60;  // 0: never
  std::string replan = "roles";      // what a changed workload changes: off, roles, auto
  std::optional<bool> split;   // every replica only prefills or only decodes; false: none does
  std::string prefer;          // latency, balanced, throughput; empty: balanced
  std::string dtype = "auto";  // auto, float32, float16, bfloat16
  std::string kv_cache_dtype = "auto";
  std::string quantization;          // "" or int8
  int64_t max_model_len_tokens = 0;  // 0: the model's own
  int32_t max_sequences = 0;         // 0: what the plan says, else 64, or 256 on a large GPU
  int32_t max_batched_tokens = 0;    // 0: what the plan says, else 512, or 2048 on a large GPU
  int32_t max_waiting = 4096;        // submissions queued per worker
  double queue_timeout_seconds = 0;  // 0: none
  int32_t block_tokens = kDefaultBlockTokens;
  int64_t kv_cache_bytes = 0;  // 0: a share of what the worker has left
  bool prefix_cache = true;
  std::string speculate = "off";  // off, auto, ngram, mtp or draft:PATH
  int32_t speculate_tokens = 6;   // of a sequence in one step, at most
  int io_threads = 2;
  int64_t max_body_memory_bytes = 256 << 20;  // of all requests' bodies together
  double shutdown_timeout_seconds = 30;
  double progress_timeout_seconds = 60;  // 0: no replica counts as stalled
  bool rehearsal = false;       // takes emulated devices, and no others (proto/emulated_kind.h)
  std::string ha;               // of the store that several coordinators share; empty: it is alone
  double ha_lease_seconds = 5;  // a leader that is not heard of for so long is replaced
  std::string otlp_endpoint;    // of a collector of traces; empty: there is none
  std::string log_level = "info";
  std::string log_format = "text";
};

// OK with `exit_code` >= 0: the flags asked for help or version, which has been printed.
// InvalidArgument names the flag or the file's key.
struct ParsedOptions {
  CoordinatorOptions options;
  int exit_code = -1;
  std::vector<std::string> warnings;  // for the log: variables TESSERA_... that are no flag's
};
absl::StatusOr<ParsedOptions> ParseCoordinatorOptions(int argc, const char* const* argv);

}  // namespace tessera::coordinator
