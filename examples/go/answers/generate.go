// Package answers holds the messages and stubs of tests/testbed/answers.proto, an ordinary gRPC service. They are not in git:
// examples/build-clients makes them, with protoc and the plugins that go.mod lists as tools. By hand, with Go's bin on PATH:
//
//	go install tool
//	go generate ./answers
package answers

//go:generate protoc -I ../../../tests/testbed --go_out=. --go_opt=paths=source_relative,Manswers.proto=sluice/examples/answers --go-grpc_out=. --go-grpc_opt=paths=source_relative,Manswers.proto=sluice/examples/answers answers.proto
