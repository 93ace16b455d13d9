#include "coordinator/fairness/asked_deadline.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace tessera::coordinator {
namespace {

constexpr double kMaxSeconds = 3600;
constexpr size_t kMaxIdBytes = 128;
constexpr int kMaxStages = 1000;

absl::Status Refused(const char* header, const std::string& value, const std::string& takes) {
  return absl::InvalidArgumentError(
      absl::StrCat(header, ": \"", value.substr(0, 64), "\" is not ", takes));
}

// What SimpleAtod takes beside digits are hexadecimal numbers, spaces and words.
std::optional<double> DecimalNumber(const std::string& text) {
  double number = 0;
  const bool decimal = text.find_first_not_of("0123456789.eE+-") == std::string::npos;
  return decimal && absl::SimpleAtod(text, &number) ? std::optional(number) : std::nullopt;
}

std::optional<double> SecondsFromNow(const std::string& text, double now_unix_seconds) {
  std::optional<double> seconds = DecimalNumber(text);
  absl::Duration duration;
  if (!seconds.has_value() && absl::ParseDuration(text, &duration))
    seconds = absl::ToDoubleSeconds(duration);
  if (seconds.has_value()) return *seconds > 0 ? seconds : std::nullopt;
  absl::Time time;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, nullptr)) return std::nullopt;
  return absl::ToDoubleSeconds(time - absl::UnixEpoch()) - now_unix_seconds;
}

}  // namespace

void AskedDeadline::ApplyTo(GenerationRequest& request) const {
  request.deadline_seconds = seconds;
  request.workflow = workflow;
  request.workflow_stages_left = stages_left;
}

absl::StatusOr<AskedDeadline> ReadDeadline(const DeadlineHeaders& headers,
                                           double now_unix_seconds) {
  AskedDeadline asked;
  if (!headers.deadline.empty()) {
    asked.seconds = SecondsFromNow(headers.deadline, now_unix_seconds);
    if (!asked.seconds.has_value() || !std::isfinite(*asked.seconds) ||
        *asked.seconds > kMaxSeconds) {
      return Refused(
          "x-request-deadline", headers.deadline,
          "a number of seconds from now, above 0 (2.5, 1500ms), or a time (RFC 3339), an "
          "hour away at most, once");
    }
  }
  const bool plain = std::all_of(headers.workflow.begin(), headers.workflow.end(),
                                 [](unsigned char c) { return absl::ascii_isgraph(c); });
  if (headers.workflow.size() > kMaxIdBytes || !plain) {
    return Refused("x-workflow-id", headers.workflow,
                   absl::StrCat("up to ", kMaxIdBytes, " printable characters without spaces"));
  }
  asked.workflow = headers.workflow;
  if (!headers.stages_left.empty() && (!absl::SimpleAtoi(headers.stages_left, &asked.stages_left) ||
                                       asked.stages_left < 1 || asked.stages_left > kMaxStages)) {
    return Refused("x-workflow-stages-left", headers.stages_left,
                   absl::StrCat("a number from 1 to ", kMaxStages));
  }
  return asked;
}

}  // namespace tessera::coordinator
