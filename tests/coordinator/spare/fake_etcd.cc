#include "tests/coordinator/spare/fake_etcd.h"

#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::json;

std::string Bytes(const Json& object, const char* field) {
  std::string bytes;
  if (!absl::Base64Unescape(object.at(field).get<std::string>(), &bytes)) std::abort();
  return bytes;
}

Json Pairs(const std::map<std::string, StoredValue>& values) {
  Json pairs = Json::array();
  for (const auto& [key, value] : values) {
    Json pair = {{"key", absl::Base64Escape(key)},
                 {"value", absl::Base64Escape(value.value)},
                 {"create_revision", std::to_string(value.created)}};
    if (!value.lease.empty()) pair["lease"] = value.lease;
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

}  // namespace

FakeEtcd::FakeEtcd(std::string login, CertificateWatch* certificates) : login_(std::move(login)) {
  HttpServerOptions options;
  options.certificates = certificates;
  auto started = HttpServer::Start(options, [this](std::shared_ptr<HttpExchange> exchange) {
    if (!silent) return exchange->Respond(Answer(exchange->request()));
    const std::lock_guard lock(mutex_);
    unanswered_.push_back(std::move(exchange));
  });
  if (!started.ok()) std::abort();
  server_ = *std::move(started);
}

HttpResponse FakeEtcd::Answer(const HttpRequest& request) {
  HttpResponse response;
  const Json asked = Json::parse(request.body);
  if (request.path == "/v3/auth/authenticate") {
    ++logins;
    const std::string login =
        asked.at("name").get<std::string>() + ":" + asked.at("password").get<std::string>();
    response.body = Json{{"token", Session()}}.dump();
    if (login == login_) return response;
    response.status = 400;
    response.body = R"({"error":"etcdserver: authentication failed","code":3})";
    return response;
  }
  if (!login_.empty() && request.authorization != Session()) {
    const Ended how = request.authorization.empty() ? Ended::kNoName : ended_.load();
    response.status = how == Ended::kUnknown ? 401 : 400;
    switch (how) {
      case Ended::kUnknown:
        response.body = R"({"error":"etcdserver: invalid auth token","code":16})";
        break;
      case Ended::kOlderUsers:
        response.body = R"({"error":"etcdserver: revision of auth store is old","code":3})";
        break;
      case Ended::kNoName:
        response.body = R"({"error":"etcdserver: user name is empty","code":3})";
        break;
    }
    return response;
  }
  const Json reply = Do(request.path, asked);
  response.status = reply.is_null() ? 503 : 200;
  response.body = reply.is_null() ? R"({"error":"etcdserver: no leader"})" : reply.dump();
  return response;
}

// Null where the store is down.
Json FakeEtcd::Do(const std::string& path, const Json& asked) {
  if (path == "/v3/lease/grant") {
    const auto lease = store.Grant(std::atof(asked.at("TTL").get<std::string>().c_str()));
    if (!lease.ok()) return nullptr;
    return {{"ID", lease->id}, {"TTL", std::to_string(static_cast<int64_t>(lease->seconds))}};
  }
  if (path == "/v3/lease/keepalive") {
    const auto lives = store.Renew(asked.at("ID"));
    if (!lives.ok()) return nullptr;
    return {{"result", {{"TTL", *lives ? "5" : "0"}}}};
  }
  if (path == "/v3/lease/revoke")
    return store.Revoke(asked.at("ID")).ok() ? Json::object() : Json(nullptr);
  if (path == "/v3/kv/range") {
    const auto found = store.Read(Bytes(asked, "key"));
    if (!found.ok()) return nullptr;
    return {{"header", {{"revision", std::to_string(store.revision())}}}, {"kvs", Pairs(*found)}};
  }
  if (path != "/v3/kv/txn") std::abort();
  const Json &guard = asked.at("compare").at(0), &change = asked.at("success").at(0);
  const uint64_t created =
      std::strtoull(guard.at("create_revision").get<std::string>().c_str(), nullptr, 10);
  if (created == 0) {
    const Json& put = change.at("request_put");
    const auto made = store.Create(Bytes(put, "key"), Bytes(put, "value"), put.at("lease"));
    if (!made.ok()) return nullptr;
    return {{"header", {{"revision", std::to_string(*made)}}}, {"succeeded", *made != 0}};
  }
  std::optional<std::string> value;
  if (change.contains("request_put")) value = Bytes(change.at("request_put"), "value");
  const char* what = value.has_value() ? "request_put" : "request_delete_range";
  const auto written =
      store.WriteWhile(Bytes(guard, "key"), created, Bytes(change.at(what), "key"), value);
  if (!written.ok()) return nullptr;
  return {{"header", {{"revision", "1"}}}, {"succeeded", *written}};
}

}  // namespace tessera::coordinator
