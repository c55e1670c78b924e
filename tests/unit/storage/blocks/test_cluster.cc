#include "tests/unit/storage/blocks/test_cluster.h"

#include <utility>

#include "gtest/gtest.h"
#include "lib/storage/blocks/manifest_search.h"
#include "prometheus/registry.h"

namespace sluice::testing {

TestCluster::TestCluster(Options options) : options_(std::move(options)), source_(SourceBytes(options_.file_bytes)) {
  const auto manifest = StripeBytes(source_, {.root = root(),
                                              .file = "data",
                                              .workers = static_cast<uint32_t>(options_.workers),
                                              .sru_bytes = options_.sru_bytes,
                                              .replicas = options_.replicas});
  EXPECT_TRUE(manifest.ok()) << manifest.status();
  for (int i = 0; i < options_.workers; ++i) workers_.push_back(std::make_unique<TestWorker>(root()));
  const int listed = options_.listed_workers > 0 ? options_.listed_workers : options_.workers;
  for (int i = 0; i < listed; ++i) {
    options_.reader.workers.push_back(workers_[static_cast<size_t>(i) % workers_.size()]->address());
  }
  auto link = Link::Create({.schedule = options_.schedule,
                            .inline_callbacks = options_.inline_callbacks,
                            .budget = options_.budget,
                            .share = options_.share});
  EXPECT_TRUE(link.ok()) << link.status();
  link_ = *std::move(link);
  MakeReader();
}

TestCluster::~TestCluster() {
  if (reader_) {
    EXPECT_TRUE(AwaitIdle());
  }
}

TestWorker& TestCluster::manifest_worker() {
  return worker(*ManifestSearch("data", options_.reader.workers.size()).Next([](size_t) { return false; }));
}

void TestCluster::MakeReader() {
  auto reader = BlockReader::Create(link_, options_.reader);
  ASSERT_TRUE(reader.ok()) << reader.status();
  reader_ = *std::move(reader);
}

void TestCluster::SpoilSrus(const TestWorker::SruFault& fault) {
  for (const auto& worker : workers_) worker->SpoilSrus(fault);
}

int TestCluster::Requests() const {
  int requests = 0;
  for (const auto& worker : workers_) requests += worker->counts().requests;
  return requests;
}

bool TestCluster::AwaitIdle() {
  return Eventually([this] {
    const ScheduleState state = link_->State();
    return state.in_flight_bytes == 0 && state.in_flight_calls == 0 && state.waiting_calls == 0 && state.blocks == 0;
  });
}

double TestCluster::Metric(const std::string& name, const std::string& label_value) const {
  for (const prometheus::MetricFamily& family : link_->registry().Collect()) {
    if (family.name != name) continue;
    for (const prometheus::ClientMetric& metric : family.metric) {
      const std::string value = metric.label.empty() ? "" : metric.label.front().value;
      if (value != label_value) continue;
      return family.type == prometheus::MetricType::Histogram ? static_cast<double>(metric.histogram.sample_count)
                                                              : metric.counter.value;
    }
  }
  ADD_FAILURE() << "no metric " << name << " with label " << label_value;
  return -1;
}

std::optional<double> TestCluster::Gauge(const std::string& name, const std::string& label_value) const {
  for (const prometheus::MetricFamily& family : link_->gauges().Collect()) {
    if (family.name != name) continue;
    for (const prometheus::ClientMetric& metric : family.metric) {
      if ((metric.label.empty() ? "" : metric.label.front().value) != label_value) continue;
      return family.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value;
    }
  }
  return std::nullopt;
}

ReadResult Drain(ReadStream& stream) {
  ReadResult result;
  uint64_t next = 0;
  while (true) {
    absl::StatusOr<ReadPart> part = stream.Next();
    if (!part.ok()) {
      result.status = part.status();
      return result;
    }
    if (auto* header = std::get_if<ReadHeader>(&*part)) {
      result.header = *header;
      result.data.resize(header->length);
      next = header->offset;
    } else if (auto* chunk = std::get_if<ReadChunk>(&*part)) {
      EXPECT_EQ(chunk->offset, next);
      next += chunk->data.size();
      result.data.replace(chunk->offset - result.header.offset, chunk->data.size(), chunk->data);
      result.chunks.push_back(*std::move(chunk));
    } else if (auto* missing = std::get_if<MissingBytes>(&*part)) {
      EXPECT_EQ(missing->offset, next);
      next += missing->length;
      result.missing.push_back(*std::move(missing));
    } else {
      EXPECT_EQ(next, result.header.offset + result.header.length);
      result.summary = std::get<ReadSummary>(*part);
      return result;
    }
  }
}

}  // namespace sluice::testing
