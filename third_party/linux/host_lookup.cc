#include "third_party/linux/host_lookup.h"

#include <netdb.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

struct Lookup {
  std::condition_variable ended;
  std::optional<absl::StatusOr<HostAddresses>> found;
};

absl::StatusOr<HostAddresses> Resolve(const std::string& host, int flags) {
  addrinfo wanted = {};
  wanted.ai_flags = flags;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &wanted, &list); error != 0)
    return absl::UnavailableError(StrCat("no host ", host, " is known: ", gai_strerror(error)));
  HostAddresses addresses;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    char numeric[NI_MAXHOST];
    if (getnameinfo(one->ai_addr, one->ai_addrlen, numeric, sizeof numeric, nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      addresses.emplace_back(numeric);
    }
  }
  freeaddrinfo(list);
  return addresses;
}

}  // namespace

struct HostLookups::State {
  Find find;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Lookup>> running;  // by host
};

HostLookups::HostLookups(Find find) : state_(std::make_shared<State>()) {
  state_->find = std::move(find);
}

absl::StatusOr<HostAddresses> HostLookups::LookUp(const std::string& host,
                                                  double patience_seconds) {
  std::unique_lock lock(state_->mutex);
  std::shared_ptr<Lookup>& running = state_->running[host];
  if (running == nullptr) {
    running = std::make_shared<Lookup>();
    const auto look = [state = state_, host, lookup = running] {
      absl::StatusOr<HostAddresses> found = state->find(host);
      const std::lock_guard ending(state->mutex);
      lookup->found = std::move(found);
      state->running.erase(host);
      lookup->ended.notify_all();
    };
    try {
      std::thread(look).detach();
    } catch (const std::system_error& error) {
      state_->running.erase(host);
      return absl::UnavailableError(StrCat("no thread to look ", host, " up: ", error.what()));
    }
  }
  const std::shared_ptr<Lookup> lookup = running;
  const bool ended = lookup->ended.wait_for(lock, std::chrono::duration<double>(patience_seconds),
                                            [&] { return lookup->found.has_value(); });
  if (ended) return *lookup->found;
  return absl::UnavailableError(StrCat("no name server has answered in ", patience_seconds,
                                       " s for ", host,
                                       ": give its address instead, or see /etc/resolv.conf"));
}

absl::StatusOr<HostAddresses> LookUpHost(const std::string& host, double patience_seconds) {
  if (auto numeric = Resolve(host, AI_NUMERICHOST); numeric.ok()) return numeric;
  // Never destroyed: a lookup may outlive main.
  static HostLookups& lookups =
      *new HostLookups([](const std::string& name) { return Resolve(name, 0); });
  return lookups.LookUp(host, patience_seconds);
}

}  // namespace tessera
