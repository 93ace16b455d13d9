// Logging of a process: one logger per folder ("worker", "kvcache", ...), one sink on stderr.
//
//   tessera::Logger("worker").info("{} tokens in step {}", tokens, step);
//
// main calls SetUpLogging once, from --log-level and --log-format; before that, text at level info.
// spdlog writes the lines; it stays in log.cc, since its headers cost seconds in every file that
// includes them. Thread-safe.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "absl/status/status.h"

namespace tessera {

// One value for a field of a line. Borrows text.
class LogArgument {
 public:
  template <std::signed_integral T>
  LogArgument(T value) : value_(static_cast<int64_t>(value)) {}
  template <std::unsigned_integral T>
  LogArgument(T value) : value_(static_cast<uint64_t>(value)) {}
  LogArgument(bool value) : value_(std::string_view(value ? "true" : "false")) {}
  LogArgument(double value) : value_(value) {}
  template <typename T>
  requires std::convertible_to<const T&, std::string_view> LogArgument(const T& text)
      : value_(std::string_view(text)) {}

  const std::variant<int64_t, uint64_t, double, std::string_view>& value() const { return value_; }

 private:
  std::variant<int64_t, uint64_t, double, std::string_view> value_;
};

// A line with a field for each argument: "{}", or "{:.2f}" for a floating-point number. What does
// not fit the arguments does not compile.
template <typename... Args>
class LogFormat {
 public:
  consteval LogFormat(const char* text) : text_(text) {
    constexpr bool kFloating[] = {std::is_floating_point_v<std::remove_cvref_t<Args>>..., false};
    size_t fields = 0;
    for (size_t at = 0; at < text_.size(); ++at) {
      if (text_[at] == '}') throw "a } without its {";
      if (text_[at] != '{') continue;
      if (fields == sizeof...(Args)) throw "more fields than arguments";
      const size_t end = text_.find('}', at);
      if (end == std::string_view::npos) throw "a { without its }";
      const std::string_view spec = text_.substr(at + 1, end - at - 1);
      const bool fixed = spec.size() == 4 && spec.substr(0, 2) == ":." && spec[3] == 'f';
      if (!spec.empty() && !(fixed && kFloating[fields])) throw "a field is {}, or {:.2f}";
      ++fields;
      at = end;
    }
    if (fields != sizeof...(Args)) throw "fewer fields than arguments";
  }

  std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

// Sees the lines of a logger, for tests. Called with a lock held: it must not log.
class LogObserver {
 public:
  virtual ~LogObserver() = default;
  virtual void OnLine(std::string_view message) = 0;
};

// The logger of a folder.
class FolderLog {
 public:
  FolderLog() = default;
  FolderLog(const FolderLog&) = delete;
  FolderLog& operator=(const FolderLog&) = delete;
  virtual ~FolderLog() = default;

  template <typename... Args>
  void debug(LogFormat<std::type_identity_t<Args>...> format, const Args&... arguments) {
    WriteAll(Level::kDebug, format.text(), arguments...);
  }
  template <typename... Args>
  void info(LogFormat<std::type_identity_t<Args>...> format, const Args&... arguments) {
    WriteAll(Level::kInfo, format.text(), arguments...);
  }
  template <typename... Args>
  void warn(LogFormat<std::type_identity_t<Args>...> format, const Args&... arguments) {
    WriteAll(Level::kWarning, format.text(), arguments...);
  }
  template <typename... Args>
  void error(LogFormat<std::type_identity_t<Args>...> format, const Args&... arguments) {
    WriteAll(Level::kError, format.text(), arguments...);
  }

  // Lines of levels that are logged. None comes after the removal has returned.
  virtual void AddObserver(LogObserver* observer) = 0;
  virtual void RemoveObserver(LogObserver* observer) = 0;

 protected:
  enum class Level { kDebug, kInfo, kWarning, kError };

 private:
  template <typename... Args>
  void WriteAll(Level level, std::string_view format, const Args&... arguments) {
    if constexpr (sizeof...(Args) == 0) {
      Write(level, format, {});
    } else {
      const LogArgument all[] = {LogArgument(arguments)...};
      Write(level, format, all);
    }
  }
  virtual void Write(Level level, std::string_view format,
                     std::span<const LogArgument> arguments) = 0;
};

// `level` is trace, debug, info, warning, error or off. `format` is text (one line for people) or
// json (one object per line: time, level, logger, message). InvalidArgument names what was not
// understood; nothing is changed then. Also holds for loggers that exist already.
absl::Status SetUpLogging(std::string_view level, std::string_view format);

// The logger of a folder, made at first use; it lives until the process ends. Looking one up takes
// a lock: keep the reference where it is used often.
FolderLog& Logger(std::string_view folder);

// What --log-format json prints for one message, without the line end; here for its test.
// `message` may hold any bytes: invalid UTF-8 becomes U+FFFD.
std::string JsonLogLine(std::string_view time, std::string_view level, std::string_view logger,
                        std::string_view message);

}  // namespace tessera
