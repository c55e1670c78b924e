#pragma once

#include <string>
#include <vector>

#include "sluice/v1/field_help.pb.h"

namespace google::protobuf {
class Descriptor;
class FieldDescriptor;
}  // namespace google::protobuf

namespace sluice {

// A field of a program's config, with the texts that its proto gives it (see v1::FieldHelp). A plain value.
struct ConfigField {
  std::vector<const google::protobuf::FieldDescriptor*> path;  // from the config's message to the field
  std::string name;                                            // as errors name it: "link.capacity", "routes[].listen"
  std::string flag;                                            // without "--"; empty: the config file only
  std::string group;                                           // heading in --help; empty: none of its own
  v1::FieldHelp help;
};

// Returns the fields that have a help text, in the order of the proto: those of a message in the config follow it.
// `shown_as` applies to the config as a whole, as the option of a field applies to its message.
std::vector<ConfigField> ConfigFields(const google::protobuf::Descriptor& config, const v1::FieldHelp& shown_as = {});

}  // namespace sluice
