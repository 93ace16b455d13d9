// One running OpenAI call: starts its generations, and writes their events to its exchange, whole
// or as a stream. Thread rule: thread-safe. Keeps itself alive while it runs.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/api/front_door.h"
#include "coordinator/api/openai_request.h"
#include "coordinator/flow/generation.h"
#include "coordinator/http/http_server.h"

namespace tessera::coordinator {

class RunningCall {
 public:
  virtual ~RunningCall() = default;
  // Called about once a second: a stream that was silent for `silent_ticks` of them gets a comment
  // line, so that proxies and clients see that it lives.
  virtual void Tick(int silent_ticks) = 0;
};

// Answers the exchange in any case. Null where the call ended at once.
std::shared_ptr<RunningCall> StartOpenAiCall(OpenAiCall call, std::string request_id,
                                             std::shared_ptr<const ServedModel> model,
                                             GenerationService& service,
                                             int64_t created_unix_seconds,
                                             std::shared_ptr<HttpExchange> exchange);

// A client's name of a field, for a log line or a header: '?' for what is neither printable ASCII
// nor safe between commas.
std::string PrintableField(std::string_view name);

// A header with names of fields, where there are any: x-tessera-ignored-fields for those that are
// not known, x-tessera-not-enforced for those that ask for more than is promised.
void AddFieldNames(const char* header, const std::vector<std::string>& names, HttpHeaders& headers);

// The error answer of any endpoint.
HttpResponse ErrorResponse(const absl::Status& status, const std::string& request_id,
                           AnswerForm form = AnswerForm::kOpenAi);
void RespondError(HttpExchange& exchange, const absl::Status& status, const std::string& request_id,
                  AnswerForm form = AnswerForm::kOpenAi);

}  // namespace tessera::coordinator
