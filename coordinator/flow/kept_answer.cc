#include "coordinator/flow/kept_answer.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/flow/submit_message.h"

namespace tessera::coordinator {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::util::MessageDifferencer;

// Fields of Submit that differ between attempts, or by when the request came.
constexpr std::string_view kOfAttempt[] = {"submission_id", "attempt",      "output_token_ids",
                                           "first_choice",  "choice_count", "kv_target",
                                           "kv_codec",      "kv_ticket",    "queue_timeout_seconds",
                                           "request_group", "turn",         "request_id"};

// Fields of Submit under names that clients know.
constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"prompt_token_ids", "prompt or messages"},
    {"message_begin_tokens", "prompt or messages"},
    {"message_end_tokens", "prompt or messages"},
    {"grammar", "response_format, structured_outputs or tools"},
    {"thinking_budget", "thinking_token_budget"}};

std::string NameOf(const FieldDescriptor& field) {
  for (const auto& [name, known] : kNames) {
    if (field.name() == name) return std::string(known);
  }
  return field.name();
}

// Whether the fields are equal, by themselves.
bool EqualField(const v1::Submit& a, const v1::Submit& b, const FieldDescriptor* field) {
  MessageDifferencer differencer;
  return differencer.CompareWithFields(a, b, {field}, {field});
}

// The first difference between messages of one type, as clients know it; "": there is none.
std::string FirstDifference(const v1::Submit& asked, const v1::Submit& kept) {
  const auto* type = v1::Submit::descriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    const bool of_attempt = std::find(std::begin(kOfAttempt), std::end(kOfAttempt),
                                      field->name()) != std::end(kOfAttempt);
    if (of_attempt || EqualField(asked, kept, field)) continue;
    if (field->number() != v1::Submit::kSamplingFieldNumber) return NameOf(*field);
    const auto* sampling = v1::SamplingParams::descriptor();
    for (int k = 0; k < sampling->field_count(); ++k) {
      const FieldDescriptor* part = sampling->field(k);
      MessageDifferencer differencer;
      if (!differencer.CompareWithFields(asked.sampling(), kept.sampling(), {part}, {part}))
        return part->name();
    }
  }
  return "";
}

}  // namespace

absl::Status CheckResumable(const GenerationRequest& request) {
  const char* reason = nullptr;
  if (request.choice_count > 1) reason = "n: an answer of several choices";
  if (request.top_logprobs >= 0 || request.prompt_logprobs >= 0)
    reason = "logprobs: such an answer";
  if (request.final_rows) reason = "an embedding";
  if (request.group > 0) reason = "prompt: an answer to several prompts";
  if (reason == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(reason, " cannot be resumed (x-tessera-resume)"));
}

absl::Status GoOnFrom(const v1::KeptAnswer& kept, GenerationRequest& request) {
  const v1::Submit& submit = kept.submit();
  const bool other_seed =
      request.sampling.seed_given && request.sampling.seed != submit.sampling().seed();
  request.sampling.seed = submit.sampling().seed();
  std::string differs = FirstDifference(ToSubmit(request).submit(), submit);
  if (differs.empty() && other_seed) differs = "seed";
  if (!differs.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("this is not the request that ", request.answer_id, " answers: ", differs,
                     " differs; send the same body, or leave x-tessera-resume out"));
  }
  request.emitted_token_ids.assign(kept.output_token_ids().begin(), kept.output_token_ids().end());
  return absl::OkStatus();
}

}  // namespace tessera::coordinator
