package tracing

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const (
	defaultEndpoint = "localhost:4317"
	exportPath      = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
	// The pause after a temporary failure starts at minRetryDelay and doubles up to maxRetryDelay.
	minRetryDelay = time.Second
	maxRetryDelay = 4 * time.Second
	// connectTimeout bounds the time until the collector accepts a connection, idleTimeout is how
	// long an unused one is kept.
	connectTimeout = 5 * time.Second
	idleTimeout    = 5 * time.Minute
	// maxResponse bounds the response of the collector in bytes.
	maxResponse = 1 << 20
)

// codeOK is the status code of gRPC for success.
const codeOK = "0"

// retryableCodes holds the status codes of gRPC after which the collector may accept the spans
// later: CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE and DATA_LOSS (OTLP
// specification).
var retryableCodes = map[string]bool{"1": true, "4": true, "10": true, "11": true, "14": true, "15": true}

// client sends spans by OTLP over gRPC without TLS. An export is one unary call, which is an HTTP/2
// request whose status is in its trailers, so it needs no gRPC library. It implements
// otlptrace.Client.
type client struct {
	transport *http.Transport
	url       string
}

// newClient returns a client of the collector at endpoint, which checkEndpoint accepts. A nil dial
// connects directly.
func newClient(endpoint string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *client {
	network, address := dialTarget(endpoint)
	if dial == nil || network != "tcp" {
		dial = (&net.Dialer{Timeout: connectTimeout}).DialContext
	}
	c := &client{url: (&url.URL{Scheme: "http", Host: "localhost", Path: exportPath}).String()}
	if network == "tcp" {
		c.url = (&url.URL{Scheme: "http", Host: address, Path: exportPath}).String()
	}
	c.transport = &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, network, address) },
		Protocols:       new(http.Protocols),
		IdleConnTimeout: idleTimeout,
	}
	c.transport.Protocols.SetUnencryptedHTTP2(true)
	return c
}

// dialTarget returns the network and the address of an endpoint: host:port, or the name of a gRPC
// target, SCHEME:[//AUTHORITY/]ADDRESS. The authority of dns, a name server, is not used.
func dialTarget(endpoint string) (network, address string) {
	scheme, remaining, ok := strings.Cut(endpoint, ":")
	switch {
	case ok && scheme == "unix":
		return "unix", strings.TrimPrefix(remaining, "//")
	case ok && scheme == "unix-abstract":
		return "unix", "@" + strings.TrimPrefix(remaining, "//")
	case ok && scheme == "dns":
		endpoint = remaining
		if after, ok := strings.CutPrefix(remaining, "//"); ok {
			_, endpoint, _ = strings.Cut(after, "/")
		}
	}
	if _, _, err := net.SplitHostPort(endpoint); err != nil {
		return "tcp", net.JoinHostPort(strings.Trim(endpoint, "[]"), "443") // the default of gRPC
	}
	return "tcp", endpoint
}

// Start implements otlptrace.Client. The first export connects.
func (c *client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *client) Stop(context.Context) error {
	c.transport.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. It retries for exportTimeout.
func (c *client) UploadTraces(ctx context.Context, spans []*tracev1.ResourceSpans) error {
	// TracesData and the request of Export have the same encoding.
	message, err := proto.Marshal(&tracev1.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	frame := make([]byte, 5, 5+len(message)) // one byte for compression: none
	binary.BigEndian.PutUint32(frame[1:], uint32(len(message)))
	frame = append(frame, message...)
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	for pause := minRetryDelay; ; pause = min(2*pause, maxRetryDelay) {
		temporary, err := c.exportOnce(ctx, frame)
		if err == nil || !temporary {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// exportOnce sends a gRPC frame once. temporary reports whether a later attempt may succeed.
func (c *client) exportOnce(ctx context.Context, frame []byte) (temporary bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(frame))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return true, err
	case n > maxResponse:
		return false, errors.New("the response of the trace collector is too long")
	case resp.StatusCode != http.StatusOK:
		return resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusBadGateway,
			fmt.Errorf("the trace collector returned status %d", resp.StatusCode)
	}
	trailer := resp.Trailer
	if resp.Header.Get("Grpc-Status") != "" { // a response of headers only
		trailer = resp.Header
	}
	code := trailer.Get("Grpc-Status")
	if code == codeOK {
		return false, nil
	}
	message := trailer.Get("Grpc-Message")
	if text, err := url.PathUnescape(message); err == nil {
		message = text
	}
	return retryableCodes[code], fmt.Errorf("the trace collector returned gRPC status %q: %s", code, message)
}
