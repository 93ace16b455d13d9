#include "coordinator/flow/resumption.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/flow/kept_answer.h"
#include "coordinator/flow/replica_link.h"
#include "coordinator/flow/submit_message.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

constexpr double kFindSeconds = 1.5;  // less than the last words of a coordinator that ends
// Replicas that a new coordinator takes up become ready within so many seconds of each other.
constexpr double kGatherSeconds = 10;

// "cmpl-1f", "msg_1f": all ids of answers are of this form.
absl::Status CheckId(std::string_view id) {
  constexpr size_t kMinPrefix = 3, kMaxLength = 128;
  const auto in_ids = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_'; };
  const size_t mark = id.find_first_of("-_");
  const bool has_prefix = mark != std::string_view::npos && mark >= kMinPrefix;
  if (has_prefix && id.size() <= kMaxLength && std::all_of(id.begin(), id.end(), in_ids))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      "x-tessera-resume is no id of an answer: give the `id` of its stream's events");
}

// Whether `a` is the newer of two that are kept of one answer, which is what its client saw last:
// it began behind more tokens, as every later attempt does, or is the later attempt. A leader that
// was left for another one may have sent more tokens than anybody read.
bool IsNewer(const v1::KeptAnswer& a, const v1::KeptAnswer& b) {
  const auto age = [](const v1::KeptAnswer& kept) {
    return std::tuple(kept.submit().output_token_ids_size(), kept.submit().attempt(),
                      kept.output_token_ids_size());
  };
  return age(a) > age(b);
}

}  // namespace

// Those of one Resumption.
struct Resumption::Searches {
  // Shared: one of them begins or goes on. Alone: all end.
  std::shared_mutex gate;
  bool over = false;  // with gate

  std::mutex mutex;
  std::vector<std::weak_ptr<Search>> all;  // with mutex
};

// One request that looks for its answer, then runs.
class Resumption::Search final : public std::enable_shared_from_this<Search> {
 public:
  Search(std::shared_ptr<RequestFlow> flow, std::shared_ptr<Searches> searches,
         GenerationRequest request, std::shared_ptr<GenerationSink> sink)
      : flow_(std::move(flow)),
        searches_(std::move(searches)),
        request_(std::move(request)),
        sink_(std::move(sink)) {}

  // Errors: the sink hears nothing.
  absl::Status Find() {
    const std::shared_lock gate(searches_->gate);
    if (searches_->over || flow_->draining())
      return absl::UnavailableError("the server is draining: it takes no new requests");
    {
      const std::lock_guard lock(searches_->mutex);
      std::erase_if(searches_->all, [](const auto& search) { return search.expired(); });
      searches_->all.push_back(weak_from_this());
    }
    v1::FindKeptRequest wanted;
    wanted.set_request_id(request_.answer_id);
    wanted.set_owner(OwnerOf(request_.client));
    const std::vector<std::shared_ptr<ReplicaLink>> links = flow_->links();
    if (links.empty())
      return absl::UnavailableError("no replica is ready to go on with an answer yet");
    open_ = links.size();
    for (const auto& link : links) {
      const bool asked = link->FindKept(
          wanted, kFindSeconds,
          [self = shared_from_this(), replica = link->replica()](
              absl::StatusOr<v1::KeptAnswer> kept) { self->OnFound(replica, std::move(kept)); });
      if (asked) continue;
      Cancel();
      return absl::UnavailableError(
          absl::StrCat("replica ", link->replica(), " was lost this moment: try again"));
    }
    return absl::OkStatus();
  }

  void Cancel() {
    std::unique_ptr<GenerationHandle> dropped;  // cancels outside the lock
    std::shared_ptr<GenerationSink> sink;
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    std::swap(dropped, handle_);
    std::swap(sink, sink_);
  }

  // Null where it runs, or has ended: it stops looking.
  std::shared_ptr<GenerationSink> TakeSink() {
    std::lock_guard lock(mutex_);
    return std::exchange(sink_, nullptr);
  }

