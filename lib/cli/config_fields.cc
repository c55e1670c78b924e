#include "lib/cli/config_fields.h"

#include <algorithm>
#include <utility>

#include <google/protobuf/descriptor.h>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Walks a config depth first. There is one for each call of ConfigFields.
class ConfigFieldWalk {
 public:
  // `parent` is the field that has the message, or the config as a whole.
  void Walk(const Descriptor& message, const ConfigField& parent, bool with_flags) {
    for (int i = 0; i < message.field_count(); ++i) Visit(*message.field(i), parent, with_flags);
  }

  std::vector<ConfigField> Take() { return std::move(fields_); }

 private:
  template <class Names>
  static bool Has(const Names& names, const FieldDescriptor& field) {
    return std::find(names.begin(), names.end(), field.name()) != names.end();
  }

  void Visit(const FieldDescriptor& descriptor, const ConfigField& parent, bool with_flags) {
    if (Has(parent.help.without(), descriptor)) return;
    if (Has(parent.help.without_flag(), descriptor)) with_flags = false;
    ConfigField field{.path = parent.path, .group = parent.group, .help = descriptor.options().GetExtension(v1::help)};
    const auto instead = parent.help.instead().find(descriptor.name());
    if (instead != parent.help.instead().end()) field.help.MergeFrom(instead->second);
    field.path.push_back(&descriptor);
    field.name = absl::StrCat(parent.name, parent.name.empty() ? "" : ".", descriptor.name());
    if (with_flags) field.flag = field.help.flag();
    if (!field.help.text().empty()) fields_.push_back(field);
    if (descriptor.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return;
    if (!field.help.group().empty()) field.group = field.help.group();
    // A flag sets one field of one message: those in a list have none.
    if (descriptor.is_repeated()) field.name += "[]";
    Walk(*descriptor.message_type(), field, with_flags && !descriptor.is_repeated());
  }

  std::vector<ConfigField> fields_;
};

}  // namespace

std::vector<ConfigField> ConfigFields(const Descriptor& config, const v1::FieldHelp& shown_as) {
  ConfigFieldWalk walk;
  walk.Walk(config, {.group = shown_as.group(), .help = shown_as}, true);
  return walk.Take();
}

}  // namespace sluice
