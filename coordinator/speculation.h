// The source of drafts that the workers' steps try: what --speculate asks for, made into terms of
// Configure.
//
// Thread rule: called once, from main.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "coordinator/coordinator_options.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "proto/worker.pb.h"

namespace tessera::coordinator {

// Sets speculation and max_draft_tokens, and in the model, which is set, the head or the draft
// model that workers are to hold. What is tried and why, in words; empty: nothing is. `tokenizer`:
// the model's, whose tokens a draft model must have. Errors name the folder, what it lacks and what
// can be used instead.
//
// auto: the model's head, or n-grams where it has none, if the model computes in float32, where a
// row has the same bits whatever else is in its step; otherwise nothing.
absl::StatusOr<std::string> ChooseSpeculation(const CoordinatorOptions& options,
                                              const std::string& folder, const Tokenizer& tokenizer,
                                              v1::ConfigureRequest* configure);

}  // namespace tessera::coordinator
