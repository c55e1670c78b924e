// Package answers holds the messages and stubs of tests/testbed/answers.proto, an ordinary gRPC service. They are checked
// in, so that a build needs Go alone. The plugins that made them:
//
//	go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.6
//	go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1
package answers

//go:generate protoc -I ../../../tests/testbed --go_out=. --go_opt=paths=source_relative,Manswers.proto=sluice/examples/answers --go-grpc_out=. --go-grpc_opt=paths=source_relative,Manswers.proto=sluice/examples/answers answers.proto
