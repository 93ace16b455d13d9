// What a whole daemon serves over HTTP: `tessera up` on one device, many streams at once.
//
// Units: seconds, tokens. Thread rule: one call at a time; it starts a thread for each stream, and
// stops all that it started. Errors: programs that are not there, a daemon that is not ready in
// time (with the folder of its logs), an answer that ends early.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tessera::bench {

struct ServedOptions {
  std::string programs;  // folder of tessera, tessera-coordinator and tessera-worker
  std::string model;     // Hugging Face folder
  std::string device;    // as `tessera up --devices` takes it
  std::string logs;      // folder
  int streams = 64;
  int64_t prompt_tokens = 1024;
  int64_t output_tokens = 256;
  double ready_seconds = 300;  // the longest until it serves
};

struct ServedRates {
  double ready_seconds = 0;        // from the start of the processes
  double load_gb_per_second = 0;   // of weights, as the worker's log says; 0: it does not
  double tokens_per_second = 0;    // while every stream was decoding
  double first_token_seconds = 0;  // median
  double seconds_per_token = 0;    // median gap between the tokens of a stream
};

absl::StatusOr<ServedRates> MeasureServed(const ServedOptions& options);

}  // namespace tessera::bench
