#include "coordinator/fairness/fair_clock.h"

#include <algorithm>

namespace tessera::coordinator {
namespace {

constexpr char kOthers[] = "\n";  // no user is called so: the users beyond kMaxUsers

}  // namespace

FairTicket FairClock::Enter(const std::string& key, const std::string& user, double weight,
                            double tokens) {
  if (clients_ > forget_at_) ForgetAll();
  Key& of = keys_[key];
  if (of.clients.size() >= kMaxUsers && !of.clients.contains(user)) Forget(of);
  const bool fits = of.clients.contains(user) || of.clients.size() < kMaxUsers;
  FairTicket ticket = {.key = key, .user = fits ? user : kOthers};
  const auto [client, added] = of.clients.try_emplace(ticket.user);
  clients_ += added;
  if (client->second.open++ == 0) ++of.busy_clients;
  ++of.open;
  const double begin = std::max(now_, client->second.end);
  ticket.turn = static_cast<uint64_t>(begin) + 1;
  ticket.cost_per_token = static_cast<double>(of.busy_clients) / weight;
  ticket.charged_tokens = tokens;
  client->second.end = begin + tokens * ticket.cost_per_token;
  return ticket;
}

void FairClock::Begin(const FairTicket& ticket) {
  now_ = std::max(now_, static_cast<double>(ticket.turn - 1));
}

void FairClock::End(const FairTicket& ticket, double tokens) {
  const auto key = keys_.find(ticket.key);
  if (key == keys_.end()) return;
  const auto client = key->second.clients.find(ticket.user);
  if (client == key->second.clients.end()) return;
  client->second.end += (tokens - ticket.charged_tokens) * ticket.cost_per_token;
  --key->second.open;
  if (--client->second.open == 0) --key->second.busy_clients;
}

int64_t FairClock::open(const std::string& key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? 0 : found->second.open;
}

size_t FairClock::busy_keys() const {
  return static_cast<size_t>(std::count_if(
      keys_.begin(), keys_.end(), [](const auto& entry) { return entry.second.open > 0; }));
}

// Clients without a request whose last one has ended in virtual time are as good as new.
void FairClock::Forget(Key& key) {
  clients_ -= std::erase_if(key.clients, [this](const auto& entry) {
    return entry.second.open == 0 && entry.second.end <= now_;
  });
}

void FairClock::ForgetAll() {
  for (auto key = keys_.begin(); key != keys_.end();) {
    Forget(key->second);
    key = key->second.clients.empty() ? keys_.erase(key) : std::next(key);
  }
  forget_at_ = 2 * clients_ + 256;
}

}  // namespace tessera::coordinator
