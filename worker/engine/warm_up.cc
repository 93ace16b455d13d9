#include "worker/engine/warm_up.h"

#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::worker {

absl::Status WarmUp(EngineCore* core, const Engine::Clock& clock) {
  v1::Submit submit;
  submit.add_prompt_token_ids(0);
  submit.set_choice_count(1);
  submit.set_max_tokens(1);
  submit.set_ignore_eos(true);
  submit.set_top_logprobs(-1);
  submit.set_prompt_logprobs(-1);
  EngineCore::Events events;
  core->Submit(std::move(submit), clock(), &events);
  for (int step = 0; step < 4 && core->Busy(); ++step) core->Step(clock, &events);
  core->EndAll(absl::CancelledError("warm up is over"), &events);
  core->ResetLoad();
  if (absl::Status reason = core->Broken(); !reason.ok()) return reason;
  for (const v1::TokenEvent& event : events) {
    if (event.finish() == v1::FINISH_REASON_ERROR) {
      return absl::Status(static_cast<absl::StatusCode>(event.error_code()),
                          StrCat("the first step failed: ", event.error()));
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker
