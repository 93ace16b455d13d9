#include "coordinator/spare/etcd_store.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::json;

// Bytes are in base64, and numbers of 64 bits are strings.
std::string Encoded(const std::string& bytes) { return absl::Base64Escape(bytes); }

// What is not there, or of another type, is empty.
std::string Text(const Json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string Decoded(const Json& object, const char* field) {
  std::string bytes;
  return absl::Base64Unescape(Text(object, field), &bytes) ? bytes : std::string();
}

Json Object(const Json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_object() ? *found : Json::object();
}

bool Succeeded(const Json& reply) {
  const auto found = reply.find("succeeded");
  return found != reply.end() && *found == true;
}

uint64_t Number(const Json& object, const char* field) {
  const std::string text = Text(object, field);
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// The first key that does not begin with `prefix`, whose last byte is below 0xff.
std::string Behind(std::string prefix) {
  ++prefix.back();
  return prefix;
}

class EtcdStore final : public LeaderStore {
 public:
  EtcdStore(std::vector<HttpPeer> members, double patience_seconds)
      : members_(std::move(members)),
        patience_(static_cast<int64_t>(std::lround(1e3 * patience_seconds))) {}

  absl::StatusOr<Lease> Grant(double seconds) override {
    const auto whole = static_cast<int64_t>(std::ceil(seconds));
    auto reply = Call("/v3/lease/grant", {{"TTL", std::to_string(whole)}});
    if (!reply.ok()) return reply.status();
    Lease lease{Text(*reply, "ID"), static_cast<double>(Number(*reply, "TTL"))};
    if (lease.id.empty() || lease.seconds <= 0) return Strange("a lease");
    return lease;
  }

  absl::StatusOr<bool> Renew(const std::string& lease) override {
    auto reply = Call("/v3/lease/keepalive", {{"ID", lease}});
    if (!reply.ok()) return reply.status();
    if (!reply->contains("result")) return Strange("a lease");
    return Number(Object(*reply, "result"), "TTL") > 0;
  }

  absl::Status Revoke(const std::string& lease) override {
    const absl::Status revoked = Call("/v3/lease/revoke", {{"ID", lease}}).status();
    return absl::IsNotFound(revoked) ? absl::OkStatus() : revoked;
  }

  absl::StatusOr<std::map<std::string, StoredValue>> Read(const std::string& prefix) override {
    auto reply =
        Call("/v3/kv/range", {{"key", Encoded(prefix)}, {"range_end", Encoded(Behind(prefix))}});
    if (!reply.ok()) return reply.status();
    std::map<std::string, StoredValue> found;
    const auto kvs = reply->find("kvs");
    if (kvs == reply->end() || !kvs->is_array()) return found;
    for (const Json& kv : *kvs) {
      if (!kv.is_object()) continue;
      found[Decoded(kv, "key")] = {Decoded(kv, "value"), Number(kv, "create_revision"),
                                   Text(kv, "lease")};
    }
    return found;
  }

  absl::StatusOr<uint64_t> Create(const std::string& key, const std::string& value,
                                  const std::string& lease) override {
    const Json put = {{"key", Encoded(key)}, {"value", Encoded(value)}, {"lease", lease}};
    auto reply = Transact(key, 0, {{"request_put", put}});
    if (!reply.ok()) return reply.status();
    if (!Succeeded(*reply)) return uint64_t{0};
    return Number(Object(*reply, "header"), "revision");
  }

  absl::StatusOr<bool> WriteWhile(const std::string& guard, uint64_t created,
                                  const std::string& key,
                                  const std::optional<std::string>& value) override {
    Json change = {{"request_delete_range", {{"key", Encoded(key)}}}};
    if (value.has_value())
      change = {{"request_put", {{"key", Encoded(key)}, {"value", Encoded(*value)}}}};
    auto reply = Transact(guard, created, change);
    if (!reply.ok()) return reply.status();
    return Succeeded(*reply);
  }

 private:
  // `change`, if `guard` was created at `created` (0: it is not there).
  absl::StatusOr<Json> Transact(const std::string& guard, uint64_t created, const Json& change) {
    const Json created_then = {{"key", Encoded(guard)},
                               {"target", "CREATE"},
                               {"result", "EQUAL"},
                               {"create_revision", std::to_string(created)}};
    return Call("/v3/kv/txn",
                {{"compare", Json::array({created_then})}, {"success", Json::array({change})}});
  }

  absl::StatusOr<Json> Call(const std::string& path, const Json& request) {
    const std::string body = request.dump();
    absl::Status failed;
    for (size_t tried = 0; tried < members_.size(); ++tried) {
      const HttpPeer& member = members_[first_];
      const absl::StatusOr<HttpAnswer> answer = PostJson(member, path, body, patience_);
      if (answer.ok() && answer->status < 500) return Parsed(*answer);
      failed = absl::UnavailableError(
          StrCat("etcd at ", member.authority, ": ",
                 answer.ok() ? StrCat("status ", answer->status, " ", answer->body)
                             : std::string(answer.status().message())));
      first_ = (first_ + 1) % members_.size();
    }
    return failed;
  }

  absl::StatusOr<Json> Parsed(const HttpAnswer& answer) const {
    Json reply = Json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
    if (!reply.is_object()) return Strange("JSON");
    if (answer.status == 404) return absl::NotFoundError("etcd: not found");
    if (answer.status == 200) return reply;
    return absl::UnavailableError(StrCat("etcd at ", members_[first_].authority, ": status ",
                                         answer.status, " ", answer.body));
  }

  absl::Status Strange(const char* what) const {
    return absl::UnavailableError(StrCat(members_[first_].authority, " does not answer with ", what,
                                         ": is it etcd 3.4 or later?"));
  }

  const std::vector<HttpPeer> members_;
  const std::chrono::milliseconds patience_;
  size_t first_ = 0;  // that is asked first
};

}  // namespace

absl::StatusOr<EtcdPlace> ParseEtcdUrl(const std::string& url) {
  constexpr std::string_view kScheme = "etcd://";
  const absl::Status bad = absl::InvalidArgumentError(
      StrCat("--ha \"", url,
             "\": etcd://HOST:PORT[,HOST:PORT][/CLUSTER] is expected, the client ports of etcd's "
             "members and what the keys of this cluster are called, such as "
             "etcd://10.0.0.5:2379,10.0.0.6:2379/chat"));
  if (!url.starts_with(kScheme)) return bad;
  const std::string_view rest = std::string_view(url).substr(kScheme.size());
  const size_t slash = rest.find('/');
  EtcdPlace place;
  place.cluster = slash == std::string_view::npos ? "default" : std::string(rest.substr(slash + 1));
  if (place.cluster.empty() || place.cluster.find('/') != std::string::npos) return bad;
  std::string_view members = rest.substr(0, slash);
  for (bool more = true; more;) {
    const size_t comma = members.find(',');
    auto peer = ParseHttpPeer(members.substr(0, comma), "2379");
    if (!peer.ok()) return bad;
    place.members.push_back(*std::move(peer));
    more = comma != std::string_view::npos;
    if (more) members.remove_prefix(comma + 1);
  }
  return place;
}

std::unique_ptr<LeaderStore> MakeEtcdStore(std::vector<HttpPeer> members, double patience_seconds) {
  return std::make_unique<EtcdStore>(std::move(members), patience_seconds);
}

}  // namespace tessera::coordinator
