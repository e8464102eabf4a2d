package kubeclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

const (
	probeTimeout = 5 * time.Second
	// While the API server is unreachable, the delay between probes starts at minProbeDelay and
	// doubles up to maxProbeDelay. While it is reachable, the delay is maxProbeDelay.
	minProbeDelay = 100 * time.Millisecond
	maxProbeDelay = 10 * time.Second
	// maxProbeResponse bounds the response of the API server, in bytes.
	maxProbeResponse = 4 << 10
)

// Probe tracks whether the API server responds.
type Probe struct {
	log    *slog.Logger
	client *http.Client
	url    string

	mu            sync.Mutex // leaf lock
	failure       error
	loggedFailure bool          // the log says that the API server is unreachable
	ready         chan struct{} // closed after the first success
}

// NewProbe returns a probe that waits for its first response.
func NewProbe(config *rest.Config, log *slog.Logger) (*Probe, error) {
	config = rest.CopyConfig(config)
	config.Timeout = probeTimeout
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client for the API server: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("address of the API server: %w", err)
	}
	return &Probe{
		log:     log,
		client:  client,
		url:     strings.TrimSuffix(base.String(), "/") + "/readyz",
		failure: errors.New("not probed yet"),
		ready:   make(chan struct{}),
	}, nil
}

// Check is a health check. It fails with the reason why the API server is not reachable.
func (p *Probe) Check(*http.Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure != nil {
		return fmt.Errorf("waiting for the API server: %w", p.failure)
	}
	return nil
}

// Ready returns a channel that is closed after the API server has responded.
func (p *Probe) Ready() <-chan struct{} { return p.ready }

// Run probes until ctx ends, and returns the error of ctx.
func (p *Probe) Run(ctx context.Context) error {
	defer p.client.CloseIdleConnections()
	pause := minProbeDelay
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		err := p.sendRequest(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		wasDown := p.recordResult(err)
		switch {
		case err == nil:
			pause = maxProbeDelay
		case !wasDown:
			pause = minProbeDelay
		default:
			pause = min(2*pause, maxProbeDelay)
		}
		timer.Reset(pause)
	}
}

// recordResult records a result and logs it if it is new. It reports whether the API server was
// unreachable before.
func (p *Probe) recordResult(err error) (wasDown bool) {
	p.mu.Lock()
	previous, wasLogged := p.failure, p.loggedFailure
	p.failure = err
	p.loggedFailure = err != nil
	if err == nil {
		select {
		case <-p.ready:
		default:
			close(p.ready)
		}
	}
	p.mu.Unlock()
	switch {
	case err == nil && wasLogged:
		p.log.Info("API server reached", "url", p.url)
	case err != nil && (previous == nil || previous.Error() != err.Error()):
		p.log.Info("waiting for the API server", "url", p.url, "error", err)
	}
	return previous != nil
}

// sendRequest sends a request to the API server. It returns an error if the server fails or rejects
// the credentials.
func (p *Probe) sendRequest(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := drainResponse(resp); err != nil {
		return err
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusForbidden:
		// The server accepts the credentials; permissions are checked elsewhere.
		return nil
	case http.StatusUnauthorized:
		return fmt.Errorf("%s rejected the client credentials (status 401)", p.url)
	}
	return fmt.Errorf("%s returned status %d", p.url, resp.StatusCode)
}

// drainResponse reads a bounded response to its end, so that the connection is reused.
func drainResponse(resp *http.Response) error {
	_, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxProbeResponse))
	return err
}
