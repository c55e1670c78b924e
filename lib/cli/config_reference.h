#pragma once

#include <string>
#include <string_view>

namespace google::protobuf {
class Descriptor;
}

namespace sluice {

// Returns a program's part of docs/reference/config.md, in Markdown: a heading and a table of the config's fields.
std::string ConfigReference(std::string_view program, std::string_view description,
                            const google::protobuf::Descriptor& config);

}  // namespace sluice
