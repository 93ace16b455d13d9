#include "coordinator/spare/etcd_store.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "proto/file_text.h"
#include "third_party/absl/str_cat.h"
#include "tls/asio_context.h"

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

struct Login {
  std::string user, password;
};

class EtcdStore final : public LeaderStore {
 public:
  EtcdStore(std::vector<HttpPeer> members, PostTerms terms, std::optional<Login> login,
            double patience_seconds)
      : members_(std::move(members)),
        terms_(std::move(terms)),
        login_(std::move(login)),
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
    revision_ = Number(Object(*reply, "header"), "revision");
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

  uint64_t revision() const override { return revision_; }

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

  // With a login, that of a session; one that etcd has ended begins again.
  absl::StatusOr<Json> Call(const std::string& path, const Json& request) {
    if (!login_.has_value()) return Ask(path, request);
    const bool fresh = terms_.authorization.empty();
    if (fresh) {
      if (absl::Status s = LogIn(); !s.ok()) return s;
    }
    auto reply = Ask(path, request);
    if (!absl::IsUnauthenticated(reply.status()) || fresh) return reply;
    if (absl::Status s = LogIn(); !s.ok()) return s;
    return Ask(path, request);
  }

  absl::Status LogIn() {
    terms_.authorization.clear();
    auto reply =
        Ask("/v3/auth/authenticate", {{"name", login_->user}, {"password", login_->password}});
    if (!reply.ok()) return reply.status();
    terms_.authorization = Text(*reply, "token");
    return terms_.authorization.empty() ? Strange("a session") : absl::OkStatus();
  }

  absl::StatusOr<Json> Ask(const std::string& path, const Json& request) {
    const std::string body = request.dump();
    absl::Status failed;
    for (size_t tried = 0; tried < members_.size(); ++tried) {
      const HttpPeer& member = members_[first_];
      const absl::StatusOr<HttpAnswer> answer = PostJson(member, path, body, patience_, terms_);
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
    if (!reply.is_object() && answer.status == 200) return Strange("JSON");
    if (answer.status == 404) return absl::NotFoundError("etcd: not found");
    if (answer.status == 200) return reply;
    const std::string why = reply.is_object() ? Text(reply, "error") : "";
    const std::string text = StrCat("etcd at ", members_[first_].authority, ": status ",
                                    answer.status, " ", why.empty() ? answer.body : why);
    const auto says = [&why](const char* words) { return why.find(words) != std::string::npos; };
    // What it says where it wants a login and gets none, or has lost the session.
    const bool no_name = says("user name is empty");
    if (no_name && !login_.has_value())
      return absl::UnavailableError(StrCat(text, ": --ha takes ?login=FILE, with USER:PASSWORD"));
    // The last: of a session from before a change of users or roles.
    if (answer.status == 401 || no_name || says("revision of auth store is old"))
      return absl::UnauthenticatedError(text);
    if (says("permission denied")) {
      return absl::UnavailableError(StrCat(text,
                                           ": its role needs to read and write the keys of "
                                           "this cluster, those behind /tessera/CLUSTER/"));
    }
    return absl::UnavailableError(text);
  }

  absl::Status Strange(const char* what) const {
    return absl::UnavailableError(StrCat(members_[first_].authority, " does not answer with ", what,
                                         ": is it etcd 3.4 or later?"));
  }

  const std::vector<HttpPeer> members_;
  PostTerms terms_;
  const std::optional<Login> login_;
  const std::chrono::milliseconds patience_;
  size_t first_ = 0;  // that is asked first
  uint64_t revision_ = 0;
};

// "a=b&c=d" into `place`; false: with a name that it has no place for, or without a value.
bool ReadTerms(std::string_view text, EtcdPlace* place) {
  const std::pair<std::string_view, std::string*> known[] = {{"ca", &place->files.ca},
                                                             {"cert", &place->files.certificate},
                                                             {"key", &place->files.key},
                                                             {"name", &place->files.server_name},
                                                             {"login", &place->login_file}};
  for (bool more = true; more;) {
    const size_t end = text.find('&');
    const std::string_view term = text.substr(0, end);
    const size_t equals = term.find('=');
    if (equals == std::string_view::npos || equals + 1 == term.size()) return false;
    const std::string_view name = term.substr(0, equals);
    const auto* found = std::find_if(std::begin(known), std::end(known),
                                     [name](const auto& entry) { return entry.first == name; });
    if (found == std::end(known) || (!place->encrypted && name != "login")) return false;
    *found->second = std::string(term.substr(equals + 1));
    more = end != std::string_view::npos;
    if (more) text.remove_prefix(end + 1);
  }
  return true;
}

absl::StatusOr<Login> ReadLogin(const std::string& file) {
  constexpr int64_t kMaxLoginBytes = 4096;
  auto text = ReadFileText(file, kMaxLoginBytes);
  if (!text.ok())
    return absl::InvalidArgumentError(StrCat("--ha login=", StdView(text.status().message())));
  const std::string line = text->substr(0, text->find_first_of("\r\n"));
  const size_t colon = line.find(':');
  if (colon == std::string::npos || colon == 0)
    return absl::InvalidArgumentError(StrCat("--ha login=", file, ": USER:PASSWORD is expected"));
  return Login{line.substr(0, colon), line.substr(colon + 1)};
}

}  // namespace

