#include "third_party/cli11/flags.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "third_party/cli11/number_check.h"

namespace tessera {
namespace {

// Every app of a Program. While an option is added, its command stands alone: CLI11 2.4 refuses a
// --name beside a positional `name` of the command above, which its own configuration files could
// not tell apart. Ours name the flags of one command.
class App final : public CLI::App {
 public:
  App(const std::string& description, const std::string& name) : CLI::App(description, name) {}
  App(const std::string& description, const std::string& name, CLI::App* above)
      : CLI::App(description, name, above) {}

  template <typename Add>
  Flag AddAlone(Add add) {
    CLI::App* const above = std::exchange(parent_, nullptr);
    const absl::Cleanup attach = [&] { parent_ = above; };
    return Flag(add(*this));
  }
};

template <typename Add>
Flag AddTo(CLI::App* app, Add add) {
  return static_cast<App*>(app)->AddAlone(add);
}

template <typename Parse>
absl::StatusOr<ParseOutcome> ParseWith(CLI::App& app, Parse parse) {
  try {
    parse();
    return ParseOutcome::kRun;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return absl::InvalidArgumentError(error.what());
    app.exit(error);
    return ParseOutcome::kPrinted;
  }
}

}  // namespace

Flag Flag::ShowDefault() const { return Flag(option_->capture_default_str()); }
Flag Flag::ShowDefault(const std::string& text) const { return Flag(option_->default_str(text)); }
Flag Flag::Required() const { return Flag(option_->required()); }
Flag Flag::Needs(Flag other) const { return Flag(option_->needs(other.option_)); }
Flag Flag::Excludes(Flag other) const { return Flag(option_->excludes(other.option_)); }
Flag Flag::Group(const std::string& heading) const { return Flag(option_->group(heading)); }

Flag Flag::Check(const NumberCheck& check) const {
  return Flag(option_->check(CLI::Validator(
      [error = check.error](std::string& text) { return error(text); }, check.description)));
}

Flag Flag::Range(int min, int max) const { return Flag(option_->check(CLI::Range(min, max))); }

Flag Flag::OneOf(std::initializer_list<const char*> values) const {
  return Flag(
      option_->check(CLI::IsMember(std::vector<std::string>(values.begin(), values.end()))));
}

Flag Flag::Size() const { return Flag(option_->transform(CLI::AsSizeValue(true))); }
Flag Flag::OneValuePerUse() const { return Flag(option_->allow_extra_args(false)); }

Flag Flag::Repeatable() const {
  return Flag(option_->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll));
}

Flag Flag::Delimiter(char between_values) const { return Flag(option_->delimiter(between_values)); }
Flag Flag::ReadFrom(const std::string& variable) const { return Flag(option_->envname(variable)); }

std::vector<std::string> Flag::long_names() const { return option_->get_lnames(); }
std::string Flag::variable() const { return option_->get_envname(); }
std::string Flag::help() const { return option_->get_description(); }
std::vector<std::string> Flag::values() const { return option_->results(); }

absl::Status Flag::Set(std::span<const std::string> values) const {
  try {
    for (const std::string& value : values) option_->add_result(value);
    option_->run_callback();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

template <FlagValue T>
Flag Command::AddOption(const std::string& name, T& variable, const std::string& help) const {
  return AddTo(app_, [&](App& app) { return app.add_option(name, variable, help); });
}

template Flag Command::AddOption(const std::string&, std::string&, const std::string&) const;
template Flag Command::AddOption(const std::string&, uint16_t&, const std::string&) const;
template Flag Command::AddOption(const std::string&, int32_t&, const std::string&) const;
template Flag Command::AddOption(const std::string&, int64_t&, const std::string&) const;
template Flag Command::AddOption(const std::string&, uint64_t&, const std::string&) const;
template Flag Command::AddOption(const std::string&, double&, const std::string&) const;
template Flag Command::AddOption(const std::string&, std::vector<std::string>&,
                                 const std::string&) const;
template Flag Command::AddOption(const std::string&, std::vector<double>&,
                                 const std::string&) const;

Flag Command::AddSwitch(const std::string& name, bool& variable, const std::string& help) const {
  return AddTo(app_, [&](App& app) { return app.add_flag(name, variable, help); });
}

Flag Command::AddSwitch(const std::string& name, std::optional<bool>& variable,
                        const std::string& help) const {
  return AddTo(app_, [&](App& app) {
    return app.add_flag_function(
        name, [&variable](int64_t times) { variable = times > 0; }, help);
  });
}

Flag Command::AddUnbound(const std::string& name) const {
  return AddTo(app_, [&](App& app) { return app.add_option(name)->type_name("")->expected(1); });
}

Flag Command::AddUnboundList(const std::string& name) const {
  return AddTo(app_, [&](App& app) {
    return app.add_option(name)
        ->type_name("")
        ->expected(1, CLI::detail::expected_max_vector_size)
        ->allow_extra_args(false);
  });
}

Flag Command::AddUnboundSwitch(const std::string& name) const {
  return AddTo(app_, [&](App& app) { return app.add_flag(name); });
}

Command Command::AddSubcommand(const std::string& name, const std::string& help) const {
  return Command(app_->add_subcommand(std::make_shared<App>(help, name, app_)));
}

void Command::RequireSubcommands(size_t min, size_t max) const {
  app_->require_subcommand(min, max);
}

bool Command::requires_subcommand() const { return app_->get_require_subcommand_min() > 0; }

std::string Command::name() const { return app_->get_name(); }

std::string Command::full_name() const {
  std::string name = app_->get_name();
  for (const CLI::App* in = app_->get_parent(); in != nullptr; in = in->get_parent()) {
    if (!in->get_name().empty()) name = in->get_name() + " " + name;
  }
  return name;
}

std::vector<Flag> Command::flags() const {
  std::vector<Flag> flags;
  for (CLI::Option* option : app_->get_options()) flags.emplace_back(option);
  return flags;
}

std::optional<Flag> Command::FindFlag(const std::string& name) const {
  CLI::Option* const option = app_->get_option_no_throw(name);
  return option == nullptr ? std::nullopt : std::optional(Flag(option));
}

std::vector<Command> Command::subcommands() const {
  std::vector<Command> commands;
  for (CLI::App* sub : app_->get_subcommands([](CLI::App*) { return true; }))
    commands.emplace_back(sub);
  return commands;
}

std::optional<Command> Command::FindSubcommand(std::string_view name) const {
  for (const Command& sub : subcommands()) {
    if (sub.name() == name) return sub;
  }
  return std::nullopt;
}

bool Command::Named(const std::string& subcommand) const {
  return app_->got_subcommand(subcommand);
}

std::string Command::Help() const { return app_->help(); }

Program::Program(const std::string& description, const std::string& name)
    : Program(new App(description, name)) {}
Program::Program(CLI::App* app) : Command(app), owned_(app) {}
Program::~Program() = default;

void Program::AddVersion(const std::string& version) {
  app_->set_version_flag("--version", version);
}

absl::StatusOr<ParseOutcome> Program::Parse(int argc, const char* const* argv) {
  return ParseWith(*app_, [&] { app_->parse(argc, argv); });
}

absl::StatusOr<ParseOutcome> Program::Parse(const std::vector<std::string>& arguments) {
  // CLI11 takes them last first.
  return ParseWith(
      *app_, [&] { app_->parse(std::vector<std::string>(arguments.rbegin(), arguments.rend())); });
}

}  // namespace tessera
