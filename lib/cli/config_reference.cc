#include "lib/cli/config_reference.h"

#include <google/protobuf/descriptor.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/cli/config_fields.h"

namespace sluice {
namespace {

using google::protobuf::FieldDescriptor;

std::string Code(std::string_view text) {
  return text.empty() ? "" : absl::StrCat("`", std::string(text), "`");
}

// A bar would end the cell.
std::string Cell(const std::string& text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}});
}

// As JSON has it.
std::string TypeName(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return "string";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "bool";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "object";
    default:
      return "number";
  }
}

std::string Row(const ConfigField& field) {
  const FieldDescriptor& descriptor = *field.path.back();
  const std::string flag = field.flag.empty() ? "" : absl::StrCat("--", field.flag);
  const std::string type = absl::StrCat(descriptor.is_repeated() ? "list of " : "", TypeName(descriptor),
                                        descriptor.is_repeated() ? "s" : "");
  return absl::StrCat("| ", Code(field.name), " | ", Code(flag), " | ", type, " | ", Cell(field.help.default_text()),
                      " | ", Cell(field.help.text()), " |\n");
}

}  // namespace

std::string ConfigReference(std::string_view program, std::string_view description,
                            const google::protobuf::Descriptor& config) {
  std::string text = absl::StrCat("## ", std::string(program), "\n\n", std::string(description), "\n\n",
                                  "| field | flag | type | default | meaning |\n|---|---|---|---|---|\n");
  for (const ConfigField& field : ConfigFields(config)) text += Row(field);
  return text;
}

}  // namespace sluice
