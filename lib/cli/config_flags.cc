#include "lib/cli/config_flags.h"

#include <cstdint>
#include <utility>

#include <CLI/CLI.hpp>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/cli/program.h"

namespace sluice {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// The field of a config that a flag writes. It finds the message at each write, because a config file may replace it,
// and because a message that no flag writes must stay absent. A plain value; the config must outlive it.
class FlagTarget {
 public:
  FlagTarget(Message& config, std::vector<const FieldDescriptor*> path) : config_(&config), path_(std::move(path)) {}

  const FieldDescriptor& field() const { return *path_.back(); }

  void MakePresent() const {
    Write([](Message& owner, const FieldDescriptor* field) { owner.GetReflection()->MutableMessage(&owner, field); });
  }

  // Calls a setter of Reflection.
  template <class Value, class Setter>
  void Set(Setter set, const Value& value) const {
    Write([&](Message& owner, const FieldDescriptor* field) { (owner.GetReflection()->*set)(&owner, field, value); });
  }

  // Replaces a list, by an adder of Reflection.
  template <class Value, class Adder>
  void SetList(Adder add, const std::vector<Value>& values) const {
    Write([&](Message& owner, const FieldDescriptor* field) {
      owner.GetReflection()->ClearField(&owner, field);
      for (const Value& value : values) (owner.GetReflection()->*add)(&owner, field, value);
    });
  }

 private:
  template <class Writer>
  void Write(Writer write) const {
    Message* owner = config_;
    for (size_t i = 0; i + 1 < path_.size(); ++i) owner = owner->GetReflection()->MutableMessage(owner, path_[i]);
    write(*owner, path_.back());
  }

  Message* config_;
  std::vector<const FieldDescriptor*> path_;
};

// As AddListFlag, with an error that names the flag.
CLI::Option* AddParsedList(CLI::App& app, const std::string& name, const std::string& help,
                           const ConfigFlags::Parser& parser) {
  return AddListFlag(app, name, help, [name, parser](const std::vector<std::string>& values) {
    const absl::Status parsed = parser(values);
    if (!parsed.ok()) throw CLI::ValidationError(name, std::string(parsed.message()));
  });
}

absl::Status SetNumbers(const FlagTarget& target, const std::vector<std::string>& values) {
  std::vector<uint32_t> numbers;
  for (const std::string& text : values) {
    if (!absl::SimpleAtoi(text, &numbers.emplace_back())) {
      return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not a number from 0 to ", UINT32_MAX));
    }
  }
  target.SetList(&Reflection::AddUInt32, numbers);
  return absl::OkStatus();
}

CLI::Option* AddList(CLI::App& app, const std::string& name, const std::string& help, const FlagTarget& target) {
  return AddParsedList(app, name, help, [target](const std::vector<std::string>& values) {
    if (target.field().cpp_type() == FieldDescriptor::CPPTYPE_UINT32) return SetNumbers(target, values);
    target.SetList(&Reflection::AddString, values);
    return absl::OkStatus();
  });
}

template <class Value, class Setter>
CLI::Option* AddValue(CLI::App& app, const std::string& name, const std::string& help, const FlagTarget& target,
                      Setter set) {
  return app.add_option_function<Value>(
      name, [target, set](const Value& value) { target.Set(set, value); }, help);
}

CLI::Option* AddNumber(CLI::App& app, const std::string& name, const std::string& help, const FlagTarget& target) {
  CLI::Option* option = target.field().cpp_type() == FieldDescriptor::CPPTYPE_UINT32
                            ? AddValue<uint32_t>(app, name, help, target, &Reflection::SetUInt32)
                            : AddValue<int64_t>(app, name, help, target, &Reflection::SetInt64);
  // In the config 0 means "not given".
  if (!target.field().has_presence()) option->check(CLI::PositiveNumber);
  return option;
}

CLI::Option* AddSwitch(CLI::App& app, const std::string& flag, const std::string& help, const FlagTarget& target) {
  const std::string name = absl::StrCat("--", flag);
  if (target.field().cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return app.add_flag_callback(
        name, [target] { target.MakePresent(); }, help);
  }
  // Add a flag for false: the default of a field that can be absent may be true.
  return app.add_flag_function(
      target.field().has_presence() ? absl::StrCat(name, ",!--no_", flag) : name,
      [target](int64_t count) { target.Set(&Reflection::SetBool, count > 0); }, help);
}

CLI::Option* AddOne(CLI::App& app, const std::string& name, const std::string& help, const FlagTarget& target) {
  if (target.field().is_repeated()) return AddList(app, name, help, target);
  switch (target.field().cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return AddValue<bool>(app, name, help, target, &Reflection::SetBool);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return AddValue<double>(app, name, help, target, &Reflection::SetDouble);
    case FieldDescriptor::CPPTYPE_STRING:
      return AddValue<std::string>(app, name, help, target, &Reflection::SetString);
    default:
      return AddNumber(app, name, help, target);
  }
}

}  // namespace

std::string HelpText(const ConfigField& field) {
  if (field.help.default_text().empty()) return field.help.text();
  return absl::StrCat(field.help.text(), ". Default: ", field.help.default_text());
}

ConfigFlags::ConfigFlags(Message& config, v1::FieldHelp shown_as) : config_(config), shown_as_(std::move(shown_as)) {}

void ConfigFlags::AddTo(CLI::App& app) const {
  for (const ConfigField& field : ConfigFields(*config_.GetDescriptor(), shown_as_)) {
    if (field.flag.empty()) continue;
    const FlagTarget target(config_, field.path);
    const std::string name = absl::StrCat("--", field.flag);
    const auto parser = parsers_.find(field.flag);
    CLI::Option* option = nullptr;
    if (parser != parsers_.end()) {
      option = AddParsedList(app, name, HelpText(field), parser->second);
    } else if (field.help.value().empty()) {
      option = AddSwitch(app, field.flag, HelpText(field), target);
    } else {
      option = AddOne(app, name, HelpText(field), target);
    }
    if (!field.help.value().empty()) option->type_name(field.help.value());
    if (!field.group.empty()) option->group(field.group);
  }
}

}  // namespace sluice