 private:
  void OnFound(const std::string& replica, absl::StatusOr<v1::KeptAnswer> kept) {
    {
      std::lock_guard lock(mutex_);
      if (kept.ok()) {
        if (!found_ || IsNewer(*kept, kept_)) kept_ = *std::move(kept);
        found_ = true;
      } else if (!absl::IsNotFound(kept.status())) {
        unheard_ = absl::StrCat("replica ", replica, ": ", std::string(kept.status().message()));
      }
      if (--open_ > 0) return;
    }
    const std::shared_lock gate(searches_->gate);
    if (const auto sink = TakeSink(); sink != nullptr) Run(sink);
  }

  // All have answered, so nobody else uses what they said. The sink is let go of: it holds this.
  void Run(const std::shared_ptr<GenerationSink>& sink) {
    absl::Status status = found_ ? GoOnFrom(kept_, request_) : NotFound();
    if (status.ok()) {
      Logger("coordinator")
          .info("request {} resumes {} behind {} tokens", request_.request_id, request_.answer_id,
                request_.emitted_token_ids.size());
      auto handle = flow_->Start(std::move(request_), sink);
      status = handle.status();
      if (handle.ok()) return Hold(*std::move(handle));
    }
    sink->OnEnd(status, {}, "");
  }

  void Hold(std::unique_ptr<GenerationHandle> handle) {
    std::unique_ptr<GenerationHandle> dropped;
    std::lock_guard lock(mutex_);
    if (cancelled_) {
      dropped = std::move(handle);
    } else {
      handle_ = std::move(handle);
    }
  }

  absl::Status NotFound() const {
    if (!unheard_.empty()) {
      return absl::UnavailableError(absl::StrCat("it is not known whether ", request_.answer_id,
                                                 " is kept (", unheard_, "): try again"));
    }
    if (flow_->SecondsSinceReady() < kGatherSeconds) {
      return absl::UnavailableError(absl::StrCat("no replica that is ready keeps ",
                                                 request_.answer_id,
                                                 ", and others may become ready: try again"));
    }
    return absl::NotFoundError(
        absl::StrCat("no answer ", request_.answer_id,
                     " of this API key is kept: x-tessera-resume takes the id of a stream that "
                     "ended or broke within the last minute, on a worker that still runs"));
  }

  const std::shared_ptr<RequestFlow> flow_;
  const std::shared_ptr<Searches> searches_;
  GenerationRequest request_;

  std::mutex mutex_;
  std::shared_ptr<GenerationSink> sink_;  // null once it runs or was cancelled
  size_t open_ = 0;                       // leaders that have not answered
  bool found_ = false;
  v1::KeptAnswer kept_;  // the newest
  std::string unheard_;  // why a leader did not answer; empty: all did
  bool cancelled_ = false;
  std::unique_ptr<GenerationHandle> handle_;
};

namespace {

class SearchHandle final : public GenerationHandle {
 public:
  explicit SearchHandle(std::function<void()> cancel) : cancel_(std::move(cancel)) {}
  ~SearchHandle() override { cancel_(); }
  void Cancel() override { cancel_(); }

 private:
  const std::function<void()> cancel_;
};

}  // namespace

Resumption::Resumption(std::shared_ptr<RequestFlow> flow)
    : flow_(std::move(flow)), searches_(std::make_shared<Searches>()) {}

absl::StatusOr<std::unique_ptr<GenerationHandle>> Resumption::Start(
    GenerationRequest request, std::shared_ptr<GenerationSink> sink) {
  if (!request.resumes) return flow_->Start(std::move(request), std::move(sink));
  if (absl::Status fit = CheckResumable(request); !fit.ok()) return fit;
  if (absl::Status id = CheckId(request.answer_id); !id.ok()) return id;
  auto search = std::make_shared<Search>(flow_, searches_, std::move(request), std::move(sink));
  if (absl::Status asked = search->Find(); !asked.ok()) return asked;
  return std::make_unique<SearchHandle>([search] { search->Cancel(); });
}

void Resumption::AbortAll(const absl::Status& reason) {
  std::vector<std::shared_ptr<GenerationSink>> sinks;
  {
    const std::lock_guard gate(searches_->gate);
    searches_->over = true;
    const std::lock_guard lock(searches_->mutex);
    for (const auto& search : searches_->all) {
      if (const auto open = search.lock(); open != nullptr) sinks.push_back(open->TakeSink());
    }
  }
  for (const auto& sink : sinks) {
    if (sink != nullptr) sink->OnEnd(reason, {}, "");
  }
}

}  // namespace tessera::coordinator