absl::StatusOr<EtcdPlace> ParseEtcdUrl(const std::string& url) {
  constexpr std::string_view kPlain = "etcd://", kEncrypted = "etcds://";
  const absl::Status bad = absl::InvalidArgumentError(
      StrCat("--ha \"", url,
             "\": etcd://HOST:PORT[,HOST:PORT][/CLUSTER] is expected, the client ports of etcd's "
             "members and what the keys of this cluster are called, such as "
             "etcd://10.0.0.5:2379,10.0.0.6:2379/chat; ?login=FILE behind it names a file with "
             "USER:PASSWORD; etcds:// is inside TLS, with ?ca=FILE, cert=FILE, key=FILE and "
             "name=NAME, between them &"));
  EtcdPlace place;
  place.encrypted = url.starts_with(kEncrypted);
  if (!place.encrypted && !url.starts_with(kPlain)) return bad;
  std::string_view rest = url;
  rest.remove_prefix(place.encrypted ? kEncrypted.size() : kPlain.size());
  if (const size_t mark = rest.find('?'); mark != std::string_view::npos) {
    if (!ReadTerms(rest.substr(mark + 1), &place)) return bad;
    rest = rest.substr(0, mark);
  }
  if (place.encrypted && place.files.ca.empty()) place.files.ca = "system";
  const size_t slash = rest.find('/');
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

absl::StatusOr<std::unique_ptr<LeaderStore>> MakeEtcdStore(const EtcdPlace& place,
                                                           double patience_seconds) {
  PostTerms terms;
  if (place.encrypted) {
    auto tls = ReadClientTls(place.files);
    auto context = tls.ok() ? ClientContext(*tls) : tls.status();
    if (!context.ok()) {
      return absl::InvalidArgumentError(absl::StrReplaceAll(
          context.status().message(), {{"--tls-cert and --tls-key", "--ha cert= and key="},
                                       {"--tls-ca ", "--ha ca="},
                                       {"--tls-cert ", "--ha cert="},
                                       {"--tls-key ", "--ha key="}}));
    }
    terms.tls = *std::move(context);
    terms.server_name = place.files.server_name;
  }
  std::optional<Login> login;
  if (!place.login_file.empty()) {
    auto read = ReadLogin(place.login_file);
    if (!read.ok()) return read.status();
    login = *std::move(read);
  }
  return std::make_unique<EtcdStore>(place.members, std::move(terms), std::move(login),
                                     patience_seconds);
}

}  // namespace tessera::coordinator
