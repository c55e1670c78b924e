// A worker written with grpc-go, without Sluice. Serves until SIGTERM.
//
//	worker --listen HOST:PORT,... [--ready-file FILE] [--cert FILE --key FILE]
//
// Port 0 picks a free port. The ready file has one address per line, and appears once all of them are served. With a
// certificate it speaks TLS.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"sluice/examples/answers"
)

type server struct {
	answers.UnimplementedAnswersServer
}

func (server) Answer(ctx context.Context, request *answers.AnswerRequest) (*answers.AnswerResponse, error) {
	return think(ctx, request)
}

func (server) AnswerStream(request *answers.AnswerRequest, stream grpc.ServerStreamingServer[answers.AnswerResponse]) error {
	response, err := think(stream.Context(), request)
	if err != nil {
		return err
	}
	for range max(1, request.Messages) {
		if err := stream.Send(response); err != nil {
			return err
		}
	}
	return nil
}

// think waits for the think time of the request.
func think(ctx context.Context, request *answers.AnswerRequest) (*answers.AnswerResponse, error) {
	tail := rand.Float64() < request.TailShare
	microseconds := request.ThinkUs
	if tail {
		microseconds = request.TailThinkUs
	}
	if microseconds > 0 {
		select {
		case <-time.After(time.Duration(microseconds) * time.Microsecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return &answers.AnswerResponse{Payload: bytes.Repeat([]byte("x"), int(request.ResponseBytes)), Tail: tail}, nil
}

func serve(addresses []string, readyFile string, options ...grpc.ServerOption) error {
	service := grpc.NewServer(options...)
	answers.RegisterAnswersServer(service, server{})
	var listeners []net.Listener
	serving := ""
	for _, address := range addresses {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		listeners = append(listeners, listener)
		serving += listener.Addr().String() + "\n"
	}
	ended := make(chan error, len(listeners))
	for _, listener := range listeners {
		go func() { ended <- service.Serve(listener) }()
	}
	// The handler must be set before the ready file exists, because its reader may then send the signal.
	terminated, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		<-terminated.Done()
		service.Stop()
	}()
	if readyFile != "" {
		if err := writeReadyFile(readyFile, serving); err != nil {
			return err
		}
	}
	for range listeners {
		if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
	}
	return nil
}

// writeReadyFile renames the file into place, because a reader must never see a part of it.
func writeReadyFile(file, content string) error {
	if err := os.WriteFile(file+".new", []byte(content), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "host:port, comma-separated")
	readyFile := flag.String("ready-file", "", "write the addresses there")
	cert := flag.String("cert", "", "certificate for TLS, PEM")
	key := flag.String("key", "", "its private key, PEM")
	flag.Parse()
	var options []grpc.ServerOption
	if *cert != "" {
		tls, err := credentials.NewServerTLSFromFile(*cert, *key)
		if err != nil {
			fail(err)
		}
		options = append(options, grpc.Creds(tls))
	}
	if err := serve(strings.Split(*listen, ","), *readyFile, options...); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "worker:", err)
	os.Exit(1)
}
