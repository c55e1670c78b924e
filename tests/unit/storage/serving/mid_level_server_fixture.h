#pragma once

#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/storage/serving/mid_level_server.h"
#include "lib/storage/stripe/manifest.h"
#include "lib/storage/stripe/stripe_store.h"
#include "tests/unit/storage/serving/sru_read.h"
#include "tests/unit/storage/serving/sru_request.h"
#include "tests/unit/storage/serving/test_tree.h"

namespace sluice::testing {

// Two aggregators with four workers each. "data" has 50000 bytes in SRUs of 4000. Each SRU is four SRUs of 1000 at the
// level below.
class MidLevelServerTest : public ::testing::Test {
 protected:
  void Start(TestTree::Options options = {}) {
    tree_ = std::make_unique<TestTree>(std::move(options));
    // Connect to the second aggregator, which has SRUs 1, 3, 5 and so on.
    stub_ = v1::SruService::NewStub(
        grpc::CreateChannel(tree_->aggregator(1).address(), grpc::InsecureChannelCredentials()));
  }

  grpc::Status Read(const v1::ReadSruRequest& request, absl::Duration deadline = kPatience) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(deadline));
    return ReadSru(*stub_, context, request, response_);
  }

  // Returns a different file of the same size.
  std::string OtherSource() const { return std::string(tree_->source().rbegin(), tree_->source().rend()); }

  // Returns the stripe of the second aggregator.
  std::string Stripe() const {
    std::string stripe;
    for (size_t offset = tree_->SruBytes(); offset < tree_->source().size(); offset += 2 * tree_->SruBytes()) {
      stripe += tree_->source().substr(offset, tree_->SruBytes());
    }
    return stripe;
  }

  double Metric(const std::string& name, const std::string& outcome) {
    return tree_->aggregator(1).Metric(name, outcome);
  }

  std::unique_ptr<TestTree> tree_;
  std::unique_ptr<v1::SruService::Stub> stub_;
  v1::ReadSruResponse response_;
};

}  // namespace sluice::testing
