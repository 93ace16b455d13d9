#include "coordinator/fairness/fair_service.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/fairness/deadline_turns.h"
#include "coordinator/fairness/fair_clock.h"
#include "coordinator/fairness/retry_after.h"

namespace tessera::coordinator {
namespace {

constexpr double kFirstAnswerTokens = 128;  // expected before any answer of a key has ended
constexpr double kNewestShare = 0.1;        // of an answer in the mean of its key's
// Turns of FairClock begin at 1; what goes before those that wait needs room below.
constexpr uint64_t kFirstTurn = uint64_t{1} << 20;
// Nobody knows how long an answer will be: for a deadline it is taken to be this many times longer
// than the mean of its key's.
constexpr double kCautiousAnswer = 2;

// A request's turn and, where it has a deadline, its place among those that have one.
struct Ticket {
  FairTicket fair;
  uint64_t turn = 0;
  std::optional<DeadlineTurns::Place> place = std::nullopt;
};

// The bookkeeping, which requests outlive the service by.
class Accounts {
 public:
  explicit Accounts(FairServiceOptions options) : options_(std::move(options)) {}

  absl::StatusOr<Ticket> Enter(const GenerationRequest& request) {
    const double now = options_.now_seconds();
    std::lock_guard lock(mutex_);
    Client& client = ClientOf(request.client, now);
    absl::Status room = CheckQueue(request.client, client);
    if (room.ok()) room = client.budget.Enter(now);
    if (!room.ok()) {
      ++client.use.refused;
      return room;
    }
    ++client.use.requests;
    ++client.use.waiting;
    const auto prompt = static_cast<double>(request.prompt_token_ids.size());
    const double answers =
        request.choice_count * std::min<double>(request.max_tokens, client.mean_answer_tokens);
    // Prompts of one request take turns with other requests as if another user sent them.
    const std::string user = request.user.empty() && request.group > 0
                                 ? absl::StrCat("\n", request.group)
                                 : request.user;
    Ticket ticket = {
        .fair = clock_.Enter(request.client, user, client.policy.weight, prompt + answers)};
    ticket.turn = ticket.fair.turn + kFirstTurn;
    const double cautious =
        std::min<double>(request.max_tokens, kCautiousAnswer * client.mean_answer_tokens);
    const double expected =
        options_.expected_seconds ? options_.expected_seconds(prompt, cautious) : 0;
    ticket.place = deadlines_.Enter(request, ticket.turn, expected, now);
    if (ticket.place.has_value()) ticket.turn = ticket.place->turn;
    return ticket;
  }

  void Begin(const Ticket& ticket) {
    std::lock_guard lock(mutex_);
    --clients_.at(ticket.fair.key).use.waiting;
    clock_.Begin(ticket.fair);
    if (ticket.place.has_value()) deadlines_.Leave(ticket.fair.key, *ticket.place);
  }

  // `began`: Begin was called. `answer_tokens` below 0: it says nothing of others' answers.
  void End(const Ticket& ticket, bool began, double tokens, double answer_tokens) {
    const double now = options_.now_seconds();
    std::lock_guard lock(mutex_);
    Client& client = clients_.at(ticket.fair.key);
    if (!began) --client.use.waiting;
    if (ticket.place.has_value()) {
      if (!began) deadlines_.Leave(ticket.fair.key, *ticket.place);
      ++client.use.with_deadline;
      client.use.late += answer_tokens < 0 || now > ticket.place->deadline_seconds ? 1 : 0;
    }
    client.use.tokens += tokens;
    if (answer_tokens >= 0)
      client.mean_answer_tokens += kNewestShare * (answer_tokens - client.mean_answer_tokens);
    client.budget.Leave(tokens, now);
    clock_.End(ticket.fair, tokens);
  }

  std::vector<std::pair<std::string, std::string>> LimitHeaders(const std::string& key) {
    const double now = options_.now_seconds();
    std::lock_guard lock(mutex_);
    return ClientOf(key, now).budget.Headers(now);
  }

  std::vector<ClientUse> uses() const {
    std::lock_guard lock(mutex_);
    std::vector<ClientUse> all;
    for (const auto& [key, client] : clients_) all.push_back(client.use);
    return all;
  }

 private:
  struct Client {
    ClientPolicy policy;
    ClientBudget budget;
    ClientUse use;
    double mean_answer_tokens = kFirstAnswerTokens;
  };

  // Keys are those of the coordinator's flags: their number is bounded.
  Client& ClientOf(const std::string& key, double now) {
    const auto found = clients_.find(key);
    if (found != clients_.end()) return found->second;
    const auto policy = options_.policies.find(key);
    const ClientPolicy of = policy == options_.policies.end() ? ClientPolicy() : policy->second;
    return clients_.emplace(key, Client{of, ClientBudget(of.limits, now), {.client = key}})
        .first->second;
  }

