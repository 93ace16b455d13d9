#include "third_party/spdlog/log.h"

#include <fmt/args.h>
#include <spdlog/details/os.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

constexpr char kTextPattern[] = "%Y-%m-%dT%H:%M:%S.%eZ %^%l%$ %n: %v";

// RFC 3339 in UTC with milliseconds.
std::string FormatTime(std::chrono::system_clock::time_point time) {
  const auto since_epoch =
      std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch());
  const std::time_t seconds = since_epoch.count() / 1000;
  const std::tm utc = spdlog::details::os::gmtime(seconds);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     since_epoch.count() % 1000);
}

std::string_view View(spdlog::string_view_t text) { return {text.data(), text.size()}; }

class JsonFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const std::string line =
        JsonLogLine(FormatTime(message.time), View(spdlog::level::to_string_view(message.level)),
                    View(message.logger_name), View(message.payload)) +
        "\n";
    out.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }
};

std::optional<spdlog::level::level_enum> ParseLevel(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, spdlog::level::level_enum>, 6> kLevels = {
      {
          {"trace", spdlog::level::trace},
          {"debug", spdlog::level::debug},
          {"info", spdlog::level::info},
          {"warning", spdlog::level::warn},
          {"error", spdlog::level::err},
          {"off", spdlog::level::off},
      }};
  for (const auto& [text, level] : kLevels) {
    if (text == name) return level;
  }
  return std::nullopt;
}

std::unique_ptr<spdlog::formatter> MakeTextFormatter() {
  return std::make_unique<spdlog::pattern_formatter>(kTextPattern, spdlog::pattern_time_type::utc);
}

class SpdlogFolderLog : public FolderLog {
 public:
  SpdlogFolderLog(std::string_view folder, spdlog::sink_ptr sink)
      : logger_(std::string(folder), std::move(sink)) {
    // A crash must not lose the line that explains it.
    logger_.flush_on(spdlog::level::info);
  }

  void SetLevel(spdlog::level::level_enum level) { logger_.set_level(level); }

  void AddObserver(LogObserver* observer) override {
    const std::lock_guard lock(mutex_);
    observers_.push_back(observer);
  }
  void RemoveObserver(LogObserver* observer) override {
    const std::lock_guard lock(mutex_);
    std::erase(observers_, observer);
  }

 private:
  void Write(Level level, std::string_view format,
             std::span<const LogArgument> arguments) override {
    static constexpr spdlog::level::level_enum kLevels[] = {
        spdlog::level::debug, spdlog::level::info, spdlog::level::warn, spdlog::level::err};
    const auto at = kLevels[static_cast<int>(level)];
    if (!logger_.should_log(at)) return;
    fmt::dynamic_format_arg_store<fmt::format_context> store;
    for (const LogArgument& argument : arguments) {
      std::visit([&store](const auto& value) { store.push_back(value); }, argument.value());
    }
    const std::string line = fmt::vformat({format.data(), format.size()}, store);
    logger_.log(at, spdlog::string_view_t(line));
    const std::lock_guard lock(mutex_);
    for (LogObserver* observer : observers_) observer->OnLine(line);
  }

  spdlog::logger logger_;
  std::mutex mutex_;
  std::vector<LogObserver*> observers_;
};

// All loggers of the process. Never destroyed: threads may log while the process exits.
class Loggers {
 public:
  static Loggers& Get() {
    static Loggers& loggers = *new Loggers;
    return loggers;
  }

  FolderLog& Find(std::string_view folder) {
    const std::lock_guard lock(mutex_);
    auto it = by_folder_.find(folder);
    if (it == by_folder_.end()) {
      auto logger = std::make_unique<SpdlogFolderLog>(folder, sink_);
      logger->SetLevel(level_);
      it = by_folder_.emplace(std::string(folder), std::move(logger)).first;
    }
    return *it->second;
  }

  void SetUp(spdlog::level::level_enum level, std::unique_ptr<spdlog::formatter> formatter) {
    const std::lock_guard lock(mutex_);
    level_ = level;
    sink_->set_formatter(std::move(formatter));
    for (const auto& [folder, logger] : by_folder_) logger->SetLevel(level);
  }

 private:
  Loggers() : sink_(std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    sink_->set_formatter(MakeTextFormatter());
  }

  std::mutex mutex_;
  std::shared_ptr<spdlog::sinks::stderr_sink_mt> sink_;
  spdlog::level::level_enum level_ = spdlog::level::info;
  std::map<std::string, std::unique_ptr<SpdlogFolderLog>, std::less<>> by_folder_;
};

}  // namespace

std::string JsonLogLine(std::string_view time, std::string_view level, std::string_view logger,
                        std::string_view message) {
  // ordered_json keeps the order that a reader expects: when, how bad, who, what.
  const nlohmann::ordered_json line = {
      {"time", time}, {"level", level}, {"logger", logger}, {"message", message}};
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

absl::Status SetUpLogging(std::string_view level, std::string_view format) {
  const auto parsed = ParseLevel(level);
  if (!parsed.has_value()) {
    return absl::InvalidArgumentError(StrCat(
        "log level \"", level, "\" is unknown: use trace, debug, info, warning, error or off"));
  }
  if (format == "text") {
    Loggers::Get().SetUp(*parsed, MakeTextFormatter());
  } else if (format == "json") {
    Loggers::Get().SetUp(*parsed, std::make_unique<JsonFormatter>());
  } else {
    return absl::InvalidArgumentError(
        StrCat("log format \"", format, "\" is unknown: use text or json"));
  }
  return absl::OkStatus();
}

FolderLog& Logger(std::string_view folder) { return Loggers::Get().Find(folder); }

}  // namespace tessera
