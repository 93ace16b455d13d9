// The turns of clients that share the replicas: start-time fair queueing (Goyal, Vin,
// Cheng, SIGCOMM 1996) over tokens. Each request begins, in virtual time, where the one before it
// of the same client ended, or now, if that is later: a client that was away is owed nothing, and
// one that sends much waits behind its own. What waits at a replica goes by these beginnings
// (v1::Submit.turn).
//
// A client is a user of an API key. Keys share by their weights, and the users of a key share its
// part: a token costs a client 1 / weight of its key, times the users of the key that have
// something open. A key has kMaxUsers users at most; further ones are one user.
//
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace tessera::coordinator {

inline constexpr size_t kMaxUsers = 64;

// A request's place, for what is said of it later.
struct FairTicket {
  std::string key, user;
  uint64_t turn = 0;          // at least 1; lower goes first
  double cost_per_token = 1;  // virtual
  double charged_tokens = 0;
};

class FairClock {
 public:
  // A request that is expected to take so many tokens, prompt and answer. `weight` > 0.
  FairTicket Enter(const std::string& key, const std::string& user, double weight, double tokens);
  // A replica has begun it.
  void Begin(const FairTicket& ticket);
  // It has ended, and took so many tokens: its client pays for these instead.
  void End(const FairTicket& ticket, double tokens);

  // Requests of a key, and of all, that have not ended.
  int64_t open(const std::string& key) const;
  // Keys that have some.
  size_t busy_keys() const;

 private:
  struct Client {
    double end = 0;    // virtual, of its last request
    int64_t open = 0;  // requests
  };
  struct Key {
    std::map<std::string, Client> clients;
    int64_t open = 0;
    int64_t busy_clients = 0;
  };

  void Forget(Key& key);
  void ForgetAll();

  double now_ = 0;  // virtual
  std::map<std::string, Key> keys_;
  size_t clients_ = 0;
  size_t forget_at_ = 256;
};

}  // namespace tessera::coordinator