  absl::Status CheckQueue(const std::string& key, const Client& client) const {
    const size_t keys = clock_.busy_keys() + (clock_.open(key) == 0 ? 1 : 0);
    if (options_.policies.size() < 2) return absl::OkStatus();
    // One part stays free for a key that comes next.
    const int64_t part = options_.queue_places() / static_cast<int64_t>(keys + 1);
    if (client.use.waiting < std::max<int64_t>(1, part)) return absl::OkStatus();
    return RetryAfter(1, absl::ResourceExhaustedError(absl::StrCat(
                             client.use.waiting,
                             " requests of this API key wait already, its part of the queues")));
  }

  const FairServiceOptions options_;
  mutable std::mutex mutex_;
  FairClock clock_;
  DeadlineTurns deadlines_;
  std::map<std::string, Client> clients_;
};

// One request, from its turn to what it took.
class Account {
 public:
  Account(std::shared_ptr<Accounts> accounts, Ticket ticket, double prompt_tokens)
      : accounts_(std::move(accounts)), ticket_(std::move(ticket)), prompt_tokens_(prompt_tokens) {}
  ~Account() { End(/*usage=*/nullptr); }
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  void Count(size_t tokens) {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    if (!std::exchange(began_, true)) accounts_->Begin(ticket_);
    answer_tokens_ += static_cast<double>(tokens);
  }

  // Null: it was cut off.
  void End(const GenerationUsage* usage) {
    std::lock_guard lock(mutex_);
    if (std::exchange(ended_, true)) return;
    if (usage == nullptr) {
      accounts_->End(ticket_, began_, (began_ ? prompt_tokens_ : 0) + answer_tokens_, -1);
      return;
    }
    const auto prompt = static_cast<double>(usage->prompt_tokens - usage->cached_tokens);
    const auto answer = static_cast<double>(usage->completion_tokens);
    accounts_->End(ticket_, began_, prompt + answer, answer);
  }

 private:
  const std::shared_ptr<Accounts> accounts_;
  const Ticket ticket_;
  const double prompt_tokens_;
  std::mutex mutex_;
  bool began_ = false, ended_ = false;
  double answer_tokens_ = 0;
};

class CountingSink final : public GenerationSink {
 public:
  CountingSink(std::shared_ptr<GenerationSink> next, std::shared_ptr<Account> account)
      : next_(std::move(next)), account_(std::move(account)) {}

  void OnPromptLogprobs(std::vector<PositionChances> positions) override {
    next_->OnPromptLogprobs(std::move(positions));
  }
  void OnChoice(ChoiceEvent event) override {
    account_->Count(event.token_ids.size());
    next_->OnChoice(std::move(event));
  }
  void OnEnd(const absl::Status& status, const GenerationUsage& usage,
             const std::string& replica) override {
    account_->End(status.ok() ? &usage : nullptr);
    next_->OnEnd(status, usage, replica);
  }

 private:
  const std::shared_ptr<GenerationSink> next_;
  const std::shared_ptr<Account> account_;
};

class CountingHandle final : public GenerationHandle {
 public:
  CountingHandle(std::unique_ptr<GenerationHandle> next, std::shared_ptr<Account> account)
      : next_(std::move(next)), account_(std::move(account)) {}
  ~CountingHandle() override {
    next_.reset();
    account_->End(nullptr);
  }
  void Cancel() override {
    next_->Cancel();
    account_->End(nullptr);
  }

 private:
  std::unique_ptr<GenerationHandle> next_;
  const std::shared_ptr<Account> account_;
};

class Fair final : public FairService {
 public:
  Fair(FairServiceOptions options, GenerationService& next)
      : accounts_(std::make_shared<Accounts>(std::move(options))), next_(next) {}

  absl::StatusOr<std::unique_ptr<GenerationHandle>> Start(
      GenerationRequest request, std::shared_ptr<GenerationSink> sink) override {
    absl::StatusOr<Ticket> ticket = accounts_->Enter(request);
    if (!ticket.ok()) return ticket.status();
    request.turn = ticket->turn;
    if (ticket->place.has_value() && ticket->turn != ticket->place->late_turn) {
      request.begin_within_seconds =
          ticket->place->latest_begin_seconds - ticket->place->asked_seconds;
      request.late_turn = ticket->place->late_turn;
    }
    const auto account = std::make_shared<Account>(
        accounts_, *std::move(ticket), static_cast<double>(request.prompt_token_ids.size()));
    auto handle =
        next_.Start(std::move(request), std::make_shared<CountingSink>(std::move(sink), account));
    if (!handle.ok()) return handle.status();
    return std::make_unique<CountingHandle>(*std::move(handle), account);
  }

  std::vector<ClientUse> uses() const override { return accounts_->uses(); }
  std::vector<std::pair<std::string, std::string>> LimitHeaders(
      const std::string& client) override {
    return accounts_->LimitHeaders(client);
  }

 private:
  const std::shared_ptr<Accounts> accounts_;
  GenerationService& next_;
};

}  // namespace

std::unique_ptr<FairService> FairService::Make(FairServiceOptions options,
                                               GenerationService& next) {
  return std::make_unique<Fair>(std::move(options), next);
}

}  // namespace tessera::coordinator
