// An aggregator written with grpc-go, without Sluice. It calls all workers at once, waits for all responses, and starts
// again, a number of times or for a time. Prints the times in JSON.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"sluice/examples/answers"
)

// The warm-up also connects, which may take longer than --timeout.
const connectTimeout = time.Minute

type options struct {
	workers       string
	via           string
	ca            string
	responseBytes uint
	thinkMs       float64
	tailMs        float64
	tailShare     float64
	blocks        int
	seconds       float64
	intervalMs    float64
	warmupBlocks  int
	readers       int
	timeout       float64
	startFile     string
}

type report struct {
	Blocks      int      `json:"blocks"` // complete blocks
	Seconds     float64  `json:"seconds"`
	GoodputMbps float64  `json:"goodput_mbps"`
	BlockP50Ms  float64  `json:"block_p50_ms"`
	BlockP99Ms  float64  `json:"block_p99_ms"`
	Errors      int      `json:"errors"` // blocks that did not complete
	ErrorSample string   `json:"error_sample"`
	GrpcVersion string   `json:"grpc_version"`
	Records     []record `json:"records,omitempty"` // of each block, with --seconds
}

// A block. Times count from the start of the measured part.
type record struct {
	DueS    float64 `json:"due_s"`
	EndedS  float64 `json:"ended_s"`
	Bytes   int     `json:"bytes"`   // of its responses, also if others of them failed
	Outcome string  `json:"outcome"` // OK, FAILED, or CUT: the measured part ended first
}

func parseFlags() options {
	var o options
	flag.StringVar(&o.workers, "workers", "", "host:port of the workers, comma-separated")
	flag.StringVar(&o.via, "via", "", "connect to this address instead, and name the worker as the :authority")
	flag.StringVar(&o.ca, "ca", "", "speak TLS, and trust the certificates in this file, PEM")
	flag.UintVar(&o.responseBytes, "response-bytes", 10240, "of an answer")
	flag.Float64Var(&o.thinkMs, "think-ms", 0, "workers answer so much later")
	flag.Float64Var(&o.tailMs, "tail-ms", 0, "instead of think-ms for a share of the answers")
	flag.Float64Var(&o.tailShare, "tail-share", 0, "that share, 0 to 1")
	flag.IntVar(&o.blocks, "blocks", 20, "fan-outs of each reader")
	flag.Float64Var(&o.seconds, "seconds", 0, "each reader goes on for so long, instead of --blocks; blocks are then listed")
	flag.Float64Var(&o.intervalMs, "interval-ms", 0, "a reader's blocks are due at this interval; 0: as soon as the last has ended")
	flag.IntVar(&o.warmupBlocks, "warmup-blocks", 2, "fan-outs before, not counted")
	flag.IntVar(&o.readers, "readers", 1, "readers at the same time; each asks for one block after the other")
	flag.Float64Var(&o.timeout, "timeout", 600, "seconds for each fan-out")
	flag.StringVar(&o.startFile, "start-file", "", "after the warm-up say \"warm\" on stderr, and wait for this file")
	flag.Parse()
	if o.workers == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: aggregator --workers HOST:PORT,... [flags]; --help tells them")
		os.Exit(2)
	}
	return o
}

