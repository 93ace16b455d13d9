// `tessera complete`: sends one prompt over HTTP and hands on the answer as it streams.
// Thread rule: one thread; blocks until the answer is complete.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tls/client_tls.h"

namespace tessera::deploy {

struct CompleteOptions {
  std::string url = "http://127.0.0.1:8000";
  std::string prompt;
  bool chat = true;   // else the prompt is continued as it stands
  std::string model;  // empty: the served one
  std::string api_key;
  ClientTlsFiles tls;       // of https; no authority: this machine's
  int max_tokens = 0;       // 0: the server's default
  double temperature = -1;  // below 0: the server's default
  bool timings = false;     // asks who did what (Completion::timings)
  double timeout_seconds = 600;
};

// As `timings` of an answer has it.
struct CompletionTimings {
  std::string prefill_replica, decode_replica;
  double prefill_seconds = 0;
  int64_t prompt_tokens = 0;
  int64_t decode_tokens = 0;
  double decode_tokens_per_second = 0;  // 0: too few to tell
  bool moved_kv = false;                // with the five below
  int64_t kv_bytes = 0;
  double kv_seconds = 0;
  double kv_hidden_share = 0;
  std::string kv_transport, kv_codec;
};

struct Completion {
  std::string text;
  std::string finish_reason;
  std::optional<CompletionTimings> timings;  // where they were asked for
};

// `piece` gets the text as it arrives. Errors are the server's own words.
absl::StatusOr<Completion> Complete(const CompleteOptions& options,
                                    const std::function<void(const std::string&)>& piece);

}  // namespace tessera::deploy
