package sluice

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const patience = 30 * time.Second

// workers is one server at several addresses. The request decides about the response: "wait" waits for release,
// "unavailable" and "internal" fail, and a number is the response.
type workers struct {
	health.UnimplementedHealthServer
	addresses []string
	calls     chan metadata.MD // of each call that arrives
	ended     chan error       // of each call that has waited
	released  chan struct{}
}

func serve(t *testing.T, listens ...string) *workers {
	w := &workers{calls: make(chan metadata.MD, 100), ended: make(chan error, 100), released: make(chan struct{})}
	server := grpc.NewServer()
	health.RegisterHealthServer(server, w)
	t.Cleanup(server.Stop)
	for _, listen := range listens {
		listener, err := net.Listen("tcp", listen)
		if err != nil {
			t.Fatal(err)
		}
		w.addresses = append(w.addresses, listener.Addr().String())
		go server.Serve(listener)
	}
	return w
}

func (w *workers) release() { close(w.released) }

func (w *workers) Check(ctx context.Context, request *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	given, _ := metadata.FromIncomingContext(ctx)
	w.calls <- given
	switch request.Service {
	case "wait":
		select {
		case <-w.released:
			w.ended <- nil
		case <-ctx.Done():
			w.ended <- ctx.Err()
		}
		return &health.HealthCheckResponse{}, nil
	case "unavailable":
		return nil, status.Error(codes.Unavailable, "as requested")
	case "internal":
		return nil, status.Error(codes.Internal, "as requested")
	}
	number, err := strconv.Atoi(request.Service)
	return &health.HealthCheckResponse{Status: health.HealthCheckResponse_ServingStatus(number)}, err
}

func (w *workers) Watch(_ *health.HealthCheckRequest, stream health.Health_WatchServer) error {
	given, _ := metadata.FromIncomingContext(stream.Context())
	w.calls <- given
	return stream.Send(&health.HealthCheckResponse{})
}

// seen returns the metadata of the next calls that arrive.
func (w *workers) seen(t *testing.T, calls int) []metadata.MD {
	t.Helper()
	var all []metadata.MD
	for range calls {
		select {
		case given := <-w.calls:
			all = append(all, given)
		case <-time.After(patience):
			t.Fatalf("%d of %d calls arrived", len(all), calls)
		}
	}
	return all
}

func values(all []metadata.MD, key string) []string {
	var found []string
	for _, given := range all {
		found = append(found, strings.Join(given.Get(key), ","))
	}
	return found
}

func client(t *testing.T, proxy, worker string) health.HealthClient {
	t.Helper()
	conn, err := Dial(proxy, worker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return health.NewHealthClient(conn)
}

func call(client health.HealthClient, request string) Call[int] {
	return func(ctx context.Context) (int, error) {
		response, err := client.Check(ctx, &health.HealthCheckRequest{Service: request})
		return int(response.GetStatus()), err
	}
}

func asks(client health.HealthClient, requests ...string) []Ask[int] {
	var all []Ask[int]
	for _, request := range requests {
		all = append(all, Ask[int]{Call: call(client, request)})
	}
	return all
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}
