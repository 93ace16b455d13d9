// A member of etcd as its gateway answers (JSON over HTTP), over a FakeStore.
// Thread rule: thread-safe; made and destroyed by one thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coordinator/http/http_server.h"
#include "tests/coordinator/spare/fake_store.h"

namespace tessera::coordinator {

class FakeEtcd {
 public:
  // `login`: USER:PASSWORD that it wants; empty: none. `certificates`: null: plain.
  explicit FakeEtcd(std::string login = "", CertificateWatch* certificates = nullptr);
  ~FakeEtcd() { server_->Stop(); }

  std::string address() const { return "127.0.0.1:" + std::to_string(server_->port()); }
  // Sessions that it has given end: it no longer knows them, they are of an older set of users, or
  // its gateway has lost their names.
  enum class Ended { kUnknown, kOlderUsers, kNoName };
  void EndSessions(Ended how = Ended::kUnknown) {
    ended_ = how;
    ++session_;
  }

  FakeStore store;
  std::atomic<bool> silent = false;  // takes requests, and answers none
  std::atomic<int> logins = 0;

 private:
  HttpResponse Answer(const HttpRequest& request);
  nlohmann::json Do(const std::string& path, const nlohmann::json& asked);
  std::string Session() const { return "session-" + std::to_string(session_); }

  const std::string login_;
  std::atomic<int> session_ = 0;
  std::atomic<Ended> ended_ = Ended::kUnknown;
  std::mutex mutex_;
  std::vector<std::shared_ptr<HttpExchange>> unanswered_;  // while it is silent
  std::unique_ptr<HttpServer> server_;
};

}  // namespace tessera::coordinator
