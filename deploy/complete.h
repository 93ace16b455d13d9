// `tessera complete`: sends one prompt over HTTP and hands on the answer as it streams.
// Thread rule: one thread; blocks until the answer is complete.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace tessera::deploy {

struct CompleteOptions {
  std::string url = "http://127.0.0.1:8000";
  std::string prompt;
  bool chat = true;   // else the prompt is continued as it stands
  std::string model;  // empty: the served one
  std::string api_key;
  int max_tokens = 0;       // 0: the server's default
  double temperature = -1;  // below 0: the server's default
  double timeout_seconds = 600;
};

struct Completion {
  std::string text;
  std::string finish_reason;
};

// `piece` gets the text as it arrives. Errors are the server's own words.
absl::StatusOr<Completion> Complete(const CompleteOptions& options,
                                    const std::function<void(const std::string&)>& piece);

}  // namespace tessera::deploy
