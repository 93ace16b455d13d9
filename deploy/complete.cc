#include "deploy/complete.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/version.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/http_peer.h"
#include "tls/asio_context.h"
#include "tls/encryptable_stream.h"

namespace tessera::deploy {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

struct Url {
  HttpPeer peer;
  bool encrypted = false;
};

absl::StatusOr<Url> ParseUrl(std::string_view url) {
  constexpr std::string_view kPlain = "http://", kEncrypted = "https://";
  const bool encrypted = url.starts_with(kEncrypted);
  std::string_view rest = url;
  if (encrypted || url.starts_with(kPlain)) {
    rest.remove_prefix(encrypted ? kEncrypted.size() : kPlain.size());
    const auto peer = ParseHttpPeer(rest.substr(0, rest.find('/')), encrypted ? "443" : "80");
    if (peer.ok()) return Url{*peer, encrypted};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--url \"", std::string(url),
                   "\": http://HOST:PORT or https://HOST:PORT is expected ([] around IPv6)"));
}

std::string Body(const CompleteOptions& options) {
  nlohmann::json body = {{"stream", true}};
  if (options.timings) body["timings"] = true;
  if (options.chat) {
    body["messages"] = nlohmann::json::array({{{"role", "user"}, {"content", options.prompt}}});
  } else {
    body["prompt"] = options.prompt;
  }
  if (!options.model.empty()) body["model"] = options.model;
  if (options.max_tokens > 0) body["max_tokens"] = options.max_tokens;
  if (options.temperature >= 0) body["temperature"] = options.temperature;
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

CompletionTimings ReadTimings(const nlohmann::json& json) {
  CompletionTimings timings;
  const auto object = [](const nlohmann::json& parent, const char* name) {
    const auto found = parent.find(name);
    return found != parent.end() && found->is_object() ? *found : nlohmann::json::object();
  };
  const auto number = [](const nlohmann::json& parent, const char* name) {
    const auto found = parent.find(name);
    return found != parent.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  const nlohmann::json prefill = object(json, "prefill"), decode = object(json, "decode"),
                       moved = object(json, "kv_transfer");
  timings.prefill_replica = prefill.value("replica", "");
  timings.prefill_seconds = number(prefill, "seconds");
  timings.prompt_tokens = static_cast<int64_t>(number(prefill, "prompt_tokens"));
  timings.decode_replica = decode.value("replica", "");
  timings.decode_tokens = static_cast<int64_t>(number(decode, "tokens"));
  timings.decode_tokens_per_second = number(decode, "tokens_per_second");
  timings.moved_kv = !moved.empty();
  timings.kv_bytes = static_cast<int64_t>(number(moved, "bytes"));
  timings.kv_seconds = number(moved, "seconds");
  timings.kv_hidden_share = number(moved, "hidden_share");
  timings.kv_transport = moved.value("transport", "");
  timings.kv_codec = moved.value("codec", "");
  return timings;
}

// The events of a stream as they come in pieces of any size.
class EventReader {
 public:
  EventReader(bool chat, const std::function<void(const std::string&)>& piece)
      : chat_(chat), piece_(piece) {}

  absl::Status Add(std::string_view bytes) {
    pending_ += bytes;
    for (size_t end; (end = pending_.find("\n\n")) != std::string::npos;) {
      const std::string event = pending_.substr(0, end);
      pending_.erase(0, end + 2);
      if (!event.starts_with("data: ")) continue;  // a comment
      if (event == "data: [DONE]") {
        done_ = true;
        continue;
      }
      if (absl::Status s = AddData(event.substr(6)); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  bool done() const { return done_; }
  Completion take() { return std::move(completion_); }

 private:
  absl::Status AddData(const std::string& data) {
    const nlohmann::json json = nlohmann::json::parse(data, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object())
      return absl::InternalError(absl::StrCat("the server sent data that is not JSON: ", data));
    if (json.contains("error")) {
      return absl::AbortedError(json["error"].value("message", "the server reports an error"));
    }
    if (json.contains("timings") && json["timings"].is_object())
      completion_.timings = ReadTimings(json["timings"]);
    if (!json.contains("choices") || json["choices"].empty()) return absl::OkStatus();
    const nlohmann::json& choice = json["choices"][0];
    const std::string text =
        chat_ ? choice.value("delta", nlohmann::json::object()).value("content", "")
              : choice.value("text", "");
    if (!text.empty()) piece_(text);
    completion_.text += text;
    if (choice.contains("finish_reason") && choice["finish_reason"].is_string()) {
      completion_.finish_reason = choice["finish_reason"].get<std::string>();
    }
    return absl::OkStatus();
  }

  const bool chat_;
  const std::function<void(const std::string&)>& piece_;
  std::string pending_;
  bool done_ = false;
  Completion completion_;
};

absl::Status ServerError(int status, const std::string& body) {
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  std::string message = body.substr(0, 500);
  if (json.is_object() && json.contains("error") && json["error"].is_object()) {
    message = json["error"].value("message", message);
  }
  if (status == 401) message += "; give --api-key KEY, --api-key-file FILE or TESSERA_API_KEY";
  return absl::UnavailableError(absl::StrCat("the server answered ", status, ": ", message));
}

class Exchange {
 public:
  // `tls`: null where the URL has none.
  Exchange(const CompleteOptions& options, const Url& url, TlsContext tls)
      : options_(options), url_(url), stream_(context_, std::move(tls)) {}

  absl::StatusOr<Completion> Run(const std::function<void(const std::string&)>& piece) {
    if (absl::Status s = SendRequest(); !s.ok()) return s;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    beast::error_code error;
    Step([&](auto done) { http::async_read_header(stream_, buffer_, parser, done); }, error);
    if (error) return NotHttp(error);
    const bool ok = parser.get().result() == http::status::ok;
    EventReader events(options_.chat, piece);
    std::string refused;
    char bytes[8192];
    while (!parser.is_done()) {
      parser.get().body().data = bytes;
      parser.get().body().size = sizeof bytes;
      Step([&](auto done) { http::async_read_some(stream_, buffer_, parser, done); }, error);
      if (error == http::error::need_buffer) error = {};
      if (error)
        return absl::UnavailableError(absl::StrCat("the answer broke off: ", error.message()));
      const std::string_view got(bytes, sizeof bytes - parser.get().body().size);
      if (!ok) {
        refused += got;
      } else if (absl::Status s = events.Add(got); !s.ok()) {
        return s;
      }
    }
    if (!ok) return ServerError(parser.get().result_int(), refused);
    if (!events.done()) return absl::DataLossError("the answer ended too early");
    return events.take();
  }

 private:
  // No head of an answer came.
  absl::Status NotHttp(const beast::error_code& error) const {
    if (error.category() != make_error_code(http::error::bad_version).category() ||
        error == http::error::end_of_stream || error == http::error::partial_message) {
      return absl::UnavailableError(absl::StrCat(options_.url, ": ", error.message()));
    }
    return absl::UnavailableError(
        absl::StrCat("the server at ", options_.url,
                     " does not speak HTTP/1: is it the coordinator's gRPC port? --url takes its "
                     "--port (default 8000)"));
  }

  absl::Status SendRequest() {
    beast::error_code error;
    asio::ip::tcp::resolver resolver(context_);
    const auto found = resolver.resolve(url_.peer.host, url_.peer.port, error);
    if (!error) Step([&](auto done) { stream_.tcp().async_connect(found, done); }, error);
    if (error)
      return absl::UnavailableError(
          absl::StrCat("no server answers at ", options_.url, ": ", error.message(),
                       " (--url http://HOST:PORT, the coordinator's --port; `tessera up MODEL` "
                       "starts one)"));
    if (absl::Status s = Encrypt(); !s.ok()) return s;
    http::request<http::string_body> request(
        http::verb::post, options_.chat ? "/v1/chat/completions" : "/v1/completions", 11);
    request.set(http::field::host, url_.peer.authority);
    request.set(http::field::content_type, "application/json");
    request.set(http::field::connection, "close");
    if (!options_.api_key.empty())
      request.set(http::field::authorization, "Bearer " + options_.api_key);
    request.body() = Body(options_);
    request.prepare_payload();
    Step([&](auto done) { http::async_write(stream_, request, done); }, error);
    return error ? absl::UnavailableError(absl::StrCat(options_.url, ": ", error.message()))
                 : absl::OkStatus();
  }

  absl::Status Encrypt() {
    if (!stream_.encrypted()) return absl::OkStatus();
    const std::string& name =
        options_.tls.server_name.empty() ? url_.peer.host : options_.tls.server_name;
    if (!ExpectName(stream_, name))
      return absl::InvalidArgumentError(absl::StrCat("no certificate can be for \"", name, "\""));
    beast::error_code error;
    Step([&](auto done) { stream_.AsyncHandshake(EncryptableStream::Side::client, done); }, error);
    if (!error) return absl::OkStatus();
    const long why = SSL_get_verify_result(stream_.session());
    return absl::UnavailableError(
        why == X509_V_OK
            ? absl::StrCat(options_.url, ": no TLS connection: ", error.message(),
                           " (https:// is for a coordinator with --tls-cert)")
            : absl::StrCat(options_.url, ": the server's certificate is refused: ",
                           X509_verify_cert_error_string(why),
                           " (--tls-ca names the authority that signed it, --tls-server-name the "
                           "name that it has)"));
  }

  // Runs one asynchronous operation to its end, or to the time-out of silence.
  template <typename Operation>
  void Step(Operation operation, beast::error_code& error) {
    stream_.tcp().expires_after(
        std::chrono::milliseconds(static_cast<int64_t>(1e3 * options_.timeout_seconds)));
    operation([&error](beast::error_code e, auto&&...) { error = e; });
    context_.restart();
    context_.run();
  }

  const CompleteOptions& options_;
  const Url url_;
  asio::io_context context_;
  EncryptableStream stream_;
  beast::flat_buffer buffer_;
};

}  // namespace

absl::StatusOr<Completion> Complete(const CompleteOptions& options,
                                    const std::function<void(const std::string&)>& piece) {
  absl::StatusOr<Url> url = ParseUrl(options.url);
  if (!url.ok()) return url.status();
  TlsContext tls;
  if (url->encrypted) {
    ClientTlsFiles files = options.tls;
    if (files.ca.empty()) files.ca = "system";
    const absl::StatusOr<ClientTls> read = ReadClientTls(files);
    if (!read.ok()) return read.status();
    absl::StatusOr<TlsContext> made = ClientContext(*read);
    if (!made.ok()) return made.status();
    tls = *std::move(made);
  }
  return Exchange(options, *url, std::move(tls)).Run(piece);
}

}  // namespace tessera::deploy
