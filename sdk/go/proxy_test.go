package sluice

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Tests with a real sluice-proxy: SLUICE_TEST_PROXY is its address, and SLUICE_TEST_ADMIN its admin address. The tests
// serve the workers themselves, at the addresses SLUICE_TEST_WORKERS with port 0, which the proxy must permit.

func proxied(t *testing.T) (*workers, []Ask[int]) {
	proxy := os.Getenv("SLUICE_TEST_PROXY")
	if proxy == "" {
		t.Skip("SLUICE_TEST_PROXY names no proxy")
	}
	w := serve(t, strings.Split(os.Getenv("SLUICE_TEST_WORKERS"), ",")...)
	var all []Ask[int]
	for _, address := range w.addresses {
		all = append(all, asks(client(t, proxy, address), "wait")...)
	}
	return w, all
}

func expectBlocks(t *testing.T, want int) {
	t.Helper()
	page, err := http.Get(fmt.Sprintf("http://%s/metrics", os.Getenv("SLUICE_TEST_ADMIN")))
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	text, err := io.ReadAll(page.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^sluice_queued_blocks (\d+)`).FindSubmatch(text)
	if found == nil || string(found[1]) != fmt.Sprint(want) {
		t.Errorf("%s blocks, want %d", found, want)
	}
}

func TestTheProxyKnowsTheFanOuts(t *testing.T) {
	w, all := proxied(t)
	const fanOuts = 3
	results := make(chan *Result[int])
	for range fanOuts {
		go func() {
			result, _ := FanOut(deadline(t), all, Options{})
			results <- result
		}()
	}
	for _, given := range w.seen(t, fanOuts*len(all)) {
		for key := range given {
			if strings.HasPrefix(key, "sluice-") && key != "sluice-client" {
				t.Error(key)
			}
		}
	}
	expectBlocks(t, fanOuts)
	w.release()
	for range fanOuts {
		if err := (<-results).Err(); err != nil {
			t.Error(err)
		}
	}
}

func TestTheProxyKnowsMarkedCalls(t *testing.T) {
	w, all := proxied(t)
	ctx := deadline(t)
	marked := WithFanOut(ctx, len(all))
	failures := make(chan error, len(all)+1)
	for _, ask := range all {
		go func() {
			_, err := ask.Call(marked)
			failures <- err
		}()
	}
	go func() {
		_, err := all[0].Call(ctx)
		failures <- err
	}()
	w.seen(t, len(all)+1)
	expectBlocks(t, 2)
	w.release()
	for range len(all) + 1 {
		if err := <-failures; err != nil {
			t.Error(err)
		}
	}
}

func TestAWorkerThatIsNotPermitted(t *testing.T) {
	proxied(t)
	all := asks(client(t, os.Getenv("SLUICE_TEST_PROXY"), "192.0.2.1:7000"), "1")
	result, err := FanOut(deadline(t), all, Options{})
	if err != nil || status.Code(result.Err()) != codes.PermissionDenied {
		t.Error(result, err)
	}
}
