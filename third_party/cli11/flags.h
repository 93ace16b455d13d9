// The flags and subcommands of a program. CLI11 reads them; it stays in flags.cc, since its headers
// cost seconds in every file that includes them.
//
//   Program program("What it is for.", "tessera-worker");
//   program.AddOption("--link-port", port, "TCP port for links").Range(0, 65535).ShowDefault();
//   const absl::StatusOr<ParseOutcome> outcome = program.Parse(argc, argv);
//
// Flag and Command are handles: a copy is the same flag, and both live as long as their Program.
// Variables that flags write to must outlive the parsing. Calls that contradict each other (a name
// used twice) throw: they are mistakes in the program.
// Thread rule: from main, before other threads start.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tessera {

struct NumberCheck;

class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}

  // --help shows the value that the variable has now, or `text`.
  Flag ShowDefault() const;
  Flag ShowDefault(const std::string& text) const;
  Flag Required() const;
  Flag Needs(Flag other) const;
  Flag Excludes(Flag other) const;
  // The heading in --help under which the flag is listed.
  Flag Group(const std::string& heading) const;

  // What a value may be; both ends of a range are allowed.
  Flag Check(const NumberCheck& check) const;
  Flag Range(int min, int max) const;
  Flag OneOf(std::initializer_list<const char*> values) const;
  // A number of bytes, or a size such as 8GiB.
  Flag Size() const;

  // For a flag with several values: each use takes one. By default it takes all words up to the
  // next flag.
  Flag OneValuePerUse() const;
  // May be given more than once, with one value each.
  Flag Repeatable() const;
  Flag Delimiter(char between_values) const;

  // Also read from this environment variable, where the command line does not give it.
  Flag ReadFrom(const std::string& variable) const;

  // "port" for --port; empty: a positional argument.
  std::vector<std::string> long_names() const;
  // The environment variable; empty: none.
  std::string variable() const;
  // What --help says of it.
  std::string help() const;
  // After parsing: what was given, on the command line or in the environment.
  std::vector<std::string> values() const;
  // Gives values after parsing. InvalidArgument for what the flag does not take.
  absl::Status Set(std::span<const std::string> values) const;

 private:
  CLI::Option* option_;
};

// What a flag's variable may be.
template <typename T>
concept FlagValue =
    std::same_as<T, std::string> || std::same_as<T, uint16_t> || std::same_as<T, int32_t> ||
    std::same_as<T, int64_t> || std::same_as<T, uint64_t> || std::same_as<T, double> ||
    std::same_as<T, std::vector<std::string>> || std::same_as<T, std::vector<double>>;

class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // `name` is "--port", or "model" for a positional argument.
  template <FlagValue T>
  Flag AddOption(const std::string& name, T& variable, const std::string& help) const;
  // A flag without a value; "--on,!--off" sets false by the second name. An optional stays empty
  // where neither is given.
  Flag AddSwitch(const std::string& name, bool& variable, const std::string& help) const;
  Flag AddSwitch(const std::string& name, std::optional<bool>& variable,
                 const std::string& help) const;
  // The same without a variable and a text in --help, for what is only handed on: values() has what
  // was given. A list may be given more than once.
  Flag AddUnbound(const std::string& name) const;
  Flag AddUnboundList(const std::string& name) const;
  Flag AddUnboundSwitch(const std::string& name) const;

  Command AddSubcommand(const std::string& name, const std::string& help) const;
  // How many subcommands a command line must name; by default any number, none included.
  void RequireSubcommands(size_t min, size_t max) const;
  bool requires_subcommand() const;

  // "plan"
  std::string name() const;
  // "tessera plan"
  std::string full_name() const;
  std::vector<Flag> flags() const;
  // By "--name", or by a positional argument's name.
  std::optional<Flag> FindFlag(const std::string& name) const;
  std::vector<Command> subcommands() const;
  std::optional<Command> FindSubcommand(std::string_view name) const;
  // After parsing: whether the command line names this subcommand.
  bool Named(const std::string& subcommand) const;
  // What --help prints.
  std::string Help() const;

 protected:
  CLI::App* app_;
};

enum class ParseOutcome {
  kRun,
  // --help or --version was asked for, and is printed: exit with 0.
  kPrinted,
};

class Program : public Command {
 public:
  Program(const std::string& description, const std::string& name);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  // --version prints `version`.
  void AddVersion(const std::string& version);
  // Once. InvalidArgument names the flag and the reason.
  absl::StatusOr<ParseOutcome> Parse(int argc, const char* const* argv);
  // The same; `arguments` are without the program's name.
  absl::StatusOr<ParseOutcome> Parse(const std::vector<std::string>& arguments);

 private:
  explicit Program(CLI::App* app);

  const std::unique_ptr<CLI::App> owned_;
};

}  // namespace tessera
