#include "document.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include <libxml/HTMLparser.h>
#include <xapian.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace sluice::examples::search {
namespace {

constexpr std::streamsize kMaxFileBytes = 16 << 20;
constexpr size_t kMaxTitleBytes = 200;

struct FreeXml {
  void operator()(xmlDoc* document) const { xmlFreeDoc(document); }
  void operator()(xmlChar* text) const { xmlFree(text); }
};

std::string_view Name(const xmlNode& node) {
  return reinterpret_cast<const char*>(node.name);
}

bool IsNavigation(xmlNode& node) {
  if (Name(node) == "nav") return true;
  const std::unique_ptr<xmlChar, FreeXml> role(xmlGetProp(&node, BAD_CAST "role"));
  return role != nullptr && xmlStrEqual(role.get(), BAD_CAST "navigation") == 1;
}

bool HasNoText(xmlNode& node) {
  const std::string_view name = Name(node);
  return name == "script" || name == "style" || name == "template" || IsNavigation(node);
}

bool IsInline(const xmlNode& node) {
  const htmlElemDesc* element = htmlTagLookup(node.name);
  return element != nullptr && element->isinline != 0 && Name(node) != "br";
}

// Recurses as deep as the parser: it rejects trees deeper than 256.
void AppendText(xmlNode* first, v1::Document& document) {  // NOLINT(misc-no-recursion)
  for (xmlNode* node = first; node != nullptr; node = node->next) {
    if (node->type == XML_TEXT_NODE) document.mutable_text()->append(reinterpret_cast<const char*>(node->content));
    if (node->type != XML_ELEMENT_NODE || HasNoText(*node)) continue;
    if (Name(*node) == "title") {
      const std::unique_ptr<xmlChar, FreeXml> title(xmlNodeGetContent(node));
      if (document.title().empty() && title != nullptr) document.set_title(reinterpret_cast<const char*>(title.get()));
      continue;
    }
    AppendText(node->children, document);
    if (!IsInline(*node)) document.mutable_text()->push_back('\n');  // separates the words of two blocks
  }
}

absl::Status ParseHtml(const std::string& bytes, v1::Document& document) {
  const std::unique_ptr<xmlDoc, FreeXml> html(
      htmlReadMemory(bytes.data(), static_cast<int>(bytes.size()), document.path().c_str(), nullptr,
                     HTML_PARSE_NOERROR | HTML_PARSE_NOWARNING | HTML_PARSE_NONET | HTML_PARSE_COMPACT));
  if (!html) return absl::InvalidArgumentError(absl::StrCat(document.path(), ": is no HTML"));
  AppendText(html->children, document);
  return absl::OkStatus();
}

void ParsePlain(const std::string& bytes, v1::Document& document) {
  std::string& text = *document.mutable_text();
  for (Xapian::Utf8Iterator character(bytes); character != Xapian::Utf8Iterator(); ++character) {
    Xapian::Unicode::append_utf8(text, *character);
  }
  absl::StripLeadingAsciiWhitespace(&text);
  document.set_title(text.substr(0, text.find('\n')));
}

// Cuts to at most `bytes`, and not within a character.
void Truncate(std::string& utf8, size_t bytes) {
  if (utf8.size() <= bytes) return;
  while (bytes > 0 && (static_cast<unsigned char>(utf8[bytes]) & 0xC0) == 0x80) --bytes;
  utf8.resize(bytes);
}

void Tidy(v1::Document& document) {
  absl::RemoveExtraAsciiWhitespace(document.mutable_text());
  absl::RemoveExtraAsciiWhitespace(document.mutable_title());
  if (document.title().empty()) document.set_title(std::filesystem::path(document.path()).filename().string());
  Truncate(*document.mutable_title(), kMaxTitleBytes);
}

}  // namespace

absl::StatusOr<v1::Document> ReadDocument(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  if (!file) return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read"));
  if (static_cast<std::streamsize>(bytes.size()) > kMaxFileBytes)
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", bytes.size(), " bytes are more than ", kMaxFileBytes));
  v1::Document document;
  document.set_path(path);
  if (path.ends_with(".txt")) {
    ParsePlain(bytes, document);
  } else if (absl::Status parsed = ParseHtml(bytes, document); !parsed.ok()) {
    return parsed;
  }
  Tidy(document);
  if (document.text().empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": has no text"));
  return document;
}

}  // namespace sluice::examples::search
