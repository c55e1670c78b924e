#include "aggregator/aggregator_config.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lib/cli/access_config.h"
#include "lib/cli/connection_time.h"
#include "lib/cli/link_options.h"
#include "lib/cli/tls_flags.h"
#include "lib/cli/units.h"
#include "lib/net/asio_listener.h"
#include "lib/net/host_port.h"

namespace sluice {
namespace {

absl::Status ParseWorkers(const v1::AggregatorConfig& config, AggregatorOptions& options) {
  absl::StatusOr<WorkerList> list = ParseWorkerList({config.workers().begin(), config.workers().end()});
  if (!list.ok()) return list.status();
  if (!list->names.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "workers: \"dns+", list->names.front(),
        "\" stands for workers in no order, and files are striped over an order; give addresses or a range"));
  }
  options.workers = *std::move(list);
  options.reader.workers = options.workers.fixed;
  return absl::OkStatus();
}

absl::Status ParseReadMemory(const v1::AggregatorConfig& config, AggregatorOptions& options) {
  auto bytes = static_cast<int64_t>(options.read_memory_bytes);
  absl::Status status = ParseField("read_memory", config.read_memory(), ParseByteSize, bytes);
  if (status.ok() && bytes < 1) {
    status = absl::InvalidArgumentError("read_memory is 0; it must be above 0, and should hold some segments");
  }
  options.read_memory_bytes = static_cast<uint64_t>(bytes);
  return status;
}

absl::Status ParseTls(const v1::AggregatorConfig& config, AggregatorOptions& options) {
  absl::StatusOr<TlsSettings> tls = ParseTlsConfig(config.tls(), TlsRole::kServerAndClient);
  if (!tls.ok()) return tls.status();
  options.rpc_server.tls = std::move(tls->server);
  options.reader.tls = std::move(tls->client);
  return absl::OkStatus();
}

absl::Status ParseAccess(const v1::AggregatorConfig& config, AggregatorOptions& options) {
  absl::StatusOr<AccessRules> access =
      sluice::ParseAccess(config.access(), options.rpc_server.tls, options.rpc_server.listen);
  if (access.ok()) options.rpc_server.access = *std::move(access);
  return access.status();
}

absl::Status NamesField(absl::string_view field, const absl::Status& status) {
  return status.ok() ? status : absl::InvalidArgumentError(absl::StrCat(field, ": ", status.message()));
}

absl::Status CheckAddress(absl::string_view field, const std::string& address) {
  return NamesField(field, ParseHostPort(address).status());
}

absl::Status CheckAddresses(const v1::AggregatorConfig& config) {
  if (config.listen().empty()) return absl::InvalidArgumentError("listen is empty; give IP:port or unix:PATH");
  absl::Status status = NamesField("listen", AsioListener::Validate(config.listen()));
  if (!config.admin().empty()) status.Update(CheckAddress("admin", config.admin()));
  return status;
}

// Checks that the level is a word that is safe in a label and in a log line.
absl::Status CheckLevel(const std::string& level) {
  constexpr size_t kMaxBytes = 64;
  const bool is_word = std::all_of(level.begin(), level.end(),
                                   [](char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.'; });
  if (is_word && level.size() <= kMaxBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("level is \"", level, "\"; it must be at most ", kMaxBytes, " characters of [A-Za-z0-9._-]"));
}

absl::Status ParseMidLevel(const v1::AggregatorConfig& config, std::optional<MidLevel::Options>& options) {
  if (!config.has_mid_level()) return absl::OkStatus();
  const v1::MidLevelConfig& mid_level = config.mid_level();
  MidLevel::Options& parsed = options.emplace();
  absl::Status status = ParseField("mid_level.cache", mid_level.cache(), ParseByteSize, parsed.cache_bytes);
  status.Update(
      ParseField("mid_level.deadline_reserve", mid_level.deadline_reserve(), ParseDuration, parsed.deadline_reserve));
  if (status.ok() && parsed.cache_bytes < 1) {
    status = absl::InvalidArgumentError("mid_level.cache is 0; it must be above 0, and should hold some data blocks");
  }
  return status;
}

}  // namespace

absl::Status ValidateReader(const AggregatorOptions& options, ReaderFiles files) {
  BlockReader::Options reader = options.reader;
  if (files == ReaderFiles::kLeave) reader.tls.reset();
  if (options.workers.open.has_value()) reader.workers.push_back(options.workers.open->Address(0));
  return BlockReader::Validate(reader);
}

absl::StatusOr<AggregatorOptions> ParseAggregatorConfig(const v1::AggregatorConfig& config) {
  AggregatorOptions options;
  absl::Status status = CheckAddresses(config);
  options.admin = config.admin();
  options.rpc_server.listen = {config.listen()};
  options.rpc_server.reflection = config.reflection();
  options.level = config.level();
  status.Update(CheckLevel(options.level));
  status.Update(ParseMidLevel(config, options.mid_level));
  status.Update(ParseTls(config, options));
  if (status.ok()) status.Update(ParseAccess(config, options));
  status.Update(ParseReadMemory(config, options));

  if (config.schedule().classes_size() > 0) {
    status.Update(absl::InvalidArgumentError("schedule.classes: all reads of an aggregator are in one class"));
  }
  absl::StatusOr<Link::Options> link = ParseLinkOptions(config, "sluice-aggregator");
  status.Update(link.status());
  if (link.ok()) options.link = *std::move(link);

  BlockReader::Options& reader = options.reader;
  status.Update(ParseWorkers(config, options));
  status.Update(ParseField("sru_timeout", config.sru_timeout(), ParseDuration, reader.sru_timeout));
  status.Update(ParseField("block_timeout", config.block_timeout(), ParseDuration, reader.block_timeout));
  status.Update(ParseField("connect_timeout", config.connect_timeout(), ParseDuration, reader.connect_timeout));
  status.Update(ParseField("segment_bytes", config.segment_bytes(), ParseByteSize, reader.segment_bytes));
  status.Update(ParseField("drain_timeout", config.drain_timeout(), ParseDuration, options.rpc_server.drain_timeout));
  status.Update(ParseField("drain_delay", config.drain_delay(), ParseDuration, options.rpc_server.drain_delay));
  status.Update(
      ParseConnectionTime("max_connection_age", config.max_connection_age(), options.rpc_server.max_connection_age));
  status.Update(
      ParseConnectionTime("max_connection_idle", config.max_connection_idle(), options.rpc_server.max_connection_idle));
  status.Update(ParseField("reload_interval", config.reload_interval(), ParseDuration, options.reload_interval));
  if (config.has_attempts()) {
    reader.attempts = static_cast<int>(config.attempts());
    if (reader.attempts != config.attempts()) {
      status.Update(
          absl::InvalidArgumentError(absl::StrCat("attempts is ", config.attempts(), "; it is far too large")));
    }
  }
  if (status.ok()) status.Update(ValidateReader(options, ReaderFiles::kLeave));
  if (!status.ok()) return status;
  return options;
}

}  // namespace sluice
