// Package sluice makes fan-outs of gRPC calls through sluice-proxy, which serves one fan-out before the next.
//
// [FanOut] asks many workers at once. [WithFanOut] marks the calls that a program makes itself. Both need connections
// of [Dial], or connections with [UnaryInterceptor] and [StreamInterceptor].
package sluice

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// DefaultProxy is the Unix socket of the proxy's default config.
const DefaultProxy = "unix:/run/sluice/proxy.sock"

// MaxCalls is the maximum number of calls of a fan-out.
const MaxCalls = 65536

const blockKey = "sluice-block"

// The metadata of a call, as pairs. A context key of its own keeps them from connections without the interceptors.
type markKey struct{}

type mark struct {
	block []string // id and number of calls; empty: the call belongs to no fan-out
	class string
	bytes int64 // of the response; 0: unknown
}

func markOf(ctx context.Context) mark {
	m, _ := ctx.Value(markKey{}).(mark)
	return m
}

// WithFanOut marks the calls that use the returned context as one fan-out. calls is their number, 1 to MaxCalls; other
// numbers panic. Calls that carry metadata of a fan-out already keep them.
func WithFanOut(ctx context.Context, calls int) context.Context {
	if calls < 1 || calls > MaxCalls {
		panic(fmt.Sprintf("sluice: a fan-out of %d calls; it has 1 to %d", calls, MaxCalls))
	}
	m := markOf(ctx)
	m.block = []string{blockKey, rand.Text(), "sluice-weight", strconv.Itoa(calls)}
	return context.WithValue(ctx, markKey{}, m)
}

// WithClass puts the calls that use the returned context into a class of traffic, one of the proxy's schedule.classes.
func WithClass(ctx context.Context, class string) context.Context {
	m := markOf(ctx)
	m.class = class
	return context.WithValue(ctx, markKey{}, m)
}

// WithResponseBytes states the size of the response, if the caller can predict it. A wrong size only costs time. Without
// it, the proxy learns the size from earlier responses.
func WithResponseBytes(ctx context.Context, bytes int64) context.Context {
	m := markOf(ctx)
	m.bytes = bytes
	return context.WithValue(ctx, markKey{}, m)
}

// alone removes the fan-out from the context.
func alone(ctx context.Context) context.Context {
	m := markOf(ctx)
	m.block = nil
	return context.WithValue(ctx, markKey{}, m)
}

func marked(ctx context.Context) context.Context {
	m := markOf(ctx)
	given, _ := metadata.FromOutgoingContext(ctx)
	pairs := []string{}
	if len(given.Get(blockKey)) == 0 {
		pairs = append(pairs, m.block...)
	}
	if m.class != "" && len(given.Get("sluice-class")) == 0 {
		pairs = append(pairs, "sluice-class", m.class)
	}
	if m.bytes > 0 && len(given.Get("sluice-response-bytes")) == 0 {
		pairs = append(pairs, "sluice-response-bytes", strconv.FormatInt(m.bytes, 10))
	}
	if len(pairs) == 0 {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// UnaryInterceptor adds the metadata of WithFanOut to unary calls.
func UnaryInterceptor(ctx context.Context, method string, request, response any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	return invoke(marked(ctx), method, request, response, conn, options...)
}

// StreamInterceptor adds the metadata of WithFanOut to streams.
func StreamInterceptor(ctx context.Context, description *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	return open(marked(ctx), description, conn, method, options...)
}

// Dial returns a connection to a worker (host:port) by the proxy, in plaintext, with the interceptors. Further options
// override.
func Dial(proxy, worker string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	own := []grpc.DialOption{
		grpc.WithAuthority(worker),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), // a proxy of the environment would be asked for a tunnel to this one
		grpc.WithChainUnaryInterceptor(UnaryInterceptor),
		grpc.WithChainStreamInterceptor(StreamInterceptor),
	}
	return grpc.NewClient(proxy, append(own, options...)...)
}
