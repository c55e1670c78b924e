// Serves interop.proto with grpc-go. Writes "port N" to stderr.
package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

var (
	released = make(chan struct{})
	release  sync.Once
)

func number(request *structpb.Struct, name string) int {
	return int(request.GetFields()[name].GetNumberValue())
}

// hold waits for Release, even if the call has been cancelled.
func hold(request *structpb.Struct) {
	if number(request, "hold") != 0 {
		<-released
	}
}

func message(request *structpb.Struct) *wrapperspb.BytesValue {
	return wrapperspb.Bytes(bytes.Repeat([]byte("x"), number(request, "bytes")))
}

func end(request *structpb.Struct) error {
	return status.Error(codes.Code(number(request, "code")), request.GetFields()["text"].GetStringValue())
}

func get(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	request := new(structpb.Struct)
	if err := decode(request); err != nil {
		return nil, err
	}
	if number(request, "early") != 0 {
		if err := grpc.SendHeader(ctx, metadata.MD{}); err != nil {
			return nil, err
		}
	}
	hold(request)
	return message(request), end(request)
}

func list(_ any, stream grpc.ServerStream) error {
	request := new(structpb.Struct)
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	if number(request, "early") != 0 {
		if err := stream.SendHeader(metadata.MD{}); err != nil {
			return err
		}
	}
	hold(request)
	for i := 0; i < max(1, number(request, "messages")); i++ {
		if err := stream.SendMsg(message(request)); err != nil {
			return err
		}
	}
	return end(request)
}

func doRelease(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	release.Do(func() { close(released) })
	return new(emptypb.Empty), decode(new(emptypb.Empty))
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "sluice.interop.v1.Interop",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "Get", Handler: get},
			{MethodName: "Release", Handler: doRelease},
		},
		Streams: []grpc.StreamDesc{{StreamName: "List", Handler: list, ServerStreams: true}},
	}, struct{}{})
	fmt.Fprintln(os.Stderr, "port", listener.Addr().(*net.TCPAddr).Port)
	if err := server.Serve(listener); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