func run(o options) (report, error) {
	security := insecure.NewCredentials()
	if o.ca != "" {
		var err error
		if security, err = credentials.NewClientTLSFromFile(o.ca, ""); err != nil {
			return report{}, err
		}
	}
	fanOut, err := Connect(strings.Split(o.workers, ","), o.via, security)
	if err != nil {
		return report{}, err
	}
	request := &answers.AnswerRequest{
		ResponseBytes: uint32(o.responseBytes),
		ThinkUs:       uint32(1000 * o.thinkMs),
		TailThinkUs:   uint32(1000 * o.tailMs),
		TailShare:     o.tailShare,
	}
	expected := bytes.Repeat([]byte("x"), int(o.responseBytes)) // what every worker sends
	// Returns the total payload of the responses, of which an error leaves some. Cancels the calls at the end, which the
	// workers must not know as a deadline. A zero end never comes.
	ask := func(timeout time.Duration, end time.Time) (int, error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if !end.IsZero() {
			defer time.AfterFunc(time.Until(end), cancel).Stop()
		}
		responses, err := fanOut.Ask(ctx, request)
		received := 0
		for i, response := range responses {
			if response == nil {
				continue
			}
			if !bytes.Equal(response.Payload, expected) {
				return 0, fmt.Errorf("worker %d: a wrong byte, or %d bytes instead of %d", i, len(response.Payload), len(expected))
			}
			received += len(response.Payload)
		}
		return received, err
	}
	for range o.warmupBlocks {
		if _, err := ask(max(seconds(o.timeout), connectTimeout), time.Time{}); err != nil {
			return report{}, fmt.Errorf("warm-up: %w", err)
		}
	}
	if err := awaitStart(o.startFile); err != nil {
		return report{}, err
	}
	return measure(o, ask), nil
}

func measure(o options, ask func(timeout time.Duration, end time.Time) (int, error)) report {
	result := report{GrpcVersion: grpc.Version}
	var blockMs []float64
	total := 0
	var mutex sync.Mutex // guards result, blockMs and total
	started := time.Now()
	var end time.Time // zero: after all blocks
	if o.seconds > 0 {
		end = started.Add(seconds(o.seconds))
	}
	count := func(due time.Time, received int, err error) {
		ended := time.Now()
		mutex.Lock()
		defer mutex.Unlock()
		outcome := "OK"
		switch {
		case !end.IsZero() && !ended.Before(end):
			outcome = "CUT"
			total += received
		case err != nil:
			outcome = "FAILED"
			result.Errors++
			result.ErrorSample = err.Error()
		default:
			total += received
			blockMs = append(blockMs, 1e3*ended.Sub(due).Seconds())
		}
		if !end.IsZero() {
			result.Records = append(result.Records,
				record{due.Sub(started).Seconds(), ended.Sub(started).Seconds(), received, outcome})
		}
	}
	interval := seconds(o.intervalMs / 1e3)
	var readers sync.WaitGroup
	readers.Add(o.readers)
	for reader := range o.readers {
		go func() {
			defer readers.Done()
			// The readers take turns. If a block is late, the next ones are late, too: their times count from when they
			// were due.
			due := started.Add(interval * time.Duration(reader) / time.Duration(o.readers))
			for block := 0; o.seconds > 0 || block < o.blocks; block++ {
				if interval == 0 {
					due = time.Now()
				}
				if !end.IsZero() && !due.Before(end) {
					return
				}
				time.Sleep(time.Until(due))
				received, err := ask(seconds(o.timeout), end)
				count(due, received, err)
				due = due.Add(interval)
			}
		}()
	}
	readers.Wait()
	result.Seconds = time.Since(started).Seconds()
	result.Blocks = len(blockMs)
	result.GoodputMbps = 8e-6 * float64(total) / result.Seconds
	result.BlockP50Ms = percentile(blockMs, 0.5)
	result.BlockP99Ms = percentile(blockMs, 0.99)
	return result
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second))
}

func awaitStart(file string) error {
	if file == "" {
		return nil
	}
	fmt.Fprintln(os.Stderr, "warm")
	for {
		_, err := os.Stat(file)
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// percentile returns the smallest value that is not below a share of all values.
func percentile(values []float64, share float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)]
}

func main() {
	result, err := run(parseFlags())
	if err != nil {
		fmt.Fprintln(os.Stderr, "aggregator:", err)
		os.Exit(1)
	}
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		fmt.Fprintln(os.Stderr, "aggregator:", err)
		os.Exit(1)
	}
	fmt.Println(string(text))
}
