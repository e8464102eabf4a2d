// Package tracingtest provides a collector of traces for tests: a gRPC server for OTLP.
package tracingtest

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/grpc"
)

// Span is a received span.
type Span struct {
	Trace, ID, Parent string // in hex; Parent is empty for the first span of a trace
	Links             []string
	Service, Instance string
	Name              string
	Attributes        map[string]string
	Events            []string
}

// Collector receives spans.
type Collector struct {
	collector.UnimplementedTraceServiceServer
	Endpoint string

	mu           sync.Mutex // leaf lock
	spans        []Span
	spansArrived chan struct{} // closed when spans arrive
	hanging      bool
}

// Start starts a collector, until the test ends.
func Start(t testing.TB) *Collector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := &Collector{Endpoint: listener.Addr().String(), spansArrived: make(chan struct{})}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, started)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return started
}

// Hang makes the collector accept calls without responding.
func (c *Collector) Hang() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hanging = true
}

// Export implements the service.
func (c *Collector) Export(ctx context.Context,
	request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	hang := c.hanging
	c.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resourceSpans := range request.GetResourceSpans() {
		resourceAttributes := attributeValues(resourceSpans.GetResource().GetAttributes())
		for _, scopeSpans := range resourceSpans.GetScopeSpans() {
			for _, received := range scopeSpans.GetSpans() {
				span := Span{
					Trace:      hex.EncodeToString(received.GetTraceId()),
					ID:         hex.EncodeToString(received.GetSpanId()),
					Parent:     hex.EncodeToString(received.GetParentSpanId()),
					Service:    resourceAttributes["service.name"],
					Instance:   resourceAttributes["service.instance.id"],
					Name:       received.GetName(),
					Attributes: attributeValues(received.GetAttributes()),
				}
				for _, link := range received.GetLinks() {
					span.Links = append(span.Links, hex.EncodeToString(link.GetTraceId()))
				}
				for _, event := range received.GetEvents() {
					span.Events = append(span.Events, event.GetName())
				}
				c.spans = append(c.spans, span)
			}
		}
	}
	close(c.spansArrived)
	c.spansArrived = make(chan struct{})
	return &collector.ExportTraceServiceResponse{}, nil
}

func attributeValues(attributes []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, keyValue := range attributes {
		switch v := keyValue.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			out[keyValue.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			out[keyValue.GetKey()] = fmt.Sprint(v.IntValue)
		default:
			out[keyValue.GetKey()] = keyValue.GetValue().String()
		}
	}
	return out
}

// Spans returns the spans received so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Wait blocks until the received spans satisfy a condition, and returns them.
func (c *Collector) Wait(t testing.TB, enough func([]Span) bool) []Span {
	t.Helper()
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	for {
		c.mu.Lock()
		spans, arrived := append([]Span(nil), c.spans...), c.spansArrived
		c.mu.Unlock()
		if enough(spans) {
			return spans
		}
		select {
		case <-arrived:
		case <-timeout.C:
			t.Fatalf("timed out; received spans: %+v", spans)
		}
	}
}

// Config writes a configuration that sends all spans to the collector, and returns its file name.
func (c *Collector) Config(t testing.TB) string {
	t.Helper()
	return File(t, fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\nendpoint: %s\nsamplingRatePerMillion: 1000000\n", c.Endpoint))
}

// File writes a configuration and returns its file name.
func File(t testing.TB, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tracing.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
